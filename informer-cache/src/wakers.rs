//! SHELL. What the holder of a lock collects and does after unlocking; it guards nothing itself.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Wakers to be woken once no lock is held.
#[derive(Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Wakes all of them, even when some panic; then the first panic goes on.
    pub(crate) fn wake(self) {
        let mut first = None;
        for waker in self.0 {
            let woken = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            first = first.or(woken.err());
        }
        if let Some(panic) = first {
            resume_unwind(panic);
        }
    }
}

impl Extend<Waker> for Wakers {
    fn extend<I: IntoIterator<Item = Waker>>(&mut self, wakers: I) {
        self.0.extend(wakers);
    }
}
