//! SHELL. An alarm on a timer, for an owner whose state is behind one lock.
//!
//! | what | guarded by |
//! |---|---|
//! | the [`Alarm`] | the owner's lock |
//! | `wake_at` and `disarm` of the timer | called outside that lock, by at most one thread at a time |
//!
//! # Invariants
//! 1. `armed` is the time of the earliest alarm that is set or being set.
//! 2. At most one thread calls the timer at a time, so a slower thread cannot replace an earlier alarm with a later one. If `armed` changes while a
//!    thread calls the timer, the same thread then calls the timer once more.
//! 3. Once no thread calls the timer, an alarm is set only if `armed` is set. (It may be earlier than necessary: it then fires once, and the owner
//!    requests the next one.)

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use crate::panics::caught;
use crate::time::nanos::Nanos;
use crate::time::timer::Timer;

/// The state of one alarm: the time at which the timer fires, if any. The owner keeps this state under its lock.
#[derive(Debug, Default)]
pub struct Alarm {
    armed: Option<Nanos>,
    /// Whether a thread is currently calling the timer.
    arming: bool,
    /// Whether `armed` has changed during that call.
    again: bool,
}

/// A call of the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerCall {
    /// A call of [`Timer::wake_at`].
    WakeAt(Nanos),
    /// A call of [`Timer::disarm`].
    Disarm,
}

impl TimerCall {
    /// Calls the timer.
    pub fn perform<T: Timer + ?Sized>(self, timer: &T, waker: &Waker) {
        match self {
            Self::WakeAt(at) => timer.wake_at(at, waker),
            Self::Disarm => timer.disarm(),
        }
    }
}

/// The owner of an [`Alarm`]: it has a lock, a timer, and waiters.
pub trait Alarmed: Send + Sync + 'static {
    /// Locks the owner's state, and passes the alarm to `change`.
    fn with_alarm<R>(&self, change: impl FnOnce(&mut Alarm) -> R) -> R;

    /// Called when the timer has fired, on time or early. The owner must call [`Alarm::fired`].
    fn on_alarm(&self);

    /// Called when the timer has panicked, so that no alarm is set. The owner must call [`Alarm::reset`] and wake a waiter that waits for a deadline.
    /// This waiter then sets the alarm again. The owner must not set the alarm itself; otherwise a timer that always panics would cause an endless
    /// loop.
    fn alarm_failed(&self);
}

impl Alarm {
    /// Requests that the alarm fires at the time `at` or earlier. If this returns a call, the caller must pass it to [`arm`] after unlocking.
    #[must_use = "pass the call to `arm`"]
    pub fn request(&mut self, at: Nanos) -> Option<TimerCall> {
        if self.armed.is_some_and(|armed| armed <= at) {
            return None;
        }
        self.armed = Some(at);
        self.call(TimerCall::WakeAt(at))
    }

    /// Requests that no alarm is set, because no waiter waits for a time. Otherwise like [`request`](Self::request).
    #[must_use = "pass the call to `arm`"]
    pub fn release(&mut self) -> Option<TimerCall> {
        self.armed.take()?;
        self.call(TimerCall::Disarm)
    }

    fn call(&mut self, call: TimerCall) -> Option<TimerCall> {
        if self.arming {
            self.again = true;
            return None;
        }
        self.arming = true;
        Some(call)
    }

    /// Returns whether an alarm is set or being set.
    #[must_use]
    #[inline]
    pub fn is_set(&self) -> bool {
        self.armed.is_some()
    }

    /// Marks the alarm as fired: no alarm is set from now on. Returns the time for which it was set.
    pub fn fired(&mut self) -> Option<Nanos> {
        // A thread that is calling the timer may set an alarm after this one has fired. Its next call then removes that alarm.
        let fired = self.armed.take();
        self.again |= self.arming && fired.is_some();
        fired
    }

    /// Returns whether a thread is currently calling the timer. This may be the current thread.
    #[must_use]
    pub fn is_arming(&self) -> bool {
        self.arming
    }

    /// Resets the state: no alarm is set, and no thread is calling the timer.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Called after a call of the timer. If `armed` has changed during the call, returns the next call.
    fn called(&mut self) -> Option<TimerCall> {
        self.arming = std::mem::take(&mut self.again);
        self.arming.then(|| self.armed.map_or(TimerCall::Disarm, TimerCall::WakeAt))
    }
}

/// Calls the timer, outside the lock. If the alarm changes in the meantime, calls the timer again, and so on. `perform` must
/// [perform](TimerCall::perform) the call on the owner's timer, and pass the owner's [`waker`].
///
/// # Panics
/// Panics if the timer panics, after calling [`Alarmed::alarm_failed`].
pub fn arm(owner: &impl Alarmed, mut call: TimerCall, perform: impl Fn(TimerCall)) {
    loop {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| perform(call))) {
            // `alarm_failed` wakes a waker, which may panic, too. That second panic is discarded, and the panic of the timer is resumed.
            caught(|| owner.alarm_failed());
            resume_unwind(panic);
        }
        match owner.with_alarm(Alarm::called) {
            Some(next) => call = next,
            None => return,
        }
    }
}

/// Returns the waker for the timer. The waker holds a weak reference, because an alarm that is set for next year must not
/// keep its owner alive. Waking it never panics, because it runs wherever the timer fires: a panic of a waiter's waker, of a clock or, if the owner is
/// dropped here, of a key, must not reach the driver of a runtime, which serves other tasks as well.
#[must_use]
pub fn waker<O: Alarmed>(owner: Weak<O>) -> Waker {
    Waker::from(Arc::new(AlarmWaker(owner)))
}

struct AlarmWaker<O>(Weak<O>);

impl<O: Alarmed> Wake for AlarmWaker<O> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        caught(|| self.0.upgrade().map(|owner| owner.on_alarm()));
    }
}
