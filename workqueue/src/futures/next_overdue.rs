//! SHELL. The async wait for an overdue lease.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use flyball_sync::panics::caught;
use flyball_sync::waiting::Place;
use flyball_sync::{ThreadTimer, Timer};

use crate::key::Key;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::queue::Queue;
use crate::state::ages::{NextOverdue as Next, OverdueLease};
use crate::state::order::Order;
use crate::state::order::fifo::Fifo;

/// The future of [`Queue::next_overdue`].
///
/// # Cancel safety
/// Dropping the future marks no lease as reported. An overdue lease that this future would have returned is returned by the next one.
///
/// # Examples
/// See [`Queue::next_overdue`].
#[must_use = "futures do nothing unless awaited"]
pub struct NextOverdue<'a, K: Key, O: Order<K> = Fifo, L: QueueLimiter<K> = NoLimiter, T: Timer = ThreadTimer>
{
    queue: &'a Queue<K, O, L, T>,
    bound: Duration,
    ticket: Option<Place>,
}

impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> NextOverdue<'a, K, O, L, T> {
    pub(crate) fn new(queue: &'a Queue<K, O, L, T>, bound: Duration) -> Self {
        Self { queue, bound, ticket: None }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Future for NextOverdue<'_, K, O, L, T> {
    type Output = Option<OverdueLease<K>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = &this.queue.shared;
        // Cloned before locking, because a waker's vtable is user code.
        let waker = context.waker().clone();
        let now = shared.now();
        let mut locked = shared.lock();
        let next = locked.state.next_overdue(this.bound, now);
        let old = this.ticket.take().and_then(|own| locked.others.watchers.leave(own));
        let found = match next {
            Next::Lease(overdue) => Some(overdue),
            Next::Drained => None,
            Next::Wait(_) | Next::Empty => {
                let at = match next {
                    Next::Wait(at) => Some(at),
                    _ => None,
                };
                let others = &mut locked.others;
                // If there is no unreported lease, all watchers wait for a lease to begin; `watch_at` is `None`, and
                // `collect_wakeups` wakes them when one begins. Otherwise all watchers wait until the time
                // `watch_at`.
                others.watch_at = match others.watch_at {
                    Some(other) if others.watchers.waiting() > 0 => at.map(|at| at.min(other)),
                    _ => at,
                };
                this.ticket = Some(others.watchers.park(waker));
                others.any = true;
                shared.finish(locked, Some(now));
                drop(old);
                return Poll::Pending;
            }
        };
        // Each lease is reported only once, so the report must reach the caller even if another waiter's waker panics.
        caught(|| shared.finish(locked, Some(now)));
        drop((old, waker));
        if let Some(overdue) = &found {
            shared.report(|sink| sink.lease_overdue(overdue.age));
        }
        Poll::Ready(found)
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for NextOverdue<'_, K, O, L, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let shared = &self.queue.shared;
            let mut locked = shared.lock();
            let old = locked.others.watchers.leave(ticket);
            // The timer may be armed for this task alone.
            shared.finish(locked, None);
            drop(old);
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> fmt::Debug for NextOverdue<'_, K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextOverdue").field("bound", &self.bound).finish_non_exhaustive()
    }
}
