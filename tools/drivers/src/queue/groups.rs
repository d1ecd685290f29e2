//! The limits of the groups of a queue, and how operations change them while the queue is in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicI8, Ordering};

use flyball_workqueue::Fair;
use testkit::oracle::order::{GroupLimits, OrderKind};
use testkit::queue_setup::SmallKey;

use crate::queue::orders::group;

/// Two groups. In a queue with groups, an operation that sets a priority changes the limits of the first group instead. A negative priority suspends
/// the group, a positive one sets its capacity to 0, and 0 restores the initial limits.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    built: [GroupLimits; 2],
    priority: Arc<AtomicI8>,
}

impl Groups {
    pub(crate) fn new(built: [GroupLimits; 2]) -> Self {
        Self { built, priority: Arc::default() }
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

    pub(crate) fn kind(&self) -> OrderKind {
        OrderKind::Fair([self.limits(0), self.limits(1)])
    }

    /// Sets the limits of the first group, as `priority` selects them, and returns them.
    pub(crate) fn set_limits(&self, priority: i8) -> GroupLimits {
        self.priority.store(priority, Ordering::Relaxed);
        self.limits(0)
    }

    fn limits(&self, group: usize) -> GroupLimits {
        let limits = self.built[group];
        match self.priority.load(Ordering::Relaxed) {
            _ if group != 0 => limits,
            ..0 => GroupLimits { leases: 0, ..limits },
            0 => limits,
            1.. => GroupLimits { keys: 0, ..limits },
        }
    }
}
