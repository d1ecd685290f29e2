//! SHELL. The right to work on a key, and the duty to say how it went.

mod leasing;
pub(crate) mod outcome;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::queue::shared::Shared;
use crate::state::LeaseId;
use crate::state::order::Order;
use crate::time_mode::{NoDelays, SupportsDelays};

pub(crate) use leasing::Leasing;
pub use outcome::LeaseOutcome;

/// The right to work on a key. While it lives nobody else gets the key.
///
/// It ends by one of its outcomes. A key that was added meanwhile is Ready again then, at the tail, whatever the
/// outcome. **Dropped without an outcome, by a cancelled future, a timeout or a panic, it is a failure**, as
/// [`retry`](Self::retry): no key is ever lost.
///
/// After [`stop_now`](crate::Queue::stop_now) every lease ends into nothing.
///
/// `T` is what the queue knows of time: a worker that serves any queue takes a `Lease<K, T>`.
///
/// # Panics
/// Ending a lease panics when the clock, the limiter's policy or a waker does. The lease has ended then; if what would
/// have become of the key was not decided yet, it is Ready at the tail.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Added, Queue};
///
/// let queue = Queue::new();
/// queue.add("a")?;
/// let lease = queue.try_get()?;
/// assert_eq!(*lease, "a");
/// assert_eq!(queue.add("a")?, Added::Dirty); // an event while the worker runs
/// lease.done();
/// assert_eq!(*queue.try_get()?, "a"); // comes once more
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A function for queues with and without delays:
/// ```
/// # use flyball_workqueue::{Lease, Queue};
/// fn finish<T>(lease: Lease<&str, T>, worked: bool) {
///     if worked { lease.succeed() } else { lease.retry() }
/// }
///
/// let queue = Queue::builder().with_delays().build();
/// queue.add("a")?;
/// finish(queue.try_get()?, true);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a lease that is dropped without an outcome counts as a failure"]
pub struct Lease<K, T = NoDelays> {
    key: K,
    id: LeaseId,
    /// `None` once an outcome was given.
    queue: Option<Arc<dyn Leasing<K>>>,
    time: PhantomData<fn() -> T>,
}

impl<K, T> Lease<K, T> {
    pub(crate) fn new(key: K, id: LeaseId, queue: Arc<dyn Leasing<K>>) -> Self {
        Self { key, id, queue: Some(queue), time: PhantomData }
    }

    #[inline]
    pub(crate) fn lease_id(&self) -> LeaseId {
        self.id
    }

    /// Takes the handle of its queue out, if that is `queue`: the lease is for the caller to end then.
    #[inline]
    pub(crate) fn take_queue_if<O, L>(
        &mut self,
        queue: &Arc<Shared<K, O, L, T>>,
    ) -> Option<Arc<dyn Leasing<K>>>
    where
        O: Order<K>,
    {
        let own = self.queue.as_ref().map(|own| Arc::as_ptr(own).cast::<()>());
        if own == Some(Arc::as_ptr(queue).cast()) { self.queue.take() } else { None }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Failures of this key that were counted and not forgotten: 0 on the first try, and without a limiter.
    pub fn num_requeues(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.requeues(&self.key))
    }

    /// How long it has been held; `None` unless the queue [keeps ages](crate::Queue::track_ages).
    pub fn age(&self) -> Option<Duration> {
        self.queue.as_ref().and_then(|queue| queue.age(self.id))
    }

    /// Turns the lease into its key, without ending it: the key stays leased until [`Queue::done`](crate::Queue::done) is called with it, or
    /// [`Queue::attach`](crate::Queue::attach) makes it a lease again.
    ///
    /// For frameworks that pass the key alone. Dropping the key does not end the lease: without a call of `done` the key never
    /// runs again, and [`next_overdue`](crate::Queue::next_overdue) reports the lease.
    ///
    /// # Panics
    /// When `Clone` of the key does; it is a failure then.
    ///
    /// # Examples
    /// ```
    /// # use flyball_workqueue::Queue;
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let key = queue.try_get()?.detach();
    /// queue.done(&key)?;
    /// assert!(queue.done(&key).is_err()); // never obeyed twice
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the key is leased until `done` is called with it"]
    pub fn detach(mut self) -> K
    where
        K: Clone,
    {
        let key = self.key.clone();
        if let Some(queue) = self.queue.take() {
            queue.detach(self.id);
        }
        key
    }

    /// Ends the lease and says nothing about success: failures stay counted (client-go's `Done`).
    pub fn done(self) {
        self.end(LeaseOutcome::Done);
    }

    /// Ends the lease, says nothing about success, and has the key come back after `delay`; zero is at once, at the tail.
    ///
    /// For what is neither a success nor a failure, such as a conflict with somebody who was faster. One step, unlike a delayed
    /// add and [`done`](Self::done): the key keeps its priority, and cannot be lost in between. After shutdown it is a leftover
    /// instead.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::Exponential;
    /// # use flyball_workqueue::{KeyState, ManualClock, Queue};
    /// # use std::time::Duration;
    /// let clock = ManualClock::new();
    /// let backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60));
    /// let queue = Queue::builder().limiter(backoff).timer(clock.timer()).build();
    /// queue.add("a")?;
    /// queue.try_get()?.retry();
    /// clock.advance(Duration::from_secs(1));
    /// queue.try_get()?.done_and_requeue_after(Duration::from_millis(10));
    /// assert!(matches!(queue.state(&"a"), KeyState::Waiting(_)));
    /// assert_eq!(queue.num_requeues(&"a"), 1); // neither forgotten nor counted
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn done_and_requeue_after(self, delay: Duration)
    where
        T: SupportsDelays,
    {
        self.end(LeaseOutcome::DoneAndRequeueAfter(delay));
    }

    /// Ends the lease with success: the failures of the key are forgotten.
    pub fn succeed(self) {
        self.end(LeaseOutcome::Succeeded);
    }

    /// Ends the lease with success and has the key come back after `delay`; zero is at once, at the tail.
    ///
    /// After shutdown the key is a leftover instead.
    ///
    /// # Examples
    /// Looks at the object again every five minutes:
    /// ```
    /// # use flyball_workqueue::{ManualClock, Queue};
    /// # use std::time::Duration;
    /// let (clock, five_minutes) = (ManualClock::new(), Duration::from_secs(300));
    /// let queue = Queue::builder().clock(clock.clone()).build();
    /// queue.add("a")?;
    /// for _ in 0..3 {
    ///     queue.try_get()?.succeed_and_requeue_after(five_minutes);
    ///     assert!(!queue.has_ready());
    ///     clock.advance(five_minutes);
    /// }
    /// assert!(queue.has_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn succeed_and_requeue_after(self, delay: Duration)
    where
        T: SupportsDelays,
    {
        self.end(LeaseOutcome::SucceededAndRequeueAfter(delay));
    }

    /// Ends the lease as a failure: with a limiter it is counted and the key comes back when the limiter says;
    /// without one it is Ready again at once, at the tail.
    ///
    /// A key that ran before its backoff was over, because it was added, goes back to that same backoff: neither
    /// the count nor the deadline moves. After shutdown the key is a leftover instead.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::Exponential;
    /// # use flyball_workqueue::{KeyState, ManualClock, Nanos, Queue};
    /// # use std::time::Duration;
    /// let (clock, seconds) = (ManualClock::new(), Duration::from_secs);
    /// let queue = Queue::builder().clock(clock.clone()).limiter(Exponential::new(seconds(1)..=seconds(60))).build();
    /// queue.add("a")?;
    /// queue.try_get()?.retry(); // waits for a second
    /// queue.add("a")?; // runs at once: that failure is not counted
    /// queue.try_get()?.retry();
    /// assert_eq!(queue.state(&"a"), KeyState::Waiting(Nanos::ZERO + seconds(1)));
    /// assert_eq!(queue.num_requeues(&"a"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry(self) {
        self.end(LeaseOutcome::Failed { at_least: Duration::ZERO });
    }

    /// As [`retry`](Self::retry), and the key comes back no sooner than `least` from now; zero is `retry`.
    ///
    /// For a `Retry-After` of a server, or another minimum: the key waits for the longer of `least` and the limiter's delay.
    /// The failure counts as any other, and the limiter's delay does not depend on `least`. An add still runs the key at once,
    /// unless backoff is [strict](crate::QueueBuilder::strict_backoff).
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::Exponential;
    /// # use flyball_workqueue::{KeyState, ManualClock, Nanos, Queue};
    /// # use std::time::Duration;
    /// let clock = ManualClock::new();
    /// let seconds = Duration::from_secs;
    /// let backoff = Exponential::new(seconds(1)..=seconds(60));
    /// let queue = Queue::builder().limiter(backoff).timer(clock.timer()).build();
    /// queue.add("a")?;
    /// queue.try_get()?.retry_after_at_least(seconds(5));
    /// assert_eq!(queue.state(&"a"), KeyState::Waiting(Nanos::ZERO + seconds(5)));
    /// clock.advance(seconds(5));
    /// queue.try_get()?.retry_after_at_least(seconds(1)); // the second failure: the limiter says 2 s
    /// assert_eq!(queue.state(&"a"), KeyState::Waiting(Nanos::ZERO + seconds(7)));
    /// assert_eq!(queue.num_requeues(&"a"), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry_after_at_least(self, least: Duration)
    where
        T: SupportsDelays,
    {
        self.end(LeaseOutcome::Failed { at_least: least });
    }

    /// As [`retry_after_at_least`](Self::retry_after_at_least), unless this is failure number `most` of the key: then its failures are forgotten,
    /// and the lease is handed back, for the caller to end.
    ///
    /// For a limit of attempts beside that of the [queue](crate::QueueBuilder::give_up_after), by the same rule: a failure that the limiter
    /// does not count, as the key ran before its backoff was over, is never the last one. Without a limiter none is. Where the
    /// queue's limit is lower, it holds.
    ///
    /// # Errors
    /// The lease, after failure number `most`.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::Exponential;
    /// # use flyball_workqueue::{ManualClock, Queue};
    /// # use std::time::Duration;
    /// let clock = ManualClock::new();
    /// let seconds = Duration::from_secs;
    /// let backoff = Exponential::new(seconds(1)..=seconds(60));
    /// let queue = Queue::builder().limiter(backoff).timer(clock.timer()).build();
    /// queue.add("a")?;
    /// assert!(queue.try_get()?.retry_up_to(2, Duration::ZERO).is_ok());
    /// queue.add("a")?; // before its backoff is over
    /// assert!(queue.try_get()?.retry_up_to(2, Duration::ZERO).is_ok());
    /// clock.advance(seconds(1));
    /// let lease = queue.try_get()?.retry_up_to(2, Duration::ZERO).unwrap_err();
    /// println!("giving {} up", *lease);
    /// lease.done();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry_up_to(mut self, most: u32, least: Duration) -> Result<(), Self>
    where
        T: SupportsDelays,
    {
        let Some(queue) = &self.queue else { return Ok(()) };
        match queue.fail_up_to(&self.key, most, least) {
            Some(decision) => {
                let outcome = LeaseOutcome::Failed { at_least: least };
                if let Some(queue) = self.queue.take() {
                    queue.end_decided(self.id, &self.key, outcome, decision);
                }
                Ok(())
            }
            None => Err(self),
        }
    }

    /// Ends the lease as if the key had not been handed out: it is Ready again, at the tail, and no failure is counted.
    ///
    /// For a worker that stops before it has begun. After shutdown the key is a leftover instead.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::Exponential;
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    /// let queue = Queue::builder().limiter(backoff).build();
    /// queue.add("a")?;
    /// queue.try_get()?.requeue();
    /// assert_eq!((queue.stats().ready, queue.num_requeues(&"a")), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn requeue(self) {
        self.end(LeaseOutcome::Requeued);
    }

    /// Ends the lease by an outcome that is a value: each is described where it has a method of its own.
    ///
    /// A queue without delays ignores the delay of an outcome: the key is Ready again at once, at the tail. To end a lease and take
    /// the next key, use [`Queue::end_and_get`](crate::Queue::end_and_get).
    ///
    /// # Examples
    /// ```
    /// # use flyball_workqueue::{LeaseOutcome, Queue};
    /// # fn work(_: &str) -> Result<(), ()> { Ok(()) }
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let lease = queue.try_get()?;
    /// let outcome = work(*lease).map_or(LeaseOutcome::Dropped, |()| LeaseOutcome::Succeeded);
    /// lease.end(outcome);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn end(mut self, outcome: LeaseOutcome) {
        if let Some(queue) = self.queue.take() {
            queue.end(self.id, &self.key, outcome);
        }
    }
}

/// [`retry`](Lease::retry), unless an outcome was given.
impl<K, T> Drop for Lease<K, T> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.end(self.id, &self.key, LeaseOutcome::Dropped);
        }
    }
}

/// What it shares with the queue is whole after a panic; the key is as safe as it is by itself.
impl<K: UnwindSafe, T> UnwindSafe for Lease<K, T> {}
impl<K: RefUnwindSafe, T> RefUnwindSafe for Lease<K, T> {}

impl<K, T> Deref for Lease<K, T> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: fmt::Debug, T> fmt::Debug for Lease<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("key", &self.key).finish_non_exhaustive()
    }
}
