//! SHELL. Registers the earlier states of a store that snapshots and subscriptions still hold.
//!
//! A subscription holds the rows of its snapshot that it has not delivered, and not the table, so that it keeps no index and no object that it has
//! delivered. So it registers the state when it begins, and holds a [`HeldState`] until it has delivered the last object.
//!
//! The states of snapshots are registered in a list of weak references to tables. This list has its own lock, under which no other lock is taken. When the writer
//! is about to replace a table that a snapshot holds, or to change a copy of it, it adds a reference to the old table to the list. So taking a
//! snapshot does not register anything, and a snapshot of the current state is not counted.

use std::collections::BTreeSet;
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
    /// The number of earlier states that snapshots, relists or subscriptions hold. A state that several of them hold counts once.
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
    subscribed: Vec<Weak<HeldState>>,
    /// When both lists together reach this length, references to dropped states are removed.
    cleanup_len: usize,
}

/// A state of which a subscription holds objects.
pub(crate) struct HeldState {
    version: Version,
    revision: u64,
}

impl<K, V> List<K, V> {
    /// Removes references to dropped states. Only weak references are removed, so no object of the user is dropped. Amortised O(1).
    fn clean_up(&mut self) {
        if self.tables.len() + self.subscribed.len() >= self.cleanup_len {
            self.tables.retain(|table| table.strong_count() > 0);
            self.subscribed.retain(|state| state.strong_count() > 0);
            self.cleanup_len = 8 + 2 * (self.tables.len() + self.subscribed.len());
        }
    }
}

impl<K, V> Retained<K, V> {
    /// Registers a state that a snapshot holds and that the store is about to replace.
    pub(crate) fn superseded(&self, table: &Arc<Table<K, V>>) {
        let mut list = self.list.lock();
        list.clean_up();
        list.tables.push(Arc::downgrade(table));
    }

    /// Registers a state that a subscription holds until it drops the result.
    pub(crate) fn hold(&self, table: &Table<K, V>) -> Arc<HeldState> {
        let held = Arc::new(HeldState { version: table.version, revision: table.revision });
        let mut list = self.list.lock();
        list.clean_up();
        list.subscribed.push(Arc::downgrade(&held));
        held
    }

    /// Returns the number of held states other than the current one, the version and the revision of the oldest one, and the current revision. `current`
    /// returns the current version and revision. It is called after the held states are read, so the current state is not older than any of them.
    pub(crate) fn oldest(
        &self,
        current: impl FnOnce() -> (Version, u64),
    ) -> (usize, Option<(Version, u64)>, u64) {
        let list = self.list.lock();
        // `tables` is dropped after the lock is released, because one of these references may have become the last one to its table.
        let tables: Vec<_> = list.tables.iter().filter_map(Weak::upgrade).collect();
        let subscribed: Vec<_> = list.subscribed.iter().filter_map(Weak::upgrade).collect();
        drop(list);
        let (version, now) = current();
        let subscribed = subscribed.iter().map(|state| (state.revision, state.version));
        let mut states: BTreeSet<_> = subscribed.filter(|state| *state != (now, version)).collect();
        states.extend(tables.iter().map(|table| (table.revision, table.version)));
        (states.len(), states.first().map(|(revision, version)| (*version, *revision)), now)
    }
}

// `Default` is not derived, because a derive would require `K: Default` and `V: Default`.
impl<K, V> Default for Retained<K, V> {
    fn default() -> Self {
        Self { list: Mutex::new(List { tables: Vec::new(), subscribed: Vec::new(), cleanup_len: 8 }) }
    }
}
