//! SHELL. Adding keys, and cancelling adds.

use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use flyball_sync::panics::{DropContained, caught, drop_each, keep_first, raise};
use flyball_sync::{Nanos, ThreadTimer, Timer};

use crate::error::{AddError, AddErrorKind};
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::queue::Key;
use crate::queue::Queue;
use crate::queue::adders::AdderPlace;
use crate::queue::shared::Shared;
use crate::state::order::Order;
use crate::state::order::fifo::Fifo;
use crate::state::order::sealed::Tag;
use crate::state::types::{Added, NewKey};

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Queue<K, O, L, T> {
    /// Adds a key: an absent key becomes Ready, and a leased key runs once more when its lease ends. Never waits.
    ///
    /// A key that waits for a deadline becomes Ready now, and its deadline is discarded. With [strict backoff](crate::QueueBuilder::strict_backoff),
    /// however, a key in backoff keeps waiting.
    ///
    /// # Errors
    /// Returns [`AddError`] with the key if the queue is shut down, or if the key is absent and the queue or the key's group is full.
    ///
    /// # Panics
    /// Panics if the clock, or `Hash` or `Eq` of the key, panics; in that case the queue is unchanged. Also panics if a waker or the timer panics; in
    /// that case the key has been added.
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

    /// Like [`add`](Self::add), but takes the key by reference and clones it only if the key is absent. So adding a duplicate neither allocates nor
    /// increments a reference count.
    ///
    /// # Errors
    /// Returns the reason why the key was not added. The reasons are those of `add`.
    ///
    /// # Panics
    /// Panics like `add`. Also panics if `Clone` of the key panics; in that case the queue is unchanged.
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
        let tag = self.shared.tag(key);
        let mut new = NewKey { key: None, hash: self.shared.hash(key), tag };
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock_to_add(Some(key), &mut new);
        let added = locked.state.add_ref(key, &mut new, now);
        self.shared.finish(locked, now);
        added.inspect_err(|reason| self.shared.report(|sink| sink.add_refused(*reason)))
    }

    /// Adds a key; waits asynchronously while the queue is full. If neither the queue nor the key's group has a capacity
    /// ([`QueueBuilder::capacity`](crate::QueueBuilder::capacity), [`Fair::capacity`](crate::Fair::capacity)), the future does not wait.
    ///
    /// Adds that wait are not coalesced: each completes on its own when there is room, even if the key was added meanwhile. So a key that many callers
    /// wait to add may run once for each of them.
    ///
    /// Like the future of [`get`](Self::get), this future sometimes yields to other tasks even if there is room.
    ///
    /// When there is room for one more key, one waiting adder is woken, in FIFO order within its group. The room is not reserved for the woken adder: another
    /// `add` may take it first. With groups, each operation looks at every group that has adders that were woken and not polled since: O(these groups).
    ///
    /// # Errors
    /// Returns [`AddError`] with the key if the queue is shut down.
    ///
    /// # Panics
    /// Panics like [`add`](Self::add).
    ///
    /// # Cancel safety
    /// Dropping the future adds nothing. If the future had already been woken because there is room, another adder is woken instead.
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
    ///
    /// A thread waits with `block_on`. A full queue slows it down to the speed of the workers:
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::{AddError, Queue};
    /// use std::thread;
    ///
    /// let queue = Queue::builder().capacity(2).build();
    /// let producer = thread::spawn({
    ///     let queue = queue.clone();
    ///     move || {
    ///         for key in 0..10 {
    ///             block_on(queue.add_when_room(key))?;
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
    pub fn add_when_room(&self, key: K) -> AddWhenRoom<'_, K, O, L, T> {
        let tag = self.shared.tag(&key);
        AddWhenRoom::new(self, key, tag)
    }

    /// Adds many keys in the order of the iterator, and locks the queue once for all of them. The iterator is consumed before the queue is locked.
    ///
    /// Returns how many keys had each result, and the refused keys.
    ///
    /// # Panics
    /// Panics like [`add`](Self::add). If `Eq` of a key panics, only the keys before that key have been added.
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
        let new_key = |key| {
            let tag = self.shared.tag(&key);
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
        // `finish` runs even if `Eq` of a key has panicked: the keys before that key were added, and waiters must be woken for them.
        self.shared.finish(locked, now);
        if let Err(panic) = adding {
            resume_unwind(panic);
        }
        let mut many = AddedMany { new: 0, merged: 0, promoted: 0, dirty: 0, refused: Vec::new() };
        // The keys and tags that are not needed are dropped each by itself: two that panic would otherwise abort the process.
        let mut dropped = Ok(());
        for (NewKey { key, tag, .. }, added) in keys {
            keep_first(&mut dropped, catch_unwind(AssertUnwindSafe(|| drop(tag))));
            match added {
                Ok(Added::New) => many.new += 1,
                Ok(Added::Merged) => many.merged += 1,
                Ok(Added::Promoted) => many.promoted += 1,
                Ok(Added::Dirty) => many.dirty += 1,
                Err(_) => {
                    many.refused.extend(self.shared.answer(added, key).err());
                    continue;
                }
            }
            keep_first(&mut dropped, catch_unwind(AssertUnwindSafe(|| drop(key))));
        }
        if dropped.is_err() {
            caught(|| drop_each(many.refused.drain(..)));
        }
        raise(dropped);
        many
    }

    /// Cancels the pending adds of a key. A Ready or waiting key leaves the queue. If the key is leased, the lease continues, but the key does not
    /// run again when the lease ends. Returns whether there was an add to cancel.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{KeyState, Queue};
    ///
    /// let queue = Queue::new();
    /// queue.add("a")?;
    /// let lease = queue.try_get()?;
    /// assert!(!queue.cancel(&"a")); // the key is leased already
    /// queue.add("a")?;
    /// assert!(queue.cancel(&"a")); // the key does not run again
    /// lease.done();
    /// assert_eq!(queue.state(&"a"), KeyState::Absent);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.shared.hash(key);
        let now = self.shared.now_if_timed();
        let mut locked = self.shared.lock();
        let (cancelled, gone) = locked.state.cancel(key, hash, now);
        let memory = gone.as_ref().and_then(|_| locked.state.take_memory());
        let gone = DropContained::new(gone);
        self.shared.finish(locked, now);
        drop((gone, memory));
        cancelled
    }

    // === with the key's tag ===

    #[inline]
    pub(crate) fn add_tagged(&self, key: K, tag: Tag<O::ReadyQueue>) -> Result<Added, AddError<K>> {
        // `new` is declared before the guard, so that a key that stays in `new` is dropped after unlocking.
        let new = self.shared.new_key(key, tag);
        match self.shared.now_if_timed() {
            // Inlined without a time: most queues need none, and the add of a duplicate then takes a fifth less.
            None => self.add_new(new, None),
            now => self.add_timed(new, now),
        }
    }

    #[inline(never)]
    fn add_timed(
        &self,
        new: NewKey<K, Tag<O::ReadyQueue>>,
        now: Option<Nanos>,
    ) -> Result<Added, AddError<K>> {
        self.add_new(new, now)
    }

    #[inline(always)]
    fn add_new(
        &self,
        mut new: NewKey<K, Tag<O::ReadyQueue>>,
        now: Option<Nanos>,
    ) -> Result<Added, AddError<K>> {
        let mut locked = self.shared.lock_to_add(None, &mut new);
        let added = locked.state.add(&mut new, now);
        self.shared.finish(locked, now);
        let NewKey { key, tag, .. } = new;
        // Before the result is computed, which would be leaked with its key if the drop of the tag panicked: it holds the name of a group.
        drop(tag);
        self.shared.answer(added, key)
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Shared<K, O, L, T> {
    /// Converts the result of an add: a refused key is returned to the caller, and a duplicate is dropped.
    #[inline]
    pub(crate) fn answer(
        &self,
        added: Result<Added, AddErrorKind>,
        key: Option<K>,
    ) -> Result<Added, AddError<K>> {
        added.map_err(|reason| {
            self.report(|sink| sink.add_refused(reason));
            AddError::new(key.expect("a refused key is still in `new`"), reason)
        })
    }
}

/// The result of [`Queue::add_many`]: the number of keys for each variant of [`Added`], and the refused keys.
#[derive(Debug)]
#[must_use = "some keys may have been refused"]
#[non_exhaustive]
pub struct AddedMany<K> {
    /// The number of keys that were absent, see [`Added::New`].
    pub new: usize,
    /// The number of keys whose add was coalesced, because they were already queued, waiting or dirty, see [`Added::Merged`].
    pub merged: usize,
    /// The number of keys that waited for a deadline and are Ready now, see [`Added::Promoted`].
    pub promoted: usize,
    /// The number of keys that are leased and will run again, see [`Added::Dirty`].
    pub dirty: usize,
    /// The keys that were not added, in the order of the iterator, each with the reason.
    pub refused: Vec<AddError<K>>,
}

/// The future of [`Queue::add_when_room`].
///
/// # Panics
/// Panics if it is polled again after it has completed.
///
/// # Cancel safety
/// If the future is dropped, the key is not added, and is dropped too. If the future had already been woken because there is room, another adder is
/// woken instead. If a woken future is neither polled nor dropped, its wake-up is not passed on to another adder, so drop a future that you no longer
/// poll.
///
/// # Examples
/// If the future is dropped, the key is not added:
/// ```
/// use flyball_workqueue::{AddWhenRoom, KeyState, Queue};
///
/// let queue = Queue::new();
/// let adding: AddWhenRoom<'_, &str> = queue.add_when_room("a");
/// drop(adding);
/// assert_eq!(queue.state(&"a"), KeyState::Absent);
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct AddWhenRoom<'a, K: Key, O: Order<K> = Fifo, L: QueueLimiter<K> = NoLimiter, T: Timer = ThreadTimer>
{
    queue: &'a Queue<K, O, L, T>,
    /// `None` once the future has completed. The key is gone as soon as it is added.
    new: Option<NewKey<K, Tag<O::ReadyQueue>>>,
    ticket: Option<AdderPlace>,
    /// See `Get::has_yielded`.
    has_yielded: bool,
}

impl<'a, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> AddWhenRoom<'a, K, O, L, T> {
    pub(crate) fn new(queue: &'a Queue<K, O, L, T>, key: K, tag: Tag<O::ReadyQueue>) -> Self {
        Self { queue, new: Some(queue.shared.new_key(key, tag)), ticket: None, has_yielded: false }
    }

    /// Returns the key, if it has not been added or returned yet. So a caller can stop waiting, and keep the key.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::block_on_timeout;
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().capacity(1).build();
    /// queue.add(String::from("a"))?;
    /// let mut adding = queue.add_when_room(String::from("b"));
    /// let limit = Duration::from_millis(10);
    /// assert!(block_on_timeout(&mut adding, limit).is_none()); // no room
    /// assert_eq!(adding.into_key().as_deref(), Some("b"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_key(mut self) -> Option<K> {
        self.leave();
        let NewKey { key, tag, .. } = self.new.take()?;
        // Before the result is computed, see `add_new`.
        drop(tag);
        key
    }

    fn leave(&mut self) {
        let shared = &self.queue.shared;
        let Some(ticket) = self.ticket.take() else {
            if std::mem::take(&mut self.has_yielded) && self.new.is_some() {
                shared.lock().cancel_yield();
            }
            return;
        };
        let mut locked = shared.lock();
        let old = locked.unpark_adder(ticket);
        // If this adder was woken, `finish` wakes another adder instead. This does not read the clock, because a clock may panic.
        shared.finish(locked, None);
        drop_each(old.into_iter());
    }
}

/// `poll` never pins the key, so the future can be `Unpin`.
impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Unpin for AddWhenRoom<'_, K, O, L, T> {}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Future for AddWhenRoom<'_, K, O, L, T> {
    type Output = Result<Added, AddError<K>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = &this.queue.shared;
        let Some(new) = this.new.as_mut().filter(|new| new.key.is_some()) else {
            panic!("polled after it was ready")
        };
        let waited = this.ticket.is_some();
        if waited {
            shared.renew(None, new);
        }
        let mut waker = None;
        loop {
            let now = shared.now_if_timed();
            let mut locked = shared.lock_to_add(None, new);
            if locked.must_yield() && !this.has_yielded && !waited && !locked.state.is_full_for(new, now) {
                // `is_full_for` may have updated the limits of a group, so there may be room for other adders. `finish` wakes them.
                shared.finish(locked, now);
                this.has_yielded = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let added = locked.state.add(new, now);
            if added == Err(AddErrorKind::Full) && waker.is_none() {
                let is_parked = |own| locked.adder_waits_for(own, &new.tag, context.waker());
                if this.ticket.as_ref().is_some_and(is_parked) {
                    // `add` may have updated the limits of the group, so there may be room for other adders of that group. `finish` wakes them.
                    shared.finish(locked, now);
                    return Poll::Pending;
                }
                // As in `Get`, the waker is cloned outside the lock. A key may leave the queue before the lock is taken again, so the next iteration
                // checks for room again. The clone may panic, and `add` may have resumed a group, so the getters of its keys are woken first.
                shared.finish(locked, now);
                waker = Some(context.waker().clone());
                continue;
            }
            let own = this.ticket.take();
            // `waker` is taken only to be parked. Otherwise it is dropped after the lock is released, because its drop is user code.
            if let Some(waker) = waker.take_if(|_| added == Err(AddErrorKind::Full)) {
                // The task takes its new place in the wait queue before it leaves the old one. If it left first, its class of keys might have no
                // parked adder for a moment, and the record of the class could be dropped.
                this.ticket = Some(locked.park_adder(&new.tag, waker));
                let old = own.and_then(|own| locked.unpark_adder(own));
                shared.finish(locked, now);
                drop(old);
                return Poll::Pending;
            }
            let old = own.and_then(|own| locked.unpark_adder(own));
            if !waited {
                locked.count_immediate();
            }
            shared.finish(locked, now);
            drop_each([old, waker].into_iter());
            let NewKey { key, tag, .. } = this.new.take().expect("it was there above");
            // Before the result is computed, see `add_new`.
            drop(tag);
            return Poll::Ready(shared.answer(added, key));
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> Drop for AddWhenRoom<'_, K, O, L, T> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> fmt::Debug for AddWhenRoom<'_, K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddWhenRoom").field("parked", &self.ticket.is_some()).finish_non_exhaustive()
    }
}
