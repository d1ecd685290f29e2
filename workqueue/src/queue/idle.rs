//! SHELL. Waiting until a queue that goes on is idle, or empty.

use std::time::Duration;

use flyball_sync::{Clock, Monotonic};

use super::Queue;
use crate::futures::wait_idle::WaitIdle;
use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::state::order::Order;
use crate::time_mode::{SupportsAsync, SupportsDelays, TimeMode};

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Queue<K, O, L, T> {
    /// Waits until nothing is Ready or leased; keys may wait for deadlines. The queue goes on.
    ///
    /// Ready keys of a group that is [suspended](crate::Fair::max_leased) do not count, as nobody gets them; those of a queue that is
    /// paused do.
    ///
    /// A key that is added in the same moment may or may not be waited for: this says that the queue *was* idle.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    pub fn wait_idle(&self) -> WaitIdle<'_, K, O, L, T> {
        WaitIdle::new(self, false)
    }

    /// Waits until the queue holds no key: none is Ready, leased, or waits for a deadline. The queue goes on.
    ///
    /// A key that is added in the same moment may or may not be waited for.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    pub fn wait_empty(&self) -> WaitIdle<'_, K, O, L, T> {
        WaitIdle::new(self, true)
    }

    /// [`wait_idle`](Self::wait_idle), blocking the thread.
    pub fn blocking_wait_idle(&self) {
        self.block_until_idle(None);
    }

    /// [`wait_idle`](Self::wait_idle), blocking the thread at most so long, in real time; says whether it was idle.
    pub fn blocking_wait_idle_timeout(&self, limit: Duration) -> bool {
        self.block_until_idle(Some(Monotonic.now() + limit))
    }

    /// [`wait_empty`](Self::wait_empty), blocking the thread.
    pub fn blocking_wait_empty(&self) {
        self.block_until_empty(None);
    }

    /// [`wait_empty`](Self::wait_empty), blocking the thread at most so long, in real time; says whether it was empty.
    pub fn blocking_wait_empty_timeout(&self, limit: Duration) -> bool {
        self.block_until_empty(Some(Monotonic.now() + limit))
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: SupportsDelays + SupportsAsync> Queue<K, O, L, T> {
    /// [`wait_idle`](Self::wait_idle) for at most so long, by the queue's clock; says whether it was idle.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting. The limit begins with the first poll.
    pub async fn wait_idle_timeout(&self, limit: Duration) -> bool {
        self.within(limit, &mut self.wait_idle()).await.is_some()
    }

    /// [`wait_empty`](Self::wait_empty) for at most so long, by the queue's clock; says whether it was empty.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting. The limit begins with the first poll.
    pub async fn wait_empty_timeout(&self, limit: Duration) -> bool {
        self.within(limit, &mut self.wait_empty()).await.is_some()
    }
}
