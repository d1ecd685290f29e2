//! EDGE. The builder for subscriptions. The builder runs no future, so there is nothing to cancel.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use flyball_sync::Timer;

use super::{BoundedSubscription, OverflowPolicy, ResyncTimer, Subscription};
use crate::changes::pending::Filter;
use crate::changes::selection::Selection;
use crate::store::inner::StoreInner;
use crate::table::definition::erased;
use crate::{Index, LabelIndex, MissingIndex, Selector};

/// A builder for subscriptions; made by [`Store::subscription`](crate::Store::subscription).
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
pub struct SubscriptionBuilder<K, V> {
    store: Arc<StoreInner<K, V>>,
    selection: Option<Selection<K, V>>,
    filter: Option<Box<Filter<V>>>,
    resync: Option<(Box<dyn Timer>, Duration)>,
}

impl<K, V> SubscriptionBuilder<K, V>
where
    K: Clone + Eq + Hash,
    V: 'static,
{
    pub(crate) fn new(store: Arc<StoreInner<K, V>>) -> Self {
        Self { store, selection: None, filter: None, resync: None }
    }

    /// Delivers only changes of this key, so at most one key is pending.
    pub fn for_key(mut self, key: K) -> Self {
        let hash = self.store.reader.seed.hash_one(&key);
        self.selection = Some(Selection::Key { hash, key });
        self
    }

    /// Delivers only objects that have this value in an index. Replaces a key or value that was selected before. When an object gets the value, its change
    /// is an addition that is not [initial](crate::Change::is_initial); when an object loses the value, its change is a deletion, with the state that had
    /// the value. The deletion of an object carries its last state, whatever value that state has in the index.
    ///
    /// The writer decides whether a write is selected, by comparing the object's values in the index. So starting the subscription costs O(objects
    /// with the value). Other objects are neither pending nor kept alive, and their changes wake no task. If an index and a filter are both possible,
    /// the index costs less than the [`filter`](Self::filter).
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
        let at = table.index_set.find::<IK>(index.name())?;
        let value = erased(value, &self.store.reader.seed);
        self.selection = Some(Selection::Value { index: table.index_set.indexes[at].clone(), value });
        Ok(self)
    }

    /// Delivers only objects for which `f` returns true. When an object begins to pass, its change is an addition that is not
    /// [initial](crate::Change::is_initial); when it ceases to pass, its change is a deletion, with the state that was delivered last. With several
    /// filters, an object must pass all of them.
    ///
    /// If the last delivered state of an object passed, the deletion of the object is delivered, even if its final state does not pass.
    ///
    /// The call that takes a change, such as [`next`](Subscription::next), calls `f` without holding a lock, so `f` may use the store. `f` must be
    /// pure, because it is called for a state when the state is new, when it is replaced, and at each resync. Rejected changes are pending until they
    /// are taken, so they count in [`lag`](Subscription::lag). A long walk past rejected objects is split into several polls, to yield to other
    /// tasks.
    ///
    /// A panic of `f` propagates to the call that takes the change. The change is not lost: the next call delivers it.
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
        self.filter = Some(match self.filter {
            None => Box::new(f),
            Some(before) => Box::new(move |object| before(object) && f(object)),
        });
        self
    }

    /// Delivers only objects whose labels match `selector`. This is a [`filter`](Self::filter) that runs the function of the label index. The store
    /// does not need to have the index.
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
        let labels = *labels;
        self.filter(move |object| labels.select(object, &selector))
    }

    /// Delivers every object again after each period, as [`Subscription::resync`] does. A period of zero disables the resync.
    ///
    /// Other subscriptions and relists do not affect the period. The period starts with the subscription, and again with each resync. A due resync
    /// begins once every pending change has been delivered, so a subscriber that is always behind gets no resync. Missed periods are skipped.
    ///
    /// The timer serves this subscription only, and is set while the subscriber waits.
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
        self.resync = Some((Box::new(timer), period));
        self
    }

    /// Starts the subscription, which delivers the stored objects, then every change. The cost is that of [`Store::subscribe`](crate::Store::subscribe).
    #[must_use]
    pub fn subscribe(self) -> Subscription<K, V> {
        self.begin(usize::MAX)
    }

    /// Starts the subscription with at most `most` pending keys, besides the objects of the snapshot; `overflow` is the action if more keys are
    /// pending. `most` must exceed the number of keys that one relist or one burst changes, or the subscription overflows repeatedly.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{OverflowPolicy, Schema, Store, SubscriptionEvent, Version};
    /// use std::collections::BTreeMap;
    ///
    /// let mut store = Store::builder(Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let mut changes = store.subscription().bounded(2.try_into()?, OverflowPolicy::Restart);
    /// for key in 0..3 {
    ///     store.upsert((key, 1));
    /// }
    /// let mut known = BTreeMap::new();
    /// while let Some(event) = changes.try_next()? {
    ///     match event {
    ///         SubscriptionEvent::Restarted => known.clear(),
    ///         SubscriptionEvent::Change(change) => match change.new() {
    ///             Some(new) => drop(known.insert(*change.key(), new.clone())),
    ///             None => drop(known.remove(change.key())),
    ///         },
    ///     }
    /// }
    /// assert_eq!(known.len(), 3);
    ///
    /// let mut changes = store.subscription().for_key(7).bounded(1.try_into()?, OverflowPolicy::Disconnect);
    /// for key in 0..10 {
    ///     store.upsert((key, 2));
    /// }
    /// assert!(matches!(changes.try_next()?, Some(SubscriptionEvent::Change(change)) if *change.key() == 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn bounded(self, most: NonZeroUsize, overflow: OverflowPolicy) -> BoundedSubscription<K, V> {
        BoundedSubscription::new(self.begin(most.get()), overflow)
    }

    fn begin(self, most: usize) -> Subscription<K, V> {
        let Self { store, selection, filter, resync } = self;
        let (snapshot, buffer) = store.subscribe(selection, most);
        let mut subscription = Subscription::new(buffer, Arc::downgrade(&store), &snapshot);
        subscription.filter = filter;
        subscription.resyncing = resync.and_then(|(timer, period)| ResyncTimer::new(timer, period));
        subscription
    }
}

impl<K, V> fmt::Debug for SubscriptionBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionBuilder").finish_non_exhaustive()
    }
}
