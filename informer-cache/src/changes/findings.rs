//! SHELL. The effect of a write on each subscription: which changes the subscription selects, and which pending entries their keys have. Both are
//! determined before the write commits; after the commit, the changes are merged into these entries.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::Change;
use crate::changes::buffer::{Merging, SubscriptionBuffer};
use crate::changes::pending::{Dropped, Ticket};
use crate::changes::selection::Crossing;
use crate::changes::subscribers::Subscribers;
use crate::signal::wakers::Wakers;
use crate::table::persist::Chunked;
use crate::table::{KeyWrite, Table};

/// The effect of a write on each subscription, determined before the write commits. A pending entry is looked up by its key only for an object that is
/// added or enters the selection. For any other change, the pending entry has the same `Arc<Name>` as the change, so it is found without comparing
/// keys.
pub(crate) struct Findings<K, V> {
    /// For each subscription to all objects, the tickets of the pending entries.
    all: Vec<Tickets>,
    /// The subscriptions with a selection that the write concerns.
    selecting: Vec<Selected<K, V>>,
    /// For the address of each of these subscriptions, its position.
    places: HashTable<usize>,
    /// A list that is empty between two calls, kept to reuse its memory.
    numbers: Vec<u32>,
}

/// The tickets of the pending entries that were found, with the positions of the writes, which ascend. Most writes find none, so this list is short,
/// even if a list of a million objects is delivered to many subscriptions.
#[derive(Default)]
struct Tickets {
    found: Chunked<(usize, Ticket)>,
}

impl Tickets {
    fn get(&self, place: usize) -> Option<Ticket> {
        let at = self.found.partition_point(|(other, _)| *other < place);
        self.found.get(at).filter(|(other, _)| *other == place).map(|(_, ticket)| *ticket)
    }
}

/// The effect of a write on a subscription with a selection.
struct Selected<K, V> {
    buffer: Arc<SubscriptionBuffer<K, V>>,
    /// The positions of the writes that concern the subscription, each with its [`Crossing`], and the ticket of the pending entry of its key, if such an
    /// entry was found.
    crossings: Chunked<(usize, Crossing, Option<Ticket>)>,
}

// `Default` is not derived, because a derive would require `K: Default` and `V: Default`.
impl<K, V> Default for Findings<K, V> {
    fn default() -> Self {
        Self { all: Vec::new(), selecting: Vec::new(), places: HashTable::new(), numbers: Vec::new() }
    }
}

/// Returns a hash of the address of a subscription.
fn place_of<K, V>(buffer: &Arc<SubscriptionBuffer<K, V>>) -> u64 {
    (Arc::as_ptr(buffer).addr() as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl<K, V> Findings<K, V> {
    /// Finds the pending entries of the objects that `writes[part]` add, in the subscription to all objects at position `at`. The caller passes the
    /// parts in ascending order. Calls `Eq` of keys. Changes no pending entry.
    pub(crate) fn find(
        &mut self,
        (at, buffer): (usize, &SubscriptionBuffer<K, V>),
        writes: &[KeyWrite<K, V>],
        part: Range<usize>,
    ) where
        K: Eq,
    {
        if self.all.len() <= at {
            self.all.resize_with(at + 1, Tickets::default);
        }
        let is_added = |write: &&KeyWrite<K, V>| write.kind.is_addition();
        let name = |place: usize| Some(&writes[place]).filter(is_added).map(|write| &write.record.name);
        let Tickets { found } = &mut self.all[at];
        buffer.find(part.map(|place| (place, name(place))), |place, ticket| found.push((place, ticket)));
    }

    /// Finds the effect of the writes from `from` on on those of `buffers` that have a selection. `table` is the state before the writes. Calls `Eq` of
    /// keys and index values. Changes no pending entry. Stops after about `most` writes and subscriptions that they may concern. Returns the position of
    /// the next write, and the number of both.
    pub(crate) fn find_selecting(
        &mut self,
        buffers: &Subscribers<K, V>,
        writes: &[KeyWrite<K, V>],
        from: usize,
        table: &Table<K, V>,
        most: usize,
    ) -> (usize, usize)
    where
        K: Eq,
    {
        let mut numbers = std::mem::take(&mut self.numbers);
        let (mut at, mut done) = (from, 0);
        while at < writes.len() && done < most {
            done += 1;
            buffers.candidates(&writes[at], table, &mut numbers, |buffer| {
                done += 1;
                self.find_one(buffer, (at, &writes[at]), table, |_| true);
            });
            at += 1;
        }
        self.numbers = numbers;
        (at, done)
    }

    /// Finds the effect of one write on a subscription with a selection, unless `wanted` returns `false`. Its argument is whether the write adds an object
    /// to the selection.
    pub(crate) fn find_one(
        &mut self,
        buffer: &Arc<SubscriptionBuffer<K, V>>,
        (at, write): (usize, &KeyWrite<K, V>),
        table: &Table<K, V>,
        wanted: impl FnOnce(bool) -> bool,
    ) where
        K: Eq,
    {
        let crossing = buffer.selection().and_then(|selection| selection.crossing(write, table));
        let Some(crossing) = crossing else { return };
        let is_new = write.kind.is_addition() || matches!(crossing, Crossing::Enters);
        if !wanted(is_new) {
            return;
        }
        let ticket = is_new.then(|| buffer.ticket(&write.record.name)).flatten();
        let Self { selecting, places, .. } = self;
        let found = places.find(place_of(buffer), |at| Arc::ptr_eq(&selecting[*at].buffer, buffer)).copied();
        let place = found.unwrap_or_else(|| {
            selecting.push(Selected { buffer: buffer.clone(), crossings: Chunked::new() });
            places
                .insert_unique(place_of(buffer), selecting.len() - 1, |at| place_of(&selecting[*at].buffer));
            selecting.len() - 1
        });
        selecting[place].crossings.push((at, crossing, ticket));
    }

    /// Returns the number of subscriptions with a selection that the write concerns.
    pub(crate) fn selecting(&self) -> usize {
        self.selecting.len()
    }

    /// Moves the findings of the subscriptions to all objects from their positions in the list `before` to those in the list `now`. A subscription that
    /// is only in `now` gets an empty finding, because it has no pending change. O(subscriptions), because both lists have the same order; O(1) if they are
    /// the same list.
    pub(crate) fn rearrange(&mut self, before: &Subscribers<K, V>, now: &Subscribers<K, V>) {
        if Arc::ptr_eq(&before.all, &now.all) {
            return;
        }
        let mut found = std::mem::take(&mut self.all);
        let mut before = before.all.iter().enumerate();
        let of = |buffer: &Arc<SubscriptionBuffer<K, V>>| {
            let known = before.by_ref().find(|(_, known)| Arc::ptr_eq(known, buffer));
            known.and_then(|(at, _)| found.get_mut(at)).map(std::mem::take).unwrap_or_default()
        };
        self.all = now.all.iter().map(of).collect();
    }

    /// Merges one part of a write's changes into the pending changes of the subscription to all objects at position `at`. `last` is true for the last
    /// part of the write. Returns whether the subscriber still exists.
    pub(crate) fn merge(
        &self,
        (at, buffer): (usize, &SubscriptionBuffer<K, V>),
        changes: &[Change<K, V>],
        part: Range<usize>,
        (merging, last): (Merging, bool),
        (wakers, dropped): (&mut Wakers, &mut Vec<Dropped<K, V>>),
    ) -> bool {
        let tickets = self.all.get(at);
        let part = part.map(|place| (changes[place].clone(), tickets.and_then(|tickets| tickets.get(place))));
        buffer.merge(part, merging, last, wakers, dropped)
    }

    /// Returns the number of changes that the selecting subscription at position `at` receives.
    pub(crate) fn count(&self, at: usize) -> usize {
        self.selecting.get(at).map_or(0, |selected| selected.crossings.len())
    }

    /// Like [`merge`](Self::merge), for the selecting subscription at position `at`.
    pub(crate) fn merge_selecting(
        &self,
        at: usize,
        changes: &[Change<K, V>],
        part: Range<usize>,
        (merging, last): (Merging, bool),
        (wakers, dropped): (&mut Wakers, &mut Vec<Dropped<K, V>>),
    ) {
        let Selected { buffer, crossings } = &self.selecting[at];
        let part = part.filter_map(|at| crossings.get(at));
        let part = part.map(|(at, crossing, ticket)| (crossing.change(&changes[*at]), *ticket));
        buffer.merge(part, merging, last, wakers, dropped);
    }
}
