//! Shared by the models of the store: an object type, helpers to read objects, and a consumer that asserts that each change is legal.

use std::collections::BTreeMap;
use std::sync::Arc;

use flyball_informer_cache::{
    Change, ChangeKind, Index, Schema, SharedWriter, Snapshot, Store, Subscription, SubscriptionEvent,
    Version, Writer,
};

use crate::thread::{self, JoinHandle};

/// One state of an object. `uid` distinguishes successive objects under the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The key of the store.
    pub key: u8,
    /// The sequence number of this object among the objects that have had this key, from 0.
    pub uid: u8,
    /// The version of the object in this state.
    pub version: u64,
}

/// A store for several writers.
pub type Objects = SharedWriter<u8, Object>;
/// A snapshot of the store.
pub type View = Snapshot<u8, Object>;

/// The index that the store is built with.
pub static BY_VERSION: Index<Object, u64> = Index::new("version", |object| object.version);

/// An empty store.
pub fn store() -> Objects {
    writer().into_shared()
}

/// An empty store, with one writer.
pub fn writer() -> Writer<u8, Object> {
    let schema = Schema::new(|object: &Object| object.key, |object| Version::new(object.version))
        .with_identity(|a, b| a.uid == b.uid);
    Store::builder(schema).index(&BY_VERSION).seed(1).reader_slots(0, 1).build().unwrap()
}

/// A store with these objects.
pub fn holding(objects: impl IntoIterator<Item = Object>) -> Objects {
    let store = store();
    for object in objects {
        store.upsert(object);
    }
    store
}

/// The first object of a key, at the given version.
pub fn object(key: u8, version: u64) -> Object {
    Object { key, uid: 0, version }
}

/// Spawns a thread that runs `deed` on the store.
pub fn beside<T: Send + 'static>(
    store: &Objects,
    deed: impl FnOnce(&Objects) -> T + Send + 'static,
) -> JoinHandle<T> {
    let store = store.clone();
    thread::spawn(move || deed(&store))
}

/// The objects that a consumer has received. Asserts that each change is legal when it is applied.
#[derive(Debug, Default)]
pub struct Consumer(BTreeMap<u8, Arc<Object>>);

impl Consumer {
    /// Applies all pending changes.
    pub fn drain(&mut self, changes: &mut Subscription<u8, Object>) {
        while let Some(change) = changes.try_next() {
            self.apply(&change);
        }
    }

    /// Applies all pending changes. If the subscription restarts, removes all objects that were received before the restart.
    pub fn drain_bounded(&mut self, changes: &mut Subscription<u8, Object, SubscriptionEvent<u8, Object>>) {
        while let Some(event) = changes.try_next() {
            match event {
                SubscriptionEvent::Change(change) => self.apply(&change),
                SubscriptionEvent::Restarted => self.0.clear(),
            }
        }
    }

    /// Returns true if the consumer has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn apply(&mut self, change: &Change<u8, Object>) {
        let held = match change.new() {
            Some(new) => self.0.insert(*change.key(), new.clone()),
            None => self.0.remove(change.key()),
        };
        match (change.kind(), change.old()) {
            (ChangeKind::Updated, Some(old)) => {
                let held = held.expect("an update of an unknown object");
                assert!(Arc::ptr_eq(&held, old), "an update from another state than the one delivered last");
            }
            (kind, Some(_)) => assert!(held.is_some(), "{kind:?} of an unknown object"),
            (_, None) => assert!(held.is_none(), "added twice"),
        }
    }

    /// Asserts that the consumer has the same objects as the store.
    pub fn agrees(&self, store: &Store<u8, Object>) {
        let view = store.snapshot();
        assert_eq!(self.0.len(), view.len(), "a change was lost");
        for (key, object) in view.iter() {
            assert!(
                self.0.get(key).is_some_and(|held| Arc::ptr_eq(held, object)),
                "the newest state was not delivered"
            );
        }
    }
}

/// The keys and versions of all objects, and the version of the snapshot.
pub fn content(view: &View) -> (Vec<(u8, u64)>, u64) {
    let mut objects: Vec<_> = view.objects().map(|object| (object.key, object.version)).collect();
    objects.sort_unstable();
    (objects, view.version().get())
}

/// Returns true if an index by version contains exactly the stored objects, each under its version.
pub fn is_exact(view: &View, index: &Index<Object, u64>) -> bool {
    let Ok(values) = view.index_values(index) else { return false };
    let members: usize = values.map(|(_, members)| members).sum();
    let found = |object: &Arc<Object>| {
        let mut hits = view.by_index(index, &object.version).expect("the index is missing");
        hits.any(|hit| Arc::ptr_eq(hit, object))
    };
    members == view.len() && view.objects().all(found)
}
