//! SHELL. The stop flag of a consumer.
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
    /// Sets the flag. The caller must then wake all waiters, under the queue's lock.
    pub(crate) fn set(&self) {
        // Ordering: Relaxed, see `is_set`.
        self.0.store(1, Ordering::Relaxed);
    }

    /// Returns whether the flag is set. A caller that acts on the result must hold the queue's lock.
    pub(crate) fn is_set(&self) -> bool {
        // Ordering: Relaxed. The thread that sets the flag takes the lock afterwards. A getter that holds the lock
        // before that may miss the flag, but is parked or asleep when that thread wakes all waiters. A getter that
        // takes the lock after that thread reads the flag as set.
        self.0.load(Ordering::Relaxed) != 0
    }
}
