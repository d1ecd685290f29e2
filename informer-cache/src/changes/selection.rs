//! PURE. Decides which objects a subscription selects, and which change it receives for a write:
//!
//! | the object before the write \\ after it | is selected | is not selected, or does not exist |
//! |---|---|---|
//! | is selected | the change, unchanged | Deleted |
//! | is not selected, or does not exist | Added | nothing |
//!
//! A subscriber that applies these changes holds exactly the selected objects. A key is pending only if its object is selected, or if the subscriber
//! holds the object.
//!
//! The decision calls `Eq` of keys and index values, which may panic, so it is made before the write commits. It does not call the index function,
//! because the table has the index values of the old object, and the write has the values of the new one.

use std::sync::Arc;

use flyball_sync::panics::DropContained;

use crate::table::definition::Definition;
use crate::table::index_set::IndexSet;
use crate::table::record::{AnyValue, Values};
use crate::table::{KeyWrite, Rows, Table};
use crate::{Change, ChangeKind};

/// The filter of a subscription that does not cover all objects.
pub(crate) enum Selection<K, V> {
    /// One key.
    Key { hash: u64, key: DropContained<K> },
    /// The objects that have `value` in `index`. Once the index is removed, no object is selected.
    Value { index: Arc<Definition<V>>, value: Arc<AnyValue> },
}

impl<K, V> Selection<K, V> {
    /// Returns whether the selection can be evaluated, that is, whether it needs no index or its index is in the index set.
    pub(crate) fn is_valid(&self, index_set: &IndexSet<V>) -> bool {
        match self {
            Self::Key { .. } => true,
            Self::Value { index, .. } => index_set.place(index).is_some(),
        }
    }

    /// Returns the rows of the selected objects; `None` if there are none. Calls `Eq` of keys or index values. O(1).
    pub(crate) fn rows(&self, table: &Table<K, V>) -> Option<Rows>
    where
        K: Eq,
    {
        match self {
            Self::Key { hash, key } => table.find(*hash, |known| *known == **key).map(Rows::One),
            Self::Value { index, value } => {
                let column = &table.columns[table.index_set.place(index)?];
                let group = column.find(value.hash, |known| index.equal(known, value))?;
                column.group(group).map(|group| group.rows.clone())
            }
        }
    }

    /// Returns a hash of the selected key or value. Different selections may have the same hash.
    pub(crate) fn hash(&self) -> u64 {
        match self {
            Self::Key { hash, .. } => *hash,
            Self::Value { index, value } => hash_of_value(index, value),
        }
    }

    /// Returns whether this selects an index value.
    pub(crate) fn is_of_value(&self) -> bool {
        matches!(self, Self::Value { .. })
    }

    /// Returns how a write concerns the subscriber; `None` if it does not. `table` is the state before the write. Calls `Eq` of keys or index values.
    pub(crate) fn crossing(&self, write: &KeyWrite<K, V>, table: &Table<K, V>) -> Option<Crossing>
    where
        K: Eq,
    {
        match self {
            Self::Key { hash, key } => {
                let record = &write.record;
                (record.hash() == *hash && *record.key() == **key).then_some(Crossing::Within)
            }
            Self::Value { index, value } => {
                let place = table.index_set.place(index)?;
                let column = &table.columns[place];
                let group = column.find(value.hash, |known| index.equal(known, value));
                let is_in =
                    |row| group.is_some_and(|group| column.groups_of(row).any(|other| other == group));
                let was = write.row.is_some_and(is_in);
                let is = match write.values.get(place) {
                    None | Some(Values::Kept) => was && !write.kind.is_deletion(),
                    Some(Values::Known(known)) => group == Some(*known),
                    Some(values) => values.as_slice().iter().any(|other| index.equal(&other.value, value)),
                };
                Crossing::of(write.kind, was, is)
            }
        }
    }
}

/// Returns the [`hash`](Selection::hash) of the selection of this value in this index.
pub(crate) fn hash_of_value<V>(index: &Arc<Definition<V>>, value: &AnyValue) -> u64 {
    value.hash ^ (Arc::as_ptr(index).addr() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The relation of a change to the selection of a subscriber: whether the object enters the selection, leaves it or stays within it.
#[derive(Clone, Copy)]
pub(crate) enum Crossing {
    /// The object is selected both before and after the change (an added object: after it; a deleted object: before it), so the change is delivered
    /// unchanged.
    Within,
    /// The object becomes selected.
    Enters,
    /// An object is selected before the change and not after it, because the object changed or a different object replaced it.
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

    /// Converts `change` to the change that this subscriber receives.
    pub(crate) fn change<K, V>(self, change: &Change<K, V>) -> Change<K, V> {
        match (self, change.held()) {
            (Self::Enters, _) => change.with(ChangeKind::Added, None, change.after().clone()),
            (Self::Leaves, Some(held)) => {
                let replaced = change.kind() == ChangeKind::Replaced;
                let kind = if replaced { ChangeKind::Missed } else { ChangeKind::Deleted };
                change.with(kind, Some(held.clone()), held.clone())
            }
            (Self::Within | Self::Leaves, _) => change.clone(),
        }
    }
}
