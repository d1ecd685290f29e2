//! SHELL. A time limit for any other future of the queue, measured by the queue's clock.
//!
//! Every future of this crate is cancel-safe, so the caller can drop a future whose limit has passed. All limits
//! share the queue's timer, so one alarm is enough for all of them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use flyball_sync::Nanos;

use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::queue::Queue;
use crate::queue::timeouts::Timeout;
use crate::state::order::Order;
use crate::time_mode::TimeMode;

/// Resolves to the output of `future`, or to `None` once the queue's clock reaches `until`. `future` is polled first,
/// even if `until` has passed.
///
/// # Cancel safety
/// Dropping a `Within` removes its timeout. The caller still owns `future`, and may drop it or poll it again.
pub(crate) struct Within<'a, F, K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> {
    queue: &'a Queue<K, O, L, T>,
    future: &'a mut F,
    until: Nanos,
    ticket: Option<Timeout>,
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Queue<K, O, L, T> {
    pub(crate) fn within<'a, F>(&'a self, limit: Duration, future: &'a mut F) -> Within<'a, F, K, O, L, T> {
        Within { queue: self, future, until: self.shared.now() + limit, ticket: None }
    }
}

impl<F, K, O, L, T> Future for Within<'_, F, K, O, L, T>
where
    F: Future + Unpin,
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: TimeMode,
{
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Poll::Ready(output) = Pin::new(&mut *this.future).poll(context) {
            return Poll::Ready(Some(output));
        }
        let shared = &this.queue.shared;
        // Cloned before locking, because a waker's vtable is user code.
        let waker = context.waker().clone();
        let now = shared.now();
        let mut locked = shared.lock();
        let timeouts = &mut locked.others.timeouts;
        let old = this.ticket.take().and_then(|own| timeouts.remove(own));
        if this.until <= now {
            // The timer may be armed for this timeout alone.
            shared.finish(locked, Some(now));
            drop((old, waker));
            return Poll::Ready(None);
        }
        this.ticket = Some(timeouts.insert(this.until, now, waker));
        locked.others.any = true;
        // `finish` arms the timer for the new timeout if that is earlier than the current alarm.
        shared.finish(locked, Some(now));
        drop(old);
        Poll::Pending
    }
}

impl<F, K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Drop for Within<'_, F, K, O, L, T> {
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
