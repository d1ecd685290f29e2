//! EDGE. Timers: one alarm on one clock.
//!
//! Cancel safety: `wake_at` only requests a wake-up and does not wait for it, so there is nothing to cancel. `disarm` removes the alarm, and
//! so does dropping a timer.

use std::task::Waker;

use crate::time::clock::Clock;
use crate::time::nanos::Nanos;

/// A timer: a clock with one alarm.
///
/// A queue or limiter owns its timer. The owner calls `now`, `wake_at` and `disarm` outside all locks. Several threads may call `now` at the same
/// time, but only one thread at a time calls `wake_at` or `disarm`.
///
/// # Examples
/// ```
/// use flyball_sync::{ManualClock, Timer, block_on_timeout};
/// use std::future::poll_fn;
/// use std::pin::pin;
/// use std::task::Poll;
/// use std::time::Duration;
///
/// async fn sleep(timer: impl Timer, span: Duration) {
///     let deadline = timer.now() + span;
///     let wait = poll_fn(|context| {
///         if timer.now() >= deadline {
///             return Poll::Ready(());
///         }
///         timer.wake_at(deadline, context.waker()); // may wake earlier: the clock is read again
///         Poll::Pending
///     });
///     wait.await;
/// }
///
/// let clock = ManualClock::new();
/// let mut sleeping = pin!(sleep(clock.timer(), Duration::from_secs(3_600)));
/// assert!(block_on_timeout(sleeping.as_mut(), Duration::ZERO).is_none()); // polled once
/// clock.advance(Duration::from_secs(3_600));
/// assert!(block_on_timeout(sleeping, Duration::ZERO).is_some());
/// ```
///
/// A clock that is not a timer does not compile:
/// ```compile_fail,E0277
/// use flyball_sync::{ManualClock, Timer};
///
/// fn with_timer(timer: impl Timer) {}
/// with_timer(ManualClock::new()); // not `ManualClock::new().timer()`
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a timer",
    note = "on tokio use `TokioTimer::current()`, without a runtime `ThreadTimer::new()`, and in a test `clock.timer()` of a `ManualClock`"
)]
pub trait Timer: Clock {
    /// Wakes `waker` once, at the time `at` or soon after it; immediately if `at` is in the past. Replaces the alarm that was set before.
    ///
    /// A wake-up before `at` is allowed, although it costs a reading of the clock. A missing wake-up is not allowed. The waker may be woken from
    /// inside this call. Cloning, waking or dropping it may panic, so a timer that fires where a panic would harm others must catch it.
    fn wake_at(&self, at: Nanos, waker: &Waker);

    /// Removes the alarm, if one is set. Called when no waiter waits for a time any more.
    ///
    /// The alarm may be firing at the same time, so the waker may still be woken once. By default this does nothing: then the alarm fires at its time,
    /// and the owner ignores it. Implement it if an unused alarm costs something, such as a thread that sleeps, or a paused clock that advances to the
    /// next alarm.
    fn disarm(&self) {}

    /// Returns whether the clock always runs at the rate of the machine's monotonic clock, so that a thread can sleep until a time on this clock without
    /// an alarm. By default this is false; then an alarm wakes threads as well as tasks.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::{ManualClock, ThreadTimer, Timer};
    ///
    /// assert!(ThreadTimer::new().is_real_time());
    /// assert!(!ManualClock::new().timer().is_real_time());
    /// ```
    fn is_real_time(&self) -> bool {
        false
    }
}
