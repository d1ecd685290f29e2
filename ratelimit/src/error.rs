//! PURE. What can be refused, and why.

mod denied;
mod timed_out;

pub use denied::{InsufficientCapacity, TryAcquireError};
pub use timed_out::{AcquireTimeoutError, TimedOut};

use std::fmt;
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
