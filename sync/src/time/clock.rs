//! EDGE. Clocks. Cancel safety: reading a clock does not wait.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::time::nanos::Nanos;

/// A clock.
///
/// The crates that use clocks tolerate a clock that stands still or jumps, in either direction: events may then be late or early by that time, with
/// no other effect. These crates never read a clock while they hold a lock.
///
/// # Examples
/// A clock that runs at twice the speed of the clock that it wraps:
/// ```
/// use flyball_sync::{Clock, ManualClock, Nanos};
/// use std::time::Duration;
///
/// struct TwiceAsFast<C>(C);
///
/// impl<C: Clock> Clock for TwiceAsFast<C> {
///     fn now(&self) -> Nanos {
///         Nanos::new(self.0.now().get().saturating_mul(2))
///     }
/// }
///
/// let clock = ManualClock::new();
/// let fast = TwiceAsFast(clock.clone());
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(fast.now(), Nanos::from_duration(Duration::from_secs(6)));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a clock",
    note = "use `Monotonic` for the machine's clock and `ManualClock` in tests; an `Arc` of a clock is a clock, a reference is not"
)]
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time of this clock.
    fn now(&self) -> Nanos;
}

/// An `Arc` of a clock is a clock, too; its clones return the same time.
impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Nanos {
        (**self).now()
    }
}

/// The machine's monotonic clock. Its origin is the time of its first reading in the process.
///
/// All values of this type share one origin.
///
/// # Examples
/// ```
/// use flyball_sync::{Clock, Monotonic};
///
/// let earlier = Monotonic.now();
/// assert!(Monotonic.now() >= earlier);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Monotonic;

impl Clock for Monotonic {
    // The only call of std's `Instant::now` in the published crates.
    #[allow(clippy::disallowed_methods)]
    #[inline]
    fn now(&self) -> Nanos {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let now = Instant::now();
        Nanos::from_duration(now.saturating_duration_since(*ORIGIN.get_or_init(|| now)))
    }
}
