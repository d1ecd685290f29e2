//! SHELL. A consumer of keys that can be stopped.

use std::fmt;
use std::sync::Arc;

use flyball_sync::{ThreadTimer, Timer};

use crate::futures::get::Get;
use crate::key::Key;
use crate::lease::Lease;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::queue::Queue;
use crate::queue::shared::effects::Effects;
use crate::queue::stop_flag::StopFlag;
use crate::state::order::Order;
use crate::state::order::fifo::Fifo;

/// A handle that takes keys until it is stopped or the queue is closed. Stopping a consumer affects neither the queue nor
/// other consumers.
///
/// Clones are handles to the same consumer: give one to the worker, and keep another to [`stop`](Self::stop) it.
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
pub struct Consumer<K, O: Order<K> = Fifo, L = NoLimiter, T = ThreadTimer> {
    queue: Queue<K, O, L, T>,
    stop: Arc<StopFlag>,
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Consumer<K, O, L, T> {
    pub(crate) fn new(queue: Queue<K, O, L, T>) -> Self {
        Self { queue, stop: Arc::default() }
    }

    /// Like [`Queue::get`], but also resolves to `None` once this consumer is stopped.
    ///
    /// # Cancel safety
    /// Like `Queue::get`.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::{Consumer, Queue};
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let (first, second): (Consumer<&str>, Consumer<&str>) = (queue.consumer(), queue.consumer());
    /// first.stop();
    /// assert!(block_on(first.get()).is_none()); // though a key is Ready
    /// assert_eq!(block_on(second.get()).as_deref(), Some(&"a"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self) -> Get<'_, K, O, L, T> {
        Get::new(&self.queue, Some(self.stop.clone()))
    }

    /// Like [`Queue::blocking_get`], but also returns `None` once this consumer is stopped.
    #[must_use = "a lease that is dropped without an outcome counts as a failure"]
    pub fn blocking_get(&self) -> Option<Lease<K>> {
        self.queue.block(None, Some(&self.stop)).ok()
    }

    /// Stops the consumer: its waiting getters return `None`, and it takes no more keys. Its leases continue. Idempotent.
    ///
    /// O(waiting getters of the queue): all of them are woken, and check whether their consumer was stopped.
    pub fn stop(&self) {
        self.stop.set();
        let mut effects = Effects::default();
        self.queue.shared.lock().wake_getters(&mut effects);
        self.queue.shared.perform(effects);
    }
}

impl<K, O: Order<K>, L, T> Clone for Consumer<K, O, L, T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), stop: self.stop.clone() }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> fmt::Debug for Consumer<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("queue", &self.queue).field("stopped", &self.stop.is_set()).finish()
    }
}
