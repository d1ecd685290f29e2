//! PURE. The changes that one subscriber has not received yet, coalesced per key, so that their number is bounded by the number of keys, not of
//! events.
//!
//! The last change that a subscriber received for a key determines the state that the subscriber holds. The pending change leads from that state to the
//! newest state, so one change per key is enough:
//!
//! | pending \ incoming | Added(n) | Updated(_, n) | Deleted(l) | Replaced(p, n) | resync |
//! |---|---|---|---|---|---|
//! | nothing | Added(n) | Updated(o, n) | Deleted(o; l) | Replaced(o; n) | Updated(o, o) at once |
//! | Added(a) | | Added(n) | nothing | Added(n) | |
//! | Updated(o, a) | | Updated(o, n) | Deleted(o; l) | Replaced(o; e; n) | = |
//! | Deleted(o; e; l) | Replaced(o; e, l; n) | | | | = |
//! | Replaced(o; e; a) | | Replaced(o; e; n) | Deleted(o; e; l) | Replaced(o; e, p; n) | = |
//!
//! `=`: no effect. A blank cell cannot occur, because the store delivers changes of one key in order, and a resync begins only when nothing is
//! pending. `o` is the state that the subscriber holds, `a` the new state in the pending change, `n` the newest state, `p` the state that `n`
//! replaced, and `l` the last state of a deleted object. An end is the deletion or the replacement of an object, with the object's last state. `e`
//! holds up to two ends under this key: the first, which is the end of `o`, and the latest one before the newest state. The subscriber never receives
//! an object that was added and deleted between two deliveries.
//!
//! A pending change with ends is undecided, because `n` may be a newer state of the object that the subscriber holds.
//! [`Pending::deliver`](Merged::deliver) compares the identities, outside every lock. If `o` and `n` are states of the same object, the subscriber
//! receives Updated(o, n). Otherwise it receives Replaced(e, n), with the latest end if that is a state of the same object as `o`, or else with the
//! first end. Likewise, Deleted(o; e; l) is delivered with `l` if `l` is a state of the same object as `o`, or else with the first end.
//!
//! A pending addition stays initial if it was initial. An object that is added in place of one that the subscriber held is delivered as `Replaced`,
//! never as initial.
//!
//! # Invariants
//! 1. A key has at most one entry.
//! 2. `order` holds the ticket of every entry exactly once, and its first ticket belongs to an entry. It may also hold tickets of removed entries, but not more
//!    than the number of entries or [`SPARE`], whichever is larger. Tickets ascend in the order in which keys became pending, and a merge keeps the ticket.
//! 3. Let `t` be [`next`](Pending::next) at some moment. Once [`oldest`](Pending::oldest) is not below `t`, every entry that was pending at that
//!    moment has been taken, or was cancelled by a deletion. This follows from invariant 2, because no ticket is used twice.
//!
//! 4. An entry and the latest change of its key share the name, an `Arc<Name>`. So a new change and the entry of its key have different names only if
//!    the change is an addition, and the latest change before it a deletion.
//!
//! Hence keys are delivered in FIFO order even if one of them changes continuously, and memory is O(keys). An entry that comes from a single write
//! shares its change with every other subscriber and the writer.

use std::collections::VecDeque;
use std::sync::Arc;

use flyball_sync::panics::drop_each;
use hashbrown::HashTable;

use crate::{Change, ChangeKind, Schema};

/// Pending changes in the order of the first change of each key.
pub(crate) struct Pending<K, V> {
    entries: HashTable<Entry<K, V>>,
    /// Tickets and hashes. A ticket and its hash find an entry without comparing keys.
    order: VecDeque<(Ticket, u64)>,
    next: Ticket,
}

/// The position of an entry in the order. Never used twice.
pub(crate) type Ticket = u64;

struct Entry<K, V> {
    ticket: Ticket,
    merged: Merged<K, V>,
}

impl<K, V> Entry<K, V> {
    fn hash(&self) -> u64 {
        self.merged.change.name().hash
    }
}

/// The pending change of one key, merged by the rules of the table in the [module](self).
pub(crate) struct Merged<K, V> {
    change: Change<K, V>,
    ends: Option<Box<Ends<V>>>,
}

/// States that a merge removed from a pending change, so the subscriber will not receive them. The caller drops them after it has released the lock.
pub(crate) struct Dropped<K, V> {
    change: Option<Change<K, V>>,
    state: Option<Arc<V>>,
}

impl<K, V> Dropped<K, V> {
    pub(crate) fn is_nothing(&self) -> bool {
        self.change.is_none() && self.state.is_none()
    }
}

// Not derived, because a derive would require `Default` of the types.
impl<K, V> Default for Dropped<K, V> {
    fn default() -> Self {
        Self { change: None, state: None }
    }
}

/// The first and the latest end under one key; see the [module](self).
struct Ends<V> {
    first: End<V>,
    latest: Option<End<V>>,
}

/// The last known state of an object that was deleted or replaced, and the kind of its deletion. A replaced object has the kind `Missed`.
struct End<V> {
    object: Arc<V>,
    kind: ChangeKind,
}

impl<K, V> Pending<K, V> {
    pub(crate) fn new() -> Self {
        Self { entries: HashTable::new(), order: VecDeque::new(), next: 0 }
    }

    /// Removes all pending changes and returns them. The ticket numbers continue, so an earlier ticket never finds a later entry.
    pub(crate) fn take_all(&mut self) -> Self {
        let mut anew = Self::new();
        anew.next = self.next;
        std::mem::replace(self, anew)
    }

    /// Returns how many keys are pending.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the ticket for the next key that becomes pending.
    pub(crate) fn next(&self) -> Ticket {
        self.next
    }

    /// Returns the ticket of the oldest entry, or the next ticket if there is no entry.
    pub(crate) fn oldest(&self) -> Ticket {
        self.order.front().map_or(self.next, |(ticket, _)| *ticket)
    }

    /// Returns the ticket of a pending key. This is the only operation that compares keys. It changes nothing.
    pub(crate) fn find(&self, hash: u64, eq: impl Fn(&K) -> bool) -> Option<Ticket> {
        let found = self.entries.find(hash, |entry| entry.hash() == hash && eq(entry.merged.change.key()));
        found.map(|entry| entry.ticket)
    }

    /// Merges a change into the entry of its key: the entry with the same name or, for an addition, the entry with the ticket `found`. If the
    /// subscriber has taken that entry meanwhile, the change becomes a new entry. Returns the states that the subscriber will no longer receive. The
    /// caller drops them while it holds no lock, and keeps the change alive until then.
    pub(crate) fn merge(&mut self, found: Option<Ticket>, change: Change<K, V>) -> Dropped<K, V> {
        let name = change.name();
        let hash = name.hash;
        let is_it = |entry: &Entry<K, V>| match found {
            Some(ticket) => entry.ticket == ticket,
            None => Arc::ptr_eq(entry.merged.change.name(), name),
        };
        let Ok(mut known) = self.entries.find_entry(hash, is_it) else {
            self.order.push_back((self.next, hash));
            let entry = Entry { ticket: self.next, merged: change.into() };
            self.next += 1;
            self.entries.insert_unique(hash, entry, Entry::hash);
            return Dropped::default();
        };
        if known.get().merged.is_undone_by(&change) {
            // Dropping the entry frees no object: the incoming change, which the caller keeps alive, holds the same object.
            let (undone, _) = known.remove();
            self.forget(undone.ticket);
            return Dropped::default();
        }
        known.get_mut().merged.merge(&change)
    }

    /// Removes and returns the oldest entry.
    pub(crate) fn pop(&mut self) -> Option<(Ticket, Merged<K, V>)> {
        let (ticket, _) = *self.order.front()?;
        self.take(ticket).map(|merged| (ticket, merged))
    }

    /// Removes and returns the entry with this ticket.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Merged<K, V>> {
        let at = self.order.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        let (_, hash) = self.order[at];
        let entry = self.entries.find_entry(hash, |entry| entry.ticket == ticket).ok()?;
        let (entry, _) = entry.remove();
        self.forget(ticket);
        if self.entries.is_empty() && self.entries.capacity() > 2 * SPARE {
            // Frees the memory of a burst. The table is empty, so no entry is moved.
            (self.entries, self.order) = (HashTable::new(), VecDeque::new());
        }
        Some(entry.merged)
    }

    /// Restores invariant 2 after the entry of a ticket was removed. O(1) amortised; usually the ticket is the first.
    fn forget(&mut self, ticket: Ticket) {
        let Self { entries, order, .. } = self;
        if order.front().is_some_and(|(first, _)| *first == ticket) {
            order.pop_front();
        }
        if order.len() == entries.len() {
            return;
        }
        let is_there =
            |(ticket, hash): &(Ticket, u64)| entries.find(*hash, |entry| entry.ticket == *ticket).is_some();
        while order.front().is_some_and(|first| !is_there(first)) {
            order.pop_front();
        }
        if order.len() - entries.len() > SPARE.max(entries.len()) {
            order.retain(is_there);
        }
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String>
    where
        K: Eq,
    {
        let (tickets, entries) = (self.order.len(), self.entries.len());
        if tickets < entries || tickets - entries > SPARE.max(entries) {
            return Err(format!("invariant 2: {tickets} tickets, {entries} entries"));
        }
        if !self.order.iter().is_sorted_by(|a, b| a.0 < b.0) {
            return Err("invariant 2: tickets out of order".into());
        }
        let is_there = |(ticket, hash): &(Ticket, u64)| {
            self.entries.find(*hash, |entry| entry.ticket == *ticket).is_some()
        };
        if self.order.front().is_some_and(|first| !is_there(first)) {
            return Err("invariant 2: the first ticket has no entry".into());
        }
        for entry in &self.entries {
            let at = self.order.binary_search_by_key(&entry.ticket, |(ticket, _)| *ticket);
            if at.ok().and_then(|at| self.order.get(at)) != Some(&(entry.ticket, entry.hash()))
                || entry.ticket >= self.next
            {
                return Err("invariant 2: an entry is missing in the order".into());
            }
            let key = entry.merged.change.key();
            if self.find(entry.hash(), |other| other == key) != Some(entry.ticket) {
                return Err("invariant 1: a key has two entries".into());
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

impl<K, V> From<Change<K, V>> for Merged<K, V> {
    fn from(change: Change<K, V>) -> Self {
        Self { change, ends: None }
    }
}

impl<K, V> Merged<K, V> {
    /// Converts the pending change of an object to an initial one, for a subscriber that has not received the object yet. Returns `None` if the
    /// object is deleted.
    pub(crate) fn to_initial(&self) -> Option<Self> {
        let change = &self.change;
        let initial = || change.with(ChangeKind::Initial, None, change.object().clone()).into();
        (!change.kind().is_deletion()).then(initial)
    }

    /// Returns whether the incoming change cancels the pending one, so that the subscriber receives nothing.
    fn is_undone_by(&self, incoming: &Change<K, V>) -> bool {
        self.change.held().is_none() && incoming.kind().is_deletion()
    }

    /// Merges an incoming change, by the rows of the module's table except the first.
    fn merge(&mut self, incoming: &Change<K, V>) -> Dropped<K, V> {
        use ChangeKind::{Added, Deleted, Initial, Missed, Replaced, Updated};
        let kind = self.change.kind();
        let (kind, latest) = match (kind, incoming.kind()) {
            (Initial | Added, _) => (kind, None),
            (Updated | Replaced, Updated | Added | Initial) => (kind, None),
            (Updated, Replaced) => {
                (Replaced, incoming.held().cloned().map(|object| End { object, kind: Missed }))
            }
            (Replaced, Replaced) => {
                self.make_undecided();
                (Replaced, incoming.held().cloned().map(|object| End { object, kind: Missed }))
            }
            (Updated, Deleted | Missed) => (incoming.kind(), None),
            (Replaced, Deleted | Missed) => {
                self.make_undecided();
                (incoming.kind(), None)
            }
            (Deleted | Missed, _) => {
                let end = End { object: self.change.object().clone(), kind };
                // If both changes are deletions, the kind of the later one counts.
                let kind = if incoming.kind().is_deletion() { incoming.kind() } else { Replaced };
                (kind, Some(end))
            }
        };
        let state = latest.and_then(|end| self.ended(end));
        if !Arc::ptr_eq(self.change.name(), incoming.name()) {
            // Invariant 4: the names may differ. The former name is returned with its change, because the name may hold the last reference to the
            // key.
            let change = incoming.with(kind, self.change.held().cloned(), incoming.object().clone());
            return Dropped { change: Some(std::mem::replace(&mut self.change, change)), state };
        }
        // This drop frees no object: the previous new state is also the old state of the incoming change, or among the ends.
        drop(self.change.set_state(kind, incoming.object().clone()));
        Dropped { change: None, state }
    }

    /// Makes the replacement undecided by storing its first end. The writer has compared the identities, but the object that the subscriber holds may
    /// be added again.
    fn make_undecided(&mut self) {
        if let (None, Some(held)) = (&self.ends, self.change.held()) {
            let first = End { object: held.clone(), kind: ChangeKind::Missed };
            self.ends = Some(Box::new(Ends { first, latest: None }));
        }
    }

    /// Adds an end. Returns the object of the latest end that it replaces, which is no longer needed.
    fn ended(&mut self, end: End<V>) -> Option<Arc<V>> {
        match &mut self.ends {
            Some(ends) => ends.latest.replace(end).map(|end| end.object),
            None => {
                self.ends = Some(Box::new(Ends { first: end, latest: None }));
                None
            }
        }
    }

    /// Returns the change to deliver, or `None` if there is none: the subscriber receives only objects that pass the filter. Runs the user's
    /// functions, so the caller must hold no lock. A panic of these functions leaves `self` unchanged.
    ///
    /// | the object, by the filter | its last delivered state passed | it did not pass, or was not delivered |
    /// |---|---|---|
    /// | passes now | Updated, Replaced | Added |
    /// | does not pass, or is deleted | Deleted | nothing |
    ///
    /// This rule is exact, because the state before the change is the last one to which the filter was applied: the subscriber holds the object if,
    /// and only if, that state passes.
    pub(crate) fn deliver(&self, schema: &Schema<K, V>, filter: Option<&Filter<V>>) -> Option<Change<K, V>> {
        let change = &self.change;
        let (held, after) = (change.held(), change.object());
        let passes = |object: &Arc<V>| filter.is_none_or(|filter| filter(object));
        let was = held.is_some_and(&passes);
        let is = !change.kind().is_deletion() && passes(after);
        let same = |object: &Arc<V>| held.is_some_and(|held| schema.same_identity(held, object));
        let end = self.ends.as_ref().map(|ends| {
            let is_gone = change.kind().is_deletion();
            match &ends.latest {
                // A deletion carries its own last state, and never needs the latest end.
                Some(latest) if !is_gone && same(&latest.object) => latest,
                _ => &ends.first,
            }
        });
        let updated = change.kind() == ChangeKind::Updated
            || change.kind() == ChangeKind::Replaced && end.is_some() && same(after);
        match (was, is) {
            (false, false) => None,
            (false, true) if held.is_none() => Some(change.clone()),
            (false, true) => Some(change.with(ChangeKind::Added, None, after.clone())),
            (true, true) if updated && change.kind() == ChangeKind::Updated => Some(change.clone()),
            (true, true) if updated => Some(change.with(ChangeKind::Updated, held.cloned(), after.clone())),
            (true, true) => Some(match end {
                None => change.clone(),
                Some(end) => change.with(ChangeKind::Replaced, Some(end.object.clone()), after.clone()),
            }),
            (true, false) if change.kind().is_deletion() => Some(match end.filter(|_| !same(after)) {
                None => change.clone(),
                Some(end) => change.with(end.kind, held.cloned(), end.object.clone()),
            }),
            // The object exists, but no longer passes the subscriber's filter.
            (true, false) => {
                let (kind, last) = match end {
                    _ if updated => (ChangeKind::Deleted, held.cloned()),
                    None => (ChangeKind::Missed, held.cloned()),
                    Some(end) => (end.kind, Some(end.object.clone())),
                };
                last.map(|last| change.with(kind, held.cloned(), last))
            }
        }
    }
}

/// A function that returns whether a subscriber receives an object.
pub(crate) type Filter<V> = dyn Fn(&V) -> bool + Send + Sync;

/// The number of tickets of removed entries that `order` may hold even if there are fewer entries (invariant 2). An empty table with more than twice
/// this capacity is freed.
const SPARE: usize = 256;
