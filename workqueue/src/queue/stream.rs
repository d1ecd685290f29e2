//! EDGE. The stream of leases.
//!
//! Cancel safety: dropping the stream takes no key, as with [`Get`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use flyball_sync::{ThreadTimer, Timer};

use crate::key::Key;
use crate::lease::Lease;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::queue::get_future::Get;
use crate::state::order::Order;
use crate::state::order::fifo::Fifo;

/// The stream that [`Queue::stream`](crate::Queue::stream) returns. It ends once the queue is closed.
///
/// # Cancel safety
/// Dropping the stream takes no key. If the stream had already been woken for a key, another getter is woken instead.
///
/// # Examples
/// ```
/// use flyball_sync::block_on;
/// use flyball_workqueue::{LeaseStream, Queue};
/// use futures_util::StreamExt;
///
/// let queue = Queue::new();
/// queue.add_many(["a", "b", "c"]);
/// queue.shut_down();
/// let mut leases: LeaseStream<'_, &str> = queue.stream();
/// while let Some(lease) = block_on(leases.next()) {
///     lease.succeed();
/// }
/// assert_eq!(queue.stats().ready, 0);
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct LeaseStream<'a, K: Key, O: Order<K> = Fifo, L: QueueLimiter<K> = NoLimiter, T: Timer = ThreadTimer>
{
    get: Get<'a, K, O, L, T>,
}

impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> LeaseStream<'a, K, O, L, T> {
    pub(crate) fn new(get: Get<'a, K, O, L, T>) -> Self {
        Self { get }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Stream for LeaseStream<'_, K, O, L, T> {
    type Item = Lease<K>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // A `Get` that has completed can be polled again for the next key.
        Pin::new(&mut self.get).poll(context)
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> fmt::Debug for LeaseStream<'_, K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStream").field("get", &self.get).finish()
    }
}
