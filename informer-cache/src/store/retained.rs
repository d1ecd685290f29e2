//! SHELL. Registers the earlier states of a store that snapshots still hold.
//!
//! The states are registered in a list of weak references to tables. This list has its own lock, under which no other lock is taken. When the writer
//! is about to replace a table that a snapshot holds, or to change a copy of it, it adds a reference to the old table to the list. So taking a
//! snapshot does not register anything, and a snapshot of the current state is not counted.

use std::sync::{Arc, Weak};

use flyball_sync::locks::Mutex;

use crate::Version;
use crate::table::Table;

/// How many earlier states of a store are still held, and how old the oldest of them is; returned by
/// [`Store::retained_snapshots`](crate::Store::retained_snapshots).
///
/// Objects and index data that later writes have replaced stay in memory as long as an earlier state that contains them is held. A snapshot of the
/// current state needs no extra memory, and is not counted.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{RetainedSnapshots, Schema, Store, Version};
///
/// let mut store = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
/// store.upsert(("a", 1));
/// let view = store.snapshot(); // for example, a handler that never returns holds one
/// store.upsert(("a", 2));
/// store.upsert(("a", 3));
///
/// let RetainedSnapshots { states, oldest_version, changes_behind } = store.retained_snapshots();
/// assert_eq!((states, oldest_version, changes_behind), (1, Some(Version::new(1)), 2));
/// drop(view);
/// assert_eq!(store.retained_snapshots().states, 0);
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetainedSnapshots {
    /// The number of earlier states that snapshots or relists hold. A state that several snapshots hold counts once.
    pub states: usize,
    /// The version of the oldest of these states, if there is one.
    pub oldest_version: Option<Version>,
    /// The number of changes since the oldest of these states; 0 if there is no such state.
    pub changes_behind: u64,
}

/// The list of held states; see the [module](self).
pub(crate) struct Retained<K, V> {
    list: Mutex<List<K, V>>,
}

struct List<K, V> {
    tables: Vec<Weak<Table<K, V>>>,
    /// When `tables` reaches this length, references to dropped tables are removed.
    cleanup_len: usize,
}

impl<K, V> Retained<K, V> {
    /// Registers a state that a snapshot holds and that the store is about to replace.
    pub(crate) fn superseded(&self, table: &Arc<Table<K, V>>) {
        let mut list = self.list.lock();
        if list.tables.len() >= list.cleanup_len {
            // Only weak references are removed here, so no object of the user is dropped.
            list.tables.retain(|table| table.strong_count() > 0);
            list.cleanup_len = 8 + 2 * list.tables.len();
        }
        list.tables.push(Arc::downgrade(table));
    }

    /// Returns the number of held states, and the version and the revision of the oldest one.
    pub(crate) fn oldest(&self) -> (usize, Option<(Version, u64)>) {
        // `tables` is dropped after the lock is released, because one of these references may have become the last one to its table.
        let tables: Vec<_> = self.list.lock().tables.iter().filter_map(Weak::upgrade).collect();
        let oldest = tables.iter().min_by_key(|table| table.revision);
        (tables.len(), oldest.map(|table| (table.version, table.revision)))
    }
}

// `Default` is not derived, because a derive would require `K: Default` and `V: Default`.
impl<K, V> Default for Retained<K, V> {
    fn default() -> Self {
        Self { list: Mutex::new(List { tables: Vec::new(), cleanup_len: 8 }) }
    }
}
