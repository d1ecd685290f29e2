//! SHELL. Waiting until a running queue is idle or empty.

use std::time::Duration;

use flyball_sync::{Clock, Monotonic, Timer};

use super::Queue;
use crate::futures::wait_idle::WaitIdle;
use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::state::order::Order;

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Waits until no key is Ready or leased. Keys may still wait for deadlines. The queue stays open.
    ///
    /// Ready keys of a [suspended](crate::Fair::max_leased) group do not count, because they cannot be handed out.
    /// Ready keys of a paused queue do count.
    ///
    /// It is unspecified whether the future also waits for a key that is added concurrently. When it completes, the queue *was* idle at some time,
    /// and need not be idle any longer.
    ///
    /// # Cancel safety
    /// Dropping the future only ends the wait.
    ///
    /// # Examples
    /// If a key waits for a deadline, the queue can be idle, but it is not [empty](Self::wait_empty):
    /// ```
    /// use flyball_sync::{block_on, block_on_timeout};
    /// use flyball_workqueue::{Queue, WaitIdle};
    /// use std::time::Duration;
    ///
    /// let queue = Queue::new();
    /// queue.add_after("a", Duration::from_secs(3_600))?;
    /// let idle: WaitIdle<'_, &str, _, _, _> = queue.wait_idle();
    /// block_on(idle);
    /// assert!(block_on_timeout(queue.wait_empty(), Duration::ZERO).is_none());
    /// queue.cancel(&"a");
    /// block_on(queue.wait_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_idle(&self) -> WaitIdle<'_, K, O, L, T> {
        WaitIdle::new(self, false)
    }

    /// Waits until the queue holds no key at all: no key is Ready, leased or waiting for a deadline. The queue stays open.
    ///
    /// It is unspecified whether the future also waits for a key that is added concurrently.
    ///
    /// # Cancel safety
    /// Dropping the future only ends the wait.
    pub fn wait_empty(&self) -> WaitIdle<'_, K, O, L, T> {
        WaitIdle::new(self, true)
    }

    /// Like [`wait_idle`](Self::wait_idle), but blocks the thread.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Lease, Queue};
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// assert!(!queue.blocking_wait_idle_timeout(Duration::from_millis(10))); // "a" is Ready
    /// let worker = thread::spawn({
    ///     let queue = queue.clone();
    ///     move || queue.blocking_get().map(Lease::succeed)
    /// });
    /// queue.blocking_wait_idle();
    /// queue.blocking_wait_empty(); // no key waits for a deadline either
    /// assert!(queue.blocking_wait_empty_timeout(Duration::ZERO));
    /// worker.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocking_wait_idle(&self) {
        self.block_until_idle(None);
    }

    /// Like [`wait_idle`](Self::wait_idle), but blocks the thread for at most `limit`, in real time. Returns true if the queue became idle within the
    /// limit.
    pub fn blocking_wait_idle_timeout(&self, limit: Duration) -> bool {
        self.block_until_idle(Some(Monotonic.now() + limit))
    }

    /// Like [`wait_empty`](Self::wait_empty), but blocks the thread.
    pub fn blocking_wait_empty(&self) {
        self.block_until_empty(None);
    }

    /// Like [`wait_empty`](Self::wait_empty), but blocks the thread for at most `limit`, in real time. Returns true if the queue became empty within
    /// the limit.
    pub fn blocking_wait_empty_timeout(&self, limit: Duration) -> bool {
        self.block_until_empty(Some(Monotonic.now() + limit))
    }
}
