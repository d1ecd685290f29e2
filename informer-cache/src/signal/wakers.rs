//! SHELL. Wakers that a thread collects under a lock, and wakes after it has released the lock. Guards no data.

use std::task::Waker;

use flyball_sync::panics::caught;

/// Wakers to be woken after all locks are released.
#[derive(Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Wakes all wakers, even if some of them panic. Never panics: a panic of a waker must not reach the caller, which is often a writer.
    #[inline]
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
