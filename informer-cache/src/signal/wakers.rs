//! SHELL. Wakers that the holder of a lock collects, and wakes after unlocking. Guards nothing itself.

use std::task::Waker;

use flyball_sync::panics::caught;

/// Wakers to be woken once no lock is held.
#[derive(Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Wakes all of them, even if some panic. Never panics, because a waker belongs to a waiter, whose panic must not reach the
    /// caller, often a writer.
    pub(crate) fn wake(self) {
        for waker in self.0 {
            // The panic hook has run; there is no caller to report to.
            let _ = caught(|| waker.wake());
        }
    }
}

impl Extend<Waker> for Wakers {
    fn extend<I: IntoIterator<Item = Waker>>(&mut self, wakers: I) {
        self.0.extend(wakers);
    }
}
