//! EDGE. The future that waits for a permit.
//!
//! Cancel safety: once a poll has found no free slot, the future has a place in the wait queue. A future that is dropped while it waits leaves the
//! wait queue. If a future was given a slot and is dropped before its next poll, it passes the slot to the next waiter, so no wake-up is lost. A
//! future that is not polled within [`SLOT_RESERVATION`] after it was given a slot can lose the slot.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use flyball_sync::{Clock, Monotonic};

use crate::adaptive::limiter::{Shared, Turn};
use crate::adaptive::permit::Permit;
use crate::coop::CoopBudget;

/// The future of [`ConcurrencyLimiter::acquire`](crate::ConcurrencyLimiter::acquire).
///
/// # Cancel safety
/// Dropping the future removes it from the wait queue. If the future was given a slot and has not been polled since,
/// the slot goes to the next waiter.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{AcquirePermit, AimdLimit, ConcurrencyLimiter};
/// use flyball_sync::{block_on, block_on_timeout};
/// use std::time::Duration;
///
/// let limiter = ConcurrencyLimiter::new(AimdLimit::new(1..=64, Duration::from_millis(200)));
/// let permit = block_on(limiter.acquire());
/// let mut next: AcquirePermit = limiter.acquire();
/// assert!(block_on_timeout(&mut next, Duration::ZERO).is_none()); // polled once
/// assert_eq!(limiter.waiters(), 1);
/// permit.succeed();
/// assert!(block_on_timeout(next, Duration::ZERO).is_some());
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct AcquirePermit<C: Clock = Monotonic> {
    shared: Arc<Shared<C>>,
    turn: Turn,
    coop: CoopBudget,
}

impl<C: Clock> AcquirePermit<C> {
    pub(crate) fn new(shared: Arc<Shared<C>>) -> Self {
        Self { shared, turn: Turn::default(), coop: CoopBudget::default() }
    }
}

impl<C: Clock> Future for AcquirePermit<C> {
    type Output = Permit<C>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { shared, turn, coop } = &mut *self;
        coop.poll(context.waker(), || shared.poll_start(turn, context.waker()))
    }
}

impl<C: Clock> Drop for AcquirePermit<C> {
    fn drop(&mut self) {
        if self.turn.is_waiting() {
            self.shared.give_up(&mut self.turn);
        }
    }
}

impl<C: Clock> fmt::Debug for AcquirePermit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquirePermit").field("waiting", &self.turn.is_waiting()).finish_non_exhaustive()
    }
}
