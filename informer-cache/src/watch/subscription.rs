//! SHELL. Delivers a snapshot, and then the later changes, to one subscriber.
//!
//! | owned by the subscriber alone | |
//! |---|---|
//! | `walk` | the remaining objects of the initial snapshot, or of the snapshot of a resync |
//! | `due`, `ready` | taken out of the buffer, but not delivered yet; `due` is cleared only after `ready` is set, so a panic loses no change |
//! | `taken` | the ticket of the entry that was taken out of the buffer; `None` if the walk took it |
//! | `restarting` | a restart has begun and has not ended; if it panics, the next call repeats it |
//! | `filter`, `resyncing` | the filter for objects, and the timer for periodic resyncs |
//!
//! All shared state is in the buffer, under its lock. The snapshot is taken and the buffer is registered in one critical section of the store, so the
//! buffer begins at the version of the snapshot. During the walk over the objects of the snapshot, the pending change of a key is taken out of the
//! buffer only when the walk reaches the key. At that time, the pending entry contains every change of the key since the snapshot, so the object and
//! the entry are delivered as one change.
//!
//! Cancel safety: `next` takes a change in the same poll that returns it. So a future that is dropped before it completes has not taken a change.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use flyball_sync::panics::{DropContained, caught};

use crate::changes::buffer::{Popped, SubscriptionBuffer};
use crate::changes::pending::{Filter, Merged, Ticket};
use crate::store::inner::StoreInner;
use crate::table::Table;
use crate::{Change, ChangeKind, InitialProcessed, Schema, Snapshot};

mod builder;
mod event;
mod initial;
mod next;
mod restart;
mod resync;

pub use self::builder::SubscriptionBuilder;
pub use self::event::SubscriptionEvent;
pub(super) use self::event::SubscriptionItem;
use self::initial::InitialObjects;
use self::resync::ResyncTimer;

/// The objects of a store, then every later change, coalesced per key.
///
/// A subscription begins with the objects of one snapshot as [initial](Change::is_initial) additions. If the first list of the store is published
/// later, its objects are initial, too. After the objects of the snapshot, the subscription delivers changes, in the order in which their keys became
/// pending. So changes of different objects may be delivered in a different order than they were written. Changes of one key that were not delivered
/// yet are merged. So the memory that a slow subscriber needs is bounded by the number of keys, not of events; if this is too much, set a
/// [lower bound](crate::SubscriptionBuilder::max_pending). A slow subscriber does not delay the writer or other subscribers. If a subscriber applies the changes in order to a map that is empty at first, the map has the same content as the
/// store once every change has been applied. The key of an addition is never in the map, and the key of an update or a deletion always is. When a
/// change is received, the store already contains the new state, or a newer one.
///
/// Subscriptions are independent of each other. Dropping a subscription ends it. [`Store::subscription`](crate::Store::subscription) builds a
/// subscription with options, for example to some of the objects only, or with a periodic resync. `E` is the type of the items: [`Change`], or
/// [`SubscriptionEvent`] for a subscription with a bound.
///
/// Do not use a subscription to find which *other* objects a change concerns, for example the owner of the object or the objects that it selects. A
/// subscription does not report the states between two deliveries, although readers may have seen them in the store. For example, if an object
/// referred to A, then to B, and then to A again, there may be no change in which it refers to B. [Observe](crate::Store::observe) the store instead.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, Version};
///
/// let mut store = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
/// store.upsert(("a", 1));
/// let mut changes = store.subscribe();
/// store.upsert(("a", 2));
/// store.upsert(("b", 3));
/// store.upsert(("b", 4));
/// store.upsert(("c", 5));
/// store.delete("c", None);
///
/// let received = std::iter::from_fn(|| changes.try_next()).map(|change| (change.key().to_owned(), change.object().1, change.is_initial()));
/// assert_eq!(received.collect::<Vec<_>>(), [("a".into(), 2, true), ("b".into(), 4, false)]);
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
pub struct Subscription<K, V, E = Change<K, V>> {
    buffer: Arc<SubscriptionBuffer<K, V>>,
    /// The reference is weak, so that a subscription that is not polled does not keep the objects of a store alive.
    store: Weak<StoreInner<K, V>>,
    schema: Schema<K, V>,
    walk: Option<InitialObjects<K, V>>,
    /// Whether the walk delivers the initial state, and not a resync.
    initial: bool,
    /// Whether a resync was requested. Its walk starts when every change has been delivered.
    resync: bool,
    due: Option<Due<K, V>>,
    ready: Option<Change<K, V>>,
    taken: Option<Ticket>,
    restarting: bool,
    filter: Option<DropContained<Box<Filter<V>>>>,
    resyncing: Option<ResyncTimer>,
    item: PhantomData<fn() -> E>,
}

/// An entry that was taken out of the buffer and is not delivered yet.
struct Due<K, V> {
    merged: Merged<K, V>,
    /// Whether the entry belongs to the initial snapshot.
    initial: bool,
}

/// What a subscriber receives next.
enum Taken<K, V> {
    Change(Change<K, V>),
    /// The bound was exceeded, and the subscription has restarted.
    Restarted,
    Ended,
}

impl<K, V, E> Subscription<K, V, E>
where
    K: Clone + Eq + Hash,
{
    /// Creates a subscription to `buffer`, which was registered when `snapshot` was taken.
    pub(crate) fn new(
        buffer: Arc<SubscriptionBuffer<K, V>>,
        store: Weak<StoreInner<K, V>>,
        snapshot: &Snapshot<K, V>,
    ) -> Self {
        let mut subscription = Self {
            buffer,
            store,
            schema: snapshot.reader.schema,
            initial: false,
            walk: None,
            resync: false,
            due: None,
            ready: None,
            taken: None,
            restarting: false,
            filter: None,
            resyncing: None,
            item: PhantomData,
        };
        // `begin` is called last, because it may panic. In that case, the subscription is dropped, which detaches the buffer.
        subscription.begin(&snapshot.table);
        // At once, so that a subscription that is not polled does not keep the other objects alive.
        subscription.walk.iter_mut().for_each(|walk| _ = walk.collect(usize::MAX));
        subscription
    }

    /// Starts the walk over the objects of a table, which are delivered before any change.
    fn begin(&mut self, table: &Table<K, V>) {
        self.walk = InitialObjects::new(table, self.buffer.selection(), &self.store);
        self.initial = self.walk.is_some();
    }

    /// Returns the number of keys for which an object of the snapshot or a change still has to be delivered. After the
    /// [bound](crate::SubscriptionBuilder::max_pending) was exceeded, this includes the keys that were pending at that time.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// pods.upsert(("a", 1));
    /// let mut changes = pods.subscribe();
    /// pods.upsert(("b", 2));
    /// pods.upsert(("b", 3)); // the same key
    /// assert_eq!(changes.pending(), 2);
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    #[must_use]
    pub fn pending(&self) -> usize {
        let initial = self.walk.as_ref().map_or(0, InitialObjects::left);
        let taken = usize::from(self.due.is_some()) + usize::from(self.ready.is_some());
        initial + taken + self.buffer.pending()
    }

    /// Returns whether the first list of the store was published and every object of that list has been delivered. After it has returned `true` once,
    /// it always returns `true`, except that a [restart](SubscriptionEvent::Restarted) resets it to `false` until the objects were delivered again.
    ///
    /// If the store never gets a list, this method always returns `false`, even if objects are written to the store in other ways.
    /// [`Store::synced`](crate::Store::synced) waits forever in such a store.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let mut changes = pods.subscribe();
    /// assert!(!changes.is_initial_delivered()); // no list yet
    /// pods.replace([("a", 1), ("b", 1)], Version::new(1));
    /// assert!(changes.try_next().is_some() && !changes.is_initial_delivered());
    /// assert!(changes.try_next().is_some() && changes.is_initial_delivered());
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    #[must_use]
    pub fn is_initial_delivered(&self) -> bool {
        let (due, ready) = (self.due.as_ref(), self.ready.as_ref());
        if self.restarting
            || self.initial
            || due.is_some_and(|due| due.initial)
            || ready.is_some_and(Change::is_initial)
        {
            return false;
        }
        let in_hands = self.taken.filter(|_| due.is_some() || ready.is_some());
        self.buffer.is_initial_delivered(in_hands)
    }

    /// Returns a future that completes when this subscriber has processed the initial state. This means that it has received [every
    /// object](Self::is_initial_delivered) and has then requested the next change, so that it has processed the last object, too. Await the future in
    /// a different task, because the task of the subscriber must continue to request changes.
    ///
    /// # Examples
    /// ```
    /// # use flyball_informer_cache::{Schema, Store, Version};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let mut store = Store::builder(Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let mut changes = store.subscribe();
    /// let initial_processed = changes.initial_processed();
    /// tokio::spawn(async move {
    ///     while let Some(change) = changes.next().await {
    ///         println!("{}", change.key());
    ///     }
    /// });
    /// store.replace([(1, 1), (2, 1)], Version::new(1));
    /// initial_processed.await?; // both are printed
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn initial_processed(&self) -> InitialProcessed {
        InitialProcessed::new(self.buffer.initial_processed().clone())
    }

    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.buffer.check()
    }

    /// Returns the next item. Advances one step at a time, so that no change is lost if user code panics in a step.
    fn take(&mut self, waker: Option<&Waker>) -> Poll<Taken<K, V>> {
        let mut resynced = false;
        let mut steps = 0;
        // The bound is checked first: if it was exceeded, neither the rest of the snapshot nor a change that was taken has to be delivered.
        if self.restarting || self.buffer.has_overflowed() {
            self.restart();
            return Poll::Ready(Taken::Restarted);
        }
        loop {
            if let Some(change) = self.ready.take() {
                return Poll::Ready(Taken::Change(change));
            }
            steps += 1;
            if let Some(waker) = waker.filter(|_| steps > MAX_STEPS_PER_POLL) {
                // Returns to the executor, so that other tasks can run: a filter may reject a million objects in a row.
                waker.wake_by_ref();
                return Poll::Pending;
            }
            if let Some(due) = &self.due {
                self.ready = due.merged.deliver(&self.schema, self.filter.as_ref().map(|filter| &***filter));
                drop(self.due.take());
            } else if self.walk.is_some() {
                self.advance_walk();
            } else {
                match self.pop(waker) {
                    Popped::Change(ticket, merged) => {
                        (self.taken, self.due) = (Some(ticket), Some(Due { merged, initial: false }));
                    }
                    Popped::Empty if std::mem::take(&mut self.resync) => {
                        if self.begin_resync().is_pending() {
                            return Poll::Pending;
                        }
                    }
                    // A call begins at most one periodic resync. Otherwise, the loop might never end if the period is short and the filter rejects
                    // every object.
                    Popped::Empty if !resynced && self.period_is_over() => {
                        (resynced, self.resync) = (true, true);
                    }
                    Popped::Empty => {
                        if let (Some(resyncing), Some(waker)) = (&self.resyncing, waker) {
                            resyncing.arm(waker);
                        }
                        return Poll::Pending;
                    }
                    // The bound was exceeded after the check above.
                    Popped::Overflowed => {
                        self.restart();
                        return Poll::Ready(Taken::Restarted);
                    }
                    Popped::Ended => {
                        // Drops the timer for resyncs, because it holds a waker.
                        drop(self.resyncing.take());
                        return Poll::Ready(Taken::Ended);
                    }
                }
            }
        }
    }

    fn pop(&self, waker: Option<&Waker>) -> Popped<K, V> {
        // The first attempt does not use the waker, so that the waker is not cloned if a change is pending.
        match (self.buffer.pop(), waker) {
            (Popped::Empty, Some(waker)) => {
                let (popped, replaced) = self.buffer.pop_or_wait(waker.clone());
                // If the drop of a waker panicked here, a change that was popped would be lost.
                caught(|| drop(replaced));
                popped
            }
            (popped, _) => popped,
        }
    }

    /// Sets `due` to the next object of the walk, unless this object does not have to be delivered.
    fn advance_walk(&mut self) {
        let Some(walk) = &mut self.walk else { return };
        if !walk.collect(COLLECTED_PER_STEP) {
            return;
        }
        self.taken = None;
        let record = walk.item().cloned();
        let mut since = None;
        if let Some(record) = &record {
            let eq = |key: &K| key == record.key();
            let of = |kind, held| Change::of(record.name.clone(), kind, held, record.object.clone()).into();
            let merged = if self.initial {
                since = self.buffer.take(record.hash(), eq);
                match &since {
                    Some(since) => since.to_initial(),
                    None => Some(of(ChangeKind::Initial, None)),
                }
            } else if self.buffer.contains(record.hash(), eq) {
                None
            } else {
                Some(of(ChangeKind::Updated, Some(record.object.clone())))
            };
            self.due = merged.map(|merged| Due { merged, initial: self.initial });
        }
        let behind = walk.advance();
        if walk.item().is_none() {
            self.walk = None;
            self.initial = false;
        }
        // These values are dropped last, because the drop of an object may panic. At this point, `due` and the position of the walk are already set.
        drop((behind, since, record));
    }
}

impl<K, V> Taken<K, V> {
    /// Returns the item, or `None` at the end of the subscription.
    fn item<E: SubscriptionItem<K, V>>(self) -> Option<E> {
        match self {
            Self::Change(change) => Some(E::change(change)),
            Self::Restarted => Some(E::restarted()),
            Self::Ended => None,
        }
    }
}

impl<K, V, E> Drop for Subscription<K, V, E> {
    fn drop(&mut self) {
        let store = self.store.upgrade();
        store.iter().for_each(|store| store.unsubscribe(&self.buffer));
        self.buffer.detach();
    }
}

// No field is pinned.
impl<K, V, E> Unpin for Subscription<K, V, E> {}

impl<K: fmt::Debug, V, E> fmt::Debug for Subscription<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

/// The maximum number of selected objects that a step collects when a resync or a restart begins.
const COLLECTED_PER_STEP: usize = 32;

/// The maximum number of steps in one poll if no step finds a change to deliver.
const MAX_STEPS_PER_POLL: u32 = 512;
