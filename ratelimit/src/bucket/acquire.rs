//! SHELL. Waiting for tokens.
//!
//! For the locks see [`Shared`]. Cancel safety: a [`Waiting`] owns its place in the wait queue, and dropping it releases
//! the place and the tokens that were granted to it.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use flyball_sync::Timer;

use crate::bucket::shared::Shared;
use crate::bucket::shared::state::AcquireRequest;
use crate::coop::CoopBudget;
use crate::error::{InsufficientCapacity, TryAcquireError};

/// A wait for tokens.
pub(crate) struct Waiting<'a, T: Timer> {
    shared: &'a Shared<T>,
    request: AcquireRequest,
    coop: CoopBudget,
}

impl<'a, T: Timer> Waiting<'a, T> {
    pub(crate) fn new(shared: &'a Shared<T>, count: NonZeroU32) -> Self {
        Self::within(shared, count, None)
    }

    /// Like [`new`](Self::new), but waits for at most `limit`.
    pub(crate) fn within(shared: &'a Shared<T>, count: NonZeroU32, limit: Option<Duration>) -> Self {
        Self { shared, request: AcquireRequest { count, limit, place: None }, coop: CoopBudget::default() }
    }

    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Result<(), TryAcquireError>> {
        let Self { shared, request, coop } = self;
        coop.poll(waker, || {
            if try_without_lock(shared, request) {
                return Poll::Ready(Ok(()));
            }
            shared.poll_request(request, waker)
        })
    }
}

/// Tries to take the tokens without the lock, which works only if there are no waiters. Returns whether the tokens were taken.
fn try_without_lock<T: Timer>(shared: &Shared<T>, request: &AcquireRequest) -> bool {
    request.place.is_none() && matches!(shared.cell.try_acquire(request.count, shared.now()), Some(Ok(())))
}

impl<T: Timer> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        if let Some(place) = self.request.place.take() {
            self.shared.leave(place);
        }
    }
}

impl<T: Timer> fmt::Debug for Waiting<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, waiting) = (self.request.count, self.request.place.is_some());
        f.debug_struct("Waiting").field("count", &count).field("waiting", &waiting).finish()
    }
}

/// The future of [`RateLimiter::acquire`](crate::RateLimiter::acquire).
///
/// # Cancel safety
/// Dropping the future removes it from the wait queue. A token that was granted to the future, but not yet returned by
/// a poll, is given back as described at [`RateLimiter::acquire`](crate::RateLimiter::acquire).
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Acquire, ManualClock, ManualTimer, Quota, RateLimiter};
/// use flyball_sync::block_on_timeout;
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let limiter = RateLimiter::with_timer(Quota::per_second(NonZeroU32::MIN), clock.timer());
/// limiter.try_acquire()?;
/// let mut next: Acquire<'_, ManualTimer> = limiter.acquire();
/// assert!(block_on_timeout(&mut next, Duration::ZERO).is_none()); // polled once
/// assert_eq!(limiter.waiters(), 1);
/// clock.advance(Duration::from_secs(1));
/// assert!(block_on_timeout(next, Duration::ZERO).is_some());
/// # Ok::<(), flyball_ratelimit::NotYet>(())
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire<'a, T: Timer>(Waiting<'a, T>);

impl<'a, T: Timer> Acquire<'a, T> {
    pub(crate) const fn new(waiting: Waiting<'a, T>) -> Self {
        Self(waiting)
    }
}

impl<T: Timer> Future for Acquire<'_, T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // This cannot fail, because one token is never more than the burst.
        let _ = ready!(self.0.poll(context.waker()));
        Poll::Ready(())
    }
}

/// The future of [`RateLimiter::acquire_many`](crate::RateLimiter::acquire_many).
///
/// # Cancel safety
/// Dropping the future removes it from the wait queue. Tokens that were granted to the future, but not yet returned by
/// a poll, are given back as described at [`RateLimiter::acquire`](crate::RateLimiter::acquire).
///
/// # Examples
/// A future that is dropped takes no tokens:
/// ```
/// use flyball_ratelimit::{AcquireMany, ManualClock, ManualTimer, Quota, RateLimiter};
/// use std::num::NonZeroU32;
///
/// let five = NonZeroU32::new(5).unwrap();
/// let limiter = RateLimiter::with_timer(Quota::per_second(five), ManualClock::new().timer());
/// let five_tokens: AcquireMany<'_, ManualTimer> = limiter.acquire_many(five);
/// drop(five_tokens);
/// assert_eq!(limiter.available_tokens(), 5);
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct AcquireMany<'a, T: Timer>(Waiting<'a, T>);

impl<'a, T: Timer> AcquireMany<'a, T> {
    pub(crate) const fn new(waiting: Waiting<'a, T>) -> Self {
        Self(waiting)
    }
}

impl<T: Timer> Future for AcquireMany<'_, T> {
    type Output = Result<(), InsufficientCapacity>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match ready!(self.0.poll(context.waker())) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(TryAcquireError::InsufficientCapacity(error)) => Poll::Ready(Err(error)),
            Err(TryAcquireError::NotYet(_)) => unreachable!("the wait has no time limit"),
        }
    }
}
