//! What holds for the groups of a driven queue, and what may change it while it lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicI8, Ordering};

use flyball_workqueue::Fair;
use testkit::oracle::order::{GroupLimits, Sharing};
use testkit::queue_setup::SmallKey;

use crate::queue::orders::group;

/// Two groups. Where priorities are asked for, that turns the first one's limits: a low one suspends it, a high one leaves it no
/// room, and 0 is as it was built.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    built: [GroupLimits; 2],
    asked: Arc<AtomicI8>,
}

impl Groups {
    pub(crate) fn new(built: [GroupLimits; 2]) -> Self {
        Self { built, asked: Arc::default() }
    }

    pub(crate) fn order(&self) -> Fair<SmallKey, usize> {
        let of = |groups: &Self| {
            let groups = groups.clone();
            move |group: usize| groups.limits(group)
        };
        let (weights, leases, keys) = (of(self), of(self), of(self));
        Fair::by_group(|key: &SmallKey| group(*key))
            .weight_by(move |group| weights(*group).weight)
            .max_leased_by(move |group| leases(*group).leases)
            .capacity_by(move |group| keys(*group).keys)
    }

    pub(crate) fn sharing(&self) -> Sharing {
        Sharing::Fair([self.limits(0), self.limits(1)])
    }

    /// Gives what holds for the first group from now on.
    pub(crate) fn ask(&self, priority: i8) -> GroupLimits {
        self.asked.store(priority, Ordering::Relaxed);
        self.limits(0)
    }

    fn limits(&self, group: usize) -> GroupLimits {
        let limits = self.built[group];
        match self.asked.load(Ordering::Relaxed) {
            _ if group != 0 => limits,
            ..0 => GroupLimits { leases: 0, ..limits },
            0 => limits,
            1.. => GroupLimits { keys: 0, ..limits },
        }
    }
}
