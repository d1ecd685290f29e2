//! PURE. The objects that a subscription selects, and the change that it receives for a write.
//!
//! | the object before the write \\ after it | is selected | is not selected, or does not exist |
//! |---|---|---|
//! | is selected | the change as it is | Deleted |
//! | is not selected, or does not exist | Added | nothing |
//!
//! With these changes alone, a subscriber holds exactly the selected objects. Only keys of objects that are selected, or that the subscriber holds,
//! are pending.
//!
//! The decision compares keys and index values, so it is made before the write commits. The index function is not run again, because the table holds
//! the values of the old object, and the write holds the values of the new one.

use std::sync::Arc;

use crate::table::definition::Definition;
use crate::table::index_set::IndexSet;
use crate::table::record::{AnyValue, Record, Values};
use crate::table::{KeyWrite, Table};
use crate::{Change, ChangeKind};

/// The filter of a subscription that does not cover all objects.
pub(crate) enum Selection<K, V> {
    /// One key.
    Key { hash: u64, key: K },
    /// The objects that have a value in an index. Selects nothing once the index is removed.
    Value { index: Arc<Definition<V>>, value: Arc<AnyValue> },
}

impl<K, V> Selection<K, V> {
    /// Returns whether the selection can be evaluated: it needs no index, or its index is in the index set.
    pub(crate) fn is_valid(&self, index_set: &IndexSet<V>) -> bool {
        match self {
            Self::Key { .. } => true,
            Self::Value { index, .. } => index_set.place(index).is_some(),
        }
    }

    /// Returns the selected objects, in the order of their rows. Compares keys or index values.
    pub(crate) fn records(&self, table: &Table<K, V>) -> Vec<Record<K, V>>
    where
        K: Eq,
    {
        match self {
            Self::Key { hash, key } => {
                table.record(*hash, |known| known == key).cloned().into_iter().collect()
            }
            Self::Value { index, value } => {
                let column = table.index_set.place(index).map(|at| &table.columns[at]);
                let group = column.and_then(|column| {
                    column.group(column.find(value.hash, |known| index.equal(known, value))?)
                });
                let rows = group.into_iter().flat_map(|group| group.rows.iter());
                rows.filter_map(|row| table.rows.get(row).cloned()).collect()
            }
        }
    }

    /// Returns the positions of the writes that concern the subscriber, each with its crossing. `table` is the state before the writes. Compares keys
    /// or index values.
    pub(crate) fn crossings(&self, writes: &[KeyWrite<K, V>], table: &Table<K, V>) -> Vec<(usize, Crossing)>
    where
        K: Eq,
    {
        let writes = writes.iter().enumerate();
        match self {
            Self::Key { hash, key } => {
                let is_it = |record: &Record<K, V>| record.hash() == *hash && record.key() == key;
                writes
                    .filter(|(_, write)| is_it(&write.record))
                    .map(|(at, _)| (at, Crossing::Within))
                    .collect()
            }
            Self::Value { index, value } => {
                let Some(place) = table.index_set.place(index) else { return Vec::new() };
                let column = &table.columns[place];
                let group = column.find(value.hash, |known| index.equal(known, value));
                let was = |row| group.is_some_and(|group| column.groups_of(row).any(|other| other == group));
                let crossing = |(at, write): (usize, &KeyWrite<K, V>)| {
                    let was = write.row.is_some_and(was);
                    let is = match write.values.get(place) {
                        None | Some(Values::Kept) => was && !write.kind.is_deletion(),
                        Some(values) => {
                            values.as_slice().iter().any(|other| index.equal(&other.value, value))
                        }
                    };
                    Some((at, Crossing::of(write.kind, was, is)?))
                };
                writes.filter_map(crossing).collect()
            }
        }
    }
}

/// Whether a change moves an object into the selection of a subscriber or out of it.
#[derive(Clone, Copy)]
pub(crate) enum Crossing {
    /// The object is selected in every state of the change (before, after, or both), so the change is delivered unchanged.
    Within,
    /// The object becomes selected.
    Enters,
    /// The object is no longer selected, or it may have been replaced by an object that is not selected.
    Leaves,
}

impl Crossing {
    fn of(kind: ChangeKind, was: bool, is: bool) -> Option<Self> {
        use ChangeKind::{Added, Deleted, Initial, Missed, Replaced, Updated};
        match (kind, was, is) {
            (Initial | Added, _, true) | (Updated | Replaced, true, true) | (Deleted | Missed, true, _) => {
                Some(Self::Within)
            }
            (Updated | Replaced, false, true) => Some(Self::Enters),
            (Updated | Replaced, true, false) => Some(Self::Leaves),
            _ => None,
        }
    }

    /// Returns the change for this subscriber.
    pub(crate) fn change<K, V>(self, change: &Change<K, V>) -> Change<K, V> {
        match (self, change.held()) {
            (Self::Enters, _) => change.with(ChangeKind::Added, None, change.object().clone()),
            (Self::Leaves, Some(held)) => {
                let replaced = change.kind() == ChangeKind::Replaced;
                let kind = if replaced { ChangeKind::Missed } else { ChangeKind::Deleted };
                change.with(kind, Some(held.clone()), held.clone())
            }
            (Self::Within | Self::Leaves, _) => change.clone(),
        }
    }
}
