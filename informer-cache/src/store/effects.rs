//! SHELL. What a write of one key leaves to be done, and how changes get to those who follow the store: found before the commit, merged after it, reported when
//! no lock is held.
//!
//! The steps that are numbered here are those of a write ([`Inner`](crate::store::inner::Inner)); each function takes one subscription's lock after the other.

use std::ops::Range;
use std::sync::Arc;

use crate::changes::buffer::{Feed, Feeds, Merging};
use crate::changes::pending::Dropped;
use crate::changes::selection::{Crossing, Findings, Selected};
use crate::signal::wakers::Wakers;
use crate::store::inner::Inner;
use crate::table::record::Record;
use crate::table::{Garbage, KeyWrite, Table};
use crate::watch::observer::{self, Listeners};
use crate::{Change, ChangeKind};

/// What a write leaves to be done without locks and after its turn: reporting, waking, and dropping what is the user's.
pub(crate) struct Effects<K, V> {
    pub(crate) wakers: Wakers,
    pub(crate) garbage: Garbage,
    /// What no consumer will receive.
    pub(crate) dropped: Vec<Dropped<K, V>>,
    /// Whether a consumer turned out to be gone.
    pub(crate) detached: bool,
    pub(crate) change: Option<Change<K, V>>,
    pub(crate) write: Option<KeyWrite<K, V>>,
    pub(crate) listeners: Option<Listeners<K, V>>,
    /// What may be the last to hold a subscription's buffer, the object that was replaced, one that was stale, a key that is stored already.
    pub(crate) feeds: Vec<Feeds<K, V>>,
    pub(crate) old: Option<Arc<V>>,
    pub(crate) stale: Option<Record<K, V>>,
    pub(crate) key: Option<K>,
}

// Not derived: nothing is asked of the types.
impl<K, V> Default for Effects<K, V> {
    fn default() -> Self {
        Self {
            wakers: Wakers::default(),
            garbage: Garbage::default(),
            dropped: Vec::new(),
            detached: false,
            change: None,
            write: None,
            listeners: None,
            feeds: Vec::new(),
            old: None,
            stale: None,
            key: None,
        }
    }
}

impl<K, V> Effects<K, V> {
    /// Step 5 but for the drops, which are the owner's: they may panic. This does not.
    pub(crate) fn finish(&mut self, inner: &Inner<K, V>) {
        if let Some(listeners) = self.listeners.take() {
            observer::report(&listeners, self.change.as_slice());
        }
        if self.detached {
            self.feeds.push(inner.remove_detached());
        }
        std::mem::take(&mut self.wakers).wake();
    }
}

impl Findings {
    /// What writes to this table are to no subscription yet.
    pub(crate) fn new() -> Self {
        Self { tickets: Vec::new(), selected: Vec::new() }
    }

    /// Step 2: what a part of the writes to this table is to one of the subscriptions, and a ticket for each. Subscriptions come one after the other, by their
    /// places, and so do the parts. Compares keys and index values, and changes nothing.
    pub(crate) fn find<K: Eq, V>(
        &mut self,
        at: usize,
        feed: &Feed<K, V>,
        writes: &[KeyWrite<K, V>],
        part: Range<usize>,
        table: &Table<K, V>,
    ) {
        let is_added = |write: &KeyWrite<K, V>| matches!(write.kind, ChangeKind::Added | ChangeKind::Initial);
        let Some(selection) = feed.selection() else {
            if writes.len() > 1 || writes.iter().any(is_added) {
                let names = writes[part].iter().map(|write| is_added(write).then_some(&write.record.name));
                feed.find(names, &mut self.tickets);
            }
            return;
        };
        if self.selected.last().is_none_or(|last| last.at != at) {
            self.selected.push(Selected { at, crossings: Vec::new(), tickets: Vec::new() });
        }
        let Some(Selected { crossings, tickets, .. }) = self.selected.last_mut() else { return };
        let (from, known) = (part.start, crossings.len());
        let here = selection.crossings(&writes[part], table).into_iter();
        crossings.extend(here.map(|(at, crossing)| (from + at, crossing)));
        let names = crossings[known..].iter().map(|(at, crossing)| {
            let write = &writes[*at];
            (is_added(write) || matches!(crossing, Crossing::Enters)).then_some(&write.record.name)
        });
        feed.find(names, tickets);
    }

    /// Step 4 for the subscription at this place, and a part of its changes; whether it is still there.
    pub(crate) fn merge<K, V>(
        &self,
        (at, feed): (usize, &Feed<K, V>),
        changes: &[Change<K, V>],
        part: Range<usize>,
        merging: Merging,
        effects: &mut Effects<K, V>,
    ) -> bool {
        let (wakers, dropped) = (&mut effects.wakers, &mut effects.dropped);
        let before = self.selected.partition_point(|selected| selected.at < at);
        let last = part.end == changes.len();
        match self.selected.get(before).filter(|selected| selected.at == at) {
            Some(Selected { crossings, tickets, .. }) => {
                let from = crossings.partition_point(|(at, _)| *at < part.start);
                let to = crossings.partition_point(|(at, _)| *at < part.end);
                let part = crossings[from..to].iter().zip(&tickets[from..to]);
                let part = part.map(|((at, crossing), ticket)| (crossing.change(&changes[*at]), *ticket));
                feed.merge(part, merging, last, wakers, dropped)
            }
            None => {
                let from = (at - before) * changes.len();
                let ticket = |at: usize| self.tickets.get(from + at).copied().flatten();
                let part = part.map(|at| (changes[at].clone(), ticket(at)));
                feed.merge(part, merging, last, wakers, dropped)
            }
        }
    }
}

/// Step 4 for all subscriptions, with what was found for these very ones.
pub(crate) fn fan_out<K, V>(
    feeds: &Feeds<K, V>,
    changes: &[Change<K, V>],
    findings: &Findings,
    merging: Merging,
    effects: &mut Effects<K, V>,
) {
    for (at, feed) in feeds.iter().enumerate() {
        let is_there = findings.merge((at, feed), changes, 0..changes.len(), merging, effects);
        effects.detached |= !is_there;
    }
}
