//! EDGE. Wake me at: one alarm on one clock.
//!
//! Cancel safety: an alarm is a request to be woken, never an obligation to wait. Dropping a timer drops its alarm.

use std::task::Waker;

use crate::{Clock, Nanos};

/// Wake me at: one alarm, on the time line of the timer's own clock.
///
/// A primitive owns its timer and arms it only while somebody waits, so nothing runs at rest. It calls the timer
/// outside every lock, and never from two threads at once.
pub trait Timer: Clock {
    /// Wakes `waker` once, at `at` or soon after; in the past means at once. Replaces the alarm set before.
    ///
    /// A wake-up before `at` is allowed (it costs a look at the clock), one that never comes is not.
    /// The waker may be woken from inside this call.
    fn wake_at(&self, at: Nanos, waker: &Waker);
}
