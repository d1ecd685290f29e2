//! SHELL. Inspecting a queue, and waiting for an overdue lease.

use std::borrow::Borrow;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use flyball_sync::panics::{caught, drop_each};
use flyball_sync::waiting::Place;
use flyball_sync::{Nanos, Timer};

use crate::limiter::QueueLimiter;
use crate::metrics::StatsReader;
use crate::queue::Key;
use crate::queue::Queue;
use crate::queue::waiters::Timeout;
use crate::state::inspect::KeyState;
use crate::state::order::Order;
use crate::state::stats::{NextOverdue as Next, OverdueLease, QueueStats};

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Returns the number of Ready keys, including keys whose deadline has passed. O(1), plus one step for each deadline that has passed.
    #[must_use]
    pub fn ready_len(&self) -> usize {
        let now = self.shared.now_if_timed();
        self.shared.lock().state.len(now)
    }

    /// Returns whether there is a Ready key that can be handed out now, or later when a lease of its group ends. O(1); with [`Fair`](crate::Fair),
    /// plus one step for each deadline that has passed.
    ///
    /// Ready keys of a suspended group do not count, but Ready keys of a paused queue do. If there is no Ready key, keys may still be waiting or
    /// leased; for those, see [`stats`](Self::stats) and [`wait_idle`](Self::wait_idle).
    ///
    /// # Panics
    /// Panics if the clock panics.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        let now = self.shared.now_if_timed();
        self.shared.lock().state.has_ready(now)
    }

    /// Returns the statistics of the queue: the number of keys in each state, ages, and counters. Takes constant time, plus one step for each
    /// deadline that has passed, one for each leased key that also waits for a deadline, and, with [`Fair`](crate::Fair), one for each group that
    /// has keys, and a scan of the groups' hash table, whose size is that of the most groups since the queue was last empty.
    ///
    /// # Panics
    /// Panics if the clock panics.
    #[must_use]
    pub fn stats(&self) -> QueueStats {
        let now = self.shared.now_if_timed();
        self.shared.lock().state.stats(now)
    }

    /// Returns the state of a key.
    #[must_use]
    pub fn state<Q>(&self, key: &Q) -> KeyState
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.shared.hash(key);
        let now = self.shared.now_if_timed();
        self.shared.lock().state.state(key, hash, now)
    }

    /// Returns a weak handle that reads the statistics without keeping the queue alive, for example for a dashboard.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::Queue;
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let reader = queue.stats_reader();
    /// assert_eq!(reader.read().map(|stats| stats.ready), Some(1));
    /// drop(queue);
    /// assert!(reader.read().is_none()); // the reader does not keep the queue alive
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats_reader(&self) -> StatsReader {
        self.shared.stats_reader()
    }

    /// Returns all keys with their states and failures. The Ready keys come first, in the order in which they will be handed out; then the waiting
    /// keys, by deadline; then the leased keys. For debugging: O(n log n), and with [`Priority`](crate::Priority) O(p) more for each Ready key, if p
    /// priorities were ever in use; mostly under the lock.
    ///
    /// # Panics
    /// Panics if the clock, the limiter's policy or `Clone` of a key panics.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{KeyInfo, KeyState, ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().timer(ManualClock::new().timer()).build();
    /// queue.add_many(["a", "b"]);
    /// queue.add_after("c", Duration::from_secs(5))?;
    /// let _lease = queue.try_get()?;
    /// let show = |info: KeyInfo<&str>| match info.state {
    ///     KeyState::Ready => format!("{} is ready", info.key),
    ///     KeyState::Waiting(at) => format!("{} waits for {:?}", info.key, at.since(queue.now())),
    ///     _ => format!("{} is leased", info.key),
    /// };
    /// let shown: Vec<_> = queue.keys().into_iter().map(show).collect();
    /// assert_eq!(shown, ["b is ready", "c waits for 5s", "a is leased"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn keys(&self) -> Vec<KeyInfo<K>> {
        let now = self.shared.now_if_timed();
        let mut keys = Vec::new();
        self.shared.lock().state.keys_and_states(now, &mut keys);
        let info = |(key, state)| {
            let num_requeues = self.shared.limiter.num_requeues(&key);
            KeyInfo { key, state, num_requeues }
        };
        keys.into_iter().map(info).collect()
    }

    /// Checks the whole queue, and returns the first invariant that is violated. For tests. O(n).
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let locked = self.shared.lock();
        locked.check()?;
        locked.state.check()
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Returns the current time of the queue's clock. You can compare it with the deadline in [`KeyState::Waiting`].
    ///
    /// # Panics
    /// Panics if the clock panics.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.shared.now()
    }

    /// Starts to track ages. From now on, the queue reads its clock at each add and get. For keys that are in the queue already, the age is counted
    /// from now. Idempotent.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let queue = Queue::builder().timer(clock.timer()).build();
    /// queue.track_ages();
    /// queue.add("a")?;
    /// clock.advance(Duration::from_secs(3));
    /// assert_eq!(queue.stats().oldest_ready, Some(Duration::from_secs(3)));
    ///
    /// let lease = queue.try_get()?;
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(lease.age(), Some(Duration::from_secs(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn track_ages(&self) {
        let now = self.shared.now();
        let mut locked = self.shared.lock();
        locked.state.track_ages(now);
        self.shared.finish(locked, Some(now));
    }

    /// Waits until a lease has been held for `bound` or longer, for example because its worker is stuck, and returns its key and age; resolves to
    /// `None` once the queue is drained. Each lease is reported once; the oldest is reported first.
    ///
    /// The future does not check the queue periodically; it is woken when the oldest lease becomes overdue. From its first poll on, the queue [tracks
    /// ages](Self::track_ages).
    ///
    /// # Panics
    /// The future panics if the clock, the timer or `Clone` of the key panics; in that case no lease is reported.
    ///
    /// # Cancel safety
    /// Dropping the future marks no lease as reported. An overdue lease that this future would have returned is returned by the next one.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::{ManualClock, OverdueLease, Queue};
    /// use std::time::Duration;
    ///
    /// let (clock, minute) = (ManualClock::new(), Duration::from_secs(60));
    /// let queue = Queue::builder().timer(clock.timer()).build();
    /// queue.track_ages();
    /// queue.add("a")?;
    /// let lease = queue.try_get()?;
    /// clock.advance(minute);
    /// let OverdueLease { key, age, .. } = block_on(queue.next_overdue(minute)).expect("a lease is overdue");
    /// assert_eq!((key, age), ("a", minute));
    ///
    /// drop(lease);
    /// let _ = queue.stop_now();
    /// assert!(block_on(queue.next_overdue(minute)).is_none()); // no lease can become overdue
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_overdue(
        &self,
        bound: Duration,
    ) -> impl Future<Output = Option<OverdueLease<K>>> + Send + Unpin + use<'_, K, O, L, T> {
        NextOverdue { queue: self, bound, place: None, timeout: None }
    }
}

/// A key in a queue, with its state and failures, see [`Queue::keys`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct KeyInfo<K> {
    /// The key.
    pub key: K,
    /// The state of the key.
    pub state: KeyState,
    /// The number of failures of the key. The number is read shortly after the state, so it may include a change that the state does not show yet.
    pub num_requeues: u32,
}

#[must_use = "futures do nothing unless awaited"]
struct NextOverdue<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> {
    queue: &'a Queue<K, O, L, T>,
    bound: Duration,
    /// The place among the tasks that wait for a lease to begin or, with a `timeout`, for the end of the queue.
    place: Option<Place>,
    /// Set if there is a lease that becomes overdue at a known time.
    timeout: Option<Timeout>,
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Future for NextOverdue<'_, K, O, L, T> {
    type Output = Option<OverdueLease<K>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = &this.queue.shared;
        // Cloned before locking, because a waker's vtable is user code.
        let (waker, other) = (context.waker().clone(), context.waker().clone());
        let now = shared.now();
        let mut locked = shared.lock_to_check(Some(now));
        let next = locked.state.next_overdue(this.bound, now);
        let old = locked.others.leave_watchers(this.place.take(), this.timeout.take());
        let found = match next {
            Next::Lease(overdue) => Some(overdue),
            Next::Drained => None,
            Next::Wait(_) | Next::Empty => {
                let at = match next {
                    Next::Wait(at) => Some(at),
                    _ => None,
                };
                let oldest = locked.state.oldest_unreported();
                let others = &mut locked.others;
                let mut other = Some(other);
                this.place = Some(match at.zip(oldest) {
                    Some((at, oldest)) => {
                        this.timeout = other.take().map(|waker| others.timeouts.insert(at, now, waker));
                        others.park_timed_watcher(oldest, waker)
                    }
                    None => others.watchers.park(waker),
                });
                others.any = true;
                shared.finish(locked, Some(now));
                drop_each(old.into_iter().chain([other]));
                return Poll::Pending;
            }
        };
        // Each lease is reported only once, so the report must reach the caller even if another waiter's waker panics.
        caught(|| shared.finish(locked, Some(now)));
        caught(|| drop_each(old.into_iter().chain([Some(waker), Some(other)])));
        if let Some(overdue) = &found {
            shared.report(|sink| sink.lease_overdue(overdue.age));
        }
        Poll::Ready(found)
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for NextOverdue<'_, K, O, L, T> {
    fn drop(&mut self) {
        if self.place.is_some() {
            let shared = &self.queue.shared;
            let mut locked = shared.lock();
            let old = locked.others.leave_watchers(self.place.take(), self.timeout.take());
            // The timer may be armed for this task alone.
            shared.finish(locked, None);
            drop_each(old.into_iter());
        }
    }
}
