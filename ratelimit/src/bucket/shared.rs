//! SHELL. One bucket, its wait queue, and one alarm.
//!
//! | what | guarded by |
//! |---|---|
//! | the bucket, while the word is open | the atomic word of [`PackedBucket`] |
//! | the bucket, while the word is closed; the wait queue; grants whose waiter was not polled yet; the alarm | `state` |
//! | the timer | called outside `state`, by the one thread that found `alarm.arming` unset |
//!
//! User code runs outside `state`: the clock is read before locking; [`Effects`] calls wakers and the timer after unlocking, and a replaced waker is
//! dropped after unlocking.
//!
//! # Between the word and the lock
//! A thread that takes the lock closes the word first. So if a thread takes tokens without the lock, it either takes them before the word is closed,
//! and the closed word includes this change, or finds the word closed and takes the lock, too. The word is opened again when there is no waiter and
//! no grant whose waiter was not polled yet.
//!
//! # FIFO order
//! While there are waiters, only the first one takes tokens. Each change serves the waiters twice: before it, so that tokens that are already due go
//! to the waiters first, and after it. The first waiter is granted its tokens when they are due, whether it is polled or not; so a waiter that is
//! never polled delays the others only by the tokens that it is granted.

mod effects;
pub(crate) mod state;

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};

pub(crate) use effects::Effects;
use flyball_sync::locks::Mutex;
use flyball_sync::panics::{drop_each, forget, raise};
use flyball_sync::waiting::{self, Alarm, Alarmed, Place, WakeBatch};
use flyball_sync::{Nanos, Timer};
pub(crate) use state::AcquireRequest;
use state::{Progress, State};

use crate::bucket::packed::PackedBucket;
use crate::bucket::quota::Quota;
use crate::bucket::reservation::Reservation;
use crate::bucket::token_bucket::TokenBucket;
use crate::error::{InsufficientCapacity, TryAcquireError};

pub(crate) struct Shared<T> {
    pub(crate) cell: PackedBucket,
    state: Mutex<State>,
    time: T,
    /// The waker that is passed to the timer. Waking it grants the tokens that are due.
    alarm: Waker,
}

impl<T: Timer> Shared<T> {
    pub(crate) fn new(quota: Quota, time: T) -> Arc<Self> {
        let cell = PackedBucket::new();
        let mut state = State::new(TokenBucket::new(quota));
        cell.open(&mut state.exact, Nanos::ZERO);
        Arc::new_cyclic(|this| Self {
            cell,
            state: Mutex::new(state),
            time,
            alarm: waiting::waker(this.clone()),
        })
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.time.now()
    }

    pub(crate) fn try_acquire(&self, count: NonZeroU32, now: Nanos) -> Result<(), TryAcquireError> {
        self.change(now, |state| state.try_acquire(count, now))
    }

    pub(crate) fn reserve(&self, count: NonZeroU32, now: Nanos) -> Result<Reservation, InsufficientCapacity> {
        self.change(now, |state| state.reserve(count, now))
    }

    pub(crate) fn cancel(&self, reservation: Reservation, now: Nanos) -> bool {
        self.change(now, |state| state.cancel(reservation, now))
    }

    pub(crate) fn set_quota(&self, quota: Quota, now: Nanos) {
        self.change(now, |state| state.set_quota(quota, now));
    }

    pub(crate) fn quota(&self) -> Quota {
        self.state.lock().exact.bucket.quota()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiters.waiting()
    }

    pub(crate) fn available(&self, now: Nanos) -> u32 {
        self.change(now, |state| match state.waiters.waiting() {
            0 => state.exact.bucket.available_tokens(now),
            _ => 0,
        })
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.state.lock().check()
    }

    /// Polls a request: takes its tokens if they are due, and otherwise waits for them with `waker`.
    pub(crate) fn poll_request(
        &self,
        request: &mut AcquireRequest,
        waker: &Waker,
    ) -> Poll<Result<(), TryAcquireError>> {
        let now = self.now();
        // A new request usually waits, so its waker is cloned before locking.
        let mut spare = request.place.is_none().then(|| waker.clone());
        loop {
            match self.change(now, |state| state.poll_request(request, waker, &mut spare, now)) {
                Progress::Ready(result) => return Poll::Ready(result),
                Progress::WithoutWaker => spare = Some(waker.clone()),
                Progress::Pending => return Poll::Pending,
            }
        }
    }

    /// Removes a waiter that will not be polled again; it may have been granted tokens.
    pub(crate) fn leave(&self, place: Place) {
        // If the clock panics, the granted tokens are lost, but the waiter still leaves the wait queue; otherwise the others would wait behind a
        // waiter that no longer exists.
        let now = catch_unwind(AssertUnwindSafe(|| self.now()));
        let waker = match &now {
            Ok(now) => self.change(*now, |state| state.leave(place, Some(*now))),
            Err(_) => {
                let latest_now = self.state.lock().latest_now();
                self.change(latest_now, |state| state.leave(place, None))
            }
        };
        drop_each(waker.into_iter());
        match now {
            // A second panic during unwinding would abort the process.
            Err(panic) if !std::thread::panicking() => resume_unwind(panic),
            _ => {}
        }
    }

    /// The common part of all changes: see "Between the word and the lock" and "FIFO order".
    fn change<R>(&self, now: Nanos, work: impl FnOnce(&mut State) -> R) -> R {
        let mut panicked = Ok(());
        let mut work = Some(work);
        let mut result = None;
        loop {
            let mut effects = Effects::none();
            let mut state = self.state.lock();
            self.cell.close(&mut state.exact);
            state.settle(now, &mut effects);
            if !effects.more {
                if let Some(work) = work.take() {
                    result = Some(work(&mut state));
                    state.settle(now, &mut effects);
                }
            }
            if state.is_quiet() {
                self.cell.open(&mut state.exact, now);
            }
            drop(state);
            let more = effects.more;
            effects.perform(self, &mut panicked);
            if !more {
                break;
            }
        }
        raise(panicked);
        result.expect("the work is done before the loop ends")
    }
}

impl<T: Timer> Alarmed for Shared<T> {
    fn with_alarm<R>(&self, change: impl FnOnce(&mut Alarm) -> R) -> R {
        change(&mut self.state.lock().alarm)
    }

    fn on_alarm(&self) {
        let now = catch_unwind(AssertUnwindSafe(|| self.now()));
        let mut state = self.state.lock();
        let fired = state.alarm.fired();
        let too_early =
            state.alarm.is_arming() && now.as_ref().is_ok_and(|now| fired.is_some_and(|at| *now < at));
        match now {
            Ok(now) if !too_early => {
                drop(state);
                self.change(now, |_| ());
            }
            // The timer fired too early from inside `wake_at`, or the clock panicked: wakes the first waiter, which sets the alarm again when it is
            // polled. The alarm is not set here, because a timer that always fires in this way would then fire again and again without end.
            now => {
                let waker = state.waiters.take_first_waker();
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
                if let Err(panic) = now {
                    resume_unwind(panic);
                }
            }
        }
    }

    /// Wakes all waiters. Each sets the alarm again when it is polled, so that the others do not depend on the first one being polled.
    fn alarm_failed(&self) {
        self.state.lock().alarm.reset();
        let mut next = Some(0);
        while let Some(slot) = next {
            let mut batch = WakeBatch::new();
            next = self.state.lock().waiters.take_wakers(slot, &mut batch);
            // A panic of a waker is discarded: the panic of the timer is resumed.
            batch.wake().unwrap_or_else(forget);
        }
    }
}
