//! SHELL. The stop flag of a consumer.
//!
//! | what | guarded by |
//! |---|---|
//! | the flag | an atomic. `stop` sets it before it takes the queue's lock to wake the waiters; getters read it under that lock |

use flyball_sync::locks::{AtomicUsize, Ordering};

pub(crate) struct StopFlag(AtomicUsize);

impl Default for StopFlag {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}

impl StopFlag {
    /// Sets the flag. The caller must then lock the queue and wake all waiters.
    pub(crate) fn set(&self) {
        // Ordering: Relaxed, see `is_set`.
        self.0.store(1, Ordering::Relaxed);
    }

    /// Returns whether the flag is set. A caller that acts on the result must hold the queue's lock.
    pub(crate) fn is_set(&self) -> bool {
        // Ordering: Relaxed. The thread that sets the flag locks the queue afterwards. A getter that holds the lock before that may miss the flag,
        // but it is parked or asleep when that thread wakes all waiters. A getter that takes the lock after that thread reads the flag as set.
        self.0.load(Ordering::Relaxed) != 0
    }
}
