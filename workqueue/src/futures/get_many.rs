//! SHELL. The async get of a batch of keys.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use flyball_sync::{ThreadTimer, Timer};

use crate::futures::get::Get;
use crate::key::Key;
use crate::lease::Lease;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::state::order::Order;
use crate::state::order::fifo::Fifo;

/// The future of [`Queue::get_many`](crate::Queue::get_many).
///
/// # Cancel safety
/// Dropping the future takes no key, as with [`Get`].
///
/// # Examples
/// ```
/// use flyball_sync::block_on;
/// use flyball_workqueue::{GetMany, Queue};
///
/// let queue = Queue::new();
/// let added = queue.add_many(["a", "b", "c"]);
/// assert_eq!(added.new, 3);
/// let batch: GetMany<'_, &str> = queue.get_many(2);
/// let (two, one) = (block_on(batch), block_on(queue.get_many(2)));
/// assert_eq!((two.len(), one.len()), (2, 1)); // the Ready keys: a batch does not wait until it is full
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct GetMany<'a, K: Key, O: Order<K> = Fifo, L: QueueLimiter<K> = NoLimiter, T: Timer = ThreadTimer> {
    first: Get<'a, K, O, L, T>,
    most: usize,
}

impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> GetMany<'a, K, O, L, T> {
    pub(crate) fn new(first: Get<'a, K, O, L, T>, most: usize) -> Self {
        Self { first, most }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Future for GetMany<'_, K, O, L, T> {
    type Output = Vec<Lease<K>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.most == 0 {
            return Poll::Ready(Vec::new());
        }
        let first = ready!(Pin::new(&mut self.first).poll(context));
        let queue = self.first.queue();
        Poll::Ready(first.map_or_else(Vec::new, |first| queue.more(first, self.most)))
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> fmt::Debug for GetMany<'_, K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetMany").field("first", &self.first).field("most", &self.most).finish()
    }
}
