//! SHELL. The async drain.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use flyball_sync::Timer;
use flyball_sync::waiting::Place;

use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::queue::Queue;
use crate::state::order::Order;
use crate::state::types::Leftovers;

/// Waits until a drain that has begun is over, and resolves to the leftovers. Dropping the future only ends the wait.
pub(crate) struct Drain<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> {
    queue: &'a Queue<K, O, L, T>,
    /// How often drains had been ended when this one began.
    begun: u64,
    ticket: Option<Place>,
}

impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drain<'a, K, O, L, T> {
    pub(crate) fn new(queue: &'a Queue<K, O, L, T>, begun: u64) -> Self {
        Self { queue, begun, ticket: None }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Future for Drain<'_, K, O, L, T> {
    type Output = Leftovers<K>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = &this.queue.shared;
        // Cloned before locking, because a waker's vtable is user code.
        let waker = context.waker().clone();
        let now = shared.now_if_timed();
        // Declared before the guard, so that `left` is dropped after the guard even if a key's `Clone` panics.
        let mut left = Leftovers::new();
        let old;
        let mut locked = shared.lock();
        old = this.ticket.take().and_then(|own| locked.others.drainers.leave(own));
        if locked.state.is_drained(now) || locked.others.has_ended(this.begun) {
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

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for Drain<'_, K, O, L, T> {
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
