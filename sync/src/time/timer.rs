//! EDGE. Wake me at: one alarm on one clock.
//!
//! Cancel safety: an alarm is a request to be woken, never an obligation to wait. Dropping a timer drops its alarm.

use std::task::Waker;

use crate::{Clock, Nanos};

/// Wake me at: one alarm, on the time line of the timer's own clock.
///
/// A primitive owns its timer and arms it only while somebody waits, so nothing runs at rest. It calls the timer
/// outside every lock, and never from two threads at once.
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
/// A clock has to be able to wake, too:
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
    /// Wakes `waker` once, at `at` or soon after; in the past means at once. Replaces the alarm set before.
    ///
    /// A wake-up before `at` is allowed (it costs a look at the clock), one that never comes is not.
    /// The waker may be woken from inside this call.
    fn wake_at(&self, at: Nanos, waker: &Waker);
}
