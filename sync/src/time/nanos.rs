//! PURE. Points in time as integers.

use std::ops::Add;
use std::time::Duration;

/// A point in time, in whole nanoseconds since the origin of the clock that returned it.
///
/// Points in time of different clocks cannot be compared. The range is 584 years; arithmetic saturates, and [`Nanos::MAX`]
/// means *never*.
///
/// # Examples
/// ```
/// use flyball_sync::Nanos;
/// use std::time::Duration;
///
/// let start = Nanos::new(1_000);
/// let later = start + Duration::from_nanos(500);
/// assert_eq!(later.since(start), Duration::from_nanos(500));
/// assert_eq!(start.since(later), Duration::ZERO);
/// assert_eq!(start + Duration::MAX, Nanos::MAX);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Nanos(u64);

impl Nanos {
    /// The origin of a clock.
    pub const ZERO: Self = Self(0);
    /// Never: later than any time that a clock returns, unless a [`ManualClock`](crate::ManualClock) is set to it.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the point `nanos` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the point `since_origin` after the clock's origin; [`Nanos::MAX`] for more than 584 years.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::Nanos;
    /// use std::time::Duration;
    ///
    /// assert_eq!(Nanos::from_duration(Duration::from_micros(3)).get(), 3_000);
    /// assert_eq!(Nanos::from_duration(Duration::MAX), Nanos::MAX);
    /// ```
    #[must_use]
    #[inline]
    pub const fn from_duration(since_origin: Duration) -> Self {
        // `as_nanos` is not used: its 128-bit result would make each reading of the machine's clock, which is converted here, a
        // third slower.
        let seconds = since_origin.as_secs().saturating_mul(1_000_000_000);
        Self(seconds.saturating_add(since_origin.subsec_nanos() as u64))
    }

    /// Returns the nanoseconds since the clock's origin.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this point; zero if this point is not later.
    #[must_use]
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at [`Nanos::MAX`].
impl Add<Duration> for Nanos {
    type Output = Self;

    #[inline]
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(Self::from_duration(rhs).0))
    }
}
