//! SHELL. Waiting for the queue to run dry, as a task.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use flyball_ratelimit::Policy;

use crate::core::Leftovers;
use crate::limiter::NoLimit;
use crate::order::{Fifo, Order};
use crate::parked::Ticket;
use crate::queue::Queue;
use crate::shared::Key;
use crate::time::{NoDelay, Time};

/// The future of [`Queue::drain`].
///
/// # Cancel safety
/// Dropping it only stops waiting; the queue stays shut down.
#[must_use = "futures do nothing unless awaited"]
pub struct Drain<K: Key, O: Order = Fifo, L: Policy<K> + Send + 'static = NoLimit, T: Time = NoDelay> {
    queue: Queue<K, O, L, T>,
    ticket: Option<Ticket>,
}

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Drain<K, O, L, T> {
    pub(crate) fn new(queue: Queue<K, O, L, T>) -> Self {
        Self { queue, ticket: None }
    }
}

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Future for Drain<K, O, L, T> {
    type Output = Leftovers<K>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Cloned before locking: a waker's vtable is user code.
        let waker = context.waker().clone();
        let mut left = Leftovers::new();
        let mut state = this.queue.shared.lock();
        let old = this.ticket.take().and_then(|own| state.drainers.leave(own));
        if state.core.is_drained() {
            state.core.leftovers(None, &mut left);
            drop(state);
            drop((old, waker));
            return Poll::Ready(left);
        }
        this.ticket = Some(state.drainers.park(waker));
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Drop for Drain<K, O, L, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let old = self.queue.shared.lock().drainers.leave(ticket);
            drop(old);
        }
    }
}

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> fmt::Debug for Drain<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("queue", &self.queue).finish_non_exhaustive()
    }
}
