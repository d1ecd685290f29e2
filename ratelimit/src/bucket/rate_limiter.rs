//! SHELL. A token bucket with a wait queue.
//!
//! For the locks see [`Shared`].

use std::fmt;
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use flyball_sync::{Nanos, ThreadTimer, Timer};

use crate::bucket::acquire::{Acquire, AcquireMany, Waiting};
use crate::bucket::quota::Quota;
use crate::bucket::reservation::Reservation;
use crate::bucket::shared::Shared;
use crate::error::{InsufficientCapacity, NotYet, TryAcquireError};

/// A token bucket that threads and tasks share, and in which they can wait for tokens: a [`TokenBucket`](crate::TokenBucket) with a clock and a wait
/// queue.
///
/// Clones are handles to the same bucket.
///
/// **Fair.** Tasks and threads wait in one queue, which is served in FIFO order. While there are waiters, no call overtakes them, not even
/// [`try_acquire`](Self::try_acquire). So a request for a whole burst is granted even if many small requests come after it.
///
/// **Exact.** Any span of `d` nanoseconds contains at most `burst` + rate × `d` tokens that are granted and not given
/// back. A waiter is granted its tokens when the timer fires for their due time. A timer that fires late, as tokio's
/// does by up to a millisecond, delays that grant, but not the next ones, as long as the bucket does not fill up
/// meanwhile. So if the rate is above one token per millisecond, set a burst of at least a few tokens.
///
/// **No thundering herd, and no work while idle.** A waiter is polled twice: to join the wait queue, and to receive its tokens. At most one alarm is
/// set, for the first waiter or the earliest time limit. There is no background task or thread. A waiter that is never polled is granted its tokens
/// in FIFO order, and the waiters behind it are served. (The exception is a timer that wakes too early from inside `wake_at`: then only the first
/// waiter is woken, and it sets the alarm again. If that waiter is never polled, the waiters behind it are served at the next call.)
///
/// While there are no waiters, taking tokens is one atomic compare-and-exchange and one reading of the clock; while
/// there are waiters, it takes a lock.
///
/// The timer of [`new`](Self::new) is a [`ThreadTimer`], which needs no runtime; its thread exists only while there are waiters. A thread waits with
/// `block_on`.
///
/// # Memory ordering
/// Taking a token or giving one back does not synchronise any other memory.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{RateLimiter, Quota};
/// use flyball_sync::block_on;
/// use std::num::NonZeroU32;
///
/// let hundred = NonZeroU32::new(100).unwrap();
/// let bucket = RateLimiter::new(Quota::per_second(hundred));
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..25).for_each(|_| block_on(bucket.acquire())));
///     }
/// });
/// block_on(bucket.acquire()); // waits for the next one
/// ```
pub struct RateLimiter<T = ThreadTimer> {
    shared: Arc<Shared<T>>,
}

impl RateLimiter {
    /// Creates a full bucket. Its timer is a [`ThreadTimer`], so its waits run on any executor.
    #[must_use]
    pub fn new(quota: Quota) -> Self {
        Self::with_timer(quota, ThreadTimer::new())
    }
}

impl<T: Timer> RateLimiter<T> {
    /// Creates a full bucket with a timer of your choice.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::{RateLimiter, ManualClock, Quota};
    /// # use std::{future::Future, num::NonZeroU32, pin::pin, task::{Context, Waker}, time::Duration};
    /// let clock = ManualClock::new(); // in a program, a `TokioTimer`
    /// let bucket = RateLimiter::with_timer(Quota::per_second(NonZeroU32::MIN), clock.timer());
    /// bucket.try_acquire().unwrap();
    /// let mut next = pin!(bucket.acquire());
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(next.as_mut().poll(&mut context).is_pending());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(next.as_mut().poll(&mut context).is_ready());
    /// ```
    #[must_use]
    pub fn with_timer(quota: Quota, timer: T) -> Self {
        Self { shared: Shared::new(quota, timer) }
    }

    /// Waits for a token. After 127 tokens without a wait on one thread, the future yields once to other tasks.
    ///
    /// # Cancel safety
    /// Dropping the future removes it from the wait queue. A token that was granted to it goes to the next waiter. If
    /// there is no waiter, the token goes back to the bucket, except for the part that would have overflowed since the grant.
    /// A granted token counts as used if its due time was fixed by a [reservation](Self::reserve), or if the quota has [changed](Self::set_quota) since.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::{Quota, RateLimiter};
    /// # use std::num::NonZeroU32;
    /// async fn call(limiter: &RateLimiter) {
    ///     limiter.acquire().await; // then the request itself
    /// }
    ///
    /// let hundred = NonZeroU32::new(100).unwrap();
    /// let limiter = RateLimiter::new(Quota::per_second(hundred)); // on tokio, `with_timer` and a `TokioTimer`
    /// flyball_sync::block_on(call(&limiter));
    /// ```
    pub fn acquire(&self) -> Acquire<'_, T> {
        Acquire::new(Waiting::new(&self.shared, NonZeroU32::MIN))
    }

    /// Waits for `count` tokens, which are granted together.
    ///
    /// # Errors
    /// Returns [`InsufficientCapacity`] if `count` is above the burst, because such a request can never be granted, or if the
    /// burst falls below `count` during the wait.
    ///
    /// # Cancel safety
    /// Like [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::{Quota, RateLimiter};
    /// # use flyball_sync::block_on;
    /// # use std::{num::NonZeroU32, time::Duration};
    /// let (five, six) = (NonZeroU32::new(5).unwrap(), NonZeroU32::new(6).unwrap());
    /// let limiter = RateLimiter::new(Quota::per_second(five));
    /// assert!(block_on(limiter.acquire_many(five)).is_ok());
    /// assert!(block_on(limiter.acquire_many(six)).is_err()); // fails immediately: more than the burst
    /// let limit = Duration::from_millis(10);
    /// assert!(block_on(limiter.acquire_many_timeout(five, limit)).is_err()); // timed out
    /// ```
    pub fn acquire_many(&self, count: NonZeroU32) -> AcquireMany<'_, T> {
        AcquireMany::new(Waiting::new(&self.shared, count))
    }

    /// Waits for a token for at most `limit`, by the timer's clock. With a `limit` of zero, this is [`try_acquire`](Self::try_acquire),
    /// except that it may yield once to other tasks, like [`acquire`](Self::acquire).
    ///
    /// If the token arrives too late even if all waiters leave the wait queue and all their tokens go back, this fails at the first poll, without waiting:
    /// by the quota at that time, and if no reservation is cancelled. Otherwise the limit starts at the first poll, and the timer wakes the future when it is over. The
    /// waiters behind the future then move up, whether or not the future is polled. If the timer or the poll is late, a token that has become available by
    /// then, and for which no other waiter waits, is still taken.
    ///
    /// # Errors
    /// Returns [`NotYet`] like [`try_acquire`](Self::try_acquire), by the time of the failure; no token was taken.
    ///
    /// # Cancel safety
    /// Like [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::{Quota, RateLimiter};
    /// # use flyball_sync::block_on;
    /// # use std::{num::NonZeroU32, time::Duration};
    /// let hundred = NonZeroU32::new(100).unwrap();
    /// let limiter = RateLimiter::new(Quota::per_second(hundred).allow_burst(NonZeroU32::MIN));
    /// limiter.try_acquire()?;
    /// assert!(block_on(limiter.acquire_timeout(Duration::from_secs(1))).is_ok()); // after 10 ms
    /// let late = block_on(limiter.acquire_timeout(Duration::from_millis(1))).unwrap_err(); // fails immediately
    /// println!("retry after {:?}", late.retry_after());
    /// # Ok::<(), flyball_ratelimit::NotYet>(())
    /// ```
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<(), NotYet> {
        one(self.acquire_many_timeout(NonZeroU32::MIN, limit).await)
    }

    /// Waits for `count` tokens, which are granted together, for at most `limit`: see [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Errors
    /// Returns [`TryAcquireError::NotYet`] like `acquire_timeout`, or [`TryAcquireError::InsufficientCapacity`] if `count` is above the burst. No token
    /// was taken.
    ///
    /// # Cancel safety
    /// Like [`acquire`](Self::acquire).
    pub async fn acquire_many_timeout(
        &self,
        count: NonZeroU32,
        limit: Duration,
    ) -> Result<(), TryAcquireError> {
        let mut waiting = Waiting::within(&self.shared, count, Some(limit));
        poll_fn(|context| waiting.poll(context.waker())).await
    }
}

impl<T: Timer> RateLimiter<T> {
    /// Takes a token if one is available now and there is no waiter.
    ///
    /// # Errors
    /// Returns [`NotYet`] with the time at which a token will be available after all waiters have received theirs; nothing is
    /// reserved.
    #[inline]
    pub fn try_acquire(&self) -> Result<(), NotYet> {
        one(self.take(NonZeroU32::MIN))
    }

    /// Takes `count` tokens if all of them are available now and there is no waiter; otherwise takes none.
    ///
    /// # Errors
    /// Returns [`TryAcquireError::NotYet`] like `try_acquire`, or [`TryAcquireError::InsufficientCapacity`] for more
    /// tokens than the burst. Nothing is reserved in either case.
    #[inline]
    pub fn try_acquire_many(&self, count: NonZeroU32) -> Result<(), TryAcquireError> {
        self.take(count)
    }

    /// Reserves the next token after those of all current waiters. Use this if you wait with a timer of your own: for example, a queue that delays a
    /// key has such a timer.
    ///
    /// A reservation fixes the due times of the current waiters: a later change of the quota no longer moves these times, and a timer that fires late
    /// delays only that grant, not the next one. The waiters' tokens then count as taken at their due times, as the reserved token does. O(waiters that have
    /// joined since the last reservation), under the lock.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::{RateLimiter, ManualClock, Quota};
    /// # use std::{num::NonZeroU32, time::Duration};
    /// let bucket = RateLimiter::with_timer(Quota::per_second(NonZeroU32::MIN), ManualClock::new().timer());
    /// bucket.try_acquire().unwrap();
    /// let next = bucket.reserve();
    /// assert_eq!(next.delay(bucket.now()), Duration::from_secs(1));
    /// assert!(bucket.cancel(next));
    /// ```
    pub fn reserve(&self) -> Reservation {
        match self.reserve_many(NonZeroU32::MIN) {
            Ok(reservation) => reservation,
            Err(_) => unreachable!("a burst is one or more"),
        }
    }

    /// Takes the next `count` tokens ahead of time. All of them are due at the due time of the last one. See
    /// [`reserve`](Self::reserve).
    ///
    /// # Errors
    /// Returns [`InsufficientCapacity`] for more tokens than the burst; nothing is reserved in that case.
    pub fn reserve_many(&self, count: NonZeroU32) -> Result<Reservation, InsufficientCapacity> {
        self.shared.reserve(count, self.shared.now())
    }

    /// Gives back tokens that were not used, and returns whether this had an effect. The rule is that of
    /// [`TokenBucket::cancel`](crate::TokenBucket::cancel), with one more case in which the call has no effect: tokens that were granted after the
    /// reservation have been returned unused, for example from an [`Acquire`] that was dropped before it returned them. Tokens that are given back go
    /// to the waiters first.
    pub fn cancel(&self, reservation: Reservation) -> bool {
        self.shared.cancel(reservation, self.shared.now())
    }

    /// Changes rate and burst from now on, also for waiters.
    ///
    /// Available tokens stay available, up to the new burst; a larger burst fills up at the new rate. A waiter that
    /// needs more than the new burst gets [`InsufficientCapacity`]. Tokens that are already reserved keep their due times.
    ///
    /// O(waiters).
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::{Quota, RateLimiter};
    /// # use std::num::NonZeroU32;
    /// let five = NonZeroU32::new(5).unwrap();
    /// let limiter = RateLimiter::new(Quota::per_hour(five));
    /// limiter.try_acquire_many(five)?; // all tokens of an hour
    /// let more = Quota::per_second(NonZeroU32::new(500).unwrap());
    /// limiter.set_quota(more);
    /// assert_eq!(limiter.quota(), more);
    /// flyball_sync::block_on(limiter.acquire_many(five)).unwrap(); // after 10 ms
    /// # Ok::<(), flyball_ratelimit::TryAcquireError>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) {
        self.shared.set_quota(quota, self.shared.now());
    }

    /// The current quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.shared.quota()
    }

    /// The number of tokens that could be taken now: zero while there are waiters.
    #[must_use]
    pub fn available_tokens(&self) -> u32 {
        let now = self.shared.now();
        self.shared.cell.available(now).unwrap_or_else(|| self.shared.available(now))
    }

    /// The number of waiters.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.shared.waiting()
    }

    /// The time on the bucket's clock, for [`Reservation::delay`].
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.shared.now()
    }

    /// Checks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.shared.check()
    }

    #[inline]
    fn take(&self, count: NonZeroU32) -> Result<(), TryAcquireError> {
        let now = self.shared.now();
        match self.shared.cell.try_acquire(count, now) {
            Some(taken) => Ok(taken?),
            None => self.shared.try_acquire(count, now),
        }
    }
}

/// The result of a request for one token.
#[inline]
fn one(result: Result<(), TryAcquireError>) -> Result<(), NotYet> {
    match result {
        Ok(()) => Ok(()),
        Err(TryAcquireError::NotYet(error)) => Err(error),
        Err(TryAcquireError::InsufficientCapacity(_)) => unreachable!("a burst is one or more"),
    }
}

impl<T> Clone for RateLimiter<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T: Timer> fmt::Debug for RateLimiter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (quota, waiting) = (self.quota(), self.waiters());
        f.debug_struct("RateLimiter")
            .field("quota", &quota)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}
