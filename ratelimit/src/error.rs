//! PURE. What can be refused, and why.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::Nanos;

/// A period that is no rate: zero, or longer than 584 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidQuota(Duration);

impl InvalidQuota {
    pub(crate) const fn new(period: Duration) -> Self {
        Self(period)
    }

    /// The period that was refused.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.0
    }
}

impl fmt::Display for InvalidQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the period of a quota must be from 1 ns to 584 years, not {:?}", self.0)
    }
}

impl std::error::Error for InvalidQuota {}

/// A range of waits that no backoff can follow: it starts at zero, or its start is above its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidBackoff(RangeInclusive<Duration>);

impl InvalidBackoff {
    pub(crate) const fn new(waits: RangeInclusive<Duration>) -> Self {
        Self(waits)
    }

    /// The range that was refused.
    #[must_use]
    pub fn into_waits(self) -> RangeInclusive<Duration> {
        self.0
    }
}

impl fmt::Display for InvalidBackoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base, cap) = (self.0.start(), self.0.end());
        write!(f, "a backoff needs 0 < base <= cap, not base {base:?} and cap {cap:?}")
    }
}

impl std::error::Error for InvalidBackoff {}

/// A range of limits that allows nothing: it starts at zero, or its start is above its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidConcurrencyLimits(RangeInclusive<u32>);

impl InvalidConcurrencyLimits {
    pub(crate) const fn new(limits: RangeInclusive<u32>) -> Self {
        Self(limits)
    }

    /// The range that was refused.
    #[must_use]
    pub fn into_limits(self) -> RangeInclusive<u32> {
        self.0
    }
}

impl fmt::Display for InvalidConcurrencyLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (self.0.start(), self.0.end());
        write!(f, "an adaptive limit needs 1 <= least <= most, not {least} and {most}")
    }
}

impl std::error::Error for InvalidConcurrencyLimits {}

/// No token is left; one will be at [`due`](Self::due), if nobody else takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotYet(Nanos);

impl NotYet {
    pub(crate) const fn new(due: Nanos) -> Self {
        Self(due)
    }

    /// When the next token will be there.
    #[must_use]
    pub const fn due(&self) -> Nanos {
        self.0
    }
}

impl fmt::Display for NotYet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no token is left before {} ns", self.0.get())
    }
}

impl std::error::Error for NotYet {}

/// More tokens were asked for than a full bucket holds: they can never be granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsufficientCapacity {
    asked: NonZeroU32,
    burst: NonZeroU32,
}

impl InsufficientCapacity {
    pub(crate) const fn new(asked: NonZeroU32, burst: NonZeroU32) -> Self {
        Self { asked, burst }
    }

    /// How many were asked for.
    #[must_use]
    pub const fn requested(&self) -> NonZeroU32 {
        self.asked
    }

    /// The most that the quota in force grants at once.
    #[must_use]
    pub const fn burst(&self) -> NonZeroU32 {
        self.burst
    }
}

impl fmt::Display for InsufficientCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens were asked for at once, and the burst is {}", self.asked, self.burst)
    }
}

impl std::error::Error for InsufficientCapacity {}

/// Why several tokens were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryAcquireError {
    /// They are not there now; the time says when they will be.
    NotYet(NotYet),
    /// They never will be.
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

/// The time was up before a token came; none was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up before the tokens came")
    }
}

impl std::error::Error for TimedOut {}

/// Why several tokens did not come in time; none was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireTimeoutError {
    /// The time was up.
    TimedOut,
    /// They never will come.
    InsufficientCapacity(InsufficientCapacity),
}

impl From<InsufficientCapacity> for AcquireTimeoutError {
    fn from(error: InsufficientCapacity) -> Self {
        Self::InsufficientCapacity(error)
    }
}

impl fmt::Display for AcquireTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => TimedOut.fmt(f),
            Self::InsufficientCapacity(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AcquireTimeoutError {}
