//! PURE. Computes a relist as a diff: the writes that turn the stored objects into the listed objects. An unchanged object needs no write.
//!
//! | stored \ listed | not listed | same identity, same version | same identity, another version | another identity |
//! |---|---|---|---|---|
//! | nothing | | Added | Added | Added |
//! | an object | Deleted, missed | unchanged | Updated, even to an older version | Replaced |
//!
//! "Same version" also requires that `content_eq` of the schema returns true, and that the objects have a version: objects without a version always
//! count as updated. A list is the complete state of the source. So it is applied even if it is older than the store, for example after a server was
//! restored from a backup.
//!
//! A list is compared page by page with its **base**: the table that was published when the relist began. For an unchanged object, the list stores
//! one bit and the list position, and drops the listed object immediately. Nothing else writes objects during a relist, so the objects of
//! the base are still the stored objects when the list is complete. Indexes may be added and removed meanwhile.
//!
//! # Invariants
//! 1. The writes are in this order: deletions first, then the other writes in the order of the list.
//! 2. There is at most one write for each key.
//! 3. The record of an unchanged object stays in the store, so the address of the stored object does not change.

use std::hash::Hash;
use std::sync::Arc;

use crate::table::persist::Bits;
use crate::table::record::{AllValues, Record};
use crate::table::{KeyWrite, Table};
use crate::{ChangeKind, Schema};

/// The result of comparing a listed object with the stored object of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListedState {
    Unchanged,
    Updated,
    Replaced,
}

/// Compares a listed object with the stored object. Runs the user's functions for identity and content.
pub(crate) fn compare<K, V>(schema: &Schema<K, V>, old: &Record<K, V>, new: &Record<K, V>) -> ListedState {
    if !schema.same_identity(&old.object, &new.object) {
        ListedState::Replaced
    } else if old.version == new.version
        && !new.version.is_zero()
        && schema.content_eq(&old.object, &new.object)
    {
        ListedState::Unchanged
    } else {
        ListedState::Updated
    }
}

/// A listed object that differs from the stored object, or whose key is not stored.
pub(crate) struct Listed<K, V> {
    pub(crate) record: Record<K, V>,
    /// The object's values in the indexes of the base table.
    pub(crate) values: AllValues,
    /// If the key has a row in the base: this row, and how the object differs from the stored object.
    pub(crate) stored: Option<(u32, ListedState)>,
    /// The position in the list. If a key is listed twice, this is the position of the first object.
    pub(crate) place: u32,
}

/// A complete list, compared with its base.
pub(crate) struct RelistDiff<K, V> {
    pub(crate) base: Arc<Table<K, V>>,
    /// The rows of the base that are listed unchanged.
    pub(crate) unchanged: Bits,
    /// One number for each row of the base: if the list contains the object of the row unchanged, the position of its key in the list; if the list
    /// contains it with a change, its position in `listed` plus one; if the list does not contain it, zero.
    pub(crate) slots: Vec<u32>,
    /// All other listed objects. Their keys are distinct, and none of them is the key of a row in `unchanged`.
    pub(crate) listed: Vec<Listed<K, V>>,
}

impl<K: Eq + Hash, V: 'static> RelistDiff<K, V> {
    pub(crate) fn new(base: Arc<Table<K, V>>) -> Self {
        let end = base.rows.end();
        Self { base, unchanged: Bits::new(end), slots: vec![0; end as usize], listed: Vec::new() }
    }

    /// Returns the writes that turn the objects of the base into exactly the listed objects, and empties `listed`. Runs no user code. O(listed), plus
    /// O(base) to find the deleted objects.
    pub(crate) fn writes(&mut self) -> Vec<KeyWrite<K, V>> {
        let mut kept = self.unchanged.clone();
        let stored = self.listed.iter().filter_map(|listed| listed.stored);
        stored.for_each(|(row, _)| kept.set(row));
        let deletions = self.base.rows.iter().filter(|(row, _)| !kept.has(*row));
        let deletions = deletions.map(|(row, old)| KeyWrite {
            kind: ChangeKind::Missed,
            row: Some(row),
            record: old.clone(),
            values: AllValues::new(),
        });
        self.listed.sort_unstable_by_key(|listed| listed.place);
        let put = std::mem::take(&mut self.listed).into_iter().filter_map(|listed| {
            let Listed { record, values, stored, .. } = listed;
            let kind = match stored {
                Some((_, ListedState::Unchanged)) => return None,
                Some((_, ListedState::Updated)) => ChangeKind::Updated,
                Some((_, ListedState::Replaced)) => ChangeKind::Replaced,
                // `Publication` changes this to `Initial` if this is the first list of the store.
                None => ChangeKind::Added,
            };
            Some(KeyWrite { kind, row: stored.map(|(row, _)| row), record, values })
        });
        // `collect` reuses the allocation of `listed`, because a write has the same size as a listed object.
        let mut writes: Vec<_> = put.collect();
        writes.splice(0..0, deletions);
        writes
    }
}
