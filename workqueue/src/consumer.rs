//! SHELL. Someone who takes keys, and can be told to stop.
//!
//! | what | guarded by |
//! |---|---|
//! | whether it was stopped | an atomic, read under the queue's lock; set before that lock is taken to wake who waits |

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_ratelimit::Policy;
use flyball_sync::locks::{AtomicUsize, Ordering};
use flyball_sync::{Clock, Monotonic};

use crate::error::GetTimeoutError;
use crate::futures::get::Get;
use crate::futures::get_many::GetMany;
#[cfg(feature = "stream")]
use crate::futures::stream::LeaseStream;
use crate::lease::Lease;
use crate::limiter::NoLimiter;
use crate::queue::Queue;
use crate::queue::shared::{Effects, Key};
use crate::state::order::{Fifo, Order};
use crate::time_mode::{NoDelays, SupportsAsync, TimeMode};

/// Takes keys until it is stopped, or the queue is closed; stopping one leaves the queue and the others alone.
///
/// Clones are handles to the same getter: give one to the worker, and keep one to [`stop`](Self::stop) it.
///
/// # Examples
/// ```
/// # use flyball_workqueue::Queue;
/// let queue = Queue::<&str>::new();
/// let getter = queue.consumer();
/// let worker = std::thread::spawn({
///     let getter = getter.clone();
///     move || while let Some(lease) = getter.blocking_get() { lease.done(); }
/// });
/// getter.stop(); // say, this replica is no longer the leader
/// worker.join().unwrap();
/// assert!(!queue.is_shutting_down());
/// ```
pub struct Consumer<K, O: Order<K> = Fifo, L = NoLimiter, T = NoDelays> {
    queue: Queue<K, O, L, T>,
    stop: Arc<Stop>,
}

/// Whether a getter was stopped.
pub(crate) struct Stop(AtomicUsize);

impl Stop {
    /// Called under the queue's lock.
    pub(crate) fn is_set(&self) -> bool {
        // Ordering: Relaxed. Who sets it takes the lock afterwards: a getter that holds the lock before does not see it,
        // but is parked or asleep when that one wakes them all; one that holds it after sees it through the lock.
        self.0.load(Ordering::Relaxed) != 0
    }
}

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: TimeMode> Consumer<K, O, L, T> {
    pub(crate) fn new(queue: Queue<K, O, L, T>) -> Self {
        Self { queue, stop: Arc::new(Stop(AtomicUsize::new(0))) }
    }

    /// [`Queue::get`]; `None` also once this getter is stopped.
    ///
    /// # Cancel safety
    /// As `Queue::get`.
    pub fn get(&self) -> Get<'_, K, O, L, T>
    where
        T: SupportsAsync,
    {
        Get::new(&self.queue, Some(self.stop.clone()))
    }

    /// [`Queue::get_many`]; nothing also once this getter is stopped.
    ///
    /// # Cancel safety
    /// As `Queue::get_many`.
    pub fn get_many(&self, most: usize) -> GetMany<'_, K, O, L, T>
    where
        T: SupportsAsync,
    {
        GetMany::new(self.get(), most)
    }

    /// [`Queue::blocking_get_many`]; nothing also once this getter is stopped.
    pub fn blocking_get_many(&self, most: usize) -> Vec<Lease<K, T>> {
        self.blocking_get().map_or_else(Vec::new, |first| self.queue.more(first, most))
    }

    /// [`Queue::stream`]; it ends also once this getter is stopped.
    #[cfg(feature = "stream")]
    pub fn stream(&self) -> LeaseStream<'_, K, O, L, T>
    where
        T: SupportsAsync,
    {
        LeaseStream::new(self.get())
    }

    /// [`Queue::blocking_get`]; `None` also once this getter is stopped.
    #[must_use = "a lease that is dropped without an outcome counts as a failure"]
    pub fn blocking_get(&self) -> Option<Lease<K, T>> {
        self.queue.block(None, Some(&self.stop)).ok()
    }

    /// [`Queue::blocking_get_timeout`].
    ///
    /// # Errors
    /// [`GetTimeoutError::Stopped`] also once this getter is stopped.
    pub fn blocking_get_timeout(&self, limit: Duration) -> Result<Lease<K, T>, GetTimeoutError> {
        self.queue.block(Some(Monotonic.now() + limit), Some(&self.stop))
    }

    /// Stops it: those who wait in it return, and it takes no key any more. Leases it gave go on. Idempotent.
    ///
    /// O(getters of the queue that wait): all of them look up.
    pub fn stop(&self) {
        // Ordering: Relaxed, see `is_set`.
        self.stop.0.store(1, Ordering::Relaxed);
        let mut effects = Effects::default();
        self.queue.shared.lock().wake_getters(&mut effects);
        self.queue.shared.perform(effects);
    }

    /// Whether it was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        // Ordering: Relaxed. Nothing follows from it.
        self.stop.0.load(Ordering::Relaxed) != 0
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &Queue<K, O, L, T> {
        &self.queue
    }
}

impl<K, O: Order<K>, L, T> Clone for Consumer<K, O, L, T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), stop: self.stop.clone() }
    }
}

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: TimeMode> fmt::Debug for Consumer<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("queue", &self.queue).field("stopped", &self.is_stopped()).finish()
    }
}
