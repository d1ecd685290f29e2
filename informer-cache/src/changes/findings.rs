//! SHELL. What a write is to each subscription: found before it commits, and merged with what is pending after it.

use std::ops::Range;
use std::sync::Arc;

use crate::Change;
use crate::changes::buffer::{Merging, SubscriptionBuffer, SubscriptionBuffers};
use crate::changes::pending::{Dropped, Ticket};
use crate::changes::selection::Crossing;
use crate::signal::wakers::Wakers;
use crate::table::{KeyWrite, Table};

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
