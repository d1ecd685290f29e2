//! PURE. A relist is a diff: it consists of the writes that turn the stored objects into the listed ones, without a write for an unchanged object.
//!
//! | stored \ listed | not listed | same identity, same version | same identity, another version | another identity |
//! |---|---|---|---|---|
//! | nothing | | Added | Added | Added |
//! | an object | Deleted, missed | unchanged | Updated, even to an older version | Replaced |
//!
//! "Same version" also requires that the schema reports the same content, and that the objects have a version: objects without a version always count
//! as updated. The list is complete by definition, so it is applied even if it is older than the store, for example after a server was restored from
//! a backup.
//!
//! A list is compared page by page with the table at its start, its **base**. For an unchanged object, the list stores one bit and a position in the
//! list, and drops the new object immediately. No other write runs meanwhile, so the objects of the base are still the stored ones when the list is
//! complete. Indexes may be added and removed meanwhile.
//!
//! # Invariants
//! 1. Deletions come first, then the rest in the order of the list.
//! 2. Every key gets at most one write.
//! 3. An unchanged object keeps its record, so its address in the store does not change.

use std::hash::Hash;
use std::sync::Arc;

use crate::table::persist::Bits;
use crate::table::record::{AllValues, Record};
use crate::table::{KeyWrite, Table};
use crate::{ChangeKind, Schema};

/// The relation of a listed object to the stored object of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListedState {
    Unchanged,
    Updated,
    Replaced,
}

/// Compares a listed object with the stored one; runs the user's functions for identity and content.
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

/// A listed object that differs from the stored one.
pub(crate) struct Listed<K, V> {
    pub(crate) record: Record<K, V>,
    /// The object's values in the indexes of the base table.
    pub(crate) values: AllValues,
    /// The row of its key in the base, if there is one, and the relation of the object to the stored one.
    pub(crate) stored: Option<(u32, ListedState)>,
    /// The position in the list; if a key is listed twice, that of its first object.
    pub(crate) place: u32,
}

/// A complete list, compared with its base.
pub(crate) struct RelistDiff<K, V> {
    pub(crate) base: Arc<Table<K, V>>,
    /// The rows of the base that are listed unchanged.
    pub(crate) unchanged: Bits,
    /// One number for each row of the base: the position of its key in the list if the row is unchanged, the position in `listed` plus one if the row
    /// is listed with a change, and zero if it is not listed.
    pub(crate) slots: Vec<u32>,
    /// The other listed objects; their keys are distinct, and none belongs to an unchanged row.
    pub(crate) listed: Vec<Listed<K, V>>,
}

impl<K: Eq + Hash, V: 'static> RelistDiff<K, V> {
    pub(crate) fn new(base: Arc<Table<K, V>>) -> Self {
        let end = base.rows.end();
        Self { base, unchanged: Bits::new(end), slots: vec![0; end as usize], listed: Vec::new() }
    }

    /// Returns the writes that turn the base into exactly the list, and empties `listed`. Runs no user code. O(listed), plus O(base) to find the
    /// deleted objects.
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
                // The publication makes this `Initial` if it is the first list.
                None => ChangeKind::Added,
            };
            Some(KeyWrite { kind, row: stored.map(|(row, _)| row), record, values })
        });
        // Reuses the allocation of the list, because a write has the size of a listed object.
        let mut writes: Vec<_> = put.collect();
        writes.splice(0..0, deletions);
        writes
    }
}
