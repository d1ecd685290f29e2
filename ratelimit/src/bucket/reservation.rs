//! PURE. Tokens taken ahead of time.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::Nanos;

/// Tokens that were taken ahead of time, to be used when they are due.
///
/// It is a value without a lifetime, so it can be stored beside whatever waits for it. Dropping it uses the tokens; to give
/// them back, pass it to `cancel` of the bucket, limiter or policy that made it. Cancelled elsewhere, it gives tokens to a bucket
/// that never lost them.
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
/// assert_eq!(second.count(), NonZeroU32::MIN); // of `reserve_many`, as many as it was asked for
/// ```
#[derive(Debug)]
#[must_use = "dropping a reservation uses its tokens: wait until they are due, or cancel it"]
pub struct Reservation {
    due: Nanos,
    /// The owner's count of changes after which nothing reserved before can be given back.
    change: u64,
    count: NonZeroU32,
    /// Which of the tokens that can be due then, where they have numbers: see `schedule.rs`.
    place: u32,
}

impl Reservation {
    pub(crate) const fn new(count: NonZeroU32, due: Nanos, change: u64) -> Self {
        Self { due, change, count, place: 0 }
    }

    pub(crate) const fn at_place(self, place: u32) -> Self {
        Self { place, ..self }
    }

    /// When the tokens may be used, on the clock of the bucket; [`Nanos::MAX`] is never.
    #[must_use]
    pub const fn due(&self) -> Nanos {
        self.due
    }

    /// How many tokens it stands for.
    #[must_use]
    pub const fn count(&self) -> NonZeroU32 {
        self.count
    }

    /// How long until the tokens may be used; zero once they are due.
    #[must_use]
    pub fn delay(&self, now: Nanos) -> Duration {
        self.due.since(now)
    }

    pub(crate) const fn place(&self) -> u32 {
        self.place
    }

    /// Whether it may still be given back: neither have its tokens been usable, nor has anything changed that they depend on.
    pub(crate) fn is_open(&self, change: u64, now: Nanos) -> bool {
        self.change == change && self.due >= now && self.due < Nanos::MAX
    }
}
