//! The limits of the groups of a queue, and how operations change them while the queue is in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicI8, Ordering};

use flyball_workqueue::Fair;
use testkit::oracle::limiter::OracleQuota;
use testkit::oracle::order::{GroupLimits, OrderKind};
use testkit::queue_setup::SmallKey;

use crate::queue::driver::quota_of;
use crate::queue::orders::group;

/// Two groups. In a queue with groups, an operation that sets a priority changes the limits of the first group instead. A negative priority suspends
/// the group, a positive one sets its capacity to 0, and 0 restores the initial limits. If the groups have rates, a negative priority changes the rate
/// of the first group instead, and a positive one removes it.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    built: [GroupLimits; 2],
    /// The other rate of the first group.
    other_rate: Option<OracleQuota>,
    priority: Arc<AtomicI8>,
}

impl Groups {
    pub(crate) fn new(built: [GroupLimits; 2]) -> Self {
        Self { built, other_rate: None, priority: Arc::default() }
    }

    /// Groups with rates, which `choice` selects.
    pub(crate) fn rated(mut built: [GroupLimits; 2], choice: u8) -> Self {
        const RATES: [(u16, u8); 4] = [(1, 5), (2, 7), (3, 1), (1, 40)];
        let quota = |choice: u8, burst: u8| {
            let (tokens, nanos) = RATES[usize::from(choice % 4)];
            OracleQuota::per_nanos(tokens, nanos, burst)
        };
        built[0].rate = Some(quota(choice, choice / 4 % 2 + 1));
        built[1].rate = Some(quota(choice / 8, choice / 32 % 3)).filter(|_| choice / 64 != 0);
        Self { other_rate: Some(quota(choice / 2, choice / 16 % 4)), ..Self::new(built) }
    }

    pub(crate) fn order(&self) -> Fair<SmallKey, usize> {
        let of = |groups: &Self| {
            let groups = groups.clone();
            move |group: usize| groups.limits(group)
        };
        let (weights, leases, keys, rates) = (of(self), of(self), of(self), of(self));
        let fair = Fair::by_group(|key: &SmallKey| group(*key))
            .weight(move |group| weights(*group).weight)
            .max_leased(move |group| leases(*group).leases)
            .capacity(move |group| keys(*group).keys);
        match self.other_rate {
            Some(_) => fair.rate(move |group| rates(*group).rate.map(quota_of)),
            None => fair,
        }
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
            0 => limits,
            ..0 if self.other_rate.is_some() => GroupLimits { rate: self.other_rate, ..limits },
            1.. if self.other_rate.is_some() => GroupLimits { rate: None, ..limits },
            ..0 => GroupLimits { leases: 0, ..limits },
            1.. => GroupLimits { keys: 0, ..limits },
        }
    }
}
