//! PURE. The objects of a snapshot that are still to be delivered to a subscriber.

use std::sync::{Arc, Weak};

use crate::changes::selection::Selection;
use crate::store::inner::StoreInner;
use crate::store::retained::HeldState;
use crate::table::Table;
use crate::table::persist::Walk;
use crate::table::record::Record;

/// The remaining objects, in the order of their rows.
pub(super) struct InitialObjects<K, V> {
    objects: Objects<K, V>,
    /// While this is held, the state of the objects counts as retained.
    _held: Option<Arc<HeldState>>,
}

enum Objects<K, V> {
    All(Walk<Record<K, V>>),
    /// The objects in reverse order, so that the next object is the last element.
    Some(Vec<Record<K, V>>),
}

impl<K: Eq, V> InitialObjects<K, V> {
    /// Creates a walk over the objects of a table, or only over those that `selection` selects. Returns `None` if there are none. With a selection,
    /// this calls `Eq` of keys or index values. `store` registers the state of the table as held.
    pub(super) fn new(
        table: &Table<K, V>,
        selection: Option<&Selection<K, V>>,
        store: &Weak<StoreInner<K, V>>,
    ) -> Option<Self> {
        let objects = match selection {
            None => Objects::All(Walk::new(table.rows.items())),
            Some(selection) => {
                let mut records = selection.records(table);
                records.reverse();
                Objects::Some(records)
            }
        };
        let mut ahead = Self { objects, _held: None };
        if ahead.left() == 0 {
            return None;
        }
        ahead._held = store.upgrade().map(|store| store.held.hold(table));
        Some(ahead)
    }
}

impl<K, V> InitialObjects<K, V> {
    /// Returns how many objects are left.
    pub(super) fn left(&self) -> usize {
        match &self.objects {
            Objects::All(walk) => walk.left(),
            Objects::Some(records) => records.len(),
        }
    }

    /// Returns the next object; `None` at the end.
    pub(super) fn item(&self) -> Option<&Record<K, V>> {
        match &self.objects {
            Objects::All(walk) => walk.item(),
            Objects::Some(records) => records.last(),
        }
    }

    /// Moves on to the next object. Returns what the walk no longer needs. This may have the last references to objects, so the caller decides when
    /// it is dropped.
    pub(super) fn advance(&mut self) -> impl Sized + use<K, V> {
        match &mut self.objects {
            Objects::All(walk) => (Some(walk.advance()), None),
            Objects::Some(records) => (None, records.pop()),
        }
    }
}
