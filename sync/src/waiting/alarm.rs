//! SHELL. One alarm over a timer, for a primitive whose state is behind one lock.
//!
//! | what | guarded by |
//! |---|---|
//! | the [`Alarm`] | the owner's lock |
//! | the timer | called outside that lock, by the one thread that found no other in it |
//!
//! # Invariants
//! 1. `armed` is the time of the earliest alarm that is set or being set.
//! 2. At most one thread is in the timer, so a slower one cannot replace an earlier alarm by a later one. If an earlier alarm is wanted
//!    meanwhile, that thread calls the timer once more.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use crate::Nanos;
use crate::panics::caught;

/// When the timer rings. The owner keeps it under its lock.
#[derive(Debug, Default)]
pub struct Alarm {
    armed: Option<Nanos>,
    /// A thread is in the timer.
    arming: bool,
    /// `armed` was set anew meanwhile.
    again: bool,
}

/// What has an [`Alarm`]: a lock, a timer, and waiters.
pub trait Alarmed: Send + Sync + 'static {
    /// Locks, and gives the alarm.
    fn with_alarm<R>(&self, change: impl FnOnce(&mut Alarm) -> R) -> R;

    /// The timer rang, on time or early. [`Alarm::rang`] is for the owner to call.
    fn ring(&self);

    /// The timer panicked, so no alarm is set. [`Alarm::reset`] is for the owner to call, and to wake what waits for time, so that it
    /// tries again by itself. Not to set the alarm: a timer that always panics would never return.
    fn alarm_failed(&self);
}

impl Alarm {
    /// The alarm is to ring at `at` or before. If this gives a time, the caller has to pass it to [`arm`] once it has unlocked.
    #[must_use = "the time is for `arm`"]
    pub fn aim(&mut self, at: Nanos) -> Option<Nanos> {
        if self.armed.is_some_and(|armed| armed <= at) {
            return None;
        }
        self.armed = Some(at);
        if self.arming {
            self.again = true;
            return None;
        }
        self.arming = true;
        Some(at)
    }

    /// It rang: no alarm is set. Gives the time it was set for.
    pub fn rang(&mut self) -> Option<Nanos> {
        self.armed.take()
    }

    /// Whether a thread is in the timer, which may be the one that asks.
    #[must_use]
    pub fn is_arming(&self) -> bool {
        self.arming
    }

    /// No alarm is set, and no thread is in the timer.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The timer has returned. Gives the time to call it with again, if an earlier alarm was wanted meanwhile.
    fn armed(&mut self) -> Option<Nanos> {
        let again = self.armed.filter(|_| self.again);
        self.again = false;
        self.arming = again.is_some();
        again
    }
}

/// Sets the timer, outside the lock, as long as an earlier alarm is wanted. `wake_at` is [`Timer::wake_at`](crate::Timer::wake_at) of the
/// timer, with the [`waker`] of the owner.
///
/// # Panics
/// When the timer does, after [`Alarmed::alarm_failed`].
pub fn arm(owner: &impl Alarmed, mut at: Nanos, wake_at: impl Fn(Nanos)) {
    loop {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| wake_at(at))) {
            // A waker may panic, too: the first panic is the one that is raised.
            caught(|| owner.alarm_failed());
            resume_unwind(panic);
        }
        match owner.with_alarm(Alarm::armed) {
            Some(earlier) => at = earlier,
            None => return,
        }
    }
}

/// The waker for the timer. Weak: an alarm that is set for next year must not keep its owner alive.
#[must_use]
pub fn waker<O: Alarmed>(owner: Weak<O>) -> Waker {
    Waker::from(Arc::new(Ring(owner)))
}

struct Ring<O>(Weak<O>);

impl<O: Alarmed> Wake for Ring<O> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(owner) = self.0.upgrade() {
            owner.ring();
        }
    }
}
