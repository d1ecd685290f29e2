//! PURE. The errors of this crate.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use flyball_sync::Nanos;

/// The period of a quota is invalid: it is zero, or longer than 584 years.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{InvalidQuota, Quota};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let invalid: InvalidQuota = Quota::new(NonZeroU32::MIN, Duration::ZERO).unwrap_err();
/// assert_eq!(invalid.to_string(), "the period of a quota must be from 1 ns to 584 years, not 0ns");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidQuota(Duration);

impl InvalidQuota {
    pub(crate) const fn new(period: Duration) -> Self {
        Self(period)
    }
}

impl fmt::Display for InvalidQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the period of a quota must be from 1 ns to 584 years, not {:?}", self.0)
    }
}

impl std::error::Error for InvalidQuota {}

/// The range of waits of a backoff is invalid: it starts at zero, or its start is above its end.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Exponential, InvalidBackoff};
/// use std::time::Duration;
///
/// let seconds = Duration::from_secs;
/// let invalid: InvalidBackoff = Exponential::<&str>::try_new(seconds(60)..=seconds(1)).unwrap_err();
/// assert_eq!(invalid.to_string(), "a backoff needs 0 < base <= cap, not base 60s and cap 1s");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidBackoff(RangeInclusive<Duration>);

impl InvalidBackoff {
    pub(crate) const fn new(waits: RangeInclusive<Duration>) -> Self {
        Self(waits)
    }
}

impl fmt::Display for InvalidBackoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base, cap) = (self.0.start(), self.0.end());
        write!(f, "a backoff needs 0 < base <= cap, not base {base:?} and cap {cap:?}")
    }
}

impl std::error::Error for InvalidBackoff {}

/// The range of a concurrency limit is invalid: it starts at zero, or its start is above its end.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{AimdLimit, InvalidConcurrencyLimits};
/// use std::time::Duration;
///
/// let invalid: InvalidConcurrencyLimits = AimdLimit::try_new(0..=10, Duration::from_millis(200)).unwrap_err();
/// assert_eq!(invalid.to_string(), "a concurrency limit needs 1 <= min <= max, not 0 and 10");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidConcurrencyLimits(RangeInclusive<u32>);

impl InvalidConcurrencyLimits {
    pub(crate) const fn new(limits: RangeInclusive<u32>) -> Self {
        Self(limits)
    }
}

impl fmt::Display for InvalidConcurrencyLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (self.0.start(), self.0.end());
        write!(f, "a concurrency limit needs 1 <= min <= max, not {least} and {most}")
    }
}

impl std::error::Error for InvalidConcurrencyLimits {}

/// Not enough tokens are available yet.
///
/// The error contains the time after which the tokens will be available if no other call takes any; they are due at the same time
/// for all successive calls that request the same number and are denied. To give each call its own time, reserve tokens.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{KeyedRateLimiter, ManualClock, Quota};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let clients = KeyedRateLimiter::with_clock(Quota::per_second(NonZeroU32::MIN), ManualClock::new());
/// clients.try_acquire(&"ann")?;
/// let not_yet = clients.try_acquire(&"ann").unwrap_err();
/// assert_eq!(not_yet.retry_after(), Duration::from_secs(1));
/// assert_eq!(not_yet.to_string(), "not enough tokens yet: retry after 1s");
/// # Ok::<(), flyball_ratelimit::NotYet>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotYet {
    due: Nanos,
    now: Nanos,
}

impl NotYet {
    pub(crate) const fn new(due: Nanos, now: Nanos) -> Self {
        Self { due, now }
    }

    /// The time at which the tokens will be available, on the clock of the bucket.
    pub(crate) const fn due(&self) -> Nanos {
        self.due
    }

    /// The time from the denied call until the tokens will be available.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.due.since(self.now)
    }
}

impl fmt::Display for NotYet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not enough tokens yet: retry after {:?}", self.retry_after())
    }
}

impl std::error::Error for NotYet {}

/// More tokens were requested than the burst, so they can never be granted together.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{InsufficientCapacity, Nanos, Quota, TokenBucket};
/// use std::num::NonZeroU32;
///
/// let (five, six) = (NonZeroU32::new(5).unwrap(), NonZeroU32::new(6).unwrap());
/// let mut bucket = TokenBucket::new(Quota::per_second(five));
/// let error: InsufficientCapacity = bucket.reserve_many(six, Nanos::ZERO).unwrap_err();
/// assert_eq!(error.burst(), five);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsufficientCapacity {
    requested: NonZeroU32,
    burst: NonZeroU32,
}

impl InsufficientCapacity {
    pub(crate) const fn new(requested: NonZeroU32, burst: NonZeroU32) -> Self {
        Self { requested, burst }
    }

    /// The burst of the current quota: the maximum number of tokens granted together.
    #[must_use]
    pub const fn burst(&self) -> NonZeroU32 {
        self.burst
    }
}

impl fmt::Display for InsufficientCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens requested at once, but the burst size is {}", self.requested, self.burst)
    }
}

impl std::error::Error for InsufficientCapacity {}

/// The reason why several tokens were not taken.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Nanos, Quota, TokenBucket, TryAcquireError};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let count = |n| NonZeroU32::new(n).unwrap();
/// let mut bucket = TokenBucket::new(Quota::per_second(count(5)));
/// let mut wait = |n| match bucket.try_acquire_many(count(n), Nanos::ZERO) {
///     Ok(()) => Some(Duration::ZERO),
///     Err(TryAcquireError::NotYet(error)) => Some(error.retry_after()),
///     Err(TryAcquireError::InsufficientCapacity(_)) => None, // can never be granted: request fewer
/// };
/// assert_eq!(wait(4), Some(Duration::ZERO));
/// assert_eq!(wait(3), Some(Duration::from_millis(400)));
/// assert_eq!(wait(6), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryAcquireError {
    /// The tokens are not available yet; the error contains the time at which they will be.
    NotYet(NotYet),
    /// The tokens can never be granted together.
    InsufficientCapacity(InsufficientCapacity),
}

impl From<InsufficientCapacity> for TryAcquireError {
    fn from(error: InsufficientCapacity) -> Self {
        Self::InsufficientCapacity(error)
    }
}

impl From<NotYet> for TryAcquireError {
    fn from(error: NotYet) -> Self {
        Self::NotYet(error)
    }
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotYet(error) => error.fmt(f),
            Self::InsufficientCapacity(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TryAcquireError {}
