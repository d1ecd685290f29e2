//! The oracle of the rate of a group: a list of the hand-outs since the rate was set, from which it counts every window.

use crate::oracle::limiter::OracleQuota;
use crate::queue_answers::Time;

/// The rate of a group. All amounts are in parts of a token. If the quota in lowest terms is `tokens` per `period` nanoseconds, a token consists of
/// `period` parts, and `tokens` parts arrive per nanosecond.
#[derive(Clone, Debug)]
pub struct OracleRate {
    quota: OracleQuota,
    /// The time at which the rate was set, and what was available then.
    set: Time,
    start: u128,
    hand_outs: Vec<Time>,
}

impl OracleRate {
    /// A rate that has allowed no hand-out yet.
    #[must_use]
    pub fn new(quota: OracleQuota, now: Time) -> Self {
        let mut own = Self { quota, set: now, start: 0, hand_outs: Vec::new() };
        own.start = own.burst();
        own
    }

    /// Changes the quota. Windows count from now. What is available stays available, up to the new burst; if everything was available, it still is.
    pub fn set_quota(&mut self, quota: OracleQuota, now: Time) {
        let mut new = Self::new(quota, now);
        let missing = self.burst() - self.available(now);
        if missing > 0 {
            let missing = (missing * new.token()).div_ceil(self.token()) + new.burst();
            new.start = new.burst() - missing.saturating_sub(u128::from(self.quota.burst()) * new.token());
        }
        *self = new;
    }

    /// Counts a hand-out.
    ///
    /// # Panics
    /// Panics if a window would contain more hand-outs than burst + rate × time.
    pub fn hand_out(&mut self, now: Time) {
        assert!(self.tokens(now) > 0, "at {now}: too many hand-outs in a window: {self:?}");
        self.hand_outs.push(now);
    }

    /// How many more keys can be handed out now.
    #[must_use]
    pub fn tokens(&self, now: Time) -> usize {
        (self.available(now) / self.token()) as usize
    }

    /// Whether the whole burst can be handed out now.
    #[must_use]
    pub fn is_full(&self, now: Time) -> bool {
        self.available(now) == self.burst()
    }

    /// The first time at which `count` keys can be handed out, if none is handed out before; `None` if they are more than the burst.
    #[must_use]
    pub fn next(&self, count: usize) -> Option<Time> {
        let wanted = count as u128 * self.token();
        if wanted > self.burst() {
            return None;
        }
        let allowed = self.windows().map(|(from, limit, used)| {
            let wait = (wanted + used).saturating_sub(limit).div_ceil(self.gain());
            from.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
        });
        allowed.max()
    }

    /// What is available now: as much as every window leaves.
    fn available(&self, now: Time) -> u128 {
        let left =
            |(from, limit, used): (Time, u128, u128)| limit + u128::from(now - from) * self.gain() - used;
        self.windows().map(left).min().unwrap_or(0).min(self.burst())
    }

    /// For each window that ends now: its begin, what it allows besides the tokens that arrive in it, and what was used in it. The first window begins
    /// when the rate was set, each other one at a hand-out.
    fn windows(&self) -> impl Iterator<Item = (Time, u128, u128)> {
        let all = self.hand_outs.len();
        let used = move |since: usize| (all - since) as u128 * self.token();
        let since = self.hand_outs.iter().enumerate().map(move |(i, at)| (*at, self.burst(), used(i)));
        since.chain([(self.set, self.start, used(0))])
    }

    fn burst(&self) -> u128 {
        u128::from(self.quota.burst()) * self.token()
    }

    fn token(&self) -> u128 {
        self.quota.in_lowest_terms().1.into()
    }

    fn gain(&self) -> u128 {
        self.quota.in_lowest_terms().0.into()
    }
}

#[test]
fn a_burst_is_followed_by_the_rate() {
    let mut rate = OracleRate::new(OracleQuota::per_nanos(1, 10, 2), 5);
    rate.hand_out(5);
    rate.hand_out(7);
    assert_eq!((rate.tokens(14), rate.next(1), rate.next(2), rate.next(3)), (0, Some(15), Some(25), None));
    assert!(!rate.is_full(24) && rate.is_full(25));
    // A token per 4 ns: of the old one, half has arrived.
    rate.set_quota(OracleQuota::per_nanos(1, 4, 1), 10);
    assert_eq!((rate.tokens(11), rate.next(1)), (0, Some(12)));
    assert!(std::panic::catch_unwind(move || rate.hand_out(11)).is_err());
}
