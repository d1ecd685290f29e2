//! PURE. The changes one consumer has not heard of yet, merged per key: bounded by keys, not by events.
//!
//! What a consumer holds of a key is fixed by what it was told last; what it has to hear is the way from there to the
//! newest state. So one entry per key is enough:
//!
//! | pending \ incoming | Added(n) | Updated(_, n) | Deleted(l) | Replaced(p, n) | resync |
//! |---|---|---|---|---|---|
//! | nothing | Added(n) | Updated(o, n) | Deleted(o; l) | Replaced(o; p; n) | Updated(o, o) at once |
//! | Added(a) | | Added(n) | nothing | Added(n) | |
//! | Updated(o, a) | | Updated(o, n) | Deleted(o; l) | Replaced(o; p; n) | = |
//! | Deleted(o; g) | Replaced(o; g; n) | | | | = |
//! | Replaced(o; g; a) | | Replaced(o; g; n) | Deleted(o; g, l) | Replaced(o; g, p; n) | = |
//!
//! `=`: no effect. Blank: cannot happen, since the store tells changes of one key in order, and a resync begins only when nothing is
//! pending. `o` is what the consumer
//! holds, `n` the newest state, `p` the state it replaced, `l` the last state of a deleted object, `g` what is known about the
//! end of `o`. The consumer never hears of an object that came and went in between.
//!
//! `Replaced(o; g; n)` is the undecided case *deleted, then added*. Whoever takes it out asks for the identity outside every
//! lock: if `o` and `n` are the same object it is delivered as Updated(o, n), else as Deleted(g), then Added(n). In the same
//! way `g, l` keeps the first and the latest end of an object under this key: the latest counts if it is still `o`, else the first.
//!
//! An addition stays initial, or not, as it came in: `Added(n)` of a row that begins with `Added(a)` is as initial as `a` was. What comes
//! back in place of something the consumer knew (`Replaced`) is not.
//!
//! # Invariants
//! 1. A key has at most one entry.
//! 2. `order` holds the ticket of every entry exactly once; tickets ascend in the order in which keys became pending, and a
//!    merge keeps the ticket.
//! 3. Everything that was pending at some moment has been taken out, or came and went unseen, once [`oldest`](Pending::oldest) is not
//!    below what [`next`](Pending::next) was then. (By 2, and as no ticket is used twice.)
//!
//! Hence a key that changes all the time is delivered in its turn, and memory is O(keys).

use std::collections::BTreeMap;

use flyball_sync::panics::drop_each;
use hashbrown::HashTable;

use crate::changes::step::{Last, Step};
use crate::table::record::Record;

/// Pending changes in the order of the first change of each key.
pub(crate) struct Pending<K, V> {
    entries: HashTable<Entry<K, V>>,
    /// Ticket → hash, which together find the entry without comparing keys.
    order: BTreeMap<Ticket, u64>,
    next: Ticket,
}

/// The place of an entry in the order. Never used twice.
pub(crate) type Ticket = u64;

struct Entry<K, V> {
    hash: u64,
    ticket: Ticket,
    state: State<K, V>,
}

/// What a consumer has to hear of one key; the table is in the [module](self).
pub(crate) enum State<K, V> {
    Added { new: Record<K, V>, initial: bool },
    Updated { old: Record<K, V>, new: Record<K, V> },
    Deleted { old: Record<K, V>, gone: Gone<V> },
    Replaced { old: Record<K, V>, gone: Gone<V>, new: Record<K, V> },
}

/// The ends of the objects under one key: of the one the consumer holds, and the latest if there were more.
pub(crate) struct Gone<V> {
    pub(crate) first: Last<V>,
    pub(crate) latest: Option<Last<V>>,
}

impl<K, V> Pending<K, V> {
    pub(crate) fn new() -> Self {
        Self { entries: HashTable::new(), order: BTreeMap::new(), next: 0 }
    }

    /// Nothing is pending any more; what was. Tickets go on, so that one from before finds nothing.
    pub(crate) fn begin_anew(&mut self) -> Self {
        let mut anew = Self::new();
        anew.next = self.next;
        std::mem::replace(self, anew)
    }

    /// How many keys are pending.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The ticket of the next key that becomes pending.
    pub(crate) fn next(&self) -> Ticket {
        self.next
    }

    /// The ticket of the oldest entry; where there is none, that of the next.
    pub(crate) fn oldest(&self) -> Ticket {
        self.order.first_key_value().map_or(self.next, |(&ticket, _)| ticket)
    }

    /// The ticket of a key that is pending. The only operation that compares keys; it changes nothing.
    pub(crate) fn find(&self, hash: u64, eq: impl Fn(&K) -> bool) -> Option<Ticket> {
        let found = self.entries.find(hash, |entry| entry.hash == hash && eq(entry.state.record().key()));
        found.map(|entry| entry.ticket)
    }

    /// Merges a step into the entry that was found for its key; a ticket that was taken out since counts as none.
    /// Gives back what nobody will hear of any more, to be dropped where no lock is held. The caller keeps the step alive
    /// as long.
    pub(crate) fn merge(&mut self, found: Option<Ticket>, step: &Step<K, V>) -> Option<Last<V>> {
        let hash = step.record().hash();
        let known =
            found.and_then(|ticket| self.entries.find_entry(hash, |entry| entry.ticket == ticket).ok());
        let Some(known) = known else {
            let entry = Entry { hash, ticket: self.next, state: State::first(step) };
            self.order.insert(self.next, hash);
            self.next += 1;
            self.entries.insert_unique(hash, entry, |entry| entry.hash);
            return None;
        };
        let (entry, vacant) = known.remove();
        let ticket = entry.ticket;
        let (state, dropped) = entry.state.then(step);
        match state {
            Some(state) => drop(vacant.insert(Entry { hash, ticket, state })),
            None => drop(self.order.remove(&ticket)),
        }
        dropped
    }

    /// Takes out the oldest entry.
    pub(crate) fn pop(&mut self) -> Option<(Ticket, State<K, V>)> {
        let (&ticket, _) = self.order.first_key_value()?;
        self.take(ticket).map(|state| (ticket, state))
    }

    /// Takes out one entry.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<State<K, V>> {
        let hash = self.order.remove(&ticket)?;
        let entry = self.entries.find_entry(hash, |entry| entry.ticket == ticket).ok()?;
        let (entry, _) = entry.remove();
        if self.entries.is_empty() && self.entries.capacity() > SPARE {
            // A burst is over: its memory goes, too. What is in the table is moved nowhere, there is nothing.
            self.entries = HashTable::new();
        }
        Some(entry.state)
    }

    /// Walks the invariants.
    pub(crate) fn check(&self) -> Result<(), String>
    where
        K: Eq,
    {
        if self.order.len() != self.entries.len() {
            return Err(format!("invariant 2: {} tickets, {} entries", self.order.len(), self.entries.len()));
        }
        for entry in &self.entries {
            if self.order.get(&entry.ticket) != Some(&entry.hash) || entry.ticket >= self.next {
                return Err("invariant 2: an entry out of the order".into());
            }
            let key = entry.state.record().key();
            if self.find(entry.hash, |other| other == key) != Some(entry.ticket) {
                return Err("invariant 1: a key with two entries".into());
            }
        }
        Ok(())
    }
}

impl<K, V> Drop for Pending<K, V> {
    fn drop(&mut self) {
        drop_each(self.entries.drain());
    }
}

impl<K, V> State<K, V> {
    /// The record that tells the key.
    fn record(&self) -> &Record<K, V> {
        match self {
            Self::Added { new, .. } => new,
            Self::Updated { old, .. } | Self::Deleted { old, .. } | Self::Replaced { old, .. } => old,
        }
    }

    /// The first row of the table.
    pub(crate) fn first(step: &Step<K, V>) -> Self {
        match step {
            Step::Added { new, initial } => Self::Added { new: new.clone(), initial: *initial },
            Step::Updated { old, new } => Self::Updated { old: old.clone(), new: new.clone() },
            Step::Deleted { old, last } => Self::Deleted { old: old.clone(), gone: last.into() },
            Step::Replaced { old, new } => {
                Self::Replaced { old: old.clone(), gone: old.into(), new: new.clone() }
            }
        }
    }

    /// The other rows: what is left to hear, if anything, and what nobody will hear of.
    fn then(self, step: &Step<K, V>) -> (Option<Self>, Option<Last<V>>) {
        let mut dropped = None;
        let state = match (self, step) {
            (Self::Added { .. }, Step::Deleted { .. }) => None,
            (
                Self::Added { initial, .. },
                Step::Added { new, .. } | Step::Updated { new, .. } | Step::Replaced { new, .. },
            ) => Some(Self::Added { new: new.clone(), initial }),
            (Self::Updated { old, .. }, Step::Added { new, .. } | Step::Updated { new, .. }) => {
                Some(Self::Updated { old, new: new.clone() })
            }
            (Self::Updated { old, .. }, Step::Deleted { last, .. }) => {
                Some(Self::Deleted { old, gone: last.into() })
            }
            (Self::Updated { old, .. }, Step::Replaced { old: replaced, new }) => {
                Some(Self::Replaced { old, gone: replaced.into(), new: new.clone() })
            }
            (Self::Deleted { old, mut gone }, Step::Deleted { last, .. }) => {
                dropped = gone.latest.replace(last.clone());
                Some(Self::Deleted { old, gone })
            }
            (
                Self::Deleted { old, gone },
                Step::Added { new, .. } | Step::Updated { new, .. } | Step::Replaced { new, .. },
            )
            | (Self::Replaced { old, gone, .. }, Step::Added { new, .. } | Step::Updated { new, .. }) => {
                Some(Self::Replaced { old, gone, new: new.clone() })
            }
            (Self::Replaced { old, mut gone, .. }, Step::Deleted { last, .. }) => {
                dropped = gone.latest.replace(last.clone());
                Some(Self::Deleted { old, gone })
            }
            (Self::Replaced { old, mut gone, .. }, Step::Replaced { old: replaced, new }) => {
                let last = Last { object: replaced.object.clone(), missed: true };
                dropped = gone.latest.replace(last);
                Some(Self::Replaced { old, gone, new: new.clone() })
            }
        };
        (state, dropped)
    }
}

impl<V> From<&Last<V>> for Gone<V> {
    fn from(last: &Last<V>) -> Self {
        Self { first: last.clone(), latest: None }
    }
}

/// An object that was replaced by another one: nobody saw it go.
impl<K, V> From<&Record<K, V>> for Gone<V> {
    fn from(record: &Record<K, V>) -> Self {
        Self { first: Last { object: record.object.clone(), missed: true }, latest: None }
    }
}

/// A table of up to this many entries is kept when it is empty.
const SPARE: usize = 256;
