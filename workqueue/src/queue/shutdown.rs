//! SHELL. How a queue pauses and ends.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use flyball_sync::{Clock, Monotonic};

use super::Queue;
use crate::futures::drain::Drain;
use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::state::Leftovers;
use crate::state::order::Order;
use crate::time_mode::{SupportsAsync, SupportsDelays, TimeMode};

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Queue<K, O, L, T> {
    /// Hands out nothing until [`resume`](Self::resume), though keys are Ready: getters wait. Idempotent.
    ///
    /// Everything else goes on: adds, deadlines, leases, and what a shutdown says. A drain resumes.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Queue, TryGetError};
    ///
    /// let queue = Queue::new();
    /// queue.pause(); // say, until the caches are synced
    /// queue.add("a")?;
    /// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    /// queue.resume();
    /// assert_eq!(*queue.try_get()?, "a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self) {
        self.set_paused(true);
    }

    /// Ends a [`pause`](Self::pause). Idempotent.
    pub fn resume(&self) {
        self.set_paused(false);
    }

    fn set_paused(&self, paused: bool) {
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock();
        locked.state.pause(paused);
        self.shared.finish(locked, now);
    }

    /// Refuses adds and marks from now on, and hands out the backlog; then `get` says closed.
    ///
    /// The backlog is what is Ready now, and leased keys that were dirty before. What waits for a later deadline,
    /// and what is retried from now on, is left over: see [`drain`](Self::drain). Idempotent; does not wait. O(leased
    /// keys that wait).
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Queue, TryGetError};
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// queue.shut_down();
    /// assert!(queue.add("b").is_err());
    /// queue.try_get()?.succeed(); // the backlog is handed out
    /// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shut_down(&self) {
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock();
        locked.state.shut_down(now);
        self.shared.finish_for_all(locked, now);
    }

    /// Shuts down and resumes, then waits until nothing is Ready or leased, and returns what was left: the keys that
    /// wait, and those of groups that are [suspended](crate::Fair::max_leased).
    ///
    /// [`stop_now`](Self::stop_now) from elsewhere ends the waiting; keys still leased are then among the leftovers.
    /// Any number of callers may drain; each gets all leftovers.
    ///
    /// # Cancel safety
    /// Nothing happens before the first poll, which shuts the queue down. Dropping the future after that only stops waiting. To shut
    /// down without waiting, use [`shut_down`](Self::shut_down).
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::{Lease, Queue};
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().with_delays().build();
    /// queue.add("a")?;
    /// queue.add_after("b", Duration::from_secs(3_600))?;
    /// let worker = thread::spawn({
    ///     let queue = queue.clone();
    ///     move || while let Some(lease) = queue.blocking_get() { lease.succeed() }
    /// });
    /// let left = block_on(queue.drain()); // waits until "a" has run
    /// assert_eq!(left.waiting, ["b"]);
    /// assert!(left.ready.is_empty() && left.leased.is_empty());
    /// worker.join().unwrap(); // `get` has returned `None`
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self) -> Drain<K, O, L, T> {
        Drain::new(self.clone(), false)
    }

    /// [`drain`](Self::drain), blocking the thread.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().with_delays().build();
    /// queue.add_after("a", Duration::from_secs(3_600))?;
    /// let left = queue.blocking_drain(); // nothing is Ready or leased: returns at once
    /// assert_eq!(left.waiting, ["a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "these keys were not finished"]
    pub fn blocking_drain(&self) -> Leftovers<K> {
        self.begin_drain();
        self.drain_until(None)
    }

    /// [`drain`](Self::drain), blocking the thread at most so long; what is Ready or leased then is left over, too.
    ///
    /// The limit is real time, whatever the queue's clock.
    #[must_use = "these keys were not finished"]
    pub fn blocking_drain_timeout(&self, limit: Duration) -> Leftovers<K> {
        self.begin_drain();
        self.drain_until(Some(Monotonic.now() + limit))
    }

    /// Stops at once: everything Ready or waiting is taken out and returned, with the keys that are still leased.
    ///
    /// Those leases end into nothing. `get` says closed from now on. A second call returns what is leased then.
    ///
    /// # Panics
    /// When `Clone` of a leased key or the clock does; nothing is stopped then. A waker that panics does not: what was
    /// taken out has to reach the caller.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{KeyState, Queue};
    ///
    /// let queue = Queue::new();
    /// queue.add_many(["a", "b"]);
    /// let lease = queue.try_get()?;
    /// let left = queue.stop_now();
    /// assert_eq!((left.ready, left.leased), (vec!["b"], vec!["a"]));
    /// lease.retry(); // ends into nothing
    /// assert_eq!(queue.state(&"a"), KeyState::Absent);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "these keys were not finished"]
    pub fn stop_now(&self) -> Leftovers<K> {
        let now = self.shared.now_if_timed();
        let mut left = Leftovers::new();
        let mut locked = self.shared.lock();
        locked.state.stop(now, &mut left);
        let _panic = catch_unwind(AssertUnwindSafe(|| self.shared.finish(locked, now)));
        left
    }

    /// Whether the queue was shut down, drained or stopped.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        !self.shared.lock().state.is_open()
    }

    pub(crate) fn begin_drain(&self) {
        self.shut_down();
        self.resume();
    }

    pub(crate) fn begin_drain_all(&self, limit: Duration) {
        let now = self.shared.now();
        let mut locked = self.shared.lock();
        locked.state.drain_delays(now, limit);
        locked.state.pause(false);
        self.shared.finish_for_all(locked, Some(now));
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: SupportsDelays> Queue<K, O, L, T> {
    /// [`drain`](Self::drain) for at most so long, by the queue's clock; what is Ready or leased then is left over, too.
    ///
    /// # Panics
    /// When the clock or the timer does.
    ///
    /// # Cancel safety
    /// As `drain`. The limit begins with the first poll.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::{Queue, ThreadTimer};
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().timer(ThreadTimer::new()).build();
    /// queue.add_many(["a", "b"]);
    /// let lease = queue.try_get()?; // of a worker that does not come back
    /// let left = block_on(queue.drain_timeout(Duration::from_millis(10)));
    /// assert_eq!((left.ready, left.leased), (vec!["b"], vec!["a"]));
    /// # drop(lease);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain_timeout(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Leftovers<K>> + Send + use<K, O, L, T>
    where
        T: SupportsAsync,
    {
        let queue = self.clone();
        async move {
            queue.begin_drain();
            queue.drain_within(limit).await
        }
    }

    /// Refuses adds and marks from now on, and serves what waits, too, until `limit` has passed: waits, retries and
    /// requeues whose deadline is not later. Then waits as [`drain`](Self::drain) does, at most until then; what is
    /// Ready, waiting or leased at the end is left over.
    ///
    /// The first call decides how long waits are served, each call how long it waits itself;
    /// [`shut_down`](Self::shut_down) and `drain` cut the serving short. On a queue that is shut down already nothing
    /// more is served.
    ///
    /// # Panics
    /// When the clock or the timer does.
    ///
    /// # Cancel safety
    /// Nothing happens before the first poll, with which `limit` begins. Dropping the future after that only stops waiting.
    ///
    /// # Examples
    /// Keys whose deadline passes within the limit are served, too:
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::{Queue, ThreadTimer};
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().timer(ThreadTimer::new()).build();
    /// queue.add_after("soon", Duration::from_millis(10))?;
    /// queue.add_after("late", Duration::from_secs(3_600))?;
    /// let worker = thread::spawn({
    ///     let queue = queue.clone();
    ///     move || while let Some(lease) = queue.blocking_get() { lease.succeed() }
    /// });
    /// let left = block_on(queue.drain_all_timeout(Duration::from_secs(60))); // does not wait that long
    /// assert_eq!(left.waiting, ["late"]);
    /// worker.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain_all_timeout(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Leftovers<K>> + Send + use<K, O, L, T>
    where
        T: SupportsAsync,
    {
        let queue = self.clone();
        async move {
            queue.begin_drain_all(limit);
            queue.drain_within(limit).await
        }
    }

    /// What a drain that has begun leaves over, or what there is once it is over.
    async fn drain_within(&self, limit: Duration) -> Leftovers<K> {
        let mut drain = Drain::new(self.clone(), true);
        match self.within(limit, &mut drain).await {
            Some(left) => left,
            None => {
                let now = Some(self.shared.now());
                // Declared before the guard, to die after it, also when a key's `Clone` panics.
                let mut left = Leftovers::new();
                self.shared.lock().state.leftovers(now, &mut left);
                left
            }
        }
    }

    /// [`drain_all_timeout`](Self::drain_all_timeout), blocking the thread.
    ///
    /// What waits is served by the queue's clock; the call returns after `limit` of real time, whatever that clock.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().clock(ManualClock::new()).build();
    /// queue.add_after("late", Duration::from_secs(3_600))?;
    /// let left = queue.blocking_drain_all_timeout(Duration::from_secs(60));
    /// assert_eq!(left.waiting, ["late"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "these keys were not finished"]
    pub fn blocking_drain_all_timeout(&self, limit: Duration) -> Leftovers<K> {
        self.begin_drain_all(limit);
        self.drain_until(Some(Monotonic.now() + limit))
    }
}
