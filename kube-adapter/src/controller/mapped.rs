//! EDGE. A compact cache of related objects: it stores the keys to which each object maps, but not the object.
//!
//! Cancel safety: as for the wrapped source.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use flyball_informer_cache::{
    Change, ChangeKind, ListRequest, NamespacedName, Page, Schema, Source, SourceError, Store, Version,
    WatchEvent, WatchRequest, WatchStream,
};
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::task::yield_now;

use crate::keys::{object_key, version_of};
use crate::{ApiSource, ApiWatch};

/// The stored form of one related object, a row of the cache.
pub(crate) struct MappedObject {
    key: NamespacedName,
    uid: Option<Box<str>>,
    version: Version,
    /// The hash of the predicate; `None` if there is no predicate, if the predicate returned `None`, or if the predicate or the mapper panicked.
    property: Option<u64>,
    /// The keys to which the newest state of the object maps.
    pub(crate) keys: Box<[NamespacedName]>,
}

/// The result of a mapper for one object: the hash of the predicate, and the keys.
pub(crate) struct MappedKeys {
    pub(crate) property: Option<u64>,
    pub(crate) keys: Vec<NamespacedName>,
}

impl MappedObject {
    /// Returns the schema of a cache of [`MappedObject`]s.
    pub(crate) fn schema() -> Schema<NamespacedName, Self> {
        Schema::new(|row: &Self| row.key.clone(), |row| row.version).with_identity(|a, b| a.uid == b.uid)
    }

    /// Returns whether a change causes a reconcile. A change causes no reconcile if the predicate returned the same hash for both states.
    pub(crate) fn passes(change: &Change<NamespacedName, Self>) -> bool {
        let old = change.old().filter(|_| change.kind() == ChangeKind::Updated);
        old.is_none_or(|old| change.object().property.is_none_or(|now| old.property != Some(now)))
    }
}

/// A source of [`MappedObject`]s. It maps each object of the wrapped source, and then drops the object.
pub(crate) struct MappedSource<K, F> {
    source: ApiSource<K>,
    map: Arc<F>,
    stored: Stored,
}

/// The cache of [`MappedObject`]s; set once the cache is built.
pub(crate) type Stored = Arc<OnceLock<Store<NamespacedName, MappedObject>>>;

impl<K, F: Fn(K) -> MappedKeys> MappedSource<K, F> {
    /// Creates a source that maps each object of `source` with `map`.
    pub(crate) fn new(source: ApiSource<K>, map: F) -> Self {
        Self { source, map: Arc::new(map), stored: Arc::default() }
    }

    /// Returns the cell in which the cache must be set.
    pub(crate) fn stored(&self) -> Stored {
        self.stored.clone()
    }
}

/// Returns the row of an object. If the mapper panics, returns an `Err` with a row without keys.
fn row<K: Resource>(object: K, map: &impl Fn(K) -> MappedKeys) -> Result<MappedObject, MappedObject> {
    let key = object_key(&object).expect("an object of a source has a name");
    let uid = object.meta().uid.as_deref().map(Box::from);
    let version = version_of(&object);
    match catch_unwind(AssertUnwindSafe(|| map(object))) {
        Ok(MappedKeys { property, keys }) => {
            Ok(MappedObject { key, uid, version, property, keys: keys.into() })
        }
        Err(_) => {
            tracing::error!(target: super::TARGET, object = %key, "a mapper panicked: until this object changes, it maps to its previous keys");
            Err(MappedObject { key, uid, version, property: None, keys: Box::default() })
        }
    }
}

/// Returns `row` with the keys of the stored row if both rows have the same `uid`; otherwise, returns `row` without keys.
fn as_before(row: MappedObject, stored: &Stored) -> MappedObject {
    let before = stored.get().and_then(|store| store.get(&row.key)).filter(|before| before.uid == row.uid);
    MappedObject { keys: before.map(|before| before.keys.clone()).unwrap_or_default(), ..row }
}

impl<K, F> Source for MappedSource<K, F>
where
    K: Resource + DeserializeOwned + Send + 'static,
    F: Fn(K) -> MappedKeys + Send + Sync + 'static,
{
    type Object = MappedObject;
    type Watch = MappedWatch<K, F>;

    async fn list(&self, request: ListRequest) -> Result<Page<MappedObject>, SourceError> {
        let (map, stored) = (self.map.clone(), self.stored.clone());
        let row = move |object| row(object, &*map).unwrap_or_else(|row| as_before(row, &stored));
        self.source.list_as(request, row).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<Self::Watch, SourceError> {
        let watch = self.source.open(request).await?;
        Ok(MappedWatch { watch, map: self.map.clone(), stored: self.stored.clone() })
    }

    fn list_progress(&self) -> u64 {
        self.source.bytes_arrived()
    }

    fn is_unreadable(&self, stored: &MappedObject) -> bool {
        self.source.has_unreadable(&stored.key, stored.uid.as_deref())
    }
}

/// A running watch of a [`MappedSource`].
pub(crate) struct MappedWatch<K, F> {
    watch: ApiWatch<K>,
    map: Arc<F>,
    stored: Stored,
}

impl<K, F> WatchStream for MappedWatch<K, F>
where
    K: Resource + DeserializeOwned + Send + 'static,
    F: Fn(K) -> MappedKeys + Send + Sync + 'static,
{
    type Object = MappedObject;

    async fn next(&mut self) -> Option<Result<WatchEvent<MappedObject>, SourceError>> {
        let event = match self.watch.next().await? {
            Ok(event) => event.map(|object| row(object, &*self.map)),
            Err(error) => return Some(Err(error)),
        };
        if matches!(event.object(), Some(Err(_))) {
            // Yields to the informer once, so that it stores the previous events before `as_before` reads the cache.
            yield_now().await;
        }
        Some(Ok(event.map(|row| row.unwrap_or_else(|row| as_before(row, &self.stored)))))
    }
}
