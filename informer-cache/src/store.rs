//! SHELL. The handle of a store. What is guarded by what, and the way of a write, is in `inner`.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::inner::Inner;
use crate::record::Record;
use crate::relist::{Verdict, judge};
use crate::step::{Last, Step};
use crate::{
    Change, Event, Index, IndexError, MissingIndex, Observer, Outcome, Schema, Snapshot, Stage, Stopped,
    StoreBuilder, Subscription, Version, WaitFor,
};

/// The newest known objects of one kind, indexed. A handle: clones share the store.
///
/// Reads never wait for more than one lookup or commit of somebody else, and a [snapshot](Self::snapshot) waits for nothing more ever after.
/// Writes come one after the other, from any number of threads. What a write did is returned, and told to every
/// [subscription](Self::subscribe) after it can be seen here.
///
/// Objects are shared and must not be changed from inside: an index holds the values it was told when the object came.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, NamespacedName, Outcome, Schema, Store, Version};
/// use std::sync::Arc;
///
/// struct Pod { name: NamespacedName, version: u64, node: Arc<str> }
///
/// static BY_NODE: Index<Pod, Arc<str>> = Index::new("node", |pod| pod.node.clone());
/// const PODS: Schema<NamespacedName, Pod> = Schema::new(|pod| pod.name.clone(), |pod| Version::new(pod.version));
///
/// let store = Store::builder(PODS).index(&BY_NODE).build()?;
/// let pod = |version, node: &str| Pod { name: "default/a".parse().unwrap(), version, node: node.into() };
///
/// assert_eq!(store.upsert(pod(7, "node-1")), Outcome::Added);
/// assert_eq!(store.upsert(pod(8, "node-2")), Outcome::Updated);
/// assert_eq!(store.upsert(pod(7, "node-1")), Outcome::Stale { stored: Version::new(8) });
///
/// assert_eq!(store.get("default/a").map(|pod| pod.version), Some(8));
/// assert!(store.by_index(&BY_NODE, "node-1")?.is_empty());
/// assert_eq!(store.by_index(&BY_NODE, "node-2")?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Store<K, V> {
    pub(crate) inner: Arc<Inner<K, V>>,
}

// === impl Store: reading ===

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// A store of objects that the schema tells apart.
    pub fn builder(schema: Schema<K, V>) -> StoreBuilder<K, V> {
        StoreBuilder::new(schema)
    }

    /// The object of a key.
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.inner.recipe.seed.hash_one(key);
        let published = self.inner.published.read();
        published.table.find(hash, |known| known.borrow() == key).map(|record| record.object.clone())
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.published.read().table.records.len()
    }

    /// Whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How far in the source's history the store is; [`Version::ZERO`] before the first list or event.
    ///
    /// It grows with events and bookmarks, and is set by a relist, which may take it back.
    #[must_use]
    pub fn version(&self) -> Version {
        self.inner.published.read().table.version
    }

    /// A consistent view of everything, in O(1).
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<K, V> {
        Snapshot { table: self.inner.table() }
    }

    /// The objects that have `value` in an index; none for a value that nothing has. O(hits), in no promised order.
    ///
    /// To look at them without collecting, or at several values at one instant, take a [snapshot](Self::snapshot).
    ///
    /// # Errors
    /// When the store was built without this index: none of this name, or one with values of another type.
    pub fn by_index<IK, Q>(&self, index: &Index<V, IK>, value: &Q) -> Result<Vec<Arc<V>>, MissingIndex>
    where
        IK: Borrow<Q> + 'static,
        Q: Hash + Eq + ?Sized,
    {
        let snapshot = self.snapshot();
        let objects = snapshot.by_index(index, value)?.cloned().collect();
        // Here, because the last view of old objects may drop them, and a panic while returning would leak the result.
        drop(snapshot);
        Ok(objects)
    }

    /// The objects that an index function failed on: key, name of the index, error. O(failures).
    #[must_use]
    pub fn index_errors(&self) -> Vec<(K, &'static str, Arc<IndexError>)> {
        let snapshot = self.snapshot();
        let errors = snapshot.index_errors();
        let errors = errors.map(|(key, index, error)| (key.clone(), index, error.clone())).collect();
        drop(snapshot);
        errors
    }

    /// The objects there are, then everything that changes. O(subscriptions), whatever the objects; waits for nobody but a commit, and
    /// nobody waits for it longer than for a commit.
    #[must_use]
    pub fn subscribe(&self) -> Subscription<K, V> {
        let (snapshot, feed) = self.inner.subscribe();
        Subscription::new(feed, Arc::downgrade(&self.inner), &snapshot)
    }

    /// Tells `f` the objects there are, then everything that changes: unmerged, and by the very thread that writes.
    ///
    /// This call tells `f` the objects of one snapshot, as initial additions. From that snapshot on every write tells it every change, a relist
    /// deletions first, after the change can be seen here and after unlocking everything: `f` may use the store. It must be
    /// quick, as the writer waits for it. Changes come in the order of the writes of one thread; calls of several threads
    /// overlap, those with the initial objects, too. So it is for what can be told twice and in any order, as a queue of keys: what is bounded
    /// by itself and must hear of every state there was. An `f` that writes is told that write within the call, and so is every other observer: those
    /// that come after it in the list hear of the inner write before the outer one. Registering is O(observers), besides the
    /// initial objects. For a consumer of its own pace there is [`subscribe`](Self::subscribe).
    ///
    /// It ends when the observer is dropped, or when the store is closed. As long as `f` holds the store, that is not by itself.
    ///
    /// # Panics
    /// Not when `f` does: that is [counted](Observer::panics), and `f` is called again for the next change.
    pub fn observe(&self, f: impl Fn(&Change<K, V>) + Send + Sync + 'static) -> Observer<K, V> {
        Observer::begin(&self.inner, f)
    }

    /// Waits until the store's version is this one or later, so that it shows what was written at this version. Gives back the version that was
    /// seen.
    ///
    /// # Errors
    /// When a relist takes the store *back*, to a version before this one, or when the store is closed, as it is when its last handle is
    /// dropped: a wait does not keep it open.
    ///
    /// # Cancel safety
    /// Dropping the future forgets the wait and nothing else.
    pub fn wait_for(&self, version: Version) -> WaitFor<K, V> {
        WaitFor::new(Arc::downgrade(&self.inner), version)
    }

    /// Waits until the first list is published. Any number may wait; all are woken.
    ///
    /// # Errors
    /// When the store is closed first.
    ///
    /// # Cancel safety
    /// Dropping the future forgets the wait and nothing else.
    pub async fn synced(&self) -> Result<(), Stopped> {
        self.inner.synced.wait().await
    }

    /// Whether the first list is published; stays so after [`close`](Self::close).
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.inner.synced.is_set()
    }

    /// Walks every invariant; for tests. O(everything).
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.inner.check()
    }
}

// === impl Store: writing ===

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Applies a watch event. Only whether it is a deletion counts, not whether it says that the object is new.
    pub fn apply(&self, event: Event<V>) -> Outcome {
        match event {
            Event::Added(object) | Event::Modified(object) => self.upsert(object),
            Event::Deleted(object) => self.delete(&self.inner.recipe.schema.key(&object), Some(object)),
            Event::Bookmark(version) | Event::InitialEnd(version) => {
                self.bookmark(version);
                Outcome::Noted
            }
        }
    }

    /// Applies watch events, one after the other; how many of them changed an object.
    pub fn apply_many(&self, events: impl IntoIterator<Item = Event<V>>) -> usize {
        events.into_iter().map(|event| self.apply(event)).filter(|outcome| outcome.is_change()).count()
    }

    /// Stores an object, new or newer.
    ///
    /// Never goes back: the same object at the stored version or an older one is [stale](Outcome::Stale), unless one of the two has no
    /// version. Another object under the key, by the schema's identity, replaces the stored one unless its version is older.
    /// The store's version grows to that of the object, also when it is stale.
    ///
    /// A deleted object leaves nothing behind to compare with: an event of it that comes late adds it again. Events of different
    /// objects may come in any order; those of one key must not cross its deletion, as they do not in one watch.
    ///
    /// # Panics
    /// Only as functions of the schema, an index or a key do; then nothing has changed.
    pub fn upsert(&self, object: V) -> Outcome {
        let recipe = &*self.inner.recipe;
        let mut new = Arc::new(recipe.record(object));
        loop {
            let old = self.inner.find(new.hash, |key| *key == new.key);
            let version = new.version;
            let verdict = old.as_deref().map(|old| self.judge_event(old, &new));
            if let (Some(old), Some(new)) = (&old, Arc::get_mut(&mut new)) {
                recipe.share_labels(new, old);
            }
            let (mut step, outcome) = match (old, verdict) {
                (Some(old), Some(Verdict::Unchanged)) => {
                    // The source is this far all the same, and somebody may wait for that.
                    self.bookmark(version);
                    return Outcome::Stale { stored: old.version };
                }
                (Some(old), Some(Verdict::Updated)) => (Step::Updated { old, new }, Outcome::Updated),
                (Some(old), Some(Verdict::Replaced)) => (Step::Replaced { old, new }, Outcome::Replaced),
                (_, None) | (None, _) => (Step::Added { new }, Outcome::Added),
            };
            if self.inner.commit(&mut step, version).is_ok() {
                return outcome;
            }
            new = step.into_newest();
        }
    }

    /// Forgets the object of a key. `last` is its last state, if somebody knows it; otherwise the stored state is told, as one that may have
    /// missed something.
    ///
    /// A `last` that is older than what is stored is [stale](Outcome::Stale). The store's version grows to that of `last` in any case.
    ///
    /// # Panics
    /// Only as functions of the schema or a key do; then nothing has changed.
    pub fn delete<Q>(&self, key: &Q, last: Option<V>) -> Outcome
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let schema = &self.inner.recipe.schema;
        let hash = self.inner.recipe.seed.hash_one(key);
        let version = last.as_ref().map_or(Version::ZERO, |last| schema.version(last));
        let last = last.map(Arc::new);
        loop {
            let Some(old) = self.inner.find(hash, |known| known.borrow() == key) else {
                self.bookmark(version);
                return Outcome::Absent;
            };
            if !version.is_none() && version < old.version {
                self.bookmark(version);
                return Outcome::Stale { stored: old.version };
            }
            let last = match &last {
                Some(last) if schema.same(&old.object, last) => Last { object: last.clone(), missed: false },
                _ => Last { object: old.object.clone(), missed: true },
            };
            if self.inner.commit(&mut Step::Deleted { old, last }, version).is_ok() {
                return Outcome::Deleted;
            }
        }
    }

    /// The source says that everything up to this version has been told. Never takes the store back.
    pub fn bookmark(&self, version: Version) {
        self.inner.advance(version);
    }

    /// Makes a complete list the store's content, at once, and says what changed: deletions first, with the last known state, then updates and
    /// additions. As [`stage`](Self::stage) in one go; see [`Stage::publish`].
    ///
    /// # Panics
    /// Only as functions of the schema, an index or a key do; then nothing has changed.
    pub fn replace(&self, items: impl IntoIterator<Item = V>, version: Version) -> Vec<Change<K, V>> {
        let mut stage = self.stage();
        for item in items {
            stage.put(item);
        }
        stage.publish(version)
    }

    /// Begins a complete list that comes in pages.
    pub fn stage(&self) -> Stage<K, V> {
        Stage::new(self.inner.clone())
    }

    /// Ends every subscription, after what is pending in it, and every wait. Again is the same.
    ///
    /// The store itself stays: it can be read, and written, but nobody is told. The same happens when its last handle is dropped.
    pub fn close(&self) {
        self.inner.close();
    }

    fn judge_event(&self, old: &Record<K, V>, new: &Record<K, V>) -> Verdict {
        let verdict = judge(&self.inner.recipe.schema, old, new);
        let stale = match verdict {
            // Two objects may share a version, where one write of the source ended the one and began the other.
            Verdict::Replaced => new.version < old.version,
            Verdict::Unchanged | Verdict::Updated => new.version <= old.version,
        };
        if stale && !new.version.is_none() { Verdict::Unchanged } else { verdict }
    }
}

impl<K, V> Clone for Store<K, V> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<K, V> fmt::Debug for Store<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = Snapshot { table: self.inner.table() };
        f.debug_struct("Store")
            .field("len", &snapshot.len())
            .field("version", &snapshot.version())
            .finish_non_exhaustive()
    }
}
