//! SHELL. The async get of a batch of keys.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::futures::get::Get;
use crate::key::Key;
use crate::lease::Lease;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::state::order::{Fifo, Order};
use crate::time_mode::{NoDelays, SupportsAsync};

/// The future of [`Queue::get_many`](crate::Queue::get_many).
///
/// # Cancel safety
/// Dropping the future takes no key, as with [`Get`].
///
/// # Examples
/// ```
/// use flyball_sync::block_on;
/// use flyball_workqueue::{GetMany, GetTimeoutError, Queue, ThreadTimer};
/// use std::time::Duration;
///
/// let queue = Queue::builder().timer(ThreadTimer::new()).build();
/// queue.add_many(["a", "b", "c"]);
/// let batch: GetMany<'_, &str, _, _, _> = queue.get_many(2);
/// let two = block_on(batch);
/// let one = block_on(queue.get_many_timeout(2, Duration::from_secs(60)))?;
/// assert_eq!((two.len(), one.len()), (2, 1)); // the Ready keys: a batch does not wait until it is full
/// let none = block_on(queue.get_many_timeout(2, Duration::from_millis(10)));
/// assert_eq!(none.unwrap_err(), GetTimeoutError::TimedOut);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct GetMany<
    'a,
    K: Key,
    O: Order<K> = Fifo,
    L: QueueLimiter<K> = NoLimiter,
    T: SupportsAsync = NoDelays,
> {
    first: Get<'a, K, O, L, T>,
    most: usize,
}

impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: SupportsAsync> GetMany<'a, K, O, L, T> {
    pub(crate) fn new(first: Get<'a, K, O, L, T>, most: usize) -> Self {
        Self { first, most }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: SupportsAsync> Future for GetMany<'_, K, O, L, T> {
    type Output = Vec<Lease<K, T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.most == 0 {
            return Poll::Ready(Vec::new());
        }
        let first = ready!(Pin::new(&mut self.first).poll(context));
        let queue = self.first.queue();
        Poll::Ready(first.map_or_else(Vec::new, |first| queue.more(first, self.most)))
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: SupportsAsync> fmt::Debug for GetMany<'_, K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetMany").field("first", &self.first).field("most", &self.most).finish()
    }
}
