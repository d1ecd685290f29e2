//! SHELL. The queue itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_ratelimit::{Clock, Monotonic, Nanos, Policy};

use crate::builder::Builder;
use crate::core::{Added, Counts, Handle, KeyState, Leftovers, Next};
use crate::drain::Drain;
use crate::error::{GetTimeoutError, Refused, TryGetError};
use crate::get::Get;
use crate::lease::Lease;
use crate::limiter::NoLimit;
use crate::order::{Fifo, Order};
use crate::shared::{Key, Shared, State};
use crate::sync::MutexGuard;
use crate::time::{AsyncGet, Delays, NoDelay, Time};

/// Which key runs next, and never twice at once.
///
/// A key is held once, however often it is added. It is handed out to one [`Lease`] at a time; added meanwhile, it
/// comes once more when the lease ends. Keys come first in, first out; a delayed key takes its place at its deadline.
/// Clones are handles to the same queue. Nothing runs in the background.
///
/// The type says what the queue can do: its order `O`, its limiter `L` and what it knows of time `T` (see
/// [`Time`]). [`Queue::new`] has neither limiter nor delays; [`Queue::builder`] adds them.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Added, Queue};
///
/// let queue = Queue::new();
/// assert_eq!(queue.add("a")?, Added::New);
/// assert_eq!(queue.add("a")?, Added::Merged);
/// queue.try_get()?.done();
/// assert!(queue.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queue<K, O = Fifo, L = NoLimit, T = NoDelay> {
    pub(crate) shared: Arc<Shared<K, O, L, T>>,
}

// === impl Queue: making ===

impl<K: Key> Queue<K> {
    /// A queue without delays and without a limiter. It has no clock, and its `get` runs on any executor.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A queue with a limiter, a clock or a timer.
    pub fn builder() -> Builder<K> {
        Builder::new()
    }
}

impl<K: Key> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, O, L, T> Clone for Queue<K, O, L, T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

// === impl Queue: adding ===

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Queue<K, O, L, T> {
    /// Makes a key Ready, or has it come once more when its lease ends. Never waits.
    ///
    /// A key that waits for a deadline is Ready now, and the wait is gone.
    ///
    /// # Errors
    /// [`Refused`] with the key, once the queue is shut down.
    ///
    /// # Panics
    /// When `Hash` or `Eq` of the key, or the clock does; nothing is changed then. When a waker or the timer does;
    /// the key is added then.
    pub fn add(&self, key: K) -> Result<Added, Refused<K>> {
        let hash = self.shared.hash(&key);
        let now = self.shared.now_if_timed();
        // Declared before the guard, so that the key dies after it.
        let mut key = Some(key);
        let mut state = self.shared.lock();
        let added = state.core.add(&mut key, hash, now);
        self.shared.finish(state, now);
        answer(added, key)
    }

    /// Has a key become Ready after `delay`; zero is [`add`](Self::add). The earliest of several deadlines holds.
    ///
    /// Any duration is allowed; more than 584 years is for ever. A key that is Ready stays so. O(log n) in the
    /// number of waiting keys.
    ///
    /// # Errors
    /// [`Refused`] with the key, once the queue is shut down.
    ///
    /// # Panics
    /// When `Hash` or `Eq` of the key, or the clock does; nothing is changed then. When a waker or the timer does;
    /// the key is added then.
    pub fn add_after(&self, key: K, delay: Duration) -> Result<Added, Refused<K>>
    where
        T: Delays,
    {
        let now = self.shared.now();
        self.add_at(key, now + delay, now)
    }

    /// Counts a failure of `key` and adds it after the delay that the limiter gives (client-go's `AddRateLimited`).
    ///
    /// For keys that fail outside a lease; within one, use [`Lease::retry`]. As there, a key whose backoff is open
    /// goes on waiting for its end, and nothing is counted.
    ///
    /// # Errors
    /// [`Refused`] with the key, once the queue is shut down.
    ///
    /// # Panics
    /// When `Hash`, `Eq` or `Clone` of the key, the limiter's policy or the clock does; nothing is added then. When a
    /// waker or the timer does; the key is added then.
    pub fn add_rate_limited(&self, key: K) -> Result<Added, Refused<K>>
    where
        T: Delays,
    {
        if self.is_shutting_down() {
            return Err(Refused(key));
        }
        let now = self.shared.now();
        let until = self.shared.limiter.failed(&key, now);
        self.add_at(key, until, now)
    }

    fn add_at(&self, key: K, at: Nanos, now: Nanos) -> Result<Added, Refused<K>> {
        let hash = self.shared.hash(&key);
        let mut key = Some(key);
        let mut state = self.shared.lock();
        let added = match at > now {
            true => state.core.add_at(&mut key, hash, at, now),
            false => state.core.add(&mut key, hash, Some(now)),
        };
        self.shared.finish(state, Some(now));
        answer(added, key)
    }

    /// Takes back what was asked for and has not begun: a Ready or waiting key leaves, a mark on a lease is erased.
    /// The lease itself goes on. Says whether there was anything to take back.
    pub fn cancel(&self, key: &K) -> bool {
        let hash = self.shared.hash(key);
        let now = self.shared.now_if_timed();
        let mut state = self.shared.lock();
        let (cancelled, gone) = state.core.cancel(key, hash);
        self.shared.finish(state, now);
        drop(gone);
        cancelled
    }

    /// Forgets the failures of a key. What waits, waits on.
    pub fn forget(&self, key: &K) {
        self.shared.limiter.forget(key);
    }

    /// Failures of a key that were counted and not forgotten.
    #[must_use]
    pub fn requeues(&self, key: &K) -> u32 {
        self.shared.limiter.requeues(key)
    }
}

// === impl Queue: getting ===

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Queue<K, O, L, T> {
    /// Waits for a key, as a task on any executor; `None` once the queue is closed.
    ///
    /// Closed means: shut down, nothing Ready, and nothing that can become Ready. Dropping handles closes nothing.
    ///
    /// With the feature `tokio` it yields when the budget of the running task is used up.
    ///
    /// # Cancel safety
    /// Dropping the future takes no key. If it had been woken for one, the wake-up is passed on to another getter.
    ///
    /// # Panics
    /// The future panics when `Clone` of the key, the clock or the timer does; nothing is handed out then.
    ///
    /// # Examples
    /// On a queue with delays there is no async `get` without a timer:
    /// ```compile_fail,E0277
    /// # use flyball_workqueue::Queue;
    /// let queue = Queue::<&str>::builder().delays().build();
    /// let get = queue.get();
    /// ```
    pub fn get(&self) -> Get<'_, K, O, L, T>
    where
        T: AsyncGet,
    {
        Get::new(self)
    }

    /// A key, if one is Ready. Never waits.
    ///
    /// # Errors
    /// [`TryGetError::Empty`] if none is, [`TryGetError::Closed`] if none will be.
    pub fn try_get(&self) -> Result<Lease<K, T>, TryGetError> {
        let now = self.shared.now_if_timed();
        let mut state = self.shared.lock();
        let next = state.core.get(now);
        match next {
            Next::Key(handle, key) => Ok(self.lease(state, now, handle, key)),
            Next::Closed => Err(TryGetError::Closed),
            Next::Wait(_) | Next::Empty => Err(TryGetError::Empty),
        }
    }

    /// Unlocks, and hands out what was taken.
    ///
    /// The lease is made before anything that may panic, or the key would be lost; and after unlocking, as counting its
    /// handle on the queue is work that others need not wait for.
    #[inline]
    pub(crate) fn lease(
        &self,
        mut state: MutexGuard<'_, State<K, O>>,
        now: Option<Nanos>,
        handle: Handle,
        key: K,
    ) -> Lease<K, T> {
        let effects = self.shared.settle(&mut state, now);
        drop(state);
        let lease = Lease::new(key, handle, self.shared.clone());
        self.shared.perform(effects);
        lease
    }

    /// Waits for a key, blocking the thread; `None` once the queue is closed. Needs no runtime, also with delays.
    ///
    /// # Panics
    /// When `Clone` of the key or the clock does; nothing is handed out then.
    #[must_use = "a lease that is dropped without an outcome counts as a failure"]
    pub fn blocking_get(&self) -> Option<Lease<K, T>> {
        self.block(None).ok()
    }

    /// Waits for a key at most so long, blocking the thread. The limit is real time, whatever the queue's clock.
    ///
    /// # Errors
    /// [`GetTimeoutError::TimedOut`] after `limit`, [`GetTimeoutError::Closed`] once the queue is closed.
    ///
    /// # Panics
    /// When `Clone` of the key or the clock does; nothing is handed out then.
    pub fn get_timeout(&self, limit: Duration) -> Result<Lease<K, T>, GetTimeoutError> {
        self.block(Some(Monotonic.now() + limit))
    }
}

// === impl Queue: ending ===

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Queue<K, O, L, T> {
    /// Refuses adds and marks from now on, and hands out the backlog; then `get` says closed.
    ///
    /// The backlog is what is Ready now, and leased keys that were marked before. What waits for a later deadline,
    /// and what is retried from now on, is left over: see [`drain`](Self::drain). Idempotent; does not wait.
    pub fn shut_down(&self) {
        let now = self.shared.now_if_timed();
        let mut state = self.shared.lock();
        state.core.shut_down(now);
        self.shared.finish(state, now);
    }

    /// Shuts down, then waits until nothing is Ready or leased, and returns what was left: the keys that wait.
    ///
    /// [`stop_now`](Self::stop_now) from elsewhere ends the waiting; keys still leased are then among the leftovers.
    /// Any number of callers may drain; each gets all leftovers.
    ///
    /// # Cancel safety
    /// The queue is shut down by the call. Dropping the future only stops waiting.
    pub fn drain(&self) -> Drain<K, O, L, T> {
        self.shut_down();
        Drain::new(self.clone())
    }

    /// [`drain`](Self::drain), blocking the thread.
    #[must_use = "these keys were not finished"]
    pub fn blocking_drain(&self) -> Leftovers<K> {
        self.drain_until(None)
    }

    /// [`drain`](Self::drain), blocking the thread at most so long; what is Ready or leased then is left over, too.
    ///
    /// The limit is real time, whatever the queue's clock.
    #[must_use = "these keys were not finished"]
    pub fn drain_timeout(&self, limit: Duration) -> Leftovers<K> {
        self.drain_until(Some(Monotonic.now() + limit))
    }

    /// Stops at once: everything Ready or waiting is taken out and returned, with the keys that are still leased.
    ///
    /// Those leases end into nothing. `get` says closed from now on. A second call returns what is leased then.
    #[must_use = "these keys were not finished"]
    pub fn stop_now(&self) -> Leftovers<K> {
        let now = self.shared.now_if_timed();
        let mut left = Leftovers::new();
        let mut state = self.shared.lock();
        state.core.stop(now, &mut left);
        self.shared.finish(state, now);
        left
    }

    /// Whether the queue was shut down, drained or stopped.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        !self.shared.lock().core.is_open()
    }
}

// === impl Queue: looking ===

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Queue<K, O, L, T> {
    /// Keys that are Ready, noticed or not. O(1), plus the waits that are over.
    #[must_use]
    pub fn len(&self) -> usize {
        let now = self.shared.now_if_timed();
        self.shared.lock().core.len(now)
    }

    /// Whether no key is Ready. O(1).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let now = self.shared.now_if_timed();
        let state = self.shared.lock();
        state.core.queued() == 0 && !state.core.has_due(now)
    }

    /// How many keys are in which state. O(1), plus the waits that are over; O(keys) while a leased key waits.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let now = self.shared.now_if_timed();
        self.shared.lock().core.counts(now)
    }

    /// The state of a key.
    #[must_use]
    pub fn state(&self, key: &K) -> KeyState {
        let hash = self.shared.hash(key);
        let now = self.shared.now_if_timed();
        self.shared.lock().core.state(key, hash, now)
    }

    /// Walks the whole queue and names the first broken invariant. For tests. O(n).
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.shared.lock().core.check()
    }
}

/// A refused key is handed back; a duplicate dies here.
fn answer<K>(added: Option<Added>, key: Option<K>) -> Result<Added, Refused<K>> {
    added.ok_or_else(|| Refused(key.expect("what is refused is not taken")))
}

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> fmt::Debug for Queue<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
