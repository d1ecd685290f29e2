//! EDGE. The builder for subscriptions. The builder runs no future, so there is nothing to cancel.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use flyball_sync::Timer;
use flyball_sync::panics::{DropContained, caught};

use super::{ResyncTimer, Subscription, SubscriptionEvent};
use crate::changes::pending::Filter;
use crate::changes::selection::Selection;
use crate::store::inner::StoreInner;
use crate::table::definition::erased;
use crate::{Change, Index, LabelIndex, MissingIndex, Selector};

/// A builder for subscriptions. [`Store::subscription`](crate::Store::subscription) creates it.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, SubscriptionBuilder, Version};
///
/// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
/// let builder: SubscriptionBuilder<&str, _> = pods.subscription();
/// let mut changes = builder.for_key("a").filter(|pod| pod.1 > 1).subscribe();
/// pods.upsert(("a", 1)); // does not pass
/// pods.upsert(("b", 2)); // another key
/// assert!(changes.try_next().is_none());
/// pods.upsert(("a", 3));
/// assert!(changes.try_next().is_some());
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[must_use = "a builder does nothing until `subscribe`"]
pub struct SubscriptionBuilder<K, V, E = Change<K, V>> {
    store: Arc<StoreInner<K, V>>,
    selection: Option<Selection<K, V>>,
    filter: Option<DropContained<Box<Filter<V>>>>,
    resync: Option<(DropContained<Box<dyn Timer>>, Duration)>,
    most: usize,
    item: PhantomData<fn() -> E>,
}

impl<K, V> SubscriptionBuilder<K, V> {
    pub(crate) fn new(store: Arc<StoreInner<K, V>>) -> Self {
        let most = usize::MAX;
        Self { store, selection: None, filter: None, resync: None, most, item: PhantomData }
    }
}

impl<K, V, E> SubscriptionBuilder<K, V, E>
where
    K: Clone + Eq + Hash,
    V: 'static,
{
    /// Makes the subscription deliver only changes of this key, so at most one key is pending.
    pub fn for_key(mut self, key: K) -> Self {
        let key = DropContained::new(key);
        let hash = self.store.reader.seed.hash_one(&*key);
        self.selection = Some(Selection::Key { hash, key });
        self
    }

    /// Makes the subscription deliver only objects that have this value in an index. This replaces a key or value that was selected before. When an
    /// object gets the value, this is delivered as an addition, which is not [initial](crate::Change::is_initial). When an object loses the value,
    /// this is delivered as a deletion, with the state in which it had the value. When an object is deleted, the deletion contains its last state,
    /// whatever value that state has in the index.
    ///
    /// The writer compares the values of an object in the index to decide whether a change is delivered. Starting the subscription takes O(n) time,
    /// for n objects with the value; a resync or a restart collects them in several polls. Objects without the value are not pending, not kept alive by a
    /// slow subscriber, and their changes do not wake the subscriber. If you can select the objects either with an index or with a
    /// [`filter`](Self::filter), the index costs less.
    ///
    /// The subscription ends when the index is removed from the store.
    ///
    /// # Errors
    /// Returns an error if the store has no such index.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{ChangeKind, Index, Schema, Store, Version};
    ///
    /// type Pod = (&'static str, u64, &'static str);
    /// static BY_NODE: Index<Pod, &str> = Index::new("node", |pod| pod.2);
    ///
    /// let mut store = Store::builder(Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1))).index(&BY_NODE).build()?;
    /// store.upsert(("a", 1, "node-7"));
    /// store.upsert(("b", 2, "node-8"));
    /// let mut changes = store.subscription().by_index(&BY_NODE, "node-7")?.subscribe();
    /// assert!(changes.try_next().is_some_and(|change| *change.key() == "a" && change.is_initial()));
    ///
    /// store.upsert(("a", 3, "node-8"));
    /// store.upsert(("b", 4, "node-8"));
    /// store.upsert(("c", 5, "node-7"));
    /// assert!(changes.try_next().is_some_and(|change| change.kind() == ChangeKind::Deleted && *change.key() == "a"));
    /// assert!(changes.try_next().is_some_and(|change| change.kind() == ChangeKind::Added && *change.key() == "c"));
    /// assert!(changes.try_next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn by_index<IK>(mut self, index: &Index<V, IK>, value: IK) -> Result<Self, MissingIndex>
    where
        IK: Eq + Hash + Send + Sync + 'static,
    {
        let table = self.store.table();
        let at = table.index_set.find(index.id())?;
        let value = erased(value, &self.store.reader.seed);
        self.selection = Some(Selection::Value { index: table.index_set.indexes[at].clone(), value });
        Ok(self)
    }

    /// Makes the subscription deliver only objects for which `f` returns true. When an object starts to pass the filter, this is delivered as an
    /// addition, which is not [initial](crate::Change::is_initial). When an object no longer passes, this is delivered as a deletion, with the state
    /// that was delivered last. If there are several filters, an object must pass all of them.
    ///
    /// If the subscriber has an object, its deletion is delivered, even if the last state of the object does not pass the filter.
    ///
    /// The call that takes a change, such as [`next`](Subscription::next), calls `f` while no lock is held, so `f` may use the store. `f` must always
    /// return the same result for the same state, because it is called several times: when the state is new, when it is replaced, and at each resync.
    /// A change that `f` will reject is pending until the subscriber takes it, so it is counted in [`pending`](Subscription::pending). If `f` rejects
    /// many objects in a row, they are skipped in several polls, so that other tasks can run.
    ///
    /// A panic of `f` propagates to the caller that takes the change. The change is not lost: the next call tries to deliver it again.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{ChangeKind, Schema, Store, Version};
    ///
    /// let schema = Schema::new(|pod: &(&'static str, u64, &'static str)| pod.0, |pod| Version::new(pod.1));
    /// let mut store = Store::builder(schema).build()?;
    /// store.upsert(("a", 1, "Running"));
    /// store.upsert(("b", 2, "Pending"));
    /// let mut running = store.subscription().filter(|pod| pod.2 == "Running").subscribe();
    /// assert!(running.try_next().is_some_and(|change| *change.key() == "a" && change.is_initial()));
    /// assert!(running.try_next().is_none());
    ///
    /// store.upsert(("b", 3, "Running"));
    /// store.upsert(("a", 4, "Failed"));
    /// assert!(running.try_next().is_some_and(|change| change.kind() == ChangeKind::Added && *change.key() == "b"));
    /// assert!(running.try_next().is_some_and(|change| **change.object() == ("a", 1, "Running") && change.new().is_none()));
    /// assert!(running.try_next().is_none());
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn filter(mut self, f: impl Fn(&V) -> bool + Send + Sync + 'static) -> Self {
        let filter: Box<Filter<V>> = match self.filter.take() {
            None => Box::new(f),
            Some(before) => {
                let f = DropContained::new(f);
                Box::new(move |object: &V| before(object) && f(object))
            }
        };
        self.filter = Some(DropContained::new(filter));
        self
    }

    /// Makes the subscription deliver only objects whose labels match `selector`. This is a [`filter`](Self::filter) that calls the function of the
    /// label index `labels`. The store does not have to contain this index. An object on which this function panics does not match any requirement.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{LabelIndex, Schema, Store, Version};
    ///
    /// type Pod = (u32, &'static str);
    /// static LABELS: LabelIndex<Pod> = LabelIndex::new("labels", |pod, each| each("app", pod.1));
    ///
    /// let mut store = Store::builder(Schema::new(|pod: &Pod| pod.0, |_| Version::ZERO)).build()?;
    /// let mut web = store.subscription().selector(&LABELS, "app in (web, proxy)".parse()?).subscribe();
    /// store.upsert((1, "web"));
    /// store.upsert((2, "db"));
    /// assert!(web.try_next().is_some_and(|change| *change.key() == 1));
    /// assert!(web.try_next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn selector(self, labels: &LabelIndex<V>, selector: Selector) -> Self {
        if selector.is_everything() {
            return self;
        }
        let labels = *labels;
        self.filter(move |object| caught(|| labels.select(object, &selector)).unwrap_or(false))
    }

    /// Makes the subscription deliver every object again after each period, like [`Subscription::resync`]. A period of zero disables this.
    ///
    /// A period starts when the subscription starts, and again at each periodic resync. Other subscriptions and relists do not affect it. When a
    /// period has ended, the resync begins as soon as no change is pending, so a subscriber that is always behind does not get a resync. Missed
    /// periods are skipped.
    ///
    /// Only this subscription uses the timer, and sets it while the subscriber waits.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{ChangeKind, Schema, Store, Version};
    /// use flyball_sync::ManualClock;
    /// use std::time::Duration;
    ///
    /// let mut store = Store::builder(Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// store.upsert((1, 1));
    /// let clock = ManualClock::new(); // in production, for example, `TokioTimer::current()`
    /// let mut changes = store.subscription().resync_every(clock.timer(), Duration::from_secs(600)).subscribe();
    /// assert!(changes.try_next().is_some_and(|change| change.is_initial()));
    /// assert!(changes.try_next().is_none());
    ///
    /// clock.advance(Duration::from_secs(600));
    /// assert!(changes.try_next().is_some_and(|change| change.kind() == ChangeKind::Updated && change.old() == change.new()));
    /// assert!(changes.try_next().is_none());
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn resync_every(mut self, timer: impl Timer, period: Duration) -> Self {
        let timer: Box<dyn Timer> = Box::new(timer);
        self.resync = Some((DropContained::new(timer), period));
        self
    }

    /// Limits the number of pending keys, not counting the objects of the snapshot, and so the memory that a slow subscriber needs. If more keys are
    /// pending, the subscription discards their changes and restarts: its next item is [`SubscriptionEvent::Restarted`], and then it delivers all
    /// stored objects again.
    ///
    /// Without a limit, the pending keys are at most those of the stored objects, and of deleted objects that the subscriber has received before. The
    /// limit must be at least the number of keys that one relist or one burst of writes changes; otherwise, it is exceeded again and again. A
    /// restart holds the lock of the store for O(1) time.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Subscription, SubscriptionEvent, Version};
    /// use std::collections::BTreeMap;
    ///
    /// let mut store = Store::builder(Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let mut changes: Subscription<u8, _, SubscriptionEvent<u8, _>> =
    ///     store.subscription().max_pending(2.try_into()?).subscribe();
    /// for key in 0..3 {
    ///     store.upsert((key, 1));
    /// }
    /// let mut known = BTreeMap::new();
    /// while let Some(event) = changes.try_next() {
    ///     match event {
    ///         SubscriptionEvent::Restarted => known.clear(),
    ///         SubscriptionEvent::Change(change) => match change.new() {
    ///             Some(new) => drop(known.insert(*change.key(), new.clone())),
    ///             None => drop(known.remove(change.key())),
    ///         },
    ///     }
    /// }
    /// assert_eq!(known.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_pending(self, most: NonZeroUsize) -> SubscriptionBuilder<K, V, SubscriptionEvent<K, V>> {
        let Self { store, selection, filter, resync, .. } = self;
        SubscriptionBuilder { store, selection, filter, resync, most: most.get(), item: PhantomData }
    }

    /// Starts the subscription, which delivers the stored objects, and then every change. This costs as much as
    /// [`Store::subscribe`](crate::Store::subscribe).
    #[must_use]
    pub fn subscribe(self) -> Subscription<K, V, E> {
        let Self { store, selection, filter, resync, most, .. } = self;
        let (snapshot, buffer) = store.subscribe(selection, most);
        let mut subscription = Subscription::new(buffer, Arc::downgrade(&store), &snapshot);
        subscription.filter = filter;
        subscription.resyncing = resync.and_then(|(timer, period)| ResyncTimer::new(timer, period));
        subscription
    }
}

impl<K, V, E> fmt::Debug for SubscriptionBuilder<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionBuilder").finish_non_exhaustive()
    }
}
