//! SHELL. The async drain.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use flyball_sync::waiting::Place;

use crate::key::Key;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::queue::Queue;
use crate::state::Leftovers;
use crate::state::order::{Fifo, Order};
use crate::time_mode::{NoDelays, TimeMode};

/// The future of [`Queue::drain`].
///
/// # Cancel safety
/// The first poll shuts the queue down; before it, nothing happens. If the future is dropped after its first poll, only
/// the wait ends; the queue stays shut down.
///
/// # Examples
/// The future does nothing before its first poll, so until then the queue accepts adds:
/// ```
/// use flyball_sync::block_on;
/// use flyball_workqueue::{Drain, Leftovers, Queue};
///
/// let queue = Queue::builder().with_delays().build();
/// let drain: Drain<&str, _, _, _> = queue.drain();
/// queue.add_after("a", std::time::Duration::from_secs(60))?;
/// let left: Leftovers<&str> = block_on(drain);
/// assert!(queue.add("b").is_err());
/// assert_eq!(left.waiting, ["a"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Drain<K: Key, O: Order<K> = Fifo, L: QueueLimiter<K> = NoLimiter, T: TimeMode = NoDelays> {
    queue: Queue<K, O, L, T>,
    begun: bool,
    ticket: Option<Place>,
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Drain<K, O, L, T> {
    /// Creates the future. `begun` says whether the drain has begun already; if not, the first poll begins it.
    pub(crate) fn new(queue: Queue<K, O, L, T>, begun: bool) -> Self {
        Self { queue, begun, ticket: None }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Future for Drain<K, O, L, T> {
    type Output = Leftovers<K>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !this.begun {
            this.queue.begin_drain();
            this.begun = true;
        }
        let shared = &this.queue.shared;
        // Cloned before locking, because a waker's vtable is user code.
        let waker = context.waker().clone();
        let now = shared.now_if_timed();
        // Declared before the guard, so that `left` is dropped after the guard even if a key's `Clone` panics.
        let mut left = Leftovers::new();
        let old;
        let mut locked = shared.lock();
        old = this.ticket.take().and_then(|own| locked.others.drainers.leave(own));
        if locked.state.is_drained(now) {
            locked.state.leftovers(now, &mut left);
            // The timer may be armed for this task alone.
            shared.finish(locked, now);
            drop((old, waker));
            return Poll::Ready(left);
        }
        this.ticket = Some(locked.others.drainers.park(waker));
        locked.others.any = true;
        // While the drain serves delayed keys, the queue may be drained at a time at which no operation is called. `finish` arms the timer for it.
        shared.finish(locked, now);
        drop(old);
        Poll::Pending
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Drop for Drain<K, O, L, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let shared = &self.queue.shared;
            let mut locked = shared.lock();
            let old = locked.others.drainers.leave(ticket);
            // The timer may be armed for this task alone.
            shared.finish(locked, None);
            drop(old);
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> fmt::Debug for Drain<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("queue", &self.queue).finish_non_exhaustive()
    }
}
