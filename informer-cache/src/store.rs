//! SHELL. The handle of a store. The module `inner` describes the locks and the steps of a write.

use std::fmt;
use std::sync::Arc;

use crate::store::inner::StoreInner;

mod access;
mod builder;
mod effects;
mod indexes;
pub(crate) mod inner;
mod lister;
mod memory;
pub(crate) mod object_reader;
mod publication;
pub(crate) mod published;
pub(crate) mod reader_slots;
mod reading;
mod relist;
pub(crate) mod retained;
mod shared_writer;
mod snapshot;
mod stats;
mod transaction;
mod ttl_writer;
mod unnamed;
pub(crate) mod wait_for;
pub(crate) mod wait_for_key;
mod waiters;
mod write;
mod write_outcome;
mod writer;

pub use self::builder::StoreBuilder;
pub use self::lister::Lister;
pub use self::memory::{IndexMemoryUsage, MemoryUsage};
pub(crate) use self::publication::{Publication, Stage};
pub use self::relist::Relist;
pub(crate) use self::relist::RelistDraft;
pub use self::retained::RetainedSnapshots;
pub use self::shared_writer::SharedWriter;
pub use self::snapshot::{RangeIter, Snapshot};
pub use self::transaction::Transaction;
pub use self::ttl_writer::TtlWriter;
pub(crate) use self::unnamed::Withheld;
pub use self::write_outcome::WriteOutcome;
pub use self::writer::Writer;

/// A cache that holds the newest known state of each object of one kind, with indexes. `Store` is a handle for readers: clones share the cache.
///
/// A [`Writer`] writes to the store. A read waits for at most one lookup or one commit of another thread, and a read from a
/// [snapshot](Self::snapshot) never waits. A [subscription](Self::subscribe) receives a change only after the change is visible to readers.
///
/// Objects are shared, and must not be changed through interior mutability: an index keeps the values that its function returned when the object was
/// written. `Hash`, `Eq` and `Ord` of keys and index values may run under a lock, and must not call the store.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, NamespacedName, WriteOutcome, Schema, Store, Version};
/// use std::sync::Arc;
///
/// struct Pod { name: NamespacedName, version: u64, node: Arc<str> }
///
/// static BY_NODE: Index<Pod, Arc<str>> = Index::new("node", |pod| pod.node.clone());
/// const PODS: Schema<NamespacedName, Pod> = Schema::new(|pod| pod.name.clone(), |pod| Version::new(pod.version));
///
/// let mut store = Store::builder(PODS).index(&BY_NODE).build()?;
/// let pod = |version, node: &str| Pod { name: "default/a".parse().unwrap(), version, node: node.into() };
///
/// assert_eq!(store.upsert(pod(7, "node-1")), WriteOutcome::Added);
/// assert_eq!(store.upsert(pod(8, "node-2")), WriteOutcome::Updated);
/// assert_eq!(store.upsert(pod(7, "node-1")), WriteOutcome::Stale { stored: Version::new(8) });
///
/// assert_eq!(store.get("default/a").map(|pod| pod.version), Some(8));
/// assert!(store.by_index(&BY_NODE, "node-1")?.is_empty());
/// assert_eq!(store.by_index(&BY_NODE, "node-2")?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Store<K, V> {
    pub(crate) inner: Arc<StoreInner<K, V>>,
}

impl<K, V> Clone for Store<K, V> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<K, V> fmt::Debug for Store<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = self.inner.snapshot();
        f.debug_struct("Store")
            .field("len", &snapshot.len())
            .field("version", &snapshot.version())
            .finish_non_exhaustive()
    }
}
