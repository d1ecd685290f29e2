//! SHELL. Operations on a key without its lease.

use std::borrow::Borrow;
use std::hash::Hash;

use flyball_sync::Timer;

use super::Queue;
use crate::error::NotDetached;
use crate::key::Key;
use crate::lease::Lease;
use crate::limiter::QueueLimiter;
use crate::state::order::Order;

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Ends the detached lease of a key, like [`Lease::done`]. For other outcomes, use [`attach`](Self::attach).
    ///
    /// # Errors
    /// Returns [`NotDetached`] if the key has no [detached](Lease::detach) lease; in that case the queue is unchanged.
    pub fn done<Q>(&self, key: &Q) -> Result<(), NotDetached>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.attach(key).map(Lease::done)
    }

    /// Converts a key with a detached lease back into a [`Lease`].
    ///
    /// Takes a borrowed form of the key, such as `&str` for a `String`, as the other methods do that find a key.
    ///
    /// # Errors
    /// Returns [`NotDetached`] if the key has no [detached](Lease::detach) lease.
    ///
    /// # Panics
    /// Panics if `Hash`, `Eq` or `Clone` of the key panics; the lease stays detached in that case.
    ///
    /// # Examples
    /// For a framework that passes keys instead of leases:
    /// ```
    /// use flyball_workqueue::{NotDetached, Queue};
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let key = queue.try_get()?.detach();
    ///
    /// let lease = queue.attach(&key)?;
    /// assert_eq!(queue.attach(&key).unwrap_err(), NotDetached); // the lease is attached already
    /// lease.succeed();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attach<Q>(&self, key: &Q) -> Result<Lease<K>, NotDetached>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.shared.hash(key);
        let (id, key) = self.shared.lock().state.attach(key, hash).ok_or(NotDetached)?;
        Ok(Lease::new(key, id, self.shared.clone()))
    }

    /// Forgets the failures of a key. If the key waits for a deadline, the deadline does not change.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::Exponential;
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60));
    /// let queue = Queue::builder().limiter(backoff).build();
    /// queue.add_rate_limited("a")?;
    /// assert_eq!(queue.num_requeues(&"a"), 1);
    /// queue.forget(&"a");
    /// assert_eq!(queue.num_requeues(&"a"), 0);
    /// assert_eq!(queue.stats().waiting, 1); // its deadline is unchanged
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget(&self, key: &K) {
        self.shared.limiter.forget(key);
    }

    /// Returns the number of counted failures of a key since they were last forgotten.
    #[must_use]
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.shared.limiter.num_requeues(key)
    }
}
