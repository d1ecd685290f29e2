//! SHELL. Pausing, draining and stopping a queue.

use std::future::Future;
use std::time::Duration;

use flyball_sync::panics::caught;
use flyball_sync::{Clock, Monotonic};

use super::Queue;
use crate::futures::drain::Drain;
use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::state::Leftovers;
use crate::state::order::Order;
use crate::time_mode::{SupportsAsync, SupportsDelays, TimeMode};

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Queue<K, O, L, T> {
    /// Pauses the queue: no key is handed out until [`resume`](Self::resume), and getters wait even if keys are Ready.
    /// Idempotent.
    ///
    /// A pause does not affect adds, deadlines, leases, or the results of a shutdown. A drain resumes the queue.
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

    /// Shuts the queue down: from now on adds are refused and leased keys cannot become dirty. The backlog is still
    /// handed out; then `get` returns `None`.
    ///
    /// The backlog is all keys that are Ready now, and the leased keys that are dirty already. Keys that wait for a
    /// later deadline, and keys that are retried from now on, are leftovers: see [`drain`](Self::drain). Idempotent;
    /// does not wait. O(leased keys that wait).
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

    /// Shuts the queue down and resumes it, then waits until no key is Ready or leased, and returns the leftovers:
    /// waiting keys, and keys of [suspended](crate::Fair::max_leased) groups.
    ///
    /// A concurrent [`stop_now`](Self::stop_now) ends the drain; keys that are still leased are then among the
    /// leftovers. Any number of callers may drain at the same time; each receives all leftovers.
    ///
    /// # Cancel safety
    /// Nothing happens before the first poll, which shuts the queue down. Dropping the future after that only stops
    /// waiting. To shut down without waiting, use [`shut_down`](Self::shut_down).
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

    /// Like [`drain`](Self::drain), but blocks the thread.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().with_delays().build();
    /// queue.add_after("a", Duration::from_secs(3_600))?;
    /// let left = queue.blocking_drain(); // no key is Ready or leased: returns immediately
    /// assert_eq!(left.waiting, ["a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "these keys were not finished"]
    pub fn blocking_drain(&self) -> Leftovers<K> {
        self.begin_drain();
        self.drain_until(None)
    }

    /// Like [`drain`](Self::drain), but blocks the thread for at most `limit`. Keys that are Ready or leased when the
    /// limit ends are leftovers, too.
    ///
    /// The limit ends the wait, not the work: Ready leftovers are still handed out. To end the work at the limit, call
    /// [`stop_now`](Self::stop_now) next, and use its leftovers.
    ///
    /// The limit is in real time, whatever the queue's clock.
    #[must_use = "these keys were not finished"]
    pub fn blocking_drain_timeout(&self, limit: Duration) -> Leftovers<K> {
        self.begin_drain();
        self.drain_until(Some(Monotonic.now() + limit))
    }

    /// Stops the queue immediately: removes and returns all Ready and waiting keys, and returns clones of the keys that
    /// are still leased.
    ///
    /// From now on `get` returns `None`, and ending one of these leases has no effect. A second call returns the keys
    /// that are still leased then.
    ///
    /// # Panics
    /// Panics if the clock or `Clone` of a leased key panics; the queue is not stopped in that case. A panic in a waker
    /// does not propagate, because the removed keys must reach the caller.
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
    /// lease.retry(); // has no effect
    /// assert_eq!(queue.state(&"a"), KeyState::Absent);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "these keys were not finished"]
    pub fn stop_now(&self) -> Leftovers<K> {
        let now = self.shared.now_if_timed();
        let mut left = Leftovers::new();
        let mut locked = self.shared.lock();
        locked.state.stop(now, &mut left);
        caught(|| self.shared.finish(locked, now));
        left
    }

    /// Returns whether the queue was shut down, drained or stopped.
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
    /// Like [`drain`](Self::drain), but waits for at most `limit` by the queue's clock. Keys that are Ready or leased
    /// when the limit ends are leftovers, too.
    ///
    /// The limit ends the wait, not the work: Ready leftovers are still handed out. To end the work at the limit, call
    /// [`stop_now`](Self::stop_now) next, and use its leftovers.
    ///
    /// # Panics
    /// Panics if the clock or the timer panics.
    ///
    /// # Cancel safety
    /// Like `drain`. The limit starts with the first poll.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::{Queue, ThreadTimer};
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().timer(ThreadTimer::new()).build();
    /// queue.add_many(["a", "b"]);
    /// let lease = queue.try_get()?; // the worker does not end the lease
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

    /// Like [`drain_timeout`](Self::drain_timeout), but also hands out delayed keys: until `limit` has passed, waiting
    /// keys, retries and requeues still become Ready at their deadline. Adds are refused, and leased keys cannot become
    /// dirty. Keys that are Ready, waiting or leased when the limit ends are leftovers, but the Ready ones are still handed
    /// out. To end the work at the limit, call [`stop_now`](Self::stop_now) next, and use its leftovers.
    ///
    /// The first call determines how long delayed keys are served; each call waits for at most its own `limit`.
    /// [`shut_down`](Self::shut_down) and `drain` stop the serving of delayed keys early. If the queue is shut down already, no delayed
    /// keys are served.
    ///
    /// # Panics
    /// Panics if the clock or the timer panics.
    ///
    /// # Cancel safety
    /// Nothing happens before the first poll, which also starts the limit. Dropping the future after that only stops
    /// waiting.
    ///
    /// # Examples
    /// Keys whose deadline passes within the limit are served:
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

    /// Waits for a drain that has begun, for at most `limit`, and returns the leftovers of the drain, or the keys that
    /// are in the queue when the limit ends.
    async fn drain_within(&self, limit: Duration) -> Leftovers<K> {
        let mut drain = Drain::new(self.clone(), true);
        match self.within(limit, &mut drain).await {
            Some(left) => left,
            None => {
                let now = Some(self.shared.now());
                // Declared before the guard, so that `left` is dropped after the guard even if a key's `Clone` panics.
                let mut left = Leftovers::new();
                self.shared.lock().state.leftovers(now, &mut left);
                left
            }
        }
    }

    /// Like [`drain_all_timeout`](Self::drain_all_timeout), but blocks the thread.
    ///
    /// Delayed keys become Ready by the queue's clock. The call returns after `limit` of real time, whatever the queue's clock shows.
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
