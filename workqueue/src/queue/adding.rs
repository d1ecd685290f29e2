//! SHELL. What comes into a queue, and what takes it back.

use std::time::Duration;

use flyball_ratelimit::Policy;

use super::Queue;
use crate::add_when_room::AddWhenRoom;
use crate::core::Added;
use crate::error::{Reason, Refused};
use crate::order::Order;
use crate::shared::Key;
use crate::time::{Delays, Time};
use crate::wait::DelayMode;

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: Time> Queue<K, O, L, T> {
    /// Makes a key Ready, or has it come once more when its lease ends. Never waits.
    ///
    /// A key that waits for a deadline is Ready now, and the wait is gone; with
    /// [strict backoff](crate::Builder::strict_backoff) it waits on if that is a backoff.
    ///
    /// # Errors
    /// [`Refused`] with the key: once the queue is shut down, or where it is full and the key is absent.
    ///
    /// # Panics
    /// When `Hash` or `Eq` of the key, or the clock does; nothing is changed then. When a waker or the timer does;
    /// the key is added then.
    pub fn add(&self, key: K) -> Result<Added, Refused<K>> {
        let tag = self.shared.tag(&key);
        self.add_tagged(key, tag)
    }

    /// [`add`](Self::add) for who has a key only to look at: it is cloned if it is absent. So a duplicate costs neither
    /// an allocation nor a count.
    ///
    /// # Errors
    /// Why it was not added; as `add`.
    ///
    /// # Panics
    /// As `add`, and when `Clone` of the key does; nothing is changed then.
    pub fn add_ref(&self, key: &K) -> Result<Added, Reason> {
        self.add_ref_tagged(key, self.shared.tag(key))
    }

    /// [`add`](Self::add), by the name that says it beside [`add_when_room`](Self::add_when_room): it never waits.
    ///
    /// # Errors
    /// As `add`.
    pub fn try_add(&self, key: K) -> Result<Added, Refused<K>> {
        self.add(key)
    }

    /// Adds a key, waiting as a task while the queue is full. Without a [capacity](crate::Builder::capacity) it never
    /// waits.
    ///
    /// Room that comes up is offered to those who wait, first come first, but is not kept for them: an `add` of
    /// somebody else may take it first.
    ///
    /// # Errors
    /// [`Refused`] with the key, once the queue is shut down.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    /// Dropping the future adds nothing. If it had been woken for room, the wake-up is passed on.
    ///
    /// # Examples
    /// ```
    /// # use flyball_workqueue::{Queue, Reason};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let queue = Queue::builder().capacity(1).build();
    /// queue.add("a")?;
    /// assert_eq!(queue.add("b").unwrap_err().reason(), Reason::Full);
    /// queue.try_get()?.done();
    /// queue.add_when_room("b").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_when_room(&self, key: K) -> AddWhenRoom<'_, K, O, L, T> {
        let tag = self.shared.tag(&key);
        AddWhenRoom::new(self, key, tag)
    }

    /// [`add_when_room`](Self::add_when_room), blocking the thread.
    ///
    /// # Errors
    /// [`Refused`] with the key, once the queue is shut down.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    pub fn blocking_add(&self, key: K) -> Result<Added, Refused<K>> {
        let tag = self.shared.tag(&key);
        self.block_for_room(key, tag)
    }

    /// Adds many keys under one lock, in their order. The iterator runs before.
    ///
    /// Says what happened to how many; keys that were refused are handed back.
    ///
    /// # Panics
    /// As [`add`](Self::add); if `Eq` of a key does, those before it are added and those after it are not.
    ///
    /// # Examples
    /// ```
    /// # use flyball_workqueue::Queue;
    /// let queue = Queue::builder().capacity(2).build();
    /// let added = queue.add_many(["a", "b", "a", "c"]);
    /// assert_eq!((added.new, added.merged), (2, 1));
    /// assert_eq!(*added.refused[0].key(), "c");
    /// ```
    pub fn add_many(&self, keys: impl IntoIterator<Item = K>) -> AddedMany<K> {
        self.add_many_tagged(keys, |key| self.shared.tag(key))
    }

    /// Takes back what was asked for and has not begun: a Ready or waiting key leaves, a mark on a lease is erased.
    /// The lease itself goes on. Says whether there was anything to take back.
    pub fn cancel(&self, key: &K) -> bool {
        let hash = self.shared.hash(key);
        let now = self.shared.now_if_timed();
        let mut state = self.shared.lock();
        let (cancelled, gone) = state.core.cancel(key, hash, now);
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

impl<K: Key, O: Order<K>, L: Policy<K> + Send + 'static, T: Delays> Queue<K, O, L, T> {
    /// Has a key become Ready after `delay`; zero is [`add`](Self::add). The earliest of several deadlines holds.
    ///
    /// Any duration is allowed; more than 584 years is for ever. A key that is Ready stays so. O(log n) in the
    /// number of waiting keys.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    ///
    /// # Panics
    /// As [`add`](Self::add).
    pub fn add_after(&self, key: K, delay: Duration) -> Result<Added, Refused<K>> {
        self.add_delayed(key, delay, DelayMode::Earliest)
    }

    /// [`add_after`](Self::add_after), with a say in what becomes of a wait of the same key.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    ///
    /// # Panics
    /// As [`add`](Self::add).
    ///
    /// # Examples
    /// A debounce: run 100 ms after the last event, but at most 1 s after the first.
    /// ```
    /// use flyball_ratelimit::ManualClock;
    /// use flyball_workqueue::{DelayMode, Queue};
    /// use std::time::Duration;
    ///
    /// let millis = Duration::from_millis;
    /// let clock = ManualClock::new();
    /// let queue = Queue::builder().clock(clock.clone()).build();
    /// let debounce = DelayMode::Latest { longest: millis(1000) };
    /// for _ in 0..19 {
    ///     queue.add_delayed("a", millis(100), debounce)?; // an event every 50 ms
    ///     clock.advance(millis(50));
    ///     assert!(queue.is_empty());
    /// }
    /// clock.advance(millis(50)); // a second after the first
    /// assert_eq!(*queue.try_get()?, "a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_delayed(&self, key: K, delay: Duration, mode: DelayMode) -> Result<Added, Refused<K>> {
        let tag = self.shared.tag(&key);
        self.add_delayed_tagged(key, tag, delay, mode)
    }

    /// Counts a failure of `key` and adds it after the delay that the limiter gives (client-go's `AddRateLimited`).
    ///
    /// For keys that fail outside a lease; within one, use [`Lease::retry`](crate::Lease::retry). As there, a key whose
    /// backoff is open goes on waiting for its end, and nothing is counted.
    ///
    /// # Errors
    /// As [`add`](Self::add), and where the key has failed too often. A failure is counted unless the queue is shut
    /// down.
    ///
    /// # Panics
    /// When `Hash`, `Eq` or `Clone` of the key, the limiter's policy or the clock does; nothing is added then. When a
    /// waker, the timer or the hook for dead letters does.
    pub fn add_rate_limited(&self, key: K) -> Result<Added, Refused<K>> {
        let tag = self.shared.tag(&key);
        self.add_rate_limited_tagged(key, tag)
    }

    /// Has a key that is to run, run no earlier than after `delay`: the only way back for one that is Ready.
    ///
    /// A wait becomes longer, never shorter; the mark on a lease becomes a wait. Says whether there was anything to
    /// postpone; there is not for a key that is absent, or leased and not marked, or once the queue is shut down.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    pub fn postpone(&self, key: &K, delay: Duration) -> bool {
        let hash = self.shared.hash(key);
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let postponed = state.core.postpone(key, hash, now + delay, now);
        self.shared.finish(state, Some(now));
        postponed
    }
}

/// What [`Queue::add_many`] did: how many keys fared how, see [`Added`].
#[derive(Debug)]
#[non_exhaustive]
pub struct AddedMany<K> {
    /// Keys that were absent.
    pub new: usize,
    /// Keys that were covered already.
    pub merged: usize,
    /// Keys that were waiting and are Ready now.
    pub promoted: usize,
    /// Keys that are leased and will come again.
    pub marked: usize,
    /// Keys that were not added, in their order.
    pub refused: Vec<Refused<K>>,
}
