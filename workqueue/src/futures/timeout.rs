//! SHELL. A time limit for a future, measured by the queue's clock.
//!
//! All limits share the queue's timer, so one alarm is enough for all of them.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use flyball_sync::{Nanos, Timer};

use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::queue::Queue;
use crate::queue::timeouts::Timeout;
use crate::state::order::Order;

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Waits for `future`, but for at most `limit` by the queue's clock. Returns `None` if the limit has passed first.
    ///
    /// Use this for any future of the queue: [`get`](Self::get), [`get_many`](Self::get_many), [`wait_idle`](Self::wait_idle) and so on. It follows the
    /// queue's clock, also in a test that moves the clock by hand, and needs no runtime. The limit starts at the first poll. When the limit has passed,
    /// `future` is polled once more, so a key that is Ready then is taken, even if the limit is zero. So a worker that passes a limit of zero does not yield
    /// to other tasks while keys are Ready.
    ///
    /// # Panics
    /// Panics if the clock, the timer, the waker of another waiter or `future` panics.
    ///
    /// # Cancel safety
    /// As cancel-safe as `future`: dropping this future drops `future`, and so does a limit that passes. To poll `future` again later, or to take the
    /// key back from an [`AddWhenRoom`](crate::AddWhenRoom), pass `&mut future`.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let limit = Duration::from_millis(10);
    /// let lease = block_on(queue.timeout(limit, queue.get())).flatten().expect("a key is Ready");
    /// assert!(block_on(queue.timeout(limit, queue.get())).is_none()); // no other key
    /// assert!(block_on(queue.timeout(limit, queue.wait_idle())).is_none()); // "a" is leased
    /// # drop(lease);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn timeout<F: IntoFuture>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut future = pin!(future.into_future());
        let mut limit = Limit { queue: self, until: self.shared.now() + limit, ticket: None };
        poll_fn(|context| limit.poll(future.as_mut(), context)).await
    }
}

/// The limit of a future, and its place among the timeouts of the queue.
struct Limit<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> {
    queue: &'a Queue<K, O, L, T>,
    until: Nanos,
    ticket: Option<Timeout>,
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Limit<'_, K, O, L, T> {
    fn poll<F: Future>(
        &mut self,
        mut future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<Option<F::Output>> {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        let shared = &self.queue.shared;
        // Cloned before locking, because a waker's vtable is user code.
        let waker = context.waker().clone();
        let now = shared.now();
        let mut locked = shared.lock();
        let timeouts = &mut locked.others.timeouts;
        let old = self.ticket.take().and_then(|own| timeouts.remove(own));
        let is_over = self.until <= now;
        if !is_over {
            self.ticket = Some(timeouts.insert(self.until, now, waker));
            locked.others.any = true;
        }
        // `finish` arms the timer for the new timeout if that is earlier than the current alarm. If the limit is over, the timer may be armed for this
        // timeout alone.
        shared.finish(locked, Some(now));
        drop(old);
        if !is_over {
            return Poll::Pending;
        }
        // The first poll may have returned `Pending` only to yield to other tasks, and a key may have become Ready since then.
        match future.poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for Limit<'_, K, O, L, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let shared = &self.queue.shared;
            let mut locked = shared.lock();
            let old = locked.others.timeouts.remove(ticket);
            // The timer may be armed for this timeout alone.
            shared.finish(locked, None);
            drop(old);
        }
    }
}
