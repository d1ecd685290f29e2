//! PURE. A schedule of tokens that arrive at a steady rate. Tokens can be taken for any future time, in any order.
//!
//! A token bucket stores only the time at which it is full again, so a reservation for a later time delays all reservations made after it. Here the
//! tokens are numbered, and each is taken or free. Token n arrives when time × rate reaches n + 1 − burst, and expires when time × rate reaches
//! n + 1. So at any time exactly `burst` tokens have arrived and have not expired, whether they are taken or free.
//!
//! # Invariants
//! 1. No number is taken twice.
//! 2. A token is due no earlier than requested, no earlier than it arrives, and before it expires.
//! 3. Hence, between two changes of the quota, at most burst + rate × d taken tokens (rounded up to a whole token) are due in
//!    any d nanoseconds. Proof: at a rate of at most one token per nanosecond, a token
//!    due at t has a number from ⌊t × rate⌋ to below ⌊t × rate⌋ + burst, and all numbers differ. (At a higher rate, a token may
//!    be late by a part of a nanosecond.)
//! 4. The ranges in `taken` are not empty and do not touch; there are at most [`MOST_RANGES`].
//! 5. `first_open` only grows between two changes of the quota: after a clock has jumped back, no token becomes available again.
//!
//! The taken tokens are stored as ranges of numbers: consecutive taken tokens are one range, and a token that is taken far ahead is a range of its
//! own. Taking a token is O(log ranges). Rejected: a token bucket whose token is given back if the key's own wait is longer. Such
//! a bucket would stay full and limit nothing as long as every key's own wait is longer: 1000 keys with a wait of one second would run 1000 times per
//! second in total, whatever the budget.

use std::collections::BTreeMap;
use std::fmt;

use flyball_sync::Nanos;

use crate::bucket::quota::Quota;

pub(crate) struct TokenSchedule {
    quota: Quota,
    /// The time of the last change of the quota. At this time, token 0 is the oldest token of a full burst.
    origin: Nanos,
    /// Tokens with lower numbers are no longer handed out.
    first_open: u128,
    /// Ranges of taken numbers. Maps the first number of each range to the number after its last.
    taken: BTreeMap<u128, u128>,
}

// === impl TokenSchedule ===

impl TokenSchedule {
    pub(crate) const fn new(quota: Quota) -> Self {
        Self { quota, origin: Nanos::ZERO, first_open: 0, taken: BTreeMap::new() }
    }

    /// Takes the first free token that is due at `at` or later, and returns the time at which it is due.
    pub(crate) fn take_from(&mut self, at: Nanos, now: Nanos) -> Nanos {
        self.drop_past_ranges(now);
        // The search starts at the oldest token that is still available at `at`, because this token expires first.
        let number = self.first_free(self.oldest(at));
        let due = self.arrives_at(number).max(at);
        // `Nanos::MAX` means never, so a token that is due then is not recorded.
        if due < Nanos::MAX {
            self.take(number, number + 1);
        }
        due
    }

    /// Changes rate and burst from `now` on; O(ranges).
    ///
    /// Available tokens stay available, the newest first, up to the new burst; a larger burst fills up at the new rate. Reserved tokens keep their
    /// due times. If too few tokens arrive by these times at the new rate, the reserved tokens use up tokens that arrive later, so new reservations
    /// are due later. The part of a token that has arrived so far is lost, so that repeated changes gain nothing.
    pub(crate) fn set_quota(&mut self, quota: Quota, now: Nanos) {
        if quota == self.quota {
            return;
        }
        self.drop_past_ranges(now);
        let old = Self { taken: std::mem::take(&mut self.taken), ..*self };
        (self.quota, self.origin, self.first_open) = (quota, now, 0);
        let (had, has) = (old.burst(), self.burst());
        // The numbers of the old stream that are available now: from `oldest` to below `ahead`.
        let oldest = old.oldest(now);
        let ahead = oldest + had;
        // The newest available token of the old stream becomes the newest available token of the new stream.
        let here = |number: u128| (number.clamp(oldest, ahead) - oldest + has).saturating_sub(had);
        let later = |this: &Self, number| this.first_not_before(old.arrives_at(number));
        self.first_open =
            if old.first_open <= ahead { here(old.first_open) } else { later(self, old.first_open) };
        for (first, end) in old.taken.iter().map(|(first, end)| ((*first).max(old.first_open), *end)) {
            self.take(here(first), here(end));
            let first = first.max(ahead);
            if first < end {
                let behind = self.taken.last_key_value().map_or(has, |(_, end)| has.max(*end));
                let at = later(self, first).max(behind);
                self.take(at, at + (end - first));
            }
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let mut free_from = None;
        for (first, end) in &self.taken {
            if first >= end || free_from.is_some_and(|free| free >= *first) {
                return Err(format!("invariant 4: {first}..{end} after {free_from:?}"));
            }
            free_from = Some(*end);
        }
        if self.taken.len() > MOST_RANGES {
            return Err(format!("invariant 4: {} ranges", self.taken.len()));
        }
        Ok(())
    }

    /// Removes up to two expired ranges. Called for each token taken, which adds at most one range. So expired ranges do not accumulate.
    fn drop_past_ranges(&mut self, now: Nanos) {
        self.first_open = self.first_open.max(self.oldest(now));
        for _ in 0..2 {
            match self.taken.first_entry() {
                Some(range) if *range.get() <= self.first_open => _ = range.remove(),
                _ => return,
            }
        }
    }

    /// Returns the first free number from `number` on.
    fn first_free(&self, number: u128) -> u128 {
        let number = number.max(self.first_open);
        // Ranges do not touch, so the number after a range is free.
        self.taken.range(..=number).next_back().map_or(number, |(_, end)| number.max(*end))
    }

    /// Marks the free numbers from `first` to below `end` as taken.
    fn take(&mut self, mut first: u128, mut end: u128) {
        if first >= end {
            return;
        }
        if let Some((&before, _)) = self.taken.range(..first).next_back().filter(|(_, end)| **end >= first) {
            self.taken.remove(&before);
            first = before;
        }
        if let Some(after) = self.taken.remove(&end) {
            end = after;
        }
        self.taken.insert(first, end);
        self.limit_ranges();
    }

    /// If there are too many ranges, marks the free tokens between the first two as taken: this never exceeds the
    /// budget, and bounds the memory.
    fn limit_ranges(&mut self) {
        while self.taken.len() > MOST_RANGES {
            if let (Some((first, _)), Some((_, end))) = (self.taken.pop_first(), self.taken.pop_first()) {
                self.taken.insert(first, end);
            }
        }
    }

    /// Returns the oldest number that is available at `at`.
    fn oldest(&self, at: Nanos) -> u128 {
        let nanos = u128::from(at.get().saturating_sub(self.origin.get()));
        nanos * self.tokens() / self.period()
    }

    /// Returns the time at which token `number` arrives.
    fn arrives_at(&self, number: u128) -> Nanos {
        let Some(ahead) = (number + 1).checked_sub(self.burst()) else { return self.origin };
        // Numbers are at most 2^97: the tokens up to the end of time, plus those reserved before it. Their product with the period
        // could exceed 2^128; on overflow the result is `Nanos::MAX`, which means never.
        let nanos = ahead.checked_mul(self.period()).map(|parts| parts.div_ceil(self.tokens()));
        let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok()).unwrap_or(u64::MAX);
        Nanos::new(self.origin.get().saturating_add(nanos))
    }

    /// Returns the first number that arrives at `at` or later.
    fn first_not_before(&self, at: Nanos) -> u128 {
        // Arrival times are rounded up to whole nanoseconds, so the exact arrival time of this token is after `at` − 1.
        let ahead = match at.get().saturating_sub(self.origin.get()) {
            0 => 0,
            nanos => u128::from(nanos - 1) * self.tokens() / self.period() + 1,
        };
        (ahead + self.burst()).saturating_sub(1)
    }

    fn tokens(&self) -> u128 {
        self.quota.tokens().get().into()
    }

    fn period(&self) -> u128 {
        self.quota.period_nanos().into()
    }

    fn burst(&self) -> u128 {
        self.quota.burst_size().get().into()
    }
}

impl fmt::Debug for TokenSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSchedule")
            .field("quota", &self.quota)
            .field("ranges", &self.taken.len())
            .finish()
    }
}

/// Limits the memory to about 50 MB.
const MOST_RANGES: usize = 1 << 20;
