//! The oracle of the retry budget. The tokens are numbered. The oracle stores the numbers of the taken tokens in a list, which it searches linearly.

use crate::oracle::limiter::OracleQuota;

/// The oracle of the retry budget: the numbers of the tokens that are taken.
#[derive(Clone, Debug)]
pub struct OracleRetryBudget {
    quota: OracleQuota,
    origin: u64,
    /// Tokens with numbers below this one are no longer granted.
    gone: u128,
    taken: Vec<u128>,
    bookings: Vec<Booking>,
}

#[derive(Clone, Copy, Debug)]
struct Booking {
    due: u64,
    /// Whether the quota has changed since the booking.
    closed: bool,
}

impl OracleRetryBudget {
    /// Creates a budget in which all tokens of the burst are available.
    #[must_use]
    pub fn new(quota: OracleQuota) -> Self {
        Self { quota, origin: 0, gone: 0, taken: Vec::new(), bookings: Vec::new() }
    }

    /// Of the tokens that are not taken and that are available at `at` or become available later, books the one with the lowest number. Returns the
    /// time at which the token is due.
    pub fn book(&mut self, at: u64, now: u64) -> u64 {
        self.gone = self.gone.max(self.oldest(now));
        let mut number = self.gone.max(self.oldest(at));
        while self.taken.contains(&number) {
            number += 1;
        }
        let due = self.comes(number).max(at);
        if due < u64::MAX {
            self.taken.push(number);
        }
        self.bookings.push(Booking { due, closed: false });
        due
    }

    /// Changes the quota. If the new burst is smaller, only the newest tokens are kept, as many as the new burst; those of them that were available
    /// stay available. Tokens that were booked for a later time stay booked.
    pub fn set_quota(&mut self, quota: OracleQuota, now: u64) {
        let old = self.clone();
        if (old.quota.tokens(), old.quota.period(), old.quota.burst())
            == (quota.tokens(), quota.period(), quota.burst())
        {
            return;
        }
        *self = Self { quota, origin: now, gone: 0, taken: Vec::new(), ..old.clone() };
        for booking in &mut self.bookings {
            booking.closed = true;
        }
        let oldest = old.oldest(now);
        let used = |number: u128| number < old.gone || old.taken.contains(&number);
        let (had, has) = (u128::from(old.quota.burst()), u128::from(quota.burst()));
        for age in 0..has {
            // Each token keeps its age. If the new burst is larger, its oldest tokens did not exist in the old burst, so they count as taken.
            if age >= had || used(oldest + had - 1 - age) {
                self.taken.push(has - 1 - age);
            }
        }
        if old.gone > oldest + had {
            // The clock was set back. Tokens that were no longer granted must not become available again.
            self.gone = self.not_before(0, old.comes(old.gone));
        }
        let from = old.gone.max(oldest + had);
        let mut ahead: Vec<u128> = old.taken.iter().copied().filter(|number| *number >= from).collect();
        ahead.sort_unstable();
        let mut before = None;
        for number in ahead {
            let behind = self.taken.iter().max().map_or(has, |last| has.max(last + 1));
            // Consecutive tokens stay consecutive.
            let in_row = number > 0 && before == Some(number - 1);
            let place = if in_row { behind } else { self.not_before(behind, old.comes(number)) };
            self.taken.push(place);
            before = Some(number);
        }
    }

    /// Checks that at most burst + rate × time tokens fall due in every span of time, where rate × time is rounded up.
    ///
    /// # Errors
    /// If more tokens fall due in a span of time, returns the due times of the first and the last of these tokens.
    pub fn within_rate(&self) -> Result<(), (u64, u64)> {
        let live = self.bookings.iter().filter(|b| !b.closed && b.due < u64::MAX);
        let mut due: Vec<u64> = live.map(|booking| booking.due).collect();
        due.sort_unstable();
        for (i, &first) in due.iter().enumerate() {
            for (j, &last) in due.iter().enumerate().skip(i) {
                let arrived = (u128::from(last - first) * u128::from(self.quota.tokens()))
                    .div_ceil(self.quota.period().into());
                if (j - i + 1) as u128 > u128::from(self.quota.burst()) + arrived {
                    return Err((first, last));
                }
            }
        }
        Ok(())
    }

    /// Returns the lowest token number, at least `place`, whose token becomes available at `at` or later.
    fn not_before(&self, mut place: u128, at: u64) -> u128 {
        let from = place;
        while self.comes(place) < at {
            // The time at which a token becomes available grows linearly with its number. So the first step almost reaches the result.
            place += 1 + self.tokens_within(at - self.comes(place));
        }
        while place > from && self.comes(place - 1) >= at {
            place -= 1;
        }
        place
    }

    fn tokens_within(&self, nanos: u64) -> u128 {
        u128::from(nanos) * u128::from(self.quota.tokens()) / u128::from(self.quota.period())
    }

    /// The number of the oldest token that is available at `at`.
    fn oldest(&self, at: u64) -> u128 {
        self.tokens_within(at.saturating_sub(self.origin))
    }

    fn comes(&self, number: u128) -> u64 {
        let ahead = (number + 1).saturating_sub(self.quota.burst().into());
        let nanos = (ahead * u128::from(self.quota.period())).div_ceil(self.quota.tokens().into());
        u64::try_from(nanos + u128::from(self.origin)).unwrap_or(u64::MAX)
    }
}
