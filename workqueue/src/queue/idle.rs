//! SHELL. Waiting until a running queue is idle or empty.

use flyball_sync::Timer;

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
    /// (A task awaits the futures; a thread waits with `block_on`, or for a limited time with `block_on_timeout`.)
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
}
