//! SHELL. Operations on a key without its lease.

use std::borrow::Borrow;
use std::hash::Hash;

use flyball_sync::Timer;

use super::Queue;
use crate::error::NotDetached;
use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::state::order::Order;

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Ends the detached lease of a key, like [`Lease::done`](crate::Lease::done) (client-go's `Done`). As in client-go, forget the failures of the key before it if the work
    /// succeeded, or add the key with [`add_rate_limited`](Self::add_rate_limited) before it if the work failed.
    ///
    /// Takes a borrowed form of the key, such as `&str` for a `String`, as the other methods do that find a key.
    ///
    /// # Errors
    /// Returns [`NotDetached`] if the key has no [detached](crate::Lease::detach) lease; in that case the queue is unchanged.
    ///
    /// # Panics
    /// Panics if `Hash` or `Eq` of the key or the clock panics; the lease stays detached in that case. Otherwise panics like the end of a [lease](crate::Lease#panics).
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
    /// let worked = false;
    /// if worked { queue.forget(&key) } else { drop(queue.add_rate_limited(key)?) }
    /// queue.done(&key)?;
    /// assert_eq!(queue.done(&key), Err(NotDetached)); // the lease has ended
    /// assert!(queue.has_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn done<Q>(&self, key: &Q) -> Result<(), NotDetached>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shared.end_detached(key)
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
