//! SHELL. What a change does to the outside, decided under the lock and done after it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

use super::{Shared, WakeAt};
use crate::Nanos;

/// Wakers to wake, a timer to set.
pub(crate) struct Effects<T> {
    pub(super) wake: Vec<Waker>,
    pub(super) arm: Option<(WakeAt<T>, Nanos)>,
}

impl<T> Effects<T> {
    pub(super) const fn none() -> Self {
        Self { wake: Vec::new(), arm: None }
    }

    /// Does all of it even where a waker or the timer panics; the first panic is raised at the end.
    pub(super) fn perform(self, shared: &Shared<T>) {
        let mut panicked = None;
        for waker in self.wake {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                panicked.get_or_insert(panic);
            }
        }
        if let Some((wake_at, at)) = self.arm {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| shared.arm(wake_at, at))) {
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
