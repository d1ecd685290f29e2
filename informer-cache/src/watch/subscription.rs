//! SHELL. The delivery of a snapshot and of the later changes to one subscriber.
//!
//! | owned by the subscriber alone | |
//! |---|---|
//! | `walk` | the remaining objects of the initial snapshot, or of the snapshot of a resync |
//! | `due`, `ready` | taken out of the buffer, not delivered yet: `due` is kept until its change is `ready`, so a panic in between loses nothing |
//! | `taken` | the ticket of the taken entry, unless it was taken for the walk |
//! | `filter`, `resyncing` | the filter of objects, and the period of the resync |
//!
//! All shared state is in the buffer, under its lock. The snapshot is taken and the buffer registered in one critical section of the store, so the
//! buffer begins at the version of the snapshot. During the walk, a pending change is taken out only when the walk reaches its key. At that time, the
//! key's pending entry holds every change since the snapshot, and the object and the entry are delivered as one change.
//!
//! Cancel safety: `next` takes a change in the poll that returns it; a future that is dropped has taken nothing.

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use crate::changes::buffer::{Popped, Settled, SubscriptionBuffer};
use crate::changes::pending::{Filter, Merged, Ticket};
use crate::store::inner::StoreInner;
use crate::table::Table;
use crate::{Change, ChangeKind, InitialProcessed, Schema, Snapshot, Version};

mod bounded;
mod builder;
mod initial;
mod lag;
mod next_change;
mod resync;

pub use self::bounded::{BoundedSubscription, Lagged, NextEvent, OverflowPolicy, SubscriptionEvent};
pub use self::builder::SubscriptionBuilder;
use self::initial::InitialObjects;
pub use self::lag::Lag;
pub use self::next_change::NextChange;
use self::resync::ResyncTimer;

/// The objects of a store, then every later change, coalesced per key.
///
/// A subscription begins with the objects of one snapshot as [initial](Change::is_initial) additions. If the store's first list comes later, its
/// objects are initial, too. Then it delivers changes, in the order in which their keys became pending, so changes of different objects may be
/// delivered in a different order than they were written. Undelivered changes of one key are merged, so the memory for a slow subscriber is bounded
/// by the number of keys, not of events. A slow subscriber delays no writer and no other subscriber. If the subscriber applies the changes in order
/// to an empty map, the map ends in the store's state. The key of an addition is never in the map, and the key of an update or a deletion always is.
/// When a change is received, the store shows that state or a newer one.
///
/// Subscriptions are independent of each other. Dropping a subscription ends it. [`Store::subscription`](crate::Store::subscription) builds a
/// subscription to some objects only, or one that delivers all objects again periodically.
///
/// Do not use a subscription to find which *other* objects a change concerns, for example by an owner or a selector. States between two deliveries
/// are not reported, though readers may have seen them in the store. For example, if an object pointed to A, then B, then A again, there may be no
/// change that points to B. [Observe](crate::Store::observe) the store instead.
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
pub struct Subscription<K, V> {
    buffer: Arc<SubscriptionBuffer<K, V>>,
    /// Weak, so that a subscription that is not polled keeps no objects alive.
    store: Weak<StoreInner<K, V>>,
    schema: Schema<K, V>,
    walk: Option<InitialObjects<K, V>>,
    /// Whether the walk delivers the initial state.
    initial: bool,
    /// Whether to start another walk once every change has been delivered.
    resync: bool,
    due: Option<Due<K, V>>,
    ready: Option<Change<K, V>>,
    taken: Option<Ticket>,
    filter: Option<Box<Filter<V>>>,
    resyncing: Option<ResyncTimer>,
    seen: Version,
}

/// An entry that was taken out of the buffer and is not delivered yet.
struct Due<K, V> {
    merged: Merged<K, V>,
    /// Whether the entry belongs to the initial snapshot.
    initial: bool,
}

/// The next item for a subscriber.
enum Taken<K, V> {
    Change(Change<K, V>),
    /// The capacity of the buffer was exceeded.
    Overflowed,
    Ended,
}

impl<K, V> Subscription<K, V>
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
            filter: None,
            resyncing: None,
            seen: Version::ZERO,
        };
        // Called last, because it may panic; dropping the subscription then detaches the buffer.
        subscription.begin(&snapshot.table);
        subscription
    }

    /// Starts delivering the objects of a table, before any change.
    fn begin(&mut self, table: &Table<K, V>) {
        self.walk = InitialObjects::new(table, self.buffer.selection());
        self.initial = self.walk.is_some();
    }

    /// Returns the number of keys still to be delivered, with an object of the snapshot or with a change.
    #[must_use]
    pub fn pending(&self) -> usize {
        let lag = self.lag();
        lag.initial_remaining + lag.pending
    }

    /// Returns how far this subscriber is behind.
    #[must_use]
    pub fn lag(&self) -> Lag {
        let (pending, version) = self.buffer.lag();
        let taken = usize::from(self.due.is_some()) + usize::from(self.ready.is_some());
        let snapshot = self.walk.as_ref().map_or(0, InitialObjects::left);
        let pending = pending + taken;
        let seen = if snapshot + pending == 0 { version } else { self.seen };
        Lag { initial_remaining: snapshot, pending, delivered_version: seen, merged_version: version }
    }

    /// Returns whether the store has had its first list, and every object of that list has been delivered. Once `true`, stays `true`.
    ///
    /// Always `false` if the store never gets a list, even if objects are written to it in other ways; [`Store::synced`](crate::Store::synced) waits
    /// forever in such a store.
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
        if self.initial || due.is_some_and(|due| due.initial) || ready.is_some_and(Change::is_initial) {
            return false;
        }
        let in_hands = self.taken.filter(|_| due.is_some() || ready.is_some());
        self.buffer.is_initial_delivered(in_hands)
    }

    /// Returns a future that completes once this subscriber has processed the initial state: it has received [every
    /// object](Self::is_initial_delivered) and requested the next change, so the last object is processed, too. Await the future in a different task,
    /// because the subscriber's own task must keep requesting changes meanwhile.
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

    /// Returns the next item. Advances one step at a time, so that a panic of user code in a step loses no change.
    fn take(&mut self, waker: Option<&Waker>) -> Poll<Taken<K, V>> {
        let mut resynced = false;
        let mut steps = 0;
        loop {
            if let Some(change) = self.ready.take() {
                return Poll::Ready(Taken::Change(change));
            }
            steps += 1;
            if let Some(waker) = waker.filter(|_| steps > MAX_STEPS_PER_POLL) {
                // Yields to other tasks: a filter may reject a million objects in a row.
                waker.wake_by_ref();
                return Poll::Pending;
            }
            if let Some(due) = &self.due {
                self.ready = due.merged.deliver(&self.schema, self.filter.as_deref());
                drop(self.due.take());
            } else if self.walk.is_some() {
                self.advance_walk();
            } else {
                match self.pop(waker) {
                    Popped::Change(ticket, merged) => {
                        (self.taken, self.due) = (Some(ticket), Some(Due { merged, initial: false }));
                    }
                    Popped::Empty(_) if std::mem::take(&mut self.resync) => {
                        if self.begin_resync().is_pending() {
                            return Poll::Pending;
                        }
                    }
                    // At most one resync per call. Otherwise, with a short period and a filter that rejects every object, the loop might never end.
                    Popped::Empty(_) if !resynced && self.period_is_over() => {
                        (resynced, self.resync) = (true, true);
                    }
                    Popped::Empty(version) => {
                        self.seen = version;
                        if let (Some(resyncing), Some(waker)) = (&self.resyncing, waker) {
                            resyncing.arm(waker);
                        }
                        return Poll::Pending;
                    }
                    Popped::Overflowed => return Poll::Ready(Taken::Overflowed),
                    Popped::Ended(version) => {
                        self.seen = version;
                        // Also drops the timer, because it holds a waker.
                        drop(self.resyncing.take());
                        return Poll::Ready(Taken::Ended);
                    }
                }
            }
        }
    }

    fn period_is_over(&mut self) -> bool {
        self.resyncing.as_mut().is_some_and(ResyncTimer::is_due)
    }

    /// Begins a resync, if every published change has been delivered. The subscriber then has the store's state, so the pending entry of a key that
    /// the walk reaches holds every change since then.
    fn begin_resync(&mut self) -> Poll<()> {
        let Some(store) = self.store.upgrade() else { return Poll::Ready(()) };
        // `resync` stays true until the walk is created, because creating the walk may panic.
        self.resync = true;
        match store.settled(&self.buffer) {
            Settled::Yes(table) => {
                self.walk = InitialObjects::new(&table, self.buffer.selection());
                self.resync = false;
                Poll::Ready(())
            }
            // A change has become pending and is delivered first.
            Settled::Pending => Poll::Ready(()),
            // The end of the merge wakes this task.
            Settled::Behind => Poll::Pending,
        }
    }

    fn pop(&self, waker: Option<&Waker>) -> Popped<K, V> {
        // The first attempt is made without the waker, because the waker need not be cloned if a change is pending.
        match (self.buffer.pop(), waker) {
            (Popped::Empty(_), Some(waker)) => {
                let (popped, replaced) = self.buffer.pop_or_wait(waker.clone());
                drop(replaced);
                popped
            }
            (popped, _) => popped,
        }
    }

    /// Sets `due` to the next object of the walk, unless the object needs no delivery.
    fn advance_walk(&mut self) {
        let Some(walk) = &mut self.walk else { return };
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
        // Dropped last, because dropping objects may panic; by now, `due` and the position of the walk are set.
        drop((behind, since, record));
    }
}

impl<K, V> Taken<K, V> {
    /// Returns the change for an unbounded subscriber, whose buffer never overflows.
    fn change(self) -> Option<Change<K, V>> {
        match self {
            Self::Change(change) => Some(change),
            Self::Overflowed | Self::Ended => None,
        }
    }
}

impl<K, V> Drop for Subscription<K, V> {
    fn drop(&mut self) {
        self.buffer.detach();
    }
}

// No field is pinned.
impl<K, V> Unpin for Subscription<K, V> {}

impl<K: fmt::Debug, V> fmt::Debug for Subscription<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("seen", &self.seen).finish_non_exhaustive()
    }
}

/// The maximum number of steps in one poll without a change to deliver.
const MAX_STEPS_PER_POLL: u32 = 512;
