//! SHELL. The async gets: of a key, and of a batch of keys.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use flyball_sync::panics::{caught, drop_each};
use flyball_sync::waiting::Place;
use flyball_sync::{ThreadTimer, Timer};

use crate::lease::Lease;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::queue::Key;
use crate::queue::Queue;
use crate::state::order::Order;
use crate::state::order::fifo::Fifo;
use crate::state::types::NextKey;

/// The future of [`Queue::get`].
///
/// # Cancel safety
/// Dropping the future takes no key. If the future had already been woken for a key, another getter is woken instead. If a woken future is neither
/// polled nor dropped, its wake-up is not passed on to another getter, so drop a future that you no longer poll.
///
/// # Examples
/// Dropping the future takes no key, so you can use `get` in a `select!`:
/// ```
/// use flyball_sync::{block_on, block_on_timeout};
/// use flyball_workqueue::{Get, Queue};
/// use std::time::Duration;
///
/// let queue = Queue::new();
/// let get: Get<'_, &str> = queue.get();
/// assert!(block_on_timeout(get, Duration::ZERO).is_none()); // polled once, and dropped
/// queue.add("a")?;
/// assert_eq!(block_on(queue.get()).as_deref(), Some(&"a"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Get<'a, K: Key, O: Order<K> = Fifo, L: QueueLimiter<K> = NoLimiter, T: Timer = ThreadTimer> {
    queue: &'a Queue<K, O, L, T>,
    ticket: Option<Place>,
    /// Whether the future has yielded to other tasks since it last returned a key. It yields at most once before it returns a key. Otherwise a task
    /// that is always polled after many other tasks would yield every time, and would never receive a key.
    has_yielded: bool,
}

impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Get<'a, K, O, L, T> {
    pub(crate) fn new(queue: &'a Queue<K, O, L, T>) -> Self {
        Self { queue, ticket: None, has_yielded: false }
    }

    pub(crate) fn queue(&self) -> &'a Queue<K, O, L, T> {
        self.queue
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Future for Get<'_, K, O, L, T> {
    type Output = Option<Lease<K>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = &this.queue.shared;
        let mut waker = None;
        loop {
            let now = shared.now_if_timed();
            let mut locked = shared.lock();
            if locked.must_yield()
                && !this.has_yielded
                && this.ticket.is_none()
                && locked.state.may_hand_out(now)
            {
                drop(locked);
                this.has_yielded = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let next = shared.next(&mut locked, now);
            if matches!(next, NextKey::GatherMore) {
                continue;
            }
            if matches!(next, NextKey::Wait(_) | NextKey::Empty) {
                if this.ticket.as_ref().is_some_and(|own| locked.getters.waits_for(own, context.waker())) {
                    // The task is parked already. `finish` is called nevertheless, because the next deadline may have changed since the task parked.
                    shared.finish(locked, now);
                    return Poll::Pending;
                }
                let Some(waker) = waker.take() else {
                    // The waker is cloned outside the lock, because its vtable is user code. A key may be added meanwhile, so the next iteration
                    // checks again before it parks the task. Without the check, the wake-up for that key would be lost.
                    drop(locked);
                    waker = Some(context.waker().clone());
                    continue;
                };
                let old = this.ticket.take().and_then(|own| locked.getters.leave(own));
                this.ticket = Some(locked.getters.park(waker));
                shared.finish(locked, now);
                drop(old);
                return Poll::Pending;
            }
            let waited = this.ticket.is_some();
            let old = this.ticket.take().and_then(|own| locked.getters.leave(own));
            let NextKey::Key(id, key) = next else {
                shared.finish(locked, now);
                return Poll::Ready(None);
            };
            if !waited {
                locked.count_immediate();
            }
            // `LeaseStream` polls this future again for the next key. That poll may yield again.
            this.has_yielded = false;
            let lease = this.queue.lease(locked, now, id, key);
            // If the drop of a waker panicked here, the lease would be neither returned nor dropped, and the key would never run again.
            for unused in old.into_iter().chain(waker.take()) {
                caught(|| drop(unused));
            }
            return Poll::Ready(Some(lease));
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for Get<'_, K, O, L, T> {
    fn drop(&mut self) {
        let shared = &self.queue.shared;
        let Some(ticket) = self.ticket.take() else {
            if self.has_yielded {
                shared.lock().cancel_yield();
            }
            return;
        };
        let mut locked = shared.lock();
        let old = locked.getters.leave(ticket);
        // If this getter was woken, `finish` wakes another getter instead. Without this, a key whose getter was woken and then dropped would not be
        // handed out before the next add. Model: workqueue::cancelled_getter_wakes_next. `drop` does not read the clock, because a clock may panic.
        // If a deadline has passed already, the alarm that `finish` sets for it fires immediately.
        shared.finish(locked, None);
        drop_each(old.into_iter());
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> fmt::Debug for Get<'_, K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get").field("parked", &self.ticket.is_some()).finish_non_exhaustive()
    }
}

/// The future of [`Queue::get_many`](crate::Queue::get_many).
#[must_use = "futures do nothing unless awaited"]
pub(crate) struct GetMany<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> {
    pub(crate) first: Get<'a, K, O, L, T>,
    pub(crate) most: usize,
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
#[cfg(feature = "stream")]
#[must_use = "streams do nothing unless polled"]
pub struct LeaseStream<'a, K: Key, O: Order<K> = Fifo, L: QueueLimiter<K> = NoLimiter, T: Timer = ThreadTimer>
{
    get: Get<'a, K, O, L, T>,
}

#[cfg(feature = "stream")]
impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> LeaseStream<'a, K, O, L, T> {
    pub(crate) fn new(get: Get<'a, K, O, L, T>) -> Self {
        Self { get }
    }
}

#[cfg(feature = "stream")]
impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> futures_core::Stream for LeaseStream<'_, K, O, L, T> {
    type Item = Lease<K>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // A `Get` that has completed can be polled again for the next key.
        Pin::new(&mut self.get).poll(context)
    }
}

#[cfg(feature = "stream")]
impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> fmt::Debug for LeaseStream<'_, K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStream").field("get", &self.get).finish()
    }
}
