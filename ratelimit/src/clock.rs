//! EDGE. What time is it: the monotonic clock and one moved by hand.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::Nanos;
use crate::manual::Alarms;

/// What time is it.
///
/// The primitives tolerate a clock that stands still or jumps, in either direction: what is due may then come late
/// or early by the jump, and nothing else goes wrong. A clock is read outside every lock.
pub trait Clock: Send + Sync + 'static {
    /// The present point on this clock's time line.
    fn now(&self) -> Nanos;
}

/// A shared clock tells the same time.
impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Nanos {
        (**self).now()
    }
}

/// The machine's monotonic clock; its origin is the first reading in the process.
///
/// All values of this type share one time line.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Clock, Monotonic};
///
/// let earlier = Monotonic.now();
/// assert!(Monotonic.now() >= earlier);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Monotonic;

impl Clock for Monotonic {
    // The one place where the machine's clock is read.
    #[allow(clippy::disallowed_methods)]
    #[inline]
    fn now(&self) -> Nanos {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let now = Instant::now();
        Nanos::ZERO + now.saturating_duration_since(*ORIGIN.get_or_init(|| now))
    }
}

/// A clock moved by hand, for tests on virtual time. Clones share the time.
///
/// [`timer`](Self::timer) gives timers that fire when the clock is moved past them, in the thread that moves it.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Clock, ManualClock, Nanos};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now(), Nanos::new(3_000_000_000));
/// clock.set(Nanos::ZERO); // clocks jump: a test may, too
/// assert_eq!(clock.now(), Nanos::ZERO);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    pub(crate) alarms: Arc<Alarms>,
}

impl ManualClock {
    /// A clock that shows [`Nanos::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock on, then fires what became due, earliest first.
    pub fn advance(&self, by: Duration) {
        self.alarms.advance(by);
    }

    /// Sets the clock, forwards or backwards, then fires what is due.
    pub fn set(&self, now: Nanos) {
        self.alarms.set(now);
    }

    /// When the next timer would fire.
    #[must_use]
    pub fn next_alarm(&self) -> Option<Nanos> {
        self.alarms.next()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        self.alarms.now()
    }
}
