//! SHELL. Waiting until a running queue is idle or empty, and a time limit for any future of a queue, by the queue's clock.
//!
//! All limits share the queue's timer, so one alarm is enough for all of them.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use flyball_sync::panics::{caught, drop_each};
use flyball_sync::waiting::Place;
use flyball_sync::{Nanos, Timer};

use crate::limiter::QueueLimiter;
use crate::queue::Key;
use crate::queue::Queue;
use crate::queue::waiters::Timeout;
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
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::new();
    /// queue.add_after("a", Duration::from_secs(3_600))?;
    /// block_on(queue.wait_idle());
    /// assert!(block_on_timeout(queue.wait_empty(), Duration::ZERO).is_none());
    /// queue.cancel(&"a");
    /// block_on(queue.wait_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    /// (A task awaits the futures; a thread waits with `block_on`, or for a limited time with `block_on_timeout`.)
    pub fn wait_idle(&self) -> impl Future<Output = ()> + Send + Unpin + use<'_, K, O, L, T> {
        WaitIdle { queue: self, empty: false, ticket: None }
    }

    /// Waits until the queue holds no key at all: no key is Ready, leased or waiting for a deadline. The queue stays open.
    ///
    /// It is unspecified whether the future also waits for a key that is added concurrently.
    ///
    /// # Cancel safety
    /// Dropping the future only ends the wait.
    pub fn wait_empty(&self) -> impl Future<Output = ()> + Send + Unpin + use<'_, K, O, L, T> {
        WaitIdle { queue: self, empty: true, ticket: None }
    }
}

/// The future of `wait_idle` and `wait_empty`. It is woken once its condition holds, and only then.
#[must_use = "futures do nothing unless awaited"]
struct WaitIdle<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> {
    queue: &'a Queue<K, O, L, T>,
    /// Whether to wait until the queue is empty, and not only idle. An idle queue may hold keys that wait for a deadline; an empty queue holds none.
    empty: bool,
    ticket: Option<Place>,
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Future for WaitIdle<'_, K, O, L, T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let shared = &this.queue.shared;
        // Cloned before locking, because a waker's vtable is user code.
        let waker = context.waker().clone();
        let now = shared.now_if_timed();
        let mut locked = shared.lock_to_check(now);
        let old = this.ticket.take().and_then(|own| locked.others.quiet(this.empty).leave(own));
        if if this.empty { locked.state.is_empty() } else { locked.state.is_idle(now) } {
            drop(locked);
            drop_each([old, Some(waker)].into_iter());
            return Poll::Ready(());
        }
        this.ticket = Some(locked.others.quiet(this.empty).park(waker));
        locked.others.any = true;
        drop(locked);
        drop(old);
        Poll::Pending
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for WaitIdle<'_, K, O, L, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let old = self.queue.shared.lock().others.quiet(self.empty).leave(ticket);
            drop_each(old.into_iter());
        }
    }
}

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
        let mut future = pin!(Some(future.into_future()));
        let mut limit = Limit { queue: self, until: self.shared.now() + limit, ticket: None };
        let output = poll_fn(|context| match future.as_mut().as_pin_mut() {
            Some(future) => limit.poll(future, context),
            None => unreachable!("the future is dropped below"),
        });
        let output = output.await;
        // Before the output is returned: if this drop panicked after that, a lease would be neither returned nor dropped.
        future.set(None);
        output
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
            // Here and not in `drop`, which may panic if the timer does: the output of an `async` block is then neither returned nor dropped, so a lease
            // would be lost. The output is returned in spite of the panic.
            caught(|| self.leave());
            return Poll::Ready(Some(output));
        }
        let shared = &self.queue.shared;
        // Cloned before locking, because a waker's vtable is user code.
        let mut waker = Some(context.waker().clone());
        let now = shared.now();
        let mut locked = shared.lock();
        locked.state.note_time(now);
        let timeouts = &mut locked.others.timeouts;
        let old = self.ticket.take().and_then(|own| timeouts.remove(own));
        let is_over = self.until <= now;
        if !is_over {
            self.ticket = waker.take().map(|waker| timeouts.insert(self.until, now, waker));
            locked.others.any = true;
        }
        // `finish` arms the timer for the new timeout if that is earlier than the current alarm. If the limit is over, the timer may be armed for this
        // timeout alone.
        shared.finish(locked, Some(now));
        // Before `future` is polled, because a lease would be lost if this drop panicked after that.
        drop_each([old, waker].into_iter());
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

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Limit<'_, K, O, L, T> {
    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let shared = &self.queue.shared;
            let mut locked = shared.lock();
            let old = locked.others.timeouts.remove(ticket);
            // The timer may be armed for this timeout alone.
            shared.finish(locked, None);
            drop_each(old.into_iter());
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for Limit<'_, K, O, L, T> {
    fn drop(&mut self) {
        self.leave();
    }
}
