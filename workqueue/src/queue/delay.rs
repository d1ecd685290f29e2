//! SHELL. Adds with options, delayed adds, and postponing keys.

use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Duration;

use flyball_ratelimit::Policy;
use flyball_sync::{Nanos, Timer};

use super::Queue;
use crate::error::{AddError, AddErrorKind};
use crate::limiter::{self, AfterFailure, QueueLimiter};
use crate::queue::Key;
use crate::state::order::Order;
use crate::state::order::sealed::Tag;
use crate::state::types::{Added, NewKey};
use crate::state::wait::{DelayMode, DelayRequest};

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Makes a key Ready after `delay`; a delay of zero is the same as [`add`](Self::add), but metrics count it as a delayed add, as client-go does. If the key waits already, the earlier deadline applies.
    ///
    /// Any duration is allowed. The clock counts to about 584 years, so a longer delay never ends. A Ready key stays Ready. O(log n) in the number of
    /// waiting keys.
    ///
    /// # Errors
    /// Like [`add`](Self::add).
    ///
    /// # Panics
    /// Panics like [`add`](Self::add).
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Added, ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let (clock, seconds) = (ManualClock::new(), Duration::from_secs);
    /// let queue = Queue::builder().timer(clock.timer()).build();
    /// queue.add_after("a", seconds(5))?;
    /// assert_eq!(queue.add_after("a", seconds(60))?, Added::Merged); // the earlier deadline holds
    /// clock.advance(seconds(5));
    /// assert_eq!(*queue.try_get()?, "a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_after(&self, key: K, delay: Duration) -> Result<Added, AddError<K>> {
        let tag = self.shared.tag(&key);
        let now = self.shared.now();
        self.add_requested(key, tag, DelayRequest::Earliest(now + delay), now)
    }

    /// Adds a key with a priority, a delay, or a delay that combines with an existing one, see [`AddOptions`].
    ///
    /// # Errors
    /// Like [`add`](Self::add).
    ///
    /// # Panics
    /// Panics like [`add`](Self::add). With [`failures`](AddOptions::failures), also panics if the limiter's policy panics; then the key is not added.
    ///
    /// # Examples
    /// Debounces events: the key runs 100 ms after the last event, but at most 1 s after the first.
    /// ```
    /// use flyball_workqueue::{AddOptions, DelayMode, ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let millis = Duration::from_millis;
    /// let clock = ManualClock::new();
    /// let queue = Queue::builder().timer(clock.timer()).build();
    /// let mode = DelayMode::Debounce { max_wait: millis(1000) };
    /// for _ in 0..19 {
    ///     queue.add_with("a", AddOptions { delay: millis(100), mode, ..AddOptions::default() })?; // an event every 50 ms
    ///     clock.advance(millis(50));
    ///     assert!(!queue.has_ready());
    /// }
    /// clock.advance(millis(50)); // a second after the first
    /// assert_eq!(*queue.try_get()?, "a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn add_with(&self, key: K, options: AddOptions) -> Result<Added, AddError<K>> {
        let AddOptions { priority, delay, mode, failures } = options;
        if failures > 0 {
            self.restore_failures(&key, failures);
        }
        let tag = self.shared.order().tag_at(&key, priority);
        if delay.is_zero() && mode == DelayMode::Earliest {
            self.add_tagged(key, tag)
        } else {
            self.add_delayed(key, tag, delay, mode)
        }
    }

    #[cold]
    fn restore_failures(&self, key: &K, failures: u32) {
        let shared = &self.shared;
        if limiter::limits::<L>() && !self.is_shutting_down() {
            let now = shared.now();
            shared.limiter.record_failure_with(|limiter, _| {
                limiter.restore_failures(key, failures, now, &mut |other| shared.holds(other));
            });
        }
    }

    fn add_delayed(
        &self,
        key: K,
        tag: Tag<O::ReadyQueue>,
        delay: Duration,
        mode: DelayMode,
    ) -> Result<Added, AddError<K>> {
        let now = self.shared.now();
        let at = now + delay;
        let request = match mode {
            DelayMode::Earliest => DelayRequest::Earliest(at),
            DelayMode::Debounce { max_wait } => DelayRequest::Debounce { at, limit: now + max_wait },
            DelayMode::Replace => DelayRequest::Replace(at),
        };
        self.add_requested(key, tag, request, now)
    }

    /// Counts a failure of `key` and adds the key with the limiter's delay (client-go's `AddRateLimited`).
    ///
    /// Use this for keys that fail outside a lease; to fail a lease, use [`Lease::retry`](crate::Lease::retry). As with `retry`, if the key is still
    /// in backoff, it keeps waiting, and no failure is counted. A Ready key stays Ready. A leased key that is dirty stays dirty or, with
    /// [strict backoff](crate::QueueBuilder::strict_backoff), waits for its backoff when its lease ends.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`add`](Self::add), and also if the key has failed too often. The failure is counted even if the add is
    /// refused, unless the queue is shut down.
    ///
    /// # Panics
    /// Panics if the limiter's policy, the clock, or `Hash`, `Eq` or `Clone` of the key panics; in that case the key is not added. Also panics if a
    /// waker, the timer or the give-up hook panics.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::Exponential;
    /// use flyball_workqueue::{ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let (clock, seconds) = (ManualClock::new(), Duration::from_secs);
    /// let queue = Queue::builder().timer(clock.timer()).limiter(Exponential::new(seconds(1)..=seconds(60))).build();
    /// queue.add_rate_limited("a")?;
    /// queue.add_rate_limited("a")?; // in backoff: not counted
    /// assert_eq!((queue.stats().waiting, queue.num_requeues(&"a")), (1, 1));
    /// clock.advance(seconds(1));
    /// assert!(queue.has_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_rate_limited(&self, key: K) -> Result<Added, AddError<K>> {
        let tag = self.shared.tag(&key);
        let shared = &self.shared;
        if self.is_shutting_down() {
            // Before the result is computed, see `add_new`.
            drop(tag);
            return shared.answer(Err(AddErrorKind::ShutDown), Some(key));
        }
        let now = shared.now();
        match shared.fail(&key, now) {
            AfterFailure::Backoff { until, counted } => {
                if counted {
                    shared.report(|sink| sink.failure_counted());
                }
                self.add_requested(key, tag, DelayRequest::Backoff(until), now)
            }
            AfterFailure::GaveUp { failures } => {
                shared.report(|sink| sink.failure_counted());
                shared.report(|sink| sink.gave_up(failures));
                if let Some(give_up) = &shared.give_up {
                    give_up.notify(&key, failures);
                }
                drop(tag);
                shared.answer(Err(AddErrorKind::GivenUp), Some(key))
            }
        }
    }

    /// Postpones a pending run of a key, so that the key waits for at least `delay`. This is the only operation that makes a Ready key wait.
    ///
    /// If the key waits already, its wait becomes longer or stays the same; an add makes the key Ready, unless it is in
    /// [strict backoff](crate::QueueBuilder::strict_backoff). If the key is leased and dirty, it does not become Ready before `delay`
    /// is over and its lease has ended. Returns whether there was a run to postpone: there is none if the key is absent, if it is leased and was not
    /// added again, or if the queue is shut down.
    ///
    /// # Panics
    /// Panics like [`add`](Self::add).
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{KeyState, ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let seconds = Duration::from_secs;
    /// let queue = Queue::builder().timer(ManualClock::new().timer()).build();
    /// queue.add("a")?;
    /// assert!(queue.postpone(&"a", seconds(5)));
    /// assert_eq!(queue.state(&"a"), KeyState::Waiting(queue.now() + seconds(5)));
    /// assert!(queue.postpone(&"a", seconds(1))); // a wait becomes no shorter
    /// assert_eq!(queue.state(&"a"), KeyState::Waiting(queue.now() + seconds(5)));
    /// assert!(!queue.postpone(&"b", seconds(5))); // absent
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn postpone<Q>(&self, key: &Q, delay: Duration) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.shared.hash(key);
        let now = self.shared.now();
        let mut locked = self.shared.lock();
        let postponed = locked.state.postpone(key, hash, now + delay, now);
        self.shared.finish(locked, Some(now));
        postponed
    }

    fn add_requested(
        &self,
        key: K,
        tag: Tag<O::ReadyQueue>,
        request: DelayRequest,
        now: Nanos,
    ) -> Result<Added, AddError<K>> {
        let mut new = self.shared.new_key(key, tag);
        let mut locked = self.shared.lock_to_add(None, &mut new);
        let added = locked.state.add_after_with(&mut new, request, now);
        self.shared.finish(locked, Some(now));
        let NewKey { key, tag, .. } = new;
        // Before the result is computed, see `add_new`.
        drop(tag);
        self.shared.answer(added, key)
    }
}

/// The options of [`Queue::add_with`].
///
/// # Examples
/// Keys from an initial list are less urgent than keys from events:
/// ```
/// use flyball_workqueue::{AddOptions, Priority, Queue};
///
/// let queue = Queue::builder().order(Priority::new()).build();
/// let initial = AddOptions { priority: -100, ..AddOptions::default() };
/// queue.add_with("a", initial)?;
/// queue.add_with("b", initial)?;
/// queue.add("event")?;
/// assert_eq!(*queue.try_get()?, "event");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// The priority of the add, from −128 to 127; by default 0, the priority of the adds without options. A higher number is more urgent. Only a queue
    /// with the order [`Priority`](crate::Priority) uses it.
    ///
    /// If a key is added several times before it is handed out, the highest of the priorities counts. After the hand-out the key has its own priority
    /// again. An add that raises the priority of a Ready key gives the key a second position, at the tail of the higher priority.
    pub priority: i8,
    /// The time after which the key becomes Ready; by default zero. See [`Queue::add_after`] for its range.
    pub delay: Duration,
    /// How the delay combines with an existing wait of the key; by default, the earlier deadline applies.
    pub mode: DelayMode,
    /// The number of failures that the key has at least; by default 0. For a program that stores the failures of its keys, so that they survive a restart:
    /// the next failure counts from there, and [`give_up_after`](crate::QueueBuilder::give_up_after) counts them, too.
    ///
    /// A queue without a limiter, and a limiter that counts no failures, ignore it. The failures are set even if the add is refused, unless the queue is
    /// shut down.
    pub failures: u32,
}
