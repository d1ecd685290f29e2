//! SHELL. Wakers that a thread collects under a lock, and wakes after unlocking. Guards no data.

use std::task::Waker;

use flyball_sync::panics::caught;

/// Wakers to be woken once no lock is held.
#[derive(Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Wakes all wakers, even if some of them panic. Never panics, because a waker's panic must not reach the caller, which is often a writer.
    pub(crate) fn wake(self) {
        for waker in self.0 {
            // The panic hook has already reported the panic.
            let _ = caught(|| waker.wake());
        }
    }
}

impl Extend<Waker> for Wakers {
    fn extend<I: IntoIterator<Item = Waker>>(&mut self, wakers: I) {
        self.0.extend(wakers);
    }
}
