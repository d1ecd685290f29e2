//! SHELL. The effect of a write on each subscription: which changes the subscription selects, and which pending entries their keys have. Both are
//! determined before the write commits; after the commit, the changes are merged into these entries.

use std::ops::Range;
use std::sync::Arc;

use crate::Change;
use crate::changes::buffer::{Merging, SubscriptionBuffer, SubscriptionBuffers};
use crate::changes::pending::{Dropped, Ticket};
use crate::changes::selection::Crossing;
use crate::signal::wakers::Wakers;
use crate::table::{KeyWrite, Table};

/// The effect of a write on each subscription, determined before the write commits. For a write of one key, empty if every subscription covers all
/// objects and the write adds no object. A pending entry is looked up by its key only for an object that is added or enters the selection. For any
/// other change, the pending entry has the same `Arc<Name>` as the change, so it is found without comparing keys.
#[derive(Default)]
pub(crate) struct Findings(Vec<Option<Finding>>);

/// The effect of a write on one subscription.
#[derive(Default)]
struct Finding {
    /// The positions of the writes that concern the subscription, each with its [`Crossing`]; `None` if the subscription covers all objects.
    crossings: Option<Vec<(usize, Crossing)>>,
    /// For each change that concerns the subscription, the ticket of the pending entry of its key, if such an entry was found.
    tickets: Vec<Option<Ticket>>,
}

impl Findings {
    /// Finds the effect of `writes[part]` on the subscription at position `at`, and the tickets of the pending entries. `table` is the state before
    /// the writes. The caller passes the parts in ascending order. Calls `Eq` of keys and index values. Changes no pending entry.
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

    /// Returns whether there is no finding for the subscription at position `at`.
    pub(crate) fn is_missing(&self, at: usize) -> bool {
        self.0.get(at).is_none_or(Option::is_none)
    }

    /// Moves each finding from the position of its subscription in the list `before` to the position in the list `now`. A subscription to all objects
    /// that is only in `now` gets an empty finding, because it has no pending change.
    pub(crate) fn rearrange<K, V>(
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

    /// Returns the number of changes that the subscription at position `at` receives from a write with `changes` changes.
    pub(crate) fn count(&self, at: usize, changes: usize) -> usize {
        let crossings = self.0.get(at).and_then(|finding| finding.as_ref()?.crossings.as_ref());
        crossings.map_or(changes, Vec::len)
    }

    /// Merges one part of a write's changes into the pending changes of the subscription at position `at`. `last` is true for the last part of the
    /// write. Returns whether the subscriber still exists.
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
