//! The oracle of a rate: the list of all tokens that were used, and a search of all windows.

use flyball_sync::Nanos;

use super::op::SmallQuota;

/// The tokens used since the last change of the quota, and since the last jump of the clock back: an *era*.
#[derive(Debug)]
pub(super) struct Uses {
    quota: SmallQuota,
    uses: Vec<Use>,
    era: u64,
}

/// Tokens that were used at a time in `from..=to`.
#[derive(Clone, Copy, Debug)]
struct Use {
    from: u64,
    to: u64,
    count: u32,
    id: u64,
}

/// Identifies the use of a reservation, to remove it if the reservation is cancelled.
#[derive(Clone, Copy, Debug)]
pub(super) struct UseId {
    era: u64,
    id: u64,
}

impl Uses {
    pub(super) fn new(quota: SmallQuota) -> Self {
        Self { quota, uses: Vec::new(), era: 0 }
    }

    pub(super) fn era(&self) -> u64 {
        self.era
    }

    pub(super) fn new_era(&mut self) {
        self.uses.clear();
        self.era += 1;
    }

    pub(super) fn set_quota(&mut self, quota: SmallQuota) {
        self.quota = quota;
        self.new_era();
    }

    pub(super) fn burst(&self) -> u32 {
        self.quota.burst
    }

    pub(super) fn add(&mut self, from: u64, to: u64, count: u32) -> UseId {
        let id = self.uses.last().map_or(0, |last| last.id + 1);
        let added = Use { from, to, count, id };
        self.uses.push(added);
        self.check(added);
        UseId { era: self.era, id }
    }

    /// Adds the use of a reservation. Its due time is rounded up to a whole nanosecond, and its tokens count as used before that.
    pub(super) fn reserve(&mut self, due: Nanos, count: u32) -> UseId {
        self.add(due.get().saturating_sub(1), due.get(), count)
    }

    pub(super) fn remove(&mut self, id: UseId) {
        if id.era == self.era {
            self.uses.retain(|used| used.id != id.id);
        }
    }

    /// Checks that no window that contains these tokens contains more than `burst` + rate × its length.
    fn check(&self, added: Use) {
        let SmallQuota { tokens, period, burst } = self.quota;
        for first in self.uses.iter().filter(|first| first.from <= added.from) {
            for last in self.uses.iter().filter(|last| last.to >= added.to) {
                let within = self.uses.iter().filter(|used| used.from >= first.from && used.to <= last.to);
                let used: u128 = within.map(|used| u128::from(used.count)).sum();
                let length = u128::from(last.to - first.from);
                let allowed = u128::from(burst) * u128::from(period) + length * u128::from(tokens);
                assert!(
                    used * u128::from(period) <= allowed,
                    "rate: {used} tokens from {} to {}, with {:?}: {:?}",
                    first.from,
                    last.to,
                    self.quota,
                    self.uses
                );
            }
        }
    }
}
