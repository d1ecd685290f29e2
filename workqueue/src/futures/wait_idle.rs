//! SHELL. The async wait for an idle or empty queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use flyball_sync::waiting::Place;
use flyball_sync::{ThreadTimer, Timer};

use crate::key::Key;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::queue::Queue;
use crate::state::order::Order;
use crate::state::order::fifo::Fifo;

/// The future of [`Queue::wait_idle`] and [`Queue::wait_empty`]. It is woken once its condition holds, and only then.
///
/// # Cancel safety
/// Dropping the future only ends the wait.
#[must_use = "futures do nothing unless awaited"]
pub struct WaitIdle<'a, K: Key, O: Order<K> = Fifo, L: QueueLimiter<K> = NoLimiter, T: Timer = ThreadTimer> {
    queue: &'a Queue<K, O, L, T>,
    /// Whether to wait until the queue is empty, and not only idle. An idle queue may hold keys that wait for a deadline; an empty queue holds none.
    empty: bool,
    ticket: Option<Place>,
}

impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> WaitIdle<'a, K, O, L, T> {
    pub(crate) fn new(queue: &'a Queue<K, O, L, T>, empty: bool) -> Self {
        Self { queue, empty, ticket: None }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Future for WaitIdle<'_, K, O, L, T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let shared = &this.queue.shared;
        // Cloned before locking, because a waker's vtable is user code.
        let waker = context.waker().clone();
        let now = shared.now_if_timed();
        let mut locked = shared.lock();
        let old = this.ticket.take().and_then(|own| locked.others.quiet(this.empty).leave(own));
        if if this.empty { locked.state.is_empty() } else { locked.state.is_idle(now) } {
            drop(locked);
            drop((old, waker));
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
            drop(old);
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> fmt::Debug for WaitIdle<'_, K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitIdle").field("parked", &self.ticket.is_some()).finish_non_exhaustive()
    }
}
