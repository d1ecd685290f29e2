//! PURE. Quotas: a rate and a burst.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use crate::error::InvalidQuota;

/// A quota: a number of tokens per period, and a burst, which is the maximum number of tokens granted together.
///
/// Tokens arrive evenly spread over the period, not all at its start. The rate is stored as the two integers that it
/// was created from, so it is never rounded. A quota of zero tokens cannot be created; an operation that is never
/// allowed needs no quota.
///
/// # Examples
/// ```
/// use flyball_ratelimit::Quota;
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// const TEN: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// const HUNDRED: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// const STEADY: Quota = Quota::per_second(TEN).allow_burst(HUNDRED);
/// assert_eq!(STEADY.tokens(), TEN);
/// assert_eq!(Quota::per_minute(TEN).burst_size(), TEN);
/// assert_eq!(Quota::per_hour(TEN).period(), Duration::from_secs(3_600));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    tokens: NonZeroU32,
    period_nanos: NonZeroU64,
    burst: NonZeroU32,
}

impl Quota {
    /// Creates a quota of `tokens` per second. The burst is `tokens`, unless [`allow_burst`](Self::allow_burst) changes
    /// it. A new bucket is full, so up to twice `tokens` are granted in the first second; for an even rate, use
    /// `allow_burst(NonZeroU32::MIN)`.
    #[must_use]
    pub const fn per_second(tokens: NonZeroU32) -> Self {
        Self { tokens, period_nanos: SECOND, burst: tokens }
    }

    /// Creates a quota of `tokens` per minute. The burst is `tokens`, unless [`allow_burst`](Self::allow_burst) changes
    /// it.
    #[must_use]
    pub const fn per_minute(tokens: NonZeroU32) -> Self {
        Self { tokens, period_nanos: MINUTE, burst: tokens }
    }

    /// Creates a quota of `tokens` per hour. The burst is `tokens`, unless [`allow_burst`](Self::allow_burst) changes
    /// it.
    #[must_use]
    pub const fn per_hour(tokens: NonZeroU32) -> Self {
        Self { tokens, period_nanos: HOUR, burst: tokens }
    }

    /// Creates a quota of `tokens` per `period`. The burst is `tokens`, unless [`allow_burst`](Self::allow_burst)
    /// changes it.
    ///
    /// # Errors
    /// Returns [`InvalidQuota`] if the period is zero or longer than `u64::MAX` nanoseconds (584 years).
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::Quota;
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// // One token per 2.5 seconds.
    /// let slow = Quota::new(NonZeroU32::MIN, Duration::from_millis(2_500)).unwrap();
    /// assert_eq!(slow.period(), Duration::from_millis(2_500));
    /// assert!(Quota::new(NonZeroU32::MIN, Duration::ZERO).is_err());
    /// ```
    pub const fn new(tokens: NonZeroU32, period: Duration) -> Result<Self, InvalidQuota> {
        let nanos = period.as_nanos();
        if nanos > u64::MAX as u128 {
            return Err(InvalidQuota::new(period));
        }
        match NonZeroU64::new(nanos as u64) {
            Some(period_nanos) => Ok(Self { tokens, period_nanos, burst: tokens }),
            None => Err(InvalidQuota::new(period)),
        }
    }

    /// Returns a quota with the same rate and a different burst: the maximum number of tokens granted together after an idle time.
    #[must_use]
    pub const fn allow_burst(self, burst: NonZeroU32) -> Self {
        Self { burst, ..self }
    }

    /// The number of tokens that arrive in a period.
    #[must_use]
    pub const fn tokens(&self) -> NonZeroU32 {
        self.tokens
    }

    /// The period in which [`tokens`](Self::tokens) tokens arrive.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period_nanos.get())
    }

    /// The maximum number of tokens that are granted together.
    #[must_use]
    pub const fn burst_size(&self) -> NonZeroU32 {
        self.burst
    }

    pub(crate) const fn period_nanos(&self) -> u64 {
        self.period_nanos.get()
    }
}

const SECOND: NonZeroU64 = NonZeroU64::new(1_000_000_000).unwrap();
const MINUTE: NonZeroU64 = NonZeroU64::new(60_000_000_000).unwrap();
const HOUR: NonZeroU64 = NonZeroU64::new(3_600_000_000_000).unwrap();
