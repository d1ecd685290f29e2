//! PURE. The changes that one subscriber has not received yet. They are coalesced per key, so there are at most as many as there are keys, however
//! many events arrive.
//!
//! For each key, a subscriber holds the state that it received last. One pending change per key is enough, because it describes the step from that
//! state to the newest state. A change that arrives is merged as follows:
//!
//! | pending \ incoming | Added(n) | Updated(_, n) | Deleted(l) | Replaced(p, n) | resync |
//! |---|---|---|---|---|---|
//! | nothing | Added(n) | Updated(o, n) | Deleted(o; l) | Replaced(o; n) | Updated(o, o) at once |
//! | Added(a) | | Added(n) | nothing | Added(n) | |
//! | Updated(o, a) | | Updated(o, n) | Deleted(o; l) | Replaced(o; e; n) | = |
//! | Deleted(o; e; l) | Replaced(o; e, l; n) | | | | = |
//! | Replaced(o; e; a) | | Replaced(o; e; n) | Deleted(o; e; l) | Replaced(o; e, p; n) | = |
//!
//! `=`: no effect. The combination of a blank cell cannot occur, because the store delivers the changes of a key in order, and a resync begins only
//! when no change is pending. `o` is the state that the subscriber holds, `a` the new state in the pending change, `n` the newest state, `p` the
//! state that `n` replaced, and `l` the last state of a deleted object. An *end* is the deletion or the replacement of an object; it contains the
//! object's last state. `e` holds at most two ends of objects under this key: the first one, which is the end of `o`, and the latest one before the
//! newest state. If an object is added and deleted between two deliveries, the subscriber never receives it.
//!
//! The kind of a pending change with ends is not decided yet, because `n` may be a newer state of the same object as `o`, which was deleted and then
//! added again. [`Merged::deliver`] compares the identities of the objects while no lock is held. If `o` and `n` are states of the
//! same object, the subscriber receives Updated(o, n). Otherwise it receives Replaced(e, n), where `e` is the latest end if that is a state of the
//! same object as `o`, and else the first end. Likewise, Deleted(o; e; l) is delivered with `l` if `l` is a state of the same object as `o`, and else
//! with the first end.
//!
//! If a pending addition is initial, it stays initial when a change is merged into it. If an object is added in place of one that the subscriber
//! holds, it is delivered as `Replaced`, never as initial.
//!
//! # Invariants
//! 1. A key has at most one entry.
//! 2. `order` holds the ticket of every entry exactly once, and its first ticket belongs to an entry. It may also hold tickets of removed entries.
//!    Tickets ascend in the order in which the keys became pending. A merge does not change the ticket of an entry.
//! 3. Let `t` be the value of [`next`](Pending::next) at some moment. As soon as [`oldest`](Pending::oldest) is at least `t`, every entry that was
//!    pending at that moment has been taken, or a deletion has cancelled it. This follows from invariant 2, because no ticket is used twice.
//! 4. An entry and the latest change of its key share one `Arc<Name>`. So the `Arc<Name>` of a new change differs from the `Arc<Name>` of its key's
//!    entry only if the new change is an addition and the previous change was a deletion.
//!
//! Hence keys are delivered in FIFO order, even if one key changes continuously, and the memory is O(keys). As long as nothing is merged into an
//! entry, the entry shares its change with the writer and all other subscribers. No step moves more than a few thousand entries, however many there are,
//! because each runs under the lock of the subscription.

use std::sync::Arc;

use flyball_sync::panics::drop_each;

use self::entries::{Entries, Hashed};
use self::order::Order;
use crate::table::record::Object;
use crate::{Change, ChangeKind, Schema};

mod entries;
mod order;

/// The pending changes of one subscription, ordered by the time at which each key became pending.
pub(crate) struct Pending<K, V> {
    entries: Entries<Entry<K, V>>,
    /// Tickets, each with the hash of its entry's key, so that the entry can be found without comparing keys.
    order: Order,
    next: Ticket,
}

/// The position of an entry in the delivery order. Never used twice.
pub(crate) type Ticket = u64;

struct Entry<K, V> {
    ticket: Ticket,
    merged: Merged<K, V>,
}

impl<K, V> Hashed for Entry<K, V> {
    #[inline]
    fn hash(&self) -> u64 {
        self.merged.change.name().hash
    }
}

/// The pending change of one key, merged as the table in the [module](self) documentation specifies.
pub(crate) struct Merged<K, V> {
    change: Change<K, V>,
    ends: Option<Box<Ends<V>>>,
}

/// States that a merge removed from a pending change, so that the subscriber never receives them. The caller drops them after it has released the
/// lock.
pub(crate) struct Dropped<K, V> {
    change: Option<Change<K, V>>,
    state: Option<Object<V>>,
}

impl<K, V> Dropped<K, V> {
    pub(crate) fn is_nothing(&self) -> bool {
        self.change.is_none() && self.state.is_none()
    }
}

// Not derived, because a derive would require `K: Default` and `V: Default`.
impl<K, V> Default for Dropped<K, V> {
    fn default() -> Self {
        Self { change: None, state: None }
    }
}

/// The first and the latest end of an object under one key; the [module](self) documentation defines *end*.
struct Ends<V> {
    first: End<V>,
    latest: Option<End<V>>,
}

/// The last known state of an object that was deleted or replaced, and the kind of the deletion (`Missed` if the object was replaced).
struct End<V> {
    object: Object<V>,
    kind: ChangeKind,
}

impl<K, V> Pending<K, V> {
    pub(crate) fn new() -> Self {
        Self { entries: Entries::new(), order: Order::new(), next: 0 }
    }

    /// Removes all pending changes and returns them. Ticket numbers are not reset, so a ticket issued before this call never matches an entry that is
    /// added later.
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
        self.entries.len() == 0
    }

    /// Returns the ticket for the next key that becomes pending.
    pub(crate) fn next(&self) -> Ticket {
        self.next
    }

    /// Returns the ticket of the oldest entry, or the next ticket if there is no entry.
    pub(crate) fn oldest(&self) -> Ticket {
        self.order.front().map_or(self.next, |(ticket, _)| ticket)
    }

    /// Returns the ticket of a pending key. This is the only operation that compares keys. It changes nothing.
    pub(crate) fn find(&self, hash: u64, eq: impl Fn(&K) -> bool) -> Option<Ticket> {
        let found = self.entries.find(hash, |entry| entry.hash() == hash && eq(entry.merged.change.key()));
        found.map(|entry| entry.ticket)
    }

    /// Merges a change into the entry of its key: the entry with the ticket `found` or, if `found` is `None`, the entry with the same `Arc<Name>`. If
    /// there is no such entry, for example because the subscriber has taken it, the change becomes a new entry. Returns the states that the
    /// subscriber will no longer receive. The caller drops them while it holds no lock, and keeps the change alive until then.
    pub(crate) fn merge(&mut self, found: Option<Ticket>, change: Change<K, V>) -> Dropped<K, V> {
        let name = change.name();
        let hash = name.hash;
        let is_it = |entry: &Entry<K, V>| match found {
            Some(ticket) => entry.ticket == ticket,
            None => Arc::ptr_eq(entry.merged.change.name(), name),
        };
        let Some(known) = self.entries.find_mut(hash, is_it) else {
            self.order.push(self.next, hash);
            self.entries.insert(Entry { ticket: self.next, merged: change.into() });
            self.next += 1;
            return Dropped::default();
        };
        if known.merged.is_undone_by(&change) {
            let ticket = known.ticket;
            // Dropping the entry frees no object: the incoming change, which the caller keeps alive, holds the same object.
            drop(self.take(ticket, hash));
            return Dropped::default();
        }
        known.merged.merge(&change)
    }

    /// Removes and returns the oldest entry.
    pub(crate) fn pop(&mut self) -> Option<(Ticket, Merged<K, V>)> {
        let (ticket, hash) = self.order.front()?;
        self.take(ticket, hash).map(|merged| (ticket, merged))
    }

    /// Removes and returns the entry with this ticket, whose key has this hash.
    pub(crate) fn take(&mut self, ticket: Ticket, hash: u64) -> Option<Merged<K, V>> {
        let Self { entries, order, .. } = self;
        let entry = entries.remove(hash, |entry| entry.ticket == ticket)?;
        order.forget(ticket, |(ticket, hash)| entries.find(*hash, |entry| entry.ticket == *ticket).is_some());
        Some(entry.merged)
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String>
    where
        K: Eq,
    {
        self.entries.check()?;
        let is_there = |(ticket, hash): &(Ticket, u64)| {
            self.entries.find(*hash, |entry| entry.ticket == *ticket).is_some()
        };
        // Tickets are distinct, so if as many tickets belong to entries as there are entries, each entry has its ticket.
        if self.order.check(is_there)? != self.entries.len() {
            return Err("invariant 2: an entry is missing in the order".into());
        }
        for entry in self.entries.iter() {
            if entry.ticket >= self.next {
                return Err("invariant 2: a ticket that was not given out".into());
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
        let initial = || change.with(ChangeKind::Initial, None, change.after().clone()).into();
        (!change.kind().is_deletion()).then(initial)
    }

    /// Returns whether the incoming change cancels the pending one: the subscriber has not received the object, and the object is deleted.
    fn is_undone_by(&self, incoming: &Change<K, V>) -> bool {
        self.change.held().is_none() && incoming.kind().is_deletion()
    }

    /// Merges an incoming change into a pending one, as the table in the module documentation specifies.
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
                let end = End { object: self.change.after().clone(), kind };
                // If both changes are deletions, the merged change gets the kind of the later one.
                let kind = if incoming.kind().is_deletion() { incoming.kind() } else { Replaced };
                (kind, Some(end))
            }
        };
        let state = latest.and_then(|end| self.ended(end));
        if !Arc::ptr_eq(self.change.name(), incoming.name()) {
            // By invariant 4, the two changes may have different `Arc<Name>`s. The old change is returned, because it may own the last reference to
            // the key.
            let change = incoming.with(kind, self.change.held().cloned(), incoming.after().clone());
            return Dropped { change: Some(std::mem::replace(&mut self.change, change)), state };
        }
        // This drop frees no object, because the replaced state is also the old state of the incoming change, or one of the ends.
        drop(self.change.set_state(kind, incoming.after().clone()));
        Dropped { change: None, state }
    }

    /// Stores the first end of a replacement, so that the identities are compared again on delivery. The writer has already compared them, but before
    /// the delivery, the object that the subscriber holds may be added again.
    fn make_undecided(&mut self) {
        if let (None, Some(held)) = (&self.ends, self.change.held()) {
            let first = End { object: held.clone(), kind: ChangeKind::Missed };
            self.ends = Some(Box::new(Ends { first, latest: None }));
        }
    }

    /// Adds an end as the latest one. Returns the object of the end that was the latest before, if there was one: that object is no longer needed.
    fn ended(&mut self, end: End<V>) -> Option<Object<V>> {
        match &mut self.ends {
            Some(ends) => ends.latest.replace(end).map(|end| end.object),
            None => {
                self.ends = Some(Box::new(Ends { first: end, latest: None }));
                None
            }
        }
    }

    /// Returns the change to deliver, or `None` if there is nothing to deliver. The subscriber receives only objects that pass the filter, as in this
    /// table. Runs the user's functions, so the caller must hold no lock. A panic of these functions leaves `self` unchanged.
    ///
    /// | the object's newest state | the state before passes the filter | the state before does not pass, or there is none |
    /// |---|---|---|
    /// | passes the filter | Updated, Replaced | Added |
    /// | does not pass, or is deleted | Deleted | nothing |
    ///
    /// The filter was last applied to the state before the change, so the subscriber holds the object if, and only if, that state passes.
    pub(crate) fn deliver(&self, schema: &Schema<K, V>, filter: Option<&Filter<V>>) -> Option<Change<K, V>> {
        let change = &self.change;
        let (held, after) = (change.held(), change.after());
        let passes = |object: &Object<V>| filter.is_none_or(|filter| filter(object));
        let was = held.is_some_and(&passes);
        let is = !change.kind().is_deletion() && passes(after);
        let same = |object: &Object<V>| held.is_some_and(|held| schema.same_identity(held, object));
        let end = self.ends.as_ref().map(|ends| {
            let is_gone = change.kind().is_deletion();
            match &ends.latest {
                // A deletion contains its own last state, so the latest end is not needed.
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
