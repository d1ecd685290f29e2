//! SHELL. What a change does to the outside, decided under the lock and done after it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

use flyball_ratelimit::{Nanos, Policy};

use super::{Key, Shared};
use crate::order::Order;
use crate::parked::Parked;
use crate::time::Time;

/// Wakers to wake, threads to signal, a timer to set.
#[derive(Default)]
pub(crate) struct Effects {
    /// The first waker by itself: the usual change wakes one task, and must not allocate.
    first: Option<Waker>,
    more: Vec<Waker>,
    pub(super) signals: usize,
    pub(super) signal_all: bool,
    /// Adders to signal.
    pub(super) room: usize,
    /// The queue is drained or idle.
    pub(super) quiet: bool,
    pub(super) arm: Option<Nanos>,
}

impl Effects {
    pub(super) fn wake(&mut self, waker: Waker) {
        match self.first {
            None => self.first = Some(waker),
            Some(_) => self.more.push(waker),
        }
    }

    pub(super) fn wake_all(&mut self, parked: &mut Parked) {
        while let Some(waker) = parked.take_one() {
            self.wake(waker);
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
            && self.signals + self.room == 0
            && !self.signal_all
            && !self.quiet
            && self.arm.is_none()
    }

    /// Does all of it even where a waker or the timer panics; the first panic is raised at the end.
    pub(super) fn perform<K, O, L, T>(self, shared: &Shared<K, O, L, T>)
    where
        K: Key,
        O: Order<K>,
        L: Policy<K> + Send + 'static,
        T: Time,
    {
        if self.signal_all {
            shared.available.notify_all();
        } else {
            (0..self.signals).for_each(|_| shared.available.notify_one());
        }
        (0..self.room).for_each(|_| shared.room.notify_one());
        if self.quiet {
            shared.quiet.notify_all();
        }
        let mut panicked = None;
        for waker in self.first.into_iter().chain(self.more) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                panicked.get_or_insert(panic);
            }
        }
        if let Some(at) = self.arm {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| shared.arm(at))) {
                panicked.get_or_insert(panic);
            }
        }
        match panicked {
            // A second panic while one unwinds would abort the process.
            Some(panic) if !std::thread::panicking() => resume_unwind(panic),
            _ => {}
        }
    }
}
