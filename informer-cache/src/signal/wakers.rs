//! SHELL. Wakers that a thread collects under a lock, and wakes after it has released the lock. Guards no data.

use std::task::Waker;

use flyball_sync::panics::forget;
use flyball_sync::waiting::wake_all;

/// Wakers to be woken after all locks are released.
#[derive(Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Wakes all wakers, even if some of them panic. Never panics: a panic of a waker must not reach the caller, which is often a writer.
    #[inline]
    pub(crate) fn wake(self) {
        // The panic hook has already reported the panic.
        if let Err(panic) = wake_all(self.0) {
            forget(panic);
        }
    }
}

impl Extend<Waker> for Wakers {
    fn extend<I: IntoIterator<Item = Waker>>(&mut self, wakers: I) {
        self.0.extend(wakers);
    }
}
