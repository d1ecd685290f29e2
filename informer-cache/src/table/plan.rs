//! PURE. A plan of the changes that one write makes to the columns. Planning calls `Eq` and `Ord` of the user's index values; carrying out the plan
//! does not.
//!
//! # Invariants
//! 1. The edits are grouped by column, in the order of the columns. A column without edits does not change.
//! 2. If a column changes, its edits include one for each group that contains the row after the write, also for a group that the row does not leave
//!    or join (`Edit::Stay`).
//! 3. The edits of the value order of an ordered index are sorted from the last position to the first, so that no edit shifts the positions of the
//!    edits that follow it. At the same position, removals come before insertions, and the greatest value is inserted first.

use std::cmp::Ordering;
use std::sync::Arc;

use flyball_sync::panics::caught;

use super::Garbage;
use super::column::{Column, Group, Name, Named, Rows, name, number};
use super::persist::NodeArc;
use crate::IndexError;
use crate::table::definition::Definition;
use crate::table::record::{AnyValue, IndexValue, Values};

/// The changes of one write. The writer uses the same plan again for the next write, to save allocations.
#[derive(Default)]
pub(crate) struct Plan {
    edits: Vec<(usize, Edit)>,
    order: Vec<(usize, OrderEdit)>,
    names: Vec<Name>,
}

/// If a row has at most this many groups, they are searched linearly for a value.
const FEW: usize = 8;

/// A plan with room for more edits than this is not kept.
const KEPT: usize = 1024;

enum Edit {
    /// The row stays in a group.
    Stay(u32),
    /// The row is added to a group.
    Join(u32),
    /// A new group is created for this value, with the row as its only row.
    Create(Arc<AnyValue>),
    /// The row is removed from a group.
    Leave(u32),
    /// The index function failed on the new object of the row.
    Fail(Arc<IndexError>),
    /// The index function failed on the old object of the row, and did not fail on the new one.
    ClearError,
}

struct OrderEdit {
    at: usize,
    kind: OrderEditKind,
}

enum OrderEditKind {
    /// Removes a group that loses its last row.
    Remove,
    /// Inserts a new group at the position that its value has in the order.
    Insert(Arc<AnyValue>),
}

impl Plan {
    /// Clears a plan that was not carried out, because user code panicked. Moves its index values and errors to `garbage`, because it may hold the
    /// last references to them.
    #[inline]
    pub(super) fn clear(&mut self, garbage: &mut Garbage) {
        if !(self.edits.is_empty() && self.order.is_empty()) {
            self.abandon(0, garbage);
        }
    }

    /// Removes the edits of the columns from `at` on, like [`clear`](Self::clear).
    #[cold]
    pub(super) fn abandon(&mut self, at: usize, garbage: &mut Garbage) {
        let Self { edits, order, .. } = self;
        for (_, edit) in edits.drain(edits.partition_point(|(column, _)| *column < at)..) {
            match edit {
                Edit::Create(value) => garbage.values.push(value),
                Edit::Fail(error) => garbage.errors.push(error),
                Edit::Stay(_) | Edit::Join(_) | Edit::Leave(_) | Edit::ClearError => {}
            }
        }
        for (_, edit) in order.drain(order.partition_point(|(column, _)| *column < at)..) {
            match edit.kind {
                OrderEditKind::Insert(value) => garbage.values.push(value),
                OrderEditKind::Remove => {}
            }
        }
    }

    /// Frees the memory that a write of an object with very many index values needed.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        if self.edits.capacity() > KEPT {
            *self = Self::default();
        }
    }

    /// Plans the changes of a single column that is not part of a table yet.
    pub(crate) fn one_column<V: 'static>(
        &mut self,
        column: &Column,
        index: &Definition<V>,
        row: Option<u32>,
        values: Option<&Values>,
        garbage: &mut Garbage,
    ) {
        self.clear(garbage);
        if !matches!(values, Some(Values::Kept)) {
            self.column(0, column, index, row, values);
        }
    }

    /// Plans the changes of one column for a row that gets these index values, which must not be [`Values::Kept`]. If `values` is `None`, the row is
    /// removed from the column.
    pub(super) fn column<V: 'static>(
        &mut self,
        at: usize,
        column: &Column,
        index: &Definition<V>,
        row: Option<u32>,
        values: Option<&Values>,
    ) {
        let shares = |value: &Arc<AnyValue>, group: u32| {
            column.group(group).is_some_and(|group| Arc::ptr_eq(&group.value, value))
        };
        // The most frequent addition: an object with one value, which other objects have, too.
        match (row, values) {
            (None, Some(Values::Known(group))) => {
                column.prefetch_last_row(*group);
                return self.edits.push((at, Edit::Join(*group)));
            }
            (None, Some(Values::One(IndexValue { value, group: Some(group) }))) if shares(value, *group) => {
                return self.edits.push((at, Edit::Join(*group)));
            }
            _ => {}
        }
        let old = row.map_or(&[][..], |row| column.names(row));
        let had_failed = row.is_some_and(|row| column.failed.get(row).is_some());
        let error = values.and_then(Values::error);
        let known = if let Some(Values::Known(group)) = values { Some(name(*group)) } else { None };
        let values = values.map_or(&[][..], Values::as_slice);
        let is = |name: Name, value: &Arc<AnyValue>| {
            column.group(number(name)).is_some_and(|group| index.equal(&group.value, value))
        };
        // The most frequent case: an update that keeps the only value.
        if let ([old], [value], false) = (old, values, had_failed) {
            if is(*old, &value.value) {
                return;
            }
        }
        let from = self.edits.len();
        let mut changes = had_failed || error.is_some();
        self.names.clear();
        if let Some(known) = known {
            // An index function found the row's only value unequal to this one, so the row stays only if `Eq` contradicts itself.
            let stays = old.contains(&known);
            let group = number(known);
            self.edits.push((at, if stays { Edit::Stay(group) } else { Edit::Join(group) }));
            self.names.push(known);
            changes |= !stays;
        }
        for IndexValue { value, group } in values {
            // A few groups are searched linearly, without hashing.
            let few = &old[..if old.len() <= FEW { old.len() } else { 0 }];
            let known = few.iter().copied().find(|old| is(*old, value));
            let find = || column.find(value.hash, |known| index.equal(known, value));
            let known = known.or_else(|| group.filter(|group| shares(value, *group)).or_else(find).map(name));
            let edit = match known {
                Some(known) if old.binary_search(&known).is_ok() => Edit::Stay(number(known)),
                Some(known) => Edit::Join(number(known)),
                None => Edit::Create(value.clone()),
            };
            changes |= !matches!(edit, Edit::Stay(_));
            self.names.extend(known);
            self.edits.push((at, edit));
        }
        self.names.sort_unstable();
        for old in old {
            if self.names.binary_search(old).is_err() {
                self.edits.push((at, Edit::Leave(number(*old))));
                changes = true;
            }
        }
        match error {
            Some(error) => self.edits.push((at, Edit::Fail(error.clone()))),
            None if had_failed => self.edits.push((at, Edit::ClearError)),
            None => {}
        }
        if !changes {
            self.edits.truncate(from);
            return;
        }
        if let (Some(compare), Some(_)) = (index.compare, &column.order) {
            self.column_order(at, column, compare, from);
        }
    }

    /// Plans how `edits[from..]` change the value order of an ordered index: which groups are inserted and removed, and where.
    fn column_order(
        &mut self,
        at: usize,
        column: &Column,
        compare: fn(&AnyValue, &AnyValue) -> Ordering,
        from: usize,
    ) {
        let Some(order) = &column.order else { return };
        let place = |value: &AnyValue| {
            order.search(|other| {
                column.group(other).map_or(Ordering::Less, |other| compare(&other.value, value))
            })
        };
        let mut edits = Vec::new();
        for (_, edit) in &self.edits[from..] {
            match edit {
                Edit::Create(value) => {
                    // A value that cannot even be compared with itself, such as NaN, must not become a value with which others are compared.
                    let _ = compare(value, value);
                    let at = place(value).unwrap_or_else(|at| at);
                    edits.push(OrderEdit { at, kind: OrderEditKind::Insert(value.clone()) });
                }
                Edit::Leave(old) => {
                    let Some(group) = column.group(*old).filter(|group| group.rows.len() == 1) else {
                        continue;
                    };
                    let found = caught(|| place(&group.value).ok()).flatten();
                    let found = found.filter(|at| order.get(*at) == Some(*old));
                    // If the user's `Ord` panics or is inconsistent, the search may miss the group. It is found here nevertheless, so that a value can
                    // always be removed, and the order never contains a removed group.
                    let found = found.or_else(|| order.iter().position(|other| other == *old));
                    edits.extend(found.map(|at| OrderEdit { at, kind: OrderEditKind::Remove }));
                }
                Edit::Stay(_) | Edit::Join(_) | Edit::Fail(_) | Edit::ClearError => {}
            }
        }
        // `sort_by` may panic if it detects that the user's `Ord` is inconsistent. That is safe, because nothing has changed yet.
        edits.sort_by(|a, b| {
            b.at.cmp(&a.at).then_with(|| match (&a.kind, &b.kind) {
                (OrderEditKind::Remove, OrderEditKind::Insert(_)) => Ordering::Less,
                (OrderEditKind::Insert(_), OrderEditKind::Remove) => Ordering::Greater,
                (OrderEditKind::Insert(a), OrderEditKind::Insert(b)) => compare(b, a),
                (OrderEditKind::Remove, OrderEditKind::Remove) => Ordering::Equal,
            })
        });
        self.order.extend(edits.into_iter().map(|edit| (at, edit)));
    }

    /// Carries out the plan for a row. Runs no user code.
    #[inline]
    pub(crate) fn carry_out(&mut self, columns: &mut [NodeArc<Column>], row: u32, garbage: &mut Garbage) {
        if self.edits.is_empty() {
            return;
        }
        let Self { edits, order, names } = self;
        let (mut edits, mut order) = (edits.drain(..), order.drain(..).peekable());
        let mut next = edits.next();
        while let Some((at, edit)) = next {
            let column = NodeArc::make_mut(&mut columns[at]);
            names.clear();
            names.extend(column.carry_out(edit, row, garbage));
            next = edits.next();
            while let Some((_, edit)) = next.take_if(|(other, _)| *other == at) {
                names.extend(column.carry_out(edit, row, garbage));
                next = edits.next();
            }
            while let Some((_, edit)) = order.next_if(|(other, _)| *other == at) {
                column.carry_out_order(edit, garbage);
            }
            if names.len() > 1 {
                names.sort_unstable();
                // If the user's `Eq` is inconsistent, two values may have led to the same group.
                names.dedup();
            }
            column.name(row, names);
        }
    }
}

impl Column {
    /// Carries out an edit. Returns the group that the edit concerns if it contains the row after the edit.
    fn carry_out(&mut self, edit: Edit, row: u32, garbage: &mut Garbage) -> Option<Name> {
        match edit {
            Edit::Stay(group) => Some(name(group)),
            Edit::Join(number) => {
                if let Some(group) = self.groups.get_mut(number) {
                    group.rows.insert(row);
                    if let (2, Some(violated)) = (group.rows.len(), &mut self.violated) {
                        violated.insert(number);
                    }
                }
                Some(name(number))
            }
            Edit::Create(value) => {
                let hash = value.hash;
                let number = self.groups.insert(Group { value, rows: Rows::One(row) });
                self.values.insert(hash, number);
                Some(name(number))
            }
            Edit::Leave(number) => {
                let group = self.groups.get_mut(number)?;
                if group.rows.remove(row) {
                    let group = self.groups.remove(number)?;
                    self.values.remove(group.value.hash, number);
                    garbage.values.push(group.value);
                } else if let (1, Some(violated)) = (group.rows.len(), &mut self.violated) {
                    violated.remove(number);
                }
                None
            }
            Edit::Fail(error) => {
                garbage.errors.extend(self.failed.set(row, error));
                None
            }
            Edit::ClearError => {
                garbage.errors.extend(self.failed.remove(row));
                None
            }
        }
    }

    fn carry_out_order(&mut self, edit: OrderEdit, garbage: &mut Garbage) {
        let OrderEdit { at, kind } = edit;
        let inserted = match kind {
            OrderEditKind::Remove => {
                self.order.as_mut().map(|order| order.remove_at(at));
                return;
            }
            OrderEditKind::Insert(value) => value,
        };
        let number = self.find(inserted.hash, |known| std::ptr::addr_eq(known, &*inserted));
        if let (Some(order), Some(number)) = (&mut self.order, number) {
            order.insert_at(at, number);
        }
        garbage.values.push(inserted);
    }

    /// Sets the groups of a row. `names` must be in ascending order.
    fn name(&mut self, row: u32, names: &[Name]) {
        match (&mut self.named, names) {
            (Named::One(named), [name]) => drop(named.set(row, *name)),
            (Named::One(named), _) => drop(named.remove(row)),
            (Named::Many(named), []) => drop(named.remove(row)),
            (Named::Many(named), names) => drop(named.set(row, names.into())),
        }
    }
}
