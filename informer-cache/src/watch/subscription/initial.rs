//! PURE. The objects of a snapshot that are still to be delivered to a subscriber.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::changes::selection::Selection;
use crate::store::inner::StoreInner;
use crate::store::retained::HeldState;
use crate::table::persist::{Vector, Walk};
use crate::table::record::Record;
use crate::table::{Rows, Table};

/// The remaining objects, in the order of their rows.
pub(super) struct InitialObjects<K, V> {
    objects: Objects<K, V>,
    /// While this is held, the state of the objects counts as retained.
    _held: Option<Arc<HeldState>>,
}

enum Objects<K, V> {
    All(Walk<Record<K, V>>),
    Some(Selected<K, V>),
}

/// The selected objects. They are collected in pieces, because there may be many, and delivered afterwards. So only these objects are kept alive, and
/// not the table, while a slow subscriber receives them.
struct Selected<K, V> {
    rows: Rows,
    /// The position in `rows` of the next object to be collected.
    next: usize,
    /// The objects of the table, until all selected ones are collected.
    table: Vector<Record<K, V>>,
    collected: VecDeque<Record<K, V>>,
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
                let rows = selection.rows(table)?;
                let collected = VecDeque::with_capacity(rows.len());
                Objects::Some(Selected { rows, next: 0, table: table.rows.items().clone(), collected })
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
    /// Collects up to `most` of the selected objects. Returns whether all are collected; the objects can be taken only then.
    pub(super) fn collect(&mut self, most: usize) -> bool {
        let Objects::Some(Selected { rows, next, table, collected }) = &mut self.objects else { return true };
        let to = next.saturating_add(most).min(rows.len());
        collected.extend((*next..to).filter_map(|at| table.get(rows.get(at)?).cloned()));
        *next = to;
        to == rows.len() && table.free(most) > 0
    }

    /// Returns how many objects are left.
    pub(super) fn left(&self) -> usize {
        match &self.objects {
            Objects::All(walk) => walk.left(),
            Objects::Some(selected) => selected.rows.len() - selected.next + selected.collected.len(),
        }
    }

    /// Returns the next object; `None` at the end.
    pub(super) fn item(&self) -> Option<&Record<K, V>> {
        match &self.objects {
            Objects::All(walk) => walk.item(),
            Objects::Some(selected) => selected.collected.front(),
        }
    }

    /// Moves on to the next object. Returns what the walk no longer needs. This may have the last references to objects, so the caller decides when
    /// it is dropped.
    pub(super) fn advance(&mut self) -> impl Sized + use<K, V> {
        match &mut self.objects {
            Objects::All(walk) => (Some(walk.advance()), None),
            Objects::Some(selected) => (None, selected.collected.pop_front()),
        }
    }
}
