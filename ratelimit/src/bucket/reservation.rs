//! PURE. Reservations: tokens taken ahead of time.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_sync::Nanos;

/// Tokens that were taken ahead of time, to be used once they are due.
///
/// A reservation is a value without a lifetime, so you can store it next to the operation that waits for it. A reservation that is dropped counts as
/// used. To give its tokens back, pass it to `cancel` of the bucket or limiter that created it; the `cancel` of a different bucket could add
/// tokens that were never taken from that bucket.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Nanos, Quota, Reservation, TokenBucket};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let mut bucket = TokenBucket::new(Quota::per_second(NonZeroU32::MIN));
/// let start = Nanos::ZERO;
/// let (first, second): (Reservation, Reservation) = (bucket.reserve(start), bucket.reserve(start));
/// assert_eq!((first.delay(start), second.delay(start)), (Duration::ZERO, Duration::from_secs(1)));
/// assert_eq!(second.delay(second.due()), Duration::ZERO);
/// ```
#[derive(Debug)]
#[must_use = "dropping a reservation uses its tokens: wait until they are due, or cancel it"]
pub struct Reservation {
    due: Nanos,
    /// The owner's count of changes at the time of the reservation. If the owner's count has grown since, the reservation cannot be given back.
    change: u64,
    count: NonZeroU32,
}

impl Reservation {
    pub(crate) const fn new(count: NonZeroU32, due: Nanos, change: u64) -> Self {
        Self { due, change, count }
    }

    /// The time from which the tokens may be used, on the clock of the bucket; [`Nanos::MAX`] means never.
    #[must_use]
    pub const fn due(&self) -> Nanos {
        self.due
    }

    /// The number of reserved tokens.
    pub(crate) const fn count(&self) -> NonZeroU32 {
        self.count
    }

    /// The time until the tokens may be used; zero once they are due.
    #[must_use]
    pub fn delay(&self, now: Nanos) -> Duration {
        self.due.since(now)
    }

    /// Returns whether the reservation can still be given back: the due time of its tokens has not passed, and no change has invalidated it.
    pub(crate) fn is_open(&self, change: u64, now: Nanos) -> bool {
        self.change == change && self.due >= now && self.due < Nanos::MAX
    }
}
