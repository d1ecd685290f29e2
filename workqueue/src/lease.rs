//! SHELL. Leases: a worker's exclusive right to a key, until the worker ends the lease with an outcome.

use std::fmt;
use std::mem::needs_drop;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use flyball_sync::Timer;
use flyball_sync::panics::{caught, keep_first, raise};

use crate::limiter::QueueLimiter;
use crate::queue::Key;
use crate::queue::end::Ending;
use crate::queue::shared::Shared;
use crate::state::order::Order;
use crate::state::types::LeaseId;

/// The exclusive right to work on a key. While the lease exists, the queue does not hand the key out again.
///
/// A worker ends a lease by reporting an outcome, for example with `done` or `retry`. A key that was added while it was leased becomes Ready at the
/// tail when the lease ends, whatever the outcome; with [strict backoff](crate::QueueBuilder::strict_backoff), a failed key waits for its backoff
/// instead. **A lease that is dropped without an outcome, because of a cancelled future, a timeout or a panic, counts as a failure**, as with
/// [`retry`](Self::retry), so no key is ever lost.
///
/// After [`stop_now`](crate::Queue::stop_now), a key is not queued again when its lease ends, whatever the outcome.
///
/// # Panics
/// Ending a lease panics if the clock, the timer, the limiter's policy, the give-up hook, a waker or `Drop` of the key panics. Even then, the lease
/// has ended. If the clock or the policy panics, the queue cannot apply the outcome, and makes the key Ready at the tail.
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
/// assert_eq!(*queue.try_get()?, "a"); // handed out a second time
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A function for the leases of all queues of `&str`, whatever their orders, limiters and timers:
/// ```
/// # use flyball_workqueue::{Lease, Queue};
/// fn finish(lease: Lease<&str>, worked: bool) {
///     if worked { lease.succeed() } else { lease.retry() }
/// }
///
/// let queue = Queue::new();
/// queue.add("a")?;
/// finish(queue.try_get()?, true);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a lease that is dropped without an outcome counts as a failure"]
pub struct Lease<K> {
    key: K,
    id: LeaseId,
    /// `None` once the lease has ended or was detached.
    queue: Option<Arc<dyn Leasing<K>>>,
}

impl<K> Lease<K> {
    pub(crate) fn new(key: K, id: LeaseId, queue: Arc<dyn Leasing<K>>) -> Self {
        Self { key, id, queue: Some(queue) }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the number of counted failures of this key since they were last forgotten. The number is 0 on the first try; without a limiter it is
    /// always 0.
    pub fn num_requeues(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.requeues(&self.key))
    }

    /// Returns how long the lease has been held; `None` unless the queue [tracks ages](crate::Queue::track_ages).
    pub fn age(&self) -> Option<Duration> {
        self.queue.as_ref().and_then(|queue| queue.age(self.id))
    }

    /// Converts the lease into its key without ending the lease. The key stays leased until you call
    /// [`Queue::done`](crate::Queue::done) with the key.
    ///
    /// This is for frameworks that pass only the key to a worker. Dropping the key does not end the lease: unless `done` is called, the
    /// key is never handed out again, and [`next_overdue`](crate::Queue::next_overdue) reports the lease as overdue.
    ///
    /// # Panics
    /// Panics if `Clone` or `Drop` of the key panics; in that case the lease has ended as a failure.
    ///
    /// # Examples
    /// ```
    /// # use flyball_workqueue::Queue;
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let key = queue.try_get()?.detach();
    /// queue.done(&key)?;
    /// assert!(queue.done(&key).is_err()); // the lease has ended
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the key is leased until `done` is called with it"]
    pub fn detach(mut self) -> K
    where
        K: Clone,
    {
        let (key, id) = (self.key.clone(), self.id);
        let Some(queue) = self.queue.take() else { return key };
        // The lease's own copy of the key is dropped before the lease is detached. If that drop panics, the caller receives no key, and could not end
        // a detached lease.
        match catch_unwind(AssertUnwindSafe(|| drop(self))) {
            Ok(()) => queue.detach(id),
            Err(panic) => {
                caught(|| queue.end(id, &key, LeaseOutcome::Dropped));
                resume_unwind(panic);
            }
        }
        key
    }

    /// Ends the lease with neither success nor failure: the failure count of the key stays as it is (client-go's `Done`).
    pub fn done(self) {
        self.end(LeaseOutcome::Done);
    }

    /// Ends the lease with success and forgets the failures of the key.
    pub fn succeed(self) {
        self.end(LeaseOutcome::Succeeded);
    }

    /// Ends the lease with success, and makes the key Ready again after `delay`. A `delay` of zero makes it Ready
    /// immediately, at the tail. The key keeps its own priority, and is leased until it waits, unlike with a delayed add followed by `succeed`.
    ///
    /// After shutdown the key becomes a leftover instead, except while
    /// [a drain](crate::DrainOptions::serve_waiting) serves delayed keys.
    ///
    /// # Examples
    /// A key that runs again every five minutes:
    /// ```
    /// # use flyball_workqueue::{ManualClock, Queue};
    /// # use std::time::Duration;
    /// let (clock, five_minutes) = (ManualClock::new(), Duration::from_secs(300));
    /// let queue = Queue::builder().timer(clock.timer()).build();
    /// queue.add("a")?;
    /// for _ in 0..3 {
    ///     queue.try_get()?.requeue_after(five_minutes);
    ///     assert!(!queue.has_ready());
    ///     clock.advance(five_minutes);
    /// }
    /// assert!(queue.has_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn requeue_after(self, delay: Duration) {
        self.end(LeaseOutcome::SucceededAndRequeueAfter(delay));
    }

    /// Ends the lease as a failure. With a limiter, the failure is counted and the key is Ready again after the
    /// limiter's delay. Without a limiter, the key is Ready again immediately, at the tail.
    ///
    /// If an add makes the key Ready before its backoff is over, and the next lease also fails before that time, the backoff continues: the failure
    /// is not counted, and the deadline stays the same. After shutdown the key becomes a leftover instead, except while
    /// [a drain](crate::DrainOptions::serve_waiting) serves delayed keys.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::Exponential;
    /// # use flyball_workqueue::{KeyState, ManualClock, Nanos, Queue};
    /// # use std::time::Duration;
    /// let (clock, seconds) = (ManualClock::new(), Duration::from_secs);
    /// let queue = Queue::builder().timer(clock.timer()).limiter(Exponential::new(seconds(1)..=seconds(60))).build();
    /// queue.add("a")?;
    /// queue.try_get()?.retry(); // waits for a second
    /// queue.add("a")?; // Ready before its backoff is over: the next failure is not counted
    /// queue.try_get()?.retry();
    /// assert_eq!(queue.state(&"a"), KeyState::Waiting(Nanos::ZERO + seconds(1)));
    /// assert_eq!(queue.num_requeues(&"a"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry(self) {
        self.end(LeaseOutcome::Failed { at_least: Duration::ZERO });
    }

    /// Like [`retry`](Self::retry), but the key waits for at least `least`, and if this is failure number `most` of the key, the key is given up: its
    /// failures are forgotten, and the lease is returned to the caller, which must end it. So the caller can store the key and its last error elsewhere
    /// while no other worker has the key.
    ///
    /// The [queue's limit](crate::QueueBuilder::give_up_after) applies instead if it is lower than `most`. Metrics count the key as
    /// [given up](crate::QueueMetrics::gave_up) in both cases. A failure that the limiter does not count, such as one before the key's backoff is over,
    /// counts toward neither limit. Without a limiter no failure is counted, so the lease is never returned.
    ///
    /// # Errors
    /// Returns the lease if this is failure number `most` of the key, or if the limiter [gives the key up](flyball_ratelimit::Failure::wait).
    ///
    /// # Examples
    /// ```
    /// # use flyball_ratelimit::Exponential;
    /// # use flyball_workqueue::{ManualClock, Queue};
    /// # use std::num::NonZeroU32;
    /// # use std::time::Duration;
    /// const TWICE: NonZeroU32 = NonZeroU32::new(2).unwrap();
    /// let clock = ManualClock::new();
    /// let seconds = Duration::from_secs;
    /// let backoff = Exponential::new(seconds(1)..=seconds(60));
    /// let queue = Queue::builder().limiter(backoff).timer(clock.timer()).build();
    /// queue.add("a")?;
    /// assert!(queue.try_get()?.retry_up_to(TWICE, Duration::ZERO).is_ok());
    /// queue.add("a")?; // before its backoff is over
    /// assert!(queue.try_get()?.retry_up_to(TWICE, Duration::ZERO).is_ok());
    /// clock.advance(seconds(1));
    /// let lease = queue.try_get()?.retry_up_to(TWICE, Duration::ZERO).unwrap_err();
    /// println!("giving {} up", *lease);
    /// lease.done();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry_up_to(self, most: NonZeroU32, least: Duration) -> Result<(), Self> {
        let Some(queue) = &self.queue else { return Ok(()) };
        match queue.fail_up_to(&self.key, most.get(), least) {
            Some(ending) => {
                self.end_with(|queue, id, key| queue.end_decided(id, key, ending));
                Ok(())
            }
            None => Err(self),
        }
    }

    /// Ends the lease with an outcome that is passed as a value. [`LeaseOutcome`] lists the outcomes, with the methods that describe them.
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
    pub fn end(self, outcome: LeaseOutcome) {
        self.end_with(|queue, id, key| queue.end(id, key, outcome));
    }

    /// Ends the lease, and drops its key by itself: if it panicked while a panic of the queue's copy unwinds, the process would abort.
    #[inline]
    fn end_with(mut self, end: impl FnOnce(&dyn Leasing<K>, LeaseId, &K)) {
        let Some(queue) = self.queue.take() else { return };
        if !needs_drop::<K>() {
            return end(&*queue, self.id, &self.key);
        }
        let mut panicked = catch_unwind(AssertUnwindSafe(|| end(&*queue, self.id, &self.key)));
        keep_first(&mut panicked, catch_unwind(AssertUnwindSafe(|| drop(self))));
        raise(panicked);
    }
}

/// Ends the lease as a failure, like [`retry`](Lease::retry), unless the lease has already ended or was detached.
impl<K> Drop for Lease<K> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.end(self.id, &self.key, LeaseOutcome::Dropped);
        }
    }
}

/// After a panic, the state that the lease shares with the queue is consistent, so only the key must be unwind-safe.
impl<K: UnwindSafe> UnwindSafe for Lease<K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for Lease<K> {}

impl<K> Deref for Lease<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: fmt::Debug> fmt::Debug for Lease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The operations of a queue that its leases call. A lease holds its queue as a trait object of this trait, so the
/// type of a lease does not depend on the queue's order and limiter.
pub(crate) trait Leasing<K>: Send + Sync {
    fn end(&self, id: LeaseId, key: &K, outcome: LeaseOutcome);
    fn requeues(&self, key: &K) -> u32;
    fn fail_up_to(&self, key: &K, most: u32, at_least: Duration) -> Option<Ending>;
    fn end_decided(&self, id: LeaseId, key: &K, ending: Ending);
    fn age(&self, id: LeaseId) -> Option<Duration>;
    fn detach(&self, id: LeaseId);
}

impl<K, O, L, T> Leasing<K> for Shared<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    fn end(&self, id: LeaseId, key: &K, outcome: LeaseOutcome) {
        Shared::end(self, id, key, outcome);
    }

    fn requeues(&self, key: &K) -> u32 {
        self.limiter.num_requeues(key)
    }

    fn fail_up_to(&self, key: &K, most: u32, at_least: Duration) -> Option<Ending> {
        Shared::fail_up_to(self, key, most, at_least)
    }

    fn end_decided(&self, id: LeaseId, key: &K, ending: Ending) {
        self.end_by(id, key, ending);
    }

    fn age(&self, id: LeaseId) -> Option<Duration> {
        let now = self.now_if_timed()?;
        self.lock().state.lease_age(id, now)
    }

    fn detach(&self, id: LeaseId) {
        self.lock().state.detach(id);
    }
}

/// The outcome of a lease.
///
/// The methods of [`Lease`] end a lease with the frequent ones; [`Lease::end`] takes any. After a shutdown, a key that
/// would be Ready again later becomes a leftover instead, except while [a drain](crate::DrainOptions::serve_waiting) serves delayed keys.
///
/// A worker passes the outcome to the lease, and the queue reports the outcome to its [`QueueMetrics`](crate::QueueMetrics).
///
/// # Examples
/// A function that chooses the outcome without access to the lease:
/// ```
/// use flyball_workqueue::LeaseOutcome;
/// use std::io::{Error, ErrorKind};
/// use std::time::Duration;
///
/// fn outcome(result: Result<(), Error>) -> LeaseOutcome {
///     match result {
///         Ok(()) => LeaseOutcome::Succeeded,
///         Err(error) if error.kind() == ErrorKind::AlreadyExists => LeaseOutcome::Done,
///         Err(_) => LeaseOutcome::Failed { at_least: Duration::from_secs(1) },
///     }
/// }
///
/// assert!(outcome(Err(ErrorKind::TimedOut.into())).is_failure());
/// assert!(!outcome(Err(ErrorKind::AlreadyExists.into())).is_failure());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseOutcome {
    /// [`done`](crate::Lease::done): neither success nor failure; the failure count stays as it is.
    Done,
    /// Neither success nor failure, such as a write conflict: the key is Ready again after this delay, and immediately, at the tail, if the delay is zero.
    DoneAndRequeueAfter(Duration),
    /// [`succeed`](crate::Lease::succeed): the failures of the key are forgotten.
    Succeeded,
    /// [`requeue_after`](crate::Lease::requeue_after): the failures of the key are forgotten, and it is Ready again after this delay.
    SucceededAndRequeueAfter(Duration),
    /// [`retry`](crate::Lease::retry): a failure. The key waits for the longer of `at_least` and the limiter's delay.
    Failed {
        /// The minimum time before the key is Ready again, for example a server's `Retry-After`. It does not influence the limiter's delay. An add still
        /// makes the key Ready immediately, unless backoff is [strict](crate::QueueBuilder::strict_backoff).
        at_least: Duration,
    },
    /// The lease was dropped without an outcome, because of a panic, a timeout or a dropped future. Counts as a
    /// failure.
    Dropped,
    /// The worker did not start to work on the key: it is Ready again at the tail, and no failure is counted. This outcome is not reported to metrics.
    Requeued,
}

impl LeaseOutcome {
    /// Returns whether the outcome is a failure.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Dropped)
    }
}
