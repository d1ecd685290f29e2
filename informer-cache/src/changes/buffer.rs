//! SHELL. The lock between one consumer and the writers.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `pending` | what the consumer has not heard of yet |
//! | `waker` | of the consumer while it waits; taken by whoever makes it wait no longer |
//! | `version` | the store's version up to which everything has been merged |
//! | `revision` | the revision of the table up to which everything has been merged, or was shown to the consumer |
//! | `awaits` | the consumer waits for a merge that is under way, of whatever |
//! | `until` | the ticket before which everything is a part of the beginning; none as long as the store had no list |
//! | `idle` | the consumer asked for more, and has taken nothing out since |
//! | `behind` | it is still open how `initial_processed` ends; who unsets this ends it, under this lock or as the consumer |
//! | `ended` | no more changes will come; the consumer hears what is left |
//! | `detached` | the consumer is gone; changes are ignored |
//! | `lost` | it was too much: what was pending then, for the consumer to drop; changes are ignored until it begins anew |
//!
//! Beside it, for good: `selection`, what the buffer is of, and `most`, how many keys may be pending.
//!
//! There is one writer, so what [`find`](SubscriptionBuffer::find) found can only vanish, by the consumer taking it out or beginning anew, before
//! [`merge`](SubscriptionBuffer::merge).
//!
//! # Invariants
//! 1. `until` is set with the first list, after all of it has been merged; or at registration, if the snapshot shows a list. It stays.
//! 2. A consumer is caught up when it has been told its snapshot, `until` is set, and no ticket below it is pending or in its hands. It
//!    stays so, as tickets ascend ([`Pending`], invariants 2 and 3), until it begins anew.
//! 3. `initial_processed` is set when that is so and the consumer has come back for more since: by the consumer, as it asks; or by a writer, where the
//!    consumer is idle: of a first list that brings it nothing it is not told. It fails when the consumer goes before, or the store ends without a list.
//! 4. No more than `most` keys are pending when nobody has the lock. Where something is `lost`, nothing is pending.
//! 5. Nothing of a table that the consumer was shown is merged: `revision` is that table's, and what led to it is passed over.

use std::cmp::Ordering;
use std::sync::Arc;
use std::task::Waker;

use flyball_sync::locks::Mutex;

use crate::changes::pending::{Dropped, Merged, Pending, Ticket};
use crate::changes::selection::Selection;
use crate::signal::synced::Synced;
use crate::signal::wakers::Wakers;
use crate::table::Table;
use crate::table::record::Name;
use crate::{Change, Stopped, Version};

/// The pending changes of one subscription.
pub(crate) struct SubscriptionBuffer<K, V> {
    selection: Option<Selection<K, V>>,
    most: usize,
    state: Mutex<BufferState<K, V>>,
    /// Shared, since a wait for it may outlive the buffer, and must not keep it.
    initial_processed: Arc<Synced>,
}

struct BufferState<K, V> {
    pending: Pending<K, V>,
    waker: Option<Waker>,
    version: Version,
    revision: u64,
    until: Option<Ticket>,
    idle: bool,
    awaits: bool,
    behind: bool,
    ended: bool,
    detached: bool,
    lost: Option<Pending<K, V>>,
}

impl<K, V> BufferState<K, V> {
    /// The consumer, which has nothing in its hands, asks for more. Whether it has got through the beginning by that.
    fn asked(&mut self) -> bool {
        self.idle = self.pending.is_empty();
        self.got_through()
    }

    /// Whether this is the moment when a consumer with nothing in its hands has got through the beginning.
    fn got_through(&mut self) -> bool {
        let through = self.lost.is_none() && self.until.is_some_and(|until| self.pending.oldest() >= until);
        through && std::mem::take(&mut self.behind)
    }
}

/// What a write brings, besides its changes.
#[derive(Clone, Copy)]
pub(crate) struct Merging {
    /// The store's version after it.
    pub(crate) version: Version,
    /// The revision of the table after it.
    pub(crate) revision: u64,
    /// Whether with these changes the store has had its first list.
    pub(crate) first_list: bool,
}

/// Whether a consumer has everything that a table shows.
pub(crate) enum Settled<T> {
    Yes(T),
    /// Something is pending.
    Pending,
    /// A write is published, and its merge under way.
    Behind,
}

impl<T> Settled<T> {
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Settled<U> {
        match self {
            Self::Yes(it) => Settled::Yes(f(it)),
            Self::Pending => Settled::Pending,
            Self::Behind => Settled::Behind,
        }
    }
}

/// What there is for a consumer.
pub(crate) enum Popped<K, V> {
    Change(Ticket, Merged<K, V>),
    /// Nothing now; everything up to this version has been taken.
    Empty(Version),
    /// It was too much.
    Overflowed,
    /// Nothing now or ever.
    Ended(Version),
}

impl<K, V> SubscriptionBuffer<K, V> {
    /// The buffer of a consumer that is shown this table, and whether that is the state after a list.
    pub(crate) fn new(
        table: &Table<K, V>,
        listed: bool,
        ended: bool,
        selection: Option<Selection<K, V>>,
        most: usize,
    ) -> Self {
        let pending = Pending::new();
        let until = listed.then(|| pending.next());
        let initial_processed = Arc::<Synced>::default();
        let behind = listed || !ended;
        if !behind {
            // Nobody waits yet.
            initial_processed.end(Err(Stopped), &mut Wakers::default());
        }
        let state = BufferState {
            pending,
            waker: None,
            version: table.version,
            revision: table.revision,
            until,
            idle: false,
            awaits: false,
            behind,
            ended,
            detached: false,
            lost: None,
        };
        Self { selection, most, state: Mutex::new(state), initial_processed }
    }

    /// What it is of, if not of everything.
    pub(crate) fn selection(&self) -> Option<&Selection<K, V>> {
        self.selection.as_ref()
    }

    /// Begins anew, as [`new`](Self::new). Gives back what was pending, to be dropped after unlocking. Nothing is committed meanwhile; a merge may
    /// be under way, and what is left of it passes this buffer over.
    pub(crate) fn restart(&self, table: &Table<K, V>, listed: bool, ended: bool) -> impl Sized + use<K, V> {
        let mut state = self.state.lock();
        let pending = state.pending.begin_anew();
        state.until = listed.then(|| state.pending.next());
        (state.version, state.revision) = (table.version, table.revision);
        (state.ended, state.idle) = (ended, false);
        (pending, state.lost.take())
    }

    /// Whether it was too much.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.state.lock().lost.is_some()
    }

    /// The signal that the consumer has the beginning behind it.
    pub(crate) fn initial_processed(&self) -> &Arc<Synced> {
        &self.initial_processed
    }

    /// The ticket of each of these keys; none for what need not be looked for. Compares keys and changes nothing.
    pub(crate) fn find<'a>(
        &self,
        names: impl IntoIterator<Item = Option<&'a Arc<Name<K>>>>,
        found: &mut Vec<Option<Ticket>>,
    ) where
        K: Eq + 'a,
    {
        let mut names = names.into_iter().peekable();
        while names.peek().is_some() {
            let mut state = None;
            found.extend(names.by_ref().take(CHUNK).map(|name| {
                let name = name?;
                let state = state.get_or_insert_with(|| self.state.lock());
                state.pending.find(name.hash, |key| *key == name.key)
            }));
        }
    }

    /// Whether the consumer has everything that the table of a revision shows; where it has more, nothing. If a merge is under way, that wakes whoever waits.
    pub(crate) fn settled(&self, revision: u64) -> Option<Settled<()>> {
        let mut state = self.state.lock();
        match state.revision.cmp(&revision) {
            _ if !state.pending.is_empty() || state.lost.is_some() => Some(Settled::Pending),
            Ordering::Equal => Some(Settled::Yes(())),
            Ordering::Less => {
                state.awaits = true;
                Some(Settled::Behind)
            }
            Ordering::Greater => None,
        }
    }

    /// Merges changes into what [`find`](Self::find) found, and wakes the consumer. Runs no foreign code. The caller keeps the changes alive, and wakes
    /// and drops what it is given after unlocking everything.
    ///
    /// They may come in several calls, of which the `last` says that the write is merged. Whether the consumer is still there.
    pub(crate) fn merge(
        &self,
        changes: impl IntoIterator<Item = (Change<K, V>, Option<Ticket>)>,
        Merging { version, revision, first_list }: Merging,
        last: bool,
        wakers: &mut Wakers,
        dropped: &mut Vec<Dropped<K, V>>,
    ) -> bool {
        let mut changes = changes.into_iter().peekable();
        // In chunks, so that the consumer of a big relist can go on meanwhile. No other writer comes in between.
        let mut state = loop {
            let mut state = self.state.lock();
            if state.detached {
                return false;
            }
            // Invariant 5; and a consumer may begin anew between two chunks, or end, as its index is removed.
            if state.lost.is_some() || state.ended || state.revision >= revision {
                break state;
            }
            for (change, ticket) in changes.by_ref().take(CHUNK) {
                let unseen = state.pending.merge(ticket, change);
                if !unseen.is_nothing() {
                    dropped.push(unseen);
                }
            }
            if !state.pending.is_empty() {
                wakers.extend(state.waker.take());
            }
            if state.pending.len() > self.most {
                // Kept for the consumer: the writer does not pay for dropping it.
                let lost = state.pending.begin_anew();
                state.lost = Some(lost);
            }
            if changes.peek().is_none() {
                break state;
            }
        };
        if !last {
            return true;
        }
        if revision >= state.revision {
            (state.version, state.revision) = (version, revision);
        }
        if std::mem::take(&mut state.awaits) {
            wakers.extend(state.waker.take());
        }
        // A subscription whose index was removed has ended, and receives nothing of the list.
        if first_list && !state.ended {
            // Here, after the last chunk: of a list that is half merged, everything that is pending may have been told.
            state.until = Some(state.pending.next());
            // Also where it brings nothing: somebody may wait beside `next` for being caught up.
            wakers.extend(state.waker.take());
        }
        if state.idle && state.got_through() {
            self.initial_processed.end(Ok(()), wakers);
        }
        true
    }

    /// The oldest pending change. The consumer has dealt with everything it was told.
    pub(crate) fn pop(&self) -> Popped<K, V> {
        let mut state = self.state.lock();
        let initial_processed = state.asked();
        let (version, ended) = (state.version, state.ended);
        let popped = match state.pending.pop() {
            Some((ticket, change)) => Popped::Change(ticket, change),
            None if state.lost.is_some() => Popped::Overflowed,
            None if ended => Popped::Ended(version),
            None => Popped::Empty(version),
        };
        drop(state);
        if initial_processed {
            self.initial_processed.set();
        }
        popped
    }

    /// As [`pop`](Self::pop); when there is nothing yet, `waker` is woken once there is. Gives back the waker it replaces.
    pub(crate) fn pop_or_wait(&self, waker: Waker) -> (Popped<K, V>, Option<Waker>) {
        let mut state = self.state.lock();
        let initial_processed = state.asked();
        let (version, ended) = (state.version, state.ended);
        // In one critical section, or a change between looking and registering would wake nobody.
        let popped = match state.pending.pop() {
            Some((ticket, change)) => (Popped::Change(ticket, change), Some(waker)),
            None if state.lost.is_some() => (Popped::Overflowed, Some(waker)),
            None if ended => (Popped::Ended(version), Some(waker)),
            None => (Popped::Empty(version), state.waker.replace(waker)),
        };
        drop(state);
        if initial_processed {
            self.initial_processed.set();
        }
        popped
    }

    /// What is pending for one key, taken out.
    pub(crate) fn take(&self, hash: u64, eq: impl Fn(&K) -> bool) -> Option<Merged<K, V>> {
        let mut state = self.state.lock();
        let ticket = state.pending.find(hash, eq)?;
        state.pending.take(ticket)
    }

    /// Whether something is pending for a key.
    pub(crate) fn contains(&self, hash: u64, eq: impl Fn(&K) -> bool) -> bool {
        self.state.lock().pending.find(hash, eq).is_some()
    }

    /// Whether everything that belongs to the beginning has been taken out, and the consumer, which may have what was under a ticket
    /// in its hands, has told it. O(1).
    pub(crate) fn is_initial_delivered(&self, in_hands: Option<Ticket>) -> bool {
        let state = self.state.lock();
        let oldest = in_hands.unwrap_or_else(|| state.pending.oldest());
        state.lost.is_none() && state.until.is_some_and(|until| oldest >= until)
    }

    /// How many keys are pending, and the version up to which everything has been merged.
    pub(crate) fn lag(&self) -> (usize, Version) {
        let state = self.state.lock();
        (state.pending.len() + state.lost.as_ref().map_or(0, Pending::len), state.version)
    }

    /// No more changes will come.
    pub(crate) fn end(&self, wakers: &mut Wakers) {
        let mut state = self.state.lock();
        state.ended = true;
        wakers.extend(state.waker.take());
        if state.until.is_none() && std::mem::take(&mut state.behind) {
            self.initial_processed.end(Err(Stopped), wakers);
        }
    }

    /// The consumer is gone. What was pending is dropped after unlocking.
    pub(crate) fn detach(&self) {
        let mut state = self.state.lock();
        state.detached = true;
        let pending = std::mem::replace(&mut state.pending, Pending::new());
        let (lost, waker) = (state.lost.take(), state.waker.take());
        let mut wakers = Wakers::default();
        if std::mem::take(&mut state.behind) {
            self.initial_processed.end(Err(Stopped), &mut wakers);
        }
        drop(state);
        // First, as what is dropped then may panic.
        wakers.wake();
        drop((pending, lost, waker));
    }

    pub(crate) fn check(&self) -> Result<(), String>
    where
        K: Eq,
    {
        let state = self.state.lock();
        if state.detached && !state.pending.is_empty() {
            return Err("feed: something is pending for a consumer that is gone".into());
        }
        if state.pending.len() > self.most || state.lost.is_some() && !state.pending.is_empty() {
            return Err("feed invariant 4: more is pending than may be".into());
        }
        state.pending.check().map_err(|problem| format!("pending: {problem}"))
    }
}

/// Feeds of a store, shared so that fanning out copies no list.
pub(crate) type SubscriptionBuffers<K, V> = Arc<[Arc<SubscriptionBuffer<K, V>>]>;

/// So many changes are found or merged under one lock.
const CHUNK: usize = 64;
