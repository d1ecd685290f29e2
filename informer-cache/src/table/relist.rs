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
//! the list position, and drops the listed object immediately. Nothing else writes objects during a relist, so the objects of
//! the base are still the stored objects when the list is complete. Indexes may be added and removed meanwhile.
//!
//! When the list is complete, [`RelistDiff::advance`] creates the writes in pieces: it orders the listed objects by their position in the list, finds
//! the rows of the base that are not listed, and then turns the listed objects into writes.
//!
//! # Invariants
//! 1. The writes are in this order: deletions first, then the other writes in the order of the list.
//! 2. There is at most one write for each key.
//! 3. The record of an unchanged object stays in the store, so the address of the stored object does not change.

use std::sync::Arc;

use crate::table::persist::{Chunked, Paged};
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

/// What a list contains for a row of its base.
#[derive(Clone, Copy)]
pub(crate) enum RowState {
    Unlisted,
    /// The object of the row, unchanged, at this position of the list.
    Unchanged(u32),
    /// A changed object: the element of `listed` at this position.
    Changed(usize),
}

/// A list, compared with its base.
pub(crate) struct RelistDiff<K, V> {
    pub(crate) base: Arc<Table<K, V>>,
    /// The state of each row of the base, encoded in one number.
    rows: Paged,
    /// The listed objects that are not unchanged. Their keys are distinct. An element is `None` once its write was created.
    pub(crate) listed: Chunked<Option<Listed<K, V>>>,
    /// For each position of the list, the position in `listed`, plus one; 0 if there is no such element.
    order: Paged,
    step: Step,
}

/// The position of [`RelistDiff::advance`].
#[derive(Clone, Copy)]
enum Step {
    /// Orders the elements of `listed`, from this one on.
    Order(usize),
    /// Creates the writes of deletions, from this row on.
    Delete(u32),
    /// Creates the other writes, from this position of the list on.
    Put(usize),
    /// Frees the elements of `listed`.
    Free,
    Done,
}

/// A row that does not change costs less than a write, so a piece contains this many times more of them.
pub(crate) const UNCHANGED: usize = 16;

/// The bit of an unchanged object in the number that encodes a [`RowState`].
const IS_UNCHANGED: u32 = 1 << 31;

impl<K, V> RelistDiff<K, V> {
    pub(crate) fn new(base: Arc<Table<K, V>>) -> Self {
        Self { base, rows: Paged::new(), listed: Chunked::new(), order: Paged::new(), step: Step::Order(0) }
    }

    pub(crate) fn state(&self, row: u32) -> RowState {
        match self.rows.get(row) {
            0 => RowState::Unlisted,
            place if place & IS_UNCHANGED != 0 => RowState::Unchanged(place & !IS_UNCHANGED),
            at => RowState::Changed(at as usize - 1),
        }
    }

    /// Sets the state of a row. Positions are less than 2³¹ − 1.
    pub(crate) fn set_state(&mut self, row: u32, state: RowState) {
        let number = match state {
            RowState::Unlisted => 0,
            RowState::Unchanged(place) => place | IS_UNCHANGED,
            RowState::Changed(at) => at as u32 + 1,
        };
        self.rows.set(row, number);
    }

    /// Returns the listed object at this position of `listed`.
    pub(crate) fn listed(&self, at: usize) -> &Listed<K, V> {
        self.listed
            .get(at)
            .and_then(Option::as_ref)
            .expect("a list is only changed before its writes are created")
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.step, Step::Done)
    }

    /// Creates the next writes that turn the objects of the base into exactly the listed objects. Works on about `most` writes, or on a multiple of
    /// this number of unchanged objects, and returns how many of the `most` it has used. Runs no user code.
    pub(crate) fn advance(&mut self, writes: &mut Vec<KeyWrite<K, V>>, most: usize) -> usize {
        let many = most.saturating_mul(UNCHANGED);
        match self.step {
            Step::Order(from) => {
                let to = from.saturating_add(many).min(self.listed.len());
                for at in from..to {
                    if let Some(Some(listed)) = self.listed.get(at) {
                        self.order.set(listed.place, at as u32 + 1);
                    }
                }
                self.step = if to == self.listed.len() { Step::Delete(0) } else { Step::Order(to) };
                (to - from) / UNCHANGED
            }
            Step::Delete(from) => {
                let (mut next, mut seen, before) = (None, 0, writes.len());
                for (row, old) in self.base.rows.items().iter_from(from) {
                    if seen / UNCHANGED + writes.len() - before >= most {
                        next = Some(row);
                        break;
                    }
                    seen += 1;
                    if let RowState::Unlisted = self.state(row) {
                        let (kind, values) = (ChangeKind::Missed, AllValues::new());
                        writes.push(KeyWrite { kind, row: Some(row), record: old.clone(), values });
                    }
                }
                self.step = next.map_or(Step::Put(0), Step::Delete);
                seen / UNCHANGED + writes.len() - before
            }
            Step::Put(from) => {
                let (mut place, mut seen, before) = (from, 0, writes.len());
                while place < self.order.end() && seen / UNCHANGED + writes.len() - before < most {
                    let at = self.order.get(place as u32);
                    let listed = (at as usize).checked_sub(1).and_then(|at| self.listed.get_mut(at)?.take());
                    writes.extend(listed.and_then(Listed::write));
                    (place, seen) = (place + 1, seen + 1);
                }
                self.step = if place < self.order.end() { Step::Put(place) } else { Step::Free };
                seen / UNCHANGED + writes.len() - before
            }
            Step::Free => {
                let freed = self.listed.len().min(many);
                // Each element is `None`, because its write was created.
                (0..freed).for_each(|_| drop(self.listed.pop()));
                if self.listed.is_empty() {
                    self.step = Step::Done;
                }
                freed / UNCHANGED
            }
            Step::Done => 0,
        }
    }
}

impl<K, V> Listed<K, V> {
    /// Returns the write that stores this object; `None` if it is stored unchanged.
    fn write(self) -> Option<KeyWrite<K, V>> {
        let Self { record, values, stored, .. } = self;
        let kind = match stored {
            Some((_, ListedState::Unchanged)) => return None,
            Some((_, ListedState::Updated)) => ChangeKind::Updated,
            Some((_, ListedState::Replaced)) => ChangeKind::Replaced,
            // `Publication` changes this to `Initial` if this is the first list of the store.
            None => ChangeKind::Added,
        };
        Some(KeyWrite { kind, row: stored.map(|(row, _)| row), record, values })
    }
}
