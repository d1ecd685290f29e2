//! SHELL. A failure whose share of common budgets can still be given back.
//!
//! It guards nothing by itself: what it holds belongs to it alone, and `cancel` takes the limiter's lock once.

use std::fmt;
use std::time::Duration;

use crate::{Clock, Limiter, Policy};

/// A counted failure whose share of common budgets, such as a bucket's token, can still be given back.
///
/// Dropping it keeps the share: the key will come back after the [`delay`](Self::delay).
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Limiter, ManualClock, Quota, TokenBucket};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let bucket = TokenBucket::new(Quota::per_second(NonZeroU32::MIN));
/// let limiter = Limiter::with_clock(bucket, ManualClock::new());
/// assert_eq!(limiter.record_failure(&"a"), Duration::ZERO);
/// let second = limiter.reserve(&"b");
/// assert_eq!(second.delay(), Duration::from_secs(1));
/// second.cancel(); // "b" was deleted meanwhile
/// assert_eq!(limiter.record_failure(&"c"), Duration::from_secs(1));
/// ```
#[must_use = "dropping a reservation keeps what it took"]
pub struct Reservation<'a, K, P: Policy<K>, C = crate::Monotonic> {
    limiter: &'a Limiter<K, P, C>,
    delay: Duration,
    taken: P::Taken,
}

// === impl Reservation ===

impl<'a, K, P: Policy<K>, C: Clock> Reservation<'a, K, P, C> {
    pub(crate) fn new(limiter: &'a Limiter<K, P, C>, delay: Duration, taken: P::Taken) -> Self {
        Self { limiter, delay, taken }
    }

    /// How long the key has to wait, from when it was reserved.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Gives back what can still be used by somebody else, as [`TokenBucket::give_back`](crate::TokenBucket::give_back)
    /// says. The failure stays counted: [`forget`](Limiter::forget) is for that.
    pub fn cancel(self) {
        self.limiter.give_back(self.taken);
    }
}

impl<K, P: Policy<K>, C> fmt::Debug for Reservation<'_, K, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("delay", &self.delay).finish_non_exhaustive()
    }
}
