//! PURE. Integer time: a point on a clock's time line.

use std::ops::Add;
use std::time::Duration;

/// A point in time: whole nanoseconds since the origin of the clock that gave it.
///
/// Points of different clocks do not compare. The range is 584 years; arithmetic saturates, and
/// [`Nanos::MAX`] stands for *never*.
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
    /// Never: later than anything a clock will show.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The point `since_origin` after the clock's origin; more than 584 years is [`Nanos::MAX`].
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
        // Not through `as_nanos`: every reading of the machine's clock comes by, and 128 bits cost it a third.
        let seconds = since_origin.as_secs().saturating_mul(1_000_000_000);
        Self(seconds.saturating_add(since_origin.subsec_nanos() as u64))
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not after it.
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
