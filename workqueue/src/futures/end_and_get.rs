//! SHELL. Ending a lease and waiting for the next key, as one future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use flyball_sync::{ThreadTimer, Timer};

use crate::error::TryGetError;
use crate::futures::get::Get;
use crate::key::Key;
use crate::lease::Lease;
use crate::lease::outcome::LeaseOutcome;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::state::order::Order;
use crate::state::order::fifo::Fifo;
use crate::state::types::NextKey;

/// The future of [`Queue::end_and_get`](crate::Queue::end_and_get).
///
/// # Cancel safety
/// The lease ends with its outcome at the first poll, or when the future is dropped before its first poll. Apart from
/// that, the future is as cancel-safe as [`Get`].
///
/// # Examples
/// The lease ends even if the future is dropped before its first poll:
/// ```
/// use flyball_workqueue::{EndAndGet, LeaseOutcome, Queue};
///
/// let queue = Queue::new();
/// queue.add("a")?;
/// let lease = queue.try_get()?;
/// let next: EndAndGet<'_, &str> = queue.end_and_get(lease, LeaseOutcome::Succeeded);
/// drop(next);
/// assert_eq!(queue.stats().leased, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct EndAndGet<'a, K: Key, O: Order<K> = Fifo, L: QueueLimiter<K> = NoLimiter, T: Timer = ThreadTimer> {
    /// The lease to end and its outcome; `None` after the first poll.
    ending: Option<(Lease<K>, LeaseOutcome)>,
    get: Get<'a, K, O, L, T>,
}

impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> EndAndGet<'a, K, O, L, T> {
    pub(crate) fn new(get: Get<'a, K, O, L, T>, lease: Lease<K>, outcome: LeaseOutcome) -> Self {
        Self { ending: Some((lease, outcome)), get }
    }
}

/// `poll` never pins the key, so the future can be `Unpin`.
impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Unpin for EndAndGet<'_, K, O, L, T> {}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Future for EndAndGet<'_, K, O, L, T> {
    type Output = Option<Lease<K>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some((lease, outcome)) = this.ending.take() {
            let queue = this.get.queue();
            let next = queue.end_and_take(lease, outcome, |locked, now| {
                if locked.must_yield() {
                    // No key is taken here. If a key is Ready, the poll of `get` below yields to other tasks first.
                    return NextKey::Empty;
                }
                let next = queue.shared.next(locked, now);
                if matches!(next, NextKey::Key(..)) {
                    locked.count_immediate();
                }
                next
            });
            match next {
                Ok(lease) => return Poll::Ready(Some(lease)),
                Err(TryGetError::Closed) => return Poll::Ready(None),
                Err(TryGetError::Empty) => {}
            }
        }
        Pin::new(&mut this.get).poll(context)
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for EndAndGet<'_, K, O, L, T> {
    fn drop(&mut self) {
        if let Some((lease, outcome)) = self.ending.take() {
            lease.end(outcome);
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> fmt::Debug for EndAndGet<'_, K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndAndGet")
            .field("outcome", &self.ending.as_ref().map(|(_, outcome)| outcome))
            .field("get", &self.get)
            .finish_non_exhaustive()
    }
}
