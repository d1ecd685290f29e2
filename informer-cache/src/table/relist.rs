//! PURE. A relist is a diff: what turns the stored objects into the listed ones, and nothing for what stayed.
//!
//! | stored \ listed | not listed | same identity, same version | same identity, another version | another identity |
//! |---|---|---|---|---|
//! | nothing | | Added | Added | Added |
//! | an object | Deleted, missed | unchanged | Updated, even to an older version | Replaced |
//!
//! "Same version" needs a version, and the same content by the schema: objects without a version always count as updated. The list is complete by definition, so it
//! wins even when it is older: a server restored from a backup has the older state.
//!
//! A list is judged page by page beside the table there was when it began, its **base**: what did not change is one bit and its place in the
//! list, and the new object goes at once. Nobody else writes meanwhile, so the base is what is stored when the list is complete; indexes may come and go.
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

/// What a listed object is to the stored one of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListedState {
    Unchanged,
    Updated,
    Replaced,
}

/// Judges a listed object; runs the user's functions for identity and content.
pub(crate) fn judge<K, V>(schema: &Schema<K, V>, old: &Record<K, V>, new: &Record<K, V>) -> ListedState {
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

/// A listed object that is not simply the stored one.
pub(crate) struct Listed<K, V> {
    pub(crate) record: Record<K, V>,
    /// What the indexes of the base say about it.
    pub(crate) values: AllValues,
    /// The row of its key in the base, if there is one, and what it is to that.
    pub(crate) stored: Option<(u32, ListedState)>,
    /// Its place in the list: that of the first object of its key.
    pub(crate) place: u32,
}

/// A complete list beside its base.
pub(crate) struct RelistDiff<K, V> {
    pub(crate) base: Arc<Table<K, V>>,
    /// The rows of the base that are listed as they are.
    pub(crate) unchanged: Bits,
    /// For each row of the base, the place of its key in the list if it is unchanged, otherwise where in `listed` it is, plus one, or zero.
    pub(crate) slots: Vec<u32>,
    /// The others; their keys are distinct, and none is of an unchanged row.
    pub(crate) listed: Vec<Listed<K, V>>,
}

impl<K: Eq + Hash, V: 'static> RelistDiff<K, V> {
    pub(crate) fn new(base: Arc<Table<K, V>>) -> Self {
        let end = base.rows.end();
        Self { base, unchanged: Bits::new(end), slots: vec![0; end as usize], listed: Vec::new() }
    }

    /// What leads from the base to exactly the list, which is taken apart. Runs no foreign code. O(listed), and O(base) for what is gone.
    pub(crate) fn writes(&mut self) -> Vec<KeyWrite<K, V>> {
        let mut kept = self.unchanged.clone();
        let stored = self.listed.iter().filter_map(|listed| listed.stored);
        stored.for_each(|(row, _)| kept.set(row));
        let gone = self.base.rows.iter().filter(|(row, _)| !kept.has(*row));
        let gone = gone.map(|(row, old)| KeyWrite {
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
        // In the memory of the list, as a write is as large as what is listed.
        let mut writes: Vec<_> = put.collect();
        writes.splice(0..0, gone);
        writes
    }
}
