//! PURE. The objects of a snapshot that are still to be delivered to a subscriber.

use crate::changes::selection::Selection;
use crate::table::Table;
use crate::table::persist::Walk;
use crate::table::record::Record;

/// The remaining objects, in the order of their rows.
pub(super) enum InitialObjects<K, V> {
    All(Walk<Record<K, V>>),
    /// The objects in reverse order, so that the next object is the last element.
    Some(Vec<Record<K, V>>),
}

impl<K: Eq, V> InitialObjects<K, V> {
    /// Creates a walk over the objects of a table, or only over those that `selection` selects. Returns `None` if there are none. With a selection,
    /// this calls `Eq` of keys or index values.
    pub(super) fn new(table: &Table<K, V>, selection: Option<&Selection<K, V>>) -> Option<Self> {
        let ahead = match selection {
            None => Self::All(Walk::new(table.rows.items())),
            Some(selection) => {
                let mut records = selection.records(table);
                records.reverse();
                Self::Some(records)
            }
        };
        (ahead.left() > 0).then_some(ahead)
    }
}

impl<K, V> InitialObjects<K, V> {
    /// Returns how many objects are left.
    pub(super) fn left(&self) -> usize {
        match self {
            Self::All(walk) => walk.left(),
            Self::Some(records) => records.len(),
        }
    }

    /// Returns the next object; `None` at the end.
    pub(super) fn item(&self) -> Option<&Record<K, V>> {
        match self {
            Self::All(walk) => walk.item(),
            Self::Some(records) => records.last(),
        }
    }

    /// Moves on to the next object. Returns what the walk no longer needs. This may have the last references to objects, so the caller decides when
    /// it is dropped.
    pub(super) fn advance(&mut self) -> impl Sized + use<K, V> {
        match self {
            Self::All(walk) => (Some(walk.advance()), None),
            Self::Some(records) => (None, records.pop()),
        }
    }
}
