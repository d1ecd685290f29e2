//! PURE. Which objects a subscription is of, and what a write is to it.
//!
//! | the object before the write \\ after it | is selected | is not, or there is none |
//! |---|---|---|
//! | is selected | the change as it is | Deleted |
//! | is not, or there is none | Added | nothing |
//!
//! By these changes alone a consumer knows exactly the selected objects, and what is pending for it is bounded by them.
//!
//! Deciding compares keys and index values, so it belongs where nothing has changed yet: a write finds it out before it commits. The index
//! function is not run again: what it said of the old object is in the table, and what it says of the new one is in the write.

use std::ops::Range;
use std::sync::Arc;

use crate::changes::buffer::{Merging, SubscriptionBuffer, SubscriptionBuffers};
use crate::changes::pending::{Dropped, Ticket};
use crate::index::Definition;
use crate::index::set::IndexSet;
use crate::signal::wakers::Wakers;
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

    /// What writes to this table are to the consumer, by their places. Compares keys or index values.
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

/// What a change is to a consumer of selected objects.
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

    /// The change for this consumer.
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

/// What a write is to each of the subscriptions there are, found before it commits. Empty where there is nothing to be found: where all are of everything and
/// nothing is added, as other changes find their entries by name.
#[derive(Default)]
pub(crate) struct Findings(Vec<Option<Finding>>);

/// What a write is to one subscription.
#[derive(Default)]
struct Finding {
    /// The changes it is of, by place, and what they are to it; none if it is of everything.
    crossings: Option<Vec<(usize, Crossing)>>,
    /// One for each of them; missing ones are none.
    tickets: Vec<Option<Ticket>>,
}

impl Findings {
    /// Finds out what a part of the writes to this table is to the subscription at a place, and a ticket for each. Parts come one after the other. Compares keys and
    /// index values, and changes nothing.
    pub(crate) fn find<K: Eq, V>(
        &mut self,
        (at, buffer): (usize, &SubscriptionBuffer<K, V>),
        writes: &[KeyWrite<K, V>],
        part: Range<usize>,
        table: &Table<K, V>,
    ) {
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        let Some(slot) = self.0.get_mut(at) else { return };
        let Finding { crossings, tickets } = slot.get_or_insert_default();
        let is_added = |write: &KeyWrite<K, V>| write.kind.is_addition();
        let Some(selection) = buffer.selection() else {
            if writes[part.clone()].iter().any(is_added) {
                tickets.resize(part.start, None);
                let names = writes[part].iter().map(|write| is_added(write).then_some(&write.record.name));
                buffer.find(names, tickets);
            }
            return;
        };
        let crossings = crossings.get_or_insert_default();
        let (from, known) = (part.start, crossings.len());
        let here = selection.crossings(&writes[part], table).into_iter();
        crossings.extend(here.map(|(at, crossing)| (from + at, crossing)));
        let names = crossings[known..].iter().map(|(at, crossing)| {
            let write = &writes[*at];
            (is_added(write) || matches!(crossing, Crossing::Enters)).then_some(&write.record.name)
        });
        buffer.find(names, tickets);
    }

    /// Whether there is something to be found for a subscription.
    pub(crate) fn lack(&self, at: usize) -> bool {
        self.0.get(at).is_none_or(Option::is_none)
    }

    /// What was found, for another list of subscriptions. One of everything that came meanwhile has nothing pending, so there is nothing to be found for it.
    pub(crate) fn regroup<K, V>(
        &mut self,
        before: &SubscriptionBuffers<K, V>,
        now: &SubscriptionBuffers<K, V>,
    ) {
        let mut found = std::mem::take(&mut self.0);
        let of = |buffer: &Arc<SubscriptionBuffer<K, V>>| match before
            .iter()
            .position(|known| Arc::ptr_eq(known, buffer))
        {
            Some(at) => found.get_mut(at).and_then(Option::take),
            None => buffer.selection().is_none().then(Finding::default),
        };
        self.0 = now.iter().map(of).collect();
    }

    /// How many of so many changes the subscription at a place is of.
    pub(crate) fn count(&self, at: usize, changes: usize) -> usize {
        let crossings = self.0.get(at).and_then(|finding| finding.as_ref()?.crossings.as_ref());
        crossings.map_or(changes, Vec::len)
    }

    /// Merges a part of the changes that the subscription at a place is of, which may be the last part; whether it is still there.
    pub(crate) fn merge<K, V>(
        &self,
        (at, buffer): (usize, &SubscriptionBuffer<K, V>),
        changes: &[Change<K, V>],
        part: Range<usize>,
        (merging, last): (Merging, bool),
        (wakers, dropped): (&mut Wakers, &mut Vec<Dropped<K, V>>),
    ) -> bool {
        let finding = self.0.get(at).and_then(Option::as_ref);
        let ticket = |at: usize| finding.and_then(|finding| finding.tickets.get(at).copied().flatten());
        match finding.and_then(|finding| finding.crossings.as_ref()) {
            Some(crossings) => {
                let part = part.map(|place| {
                    let (at, crossing) = crossings[place];
                    (crossing.change(&changes[at]), ticket(place))
                });
                buffer.merge(part, merging, last, wakers, dropped)
            }
            None => {
                let part = part.map(|place| (changes[place].clone(), ticket(place)));
                buffer.merge(part, merging, last, wakers, dropped)
            }
        }
    }
}
