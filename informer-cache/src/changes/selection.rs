//! PURE. Which objects a subscription is of, and what a write is to it.
//!
//! | the object before the write \\ after it | is selected | is not, or there is none |
//! |---|---|---|
//! | is selected | the change as it is | Deleted |
//! | is not, or there is none | Added | nothing |
//!
//! These changes alone give a subscriber exactly the selected objects, and their number bounds its pending changes.
//!
//! Deciding compares keys and index values, so it belongs where nothing has changed yet: a write finds it out before it commits. The index
//! function is not run again: what it said of the old object is in the table, and what it says of the new one is in the write.

use std::sync::Arc;

use crate::table::definition::Definition;
use crate::table::index_set::IndexSet;
use crate::table::record::{AnyValue, Record, Values};
use crate::table::{KeyWrite, Table};
use crate::{Change, ChangeKind};

/// What a subscription is of, if not of everything.
pub(crate) enum Selection<K, V> {
    /// One key.
    Key { hash: u64, key: K },
    /// The objects that have a value in an index. Where that index is removed, nothing is selected.
    Value { index: Arc<Definition<V>>, value: Arc<AnyValue> },
}

impl<K, V> Selection<K, V> {
    /// Whether it can be decided which objects are selected.
    pub(crate) fn stands(&self, index_set: &IndexSet<V>) -> bool {
        match self {
            Self::Key { .. } => true,
            Self::Value { index, .. } => index_set.place(index).is_some(),
        }
    }

    /// The selected objects, in the order of their rows. Compares keys or index values.
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

    /// What writes to this table are to the subscriber, by their places. Compares keys or index values.
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
                        Some(values) => values.as_slice().iter().any(|said| index.equal(&said.value, value)),
                    };
                    Some((at, Crossing::of(write.kind, was, is)?))
                };
                writes.filter_map(crossing).collect()
            }
        }
    }
}

/// What a change is to a subscriber of selected objects.
#[derive(Clone, Copy)]
pub(crate) enum Crossing {
    /// The change as it is.
    Within,
    /// The object is selected from now on.
    Enters,
    /// The object is selected no more, or it may be another one that is not.
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

    /// The change for this subscriber.
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
