//! SHELL. Adding a key, and taking back what was added.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use flyball_sync::{Clock, Monotonic};

use super::Queue;
use super::shared::Shared;
use crate::error::{AddError, AddErrorKind};
use crate::futures::add_when_room::AddWhenRoom;
use crate::key::Key;
use crate::limiter::QueueLimiter;
use crate::state::order::Order;
use crate::state::order::sealed::Tag;
use crate::state::{Added, NewKey};
use crate::time_mode::{SupportsAsync, SupportsDelays, TimeMode};

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Queue<K, O, L, T> {
    /// Makes a key Ready, or has it come once more when its lease ends. Never waits.
    ///
    /// A key that waits for a deadline is Ready now, and the wait is gone; with
    /// [strict backoff](crate::QueueBuilder::strict_backoff) it waits on if that is a backoff.
    ///
    /// # Errors
    /// [`AddError`] with the key: once the queue is shut down, or where it is full and the key is absent.
    ///
    /// # Panics
    /// When `Hash` or `Eq` of the key, or the clock does; nothing is changed then. When a waker or the timer does;
    /// the key is added then.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{AddErrorKind, Added, Queue};
    ///
    /// let queue = Queue::new();
    /// assert_eq!(queue.add("a")?, Added::New);
    /// assert_eq!(queue.add("a")?, Added::Merged);
    /// queue.shut_down();
    /// assert_eq!(queue.add("b").unwrap_err().kind(), AddErrorKind::ShutDown);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add(&self, key: K) -> Result<Added, AddError<K>> {
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
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{Added, Queue};
    ///
    /// let (queue, key) = (Queue::new(), String::from("default/web"));
    /// assert_eq!(queue.add_ref(&key), Ok(Added::New)); // cloned
    /// assert_eq!(queue.add_ref(&key), Ok(Added::Merged)); // not cloned
    /// ```
    pub fn add_ref(&self, key: &K) -> Result<Added, AddErrorKind> {
        self.add_ref_tagged(key, self.shared.tag(key))
    }

    /// Adds a key, waiting as a task while the queue is full. Without a [capacity](crate::QueueBuilder::capacity) it never
    /// waits.
    ///
    /// It yields now and then, as [`get`](Self::get) does.
    ///
    /// Room that comes up is offered to waiting tasks in the order in which they came, then to blocked threads. It is not
    /// reserved: another `add` may take it first.
    ///
    /// # Errors
    /// [`AddError`] with the key, once the queue is shut down.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    /// Dropping the future adds nothing. If it had been woken for room, the wake-up is passed on.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::{block_on, block_on_timeout};
    /// use flyball_workqueue::{AddErrorKind, Added, Queue};
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().capacity(1).build();
    /// queue.add("a")?;
    /// assert_eq!(queue.add("b").unwrap_err().kind(), AddErrorKind::Full);
    /// assert!(block_on_timeout(queue.add_when_room("b"), Duration::ZERO).is_none()); // waits
    /// queue.try_get()?.done(); // makes room
    /// assert_eq!(block_on(queue.add_when_room("b"))?, Added::New);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_when_room(&self, key: K) -> AddWhenRoom<'_, K, O, L, T> {
        let tag = self.shared.tag(&key);
        AddWhenRoom::new(self, key, tag)
    }

    /// [`add_when_room`](Self::add_when_room), blocking the thread.
    ///
    /// # Errors
    /// [`AddError`] with the key, once the queue is shut down.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    ///
    /// # Examples
    /// A producer that is no faster than its consumers:
    /// ```
    /// use flyball_workqueue::{AddError, Queue};
    /// use std::thread;
    ///
    /// let queue = Queue::builder().capacity(2).build();
    /// let producer = thread::spawn({
    ///     let queue = queue.clone();
    ///     move || {
    ///         for key in 0..10 {
    ///             queue.blocking_add_when_room(key)?;
    ///         }
    ///         queue.shut_down();
    ///         Ok::<(), AddError<i32>>(())
    ///     }
    /// });
    /// let mut served = 0;
    /// while let Some(lease) = queue.blocking_get() {
    ///     lease.done(); // makes room
    ///     served += 1;
    /// }
    /// producer.join().unwrap()?;
    /// assert_eq!(served, 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocking_add_when_room(&self, key: K) -> Result<Added, AddError<K>> {
        let tag = self.shared.tag(&key);
        self.block_for_room(key, tag, None)
    }

    /// [`blocking_add_when_room`](Self::blocking_add_when_room) for at most so long. The limit is real time, whatever the queue's clock.
    ///
    /// # Errors
    /// [`AddError`] with the key: once the queue is shut down, or where it is still full after `limit`.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{AddErrorKind, Queue};
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().capacity(1).build();
    /// queue.add("a")?;
    /// let refused = queue.blocking_add_when_room_timeout("b", Duration::from_millis(10)).unwrap_err();
    /// assert_eq!((refused.kind(), refused.into_key()), (AddErrorKind::Full, "b"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocking_add_when_room_timeout(&self, key: K, limit: Duration) -> Result<Added, AddError<K>> {
        let tag = self.shared.tag(&key);
        self.block_for_room(key, tag, Some(Monotonic.now() + limit))
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
    /// use flyball_workqueue::{AddedMany, Queue};
    ///
    /// let queue = Queue::builder().capacity(2).build();
    /// let added: AddedMany<&str> = queue.add_many(["a", "b", "a", "c"]);
    /// assert_eq!((added.new, added.merged), (2, 1));
    /// let refused = added.refused.into_iter().map(|error| error.into_key());
    /// assert_eq!(refused.collect::<Vec<_>>(), ["c"]);
    /// ```
    pub fn add_many(&self, keys: impl IntoIterator<Item = K>) -> AddedMany<K> {
        self.add_many_tagged(keys, |key| self.shared.tag(key))
    }

    /// Takes back what was asked for and has not begun: a Ready or waiting key leaves, a mark on a lease is erased.
    /// The lease itself goes on. Says whether there was anything to take back.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{KeyState, Queue};
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let lease = queue.try_get()?;
    /// assert!(!queue.cancel(&"a")); // it has begun
    /// queue.add("a")?;
    /// assert!(queue.cancel(&"a")); // it does not come once more
    /// lease.done();
    /// assert_eq!(queue.state(&"a"), KeyState::Absent);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, key: &K) -> bool {
        let hash = self.shared.hash(key);
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock();
        let (cancelled, gone) = locked.state.cancel(key, hash, now);
        self.shared.finish(locked, now);
        drop(gone);
        cancelled
    }

    // === once it is known what the order makes of the key ===

    #[inline]
    pub(crate) fn add_tagged(&self, key: K, tag: Tag<O::ReadyQueue>) -> Result<Added, AddError<K>> {
        // Declared before the guard, so that what the add leaves in it is dropped after the guard.
        let mut new = self.shared.new_key(key, tag);
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock_to_add(None, &mut new);
        let added = locked.state.add(&mut new, now);
        self.shared.finish(locked, now);
        self.shared.answer(added, new.key)
    }

    #[inline]
    pub(crate) fn add_ref_tagged(&self, key: &K, tag: Tag<O::ReadyQueue>) -> Result<Added, AddErrorKind> {
        let mut new = NewKey { key: None, hash: self.shared.hash(key), tag };
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock_to_add(Some(key), &mut new);
        let added = locked.state.add_ref(key, &mut new, now);
        self.shared.finish(locked, now);
        added.inspect_err(|reason| self.shared.tell(|sink| sink.add_refused(*reason)))
    }

    pub(crate) fn add_many_tagged(
        &self,
        keys: impl IntoIterator<Item = K>,
        tag: impl Fn(&K) -> Tag<O::ReadyQueue>,
    ) -> AddedMany<K> {
        let new_key = |key| {
            let tag = tag(&key);
            (self.shared.new_key(key, tag), Ok(Added::New))
        };
        let mut keys: Vec<_> = keys.into_iter().map(new_key).collect();
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock();
        while keys.iter().any(|(new, _)| locked.state.is_stale(&new.tag)) {
            drop(locked);
            keys.iter_mut().for_each(|(new, _)| self.shared.renew(None, new));
            locked = self.shared.lock();
        }
        let adding = catch_unwind(AssertUnwindSafe(|| {
            for (new, added) in &mut keys {
                *added = locked.state.add(new, now);
            }
        }));
        // Also where `Eq` panicked: keys before that are Ready, and somebody has to be woken for them.
        self.shared.finish(locked, now);
        if let Err(panic) = adding {
            resume_unwind(panic);
        }
        let mut many = AddedMany { new: 0, merged: 0, promoted: 0, dirty: 0, refused: Vec::new() };
        for (new, added) in keys {
            match self.shared.answer(added, new.key) {
                Ok(Added::New) => many.new += 1,
                Ok(Added::Merged) => many.merged += 1,
                Ok(Added::Promoted) => many.promoted += 1,
                Ok(Added::Dirty) => many.dirty += 1,
                Err(refused) => many.refused.push(refused),
            }
        }
        many
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: SupportsDelays + SupportsAsync> Queue<K, O, L, T> {
    /// [`add_when_room`](Self::add_when_room) for at most so long, by the queue's clock.
    ///
    /// # Errors
    /// [`AddError`] with the key: once the queue is shut down, or where it is still full after `limit`.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    /// As `add_when_room`. The limit begins with the first poll.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::{AddErrorKind, Queue, ThreadTimer};
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().timer(ThreadTimer::new()).capacity(1).build();
    /// queue.add("a")?;
    /// let adding = queue.add_when_room_timeout("b", Duration::from_millis(10));
    /// assert_eq!(block_on(adding).unwrap_err().kind(), AddErrorKind::Full);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn add_when_room_timeout(&self, key: K, limit: Duration) -> Result<Added, AddError<K>> {
        let mut adding = self.add_when_room(key);
        match self.within(limit, &mut adding).await {
            Some(added) => added,
            None => adding.add_now(),
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> Shared<K, O, L, T> {
    /// The result of an add: returns a refused key to the caller and drops a duplicate.
    #[inline]
    pub(crate) fn answer(
        &self,
        added: Result<Added, AddErrorKind>,
        key: Option<K>,
    ) -> Result<Added, AddError<K>> {
        added.map_err(|reason| {
            self.tell(|sink| sink.add_refused(reason));
            AddError::new(key.expect("what is refused is not taken"), reason)
        })
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
    pub dirty: usize,
    /// Keys that were not added, in their order.
    pub refused: Vec<AddError<K>>,
}
