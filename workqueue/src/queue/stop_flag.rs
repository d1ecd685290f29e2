//! SHELL. Whether a consumer was stopped.
//!
//! | what | guarded by |
//! |---|---|
//! | the flag | an atomic, read under the queue's lock; set before that lock is taken to wake the waiters |

use flyball_sync::locks::{AtomicUsize, Ordering};

pub(crate) struct StopFlag(AtomicUsize);

impl Default for StopFlag {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}

impl StopFlag {
    /// To be followed by a wake-up of all who wait, under the queue's lock.
    pub(crate) fn set(&self) {
        // Ordering: Relaxed, see `is_set`.
        self.0.store(1, Ordering::Relaxed);
    }

    /// Who acts on it calls this under the queue's lock.
    pub(crate) fn is_set(&self) -> bool {
        // Ordering: Relaxed. Who sets it takes the lock afterwards: a getter that holds the lock before does not see it,
        // but is parked or asleep when that one wakes them all; one that holds it after sees it through the lock.
        self.0.load(Ordering::Relaxed) != 0
    }
}
