//! SHELL. The pending changes of one subscription, under a lock that the subscriber and the writers share.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `pending` | the changes that the subscriber has not received yet |
//! | `waker` | the waker of the subscriber, if it waits; to wake the subscriber, a thread takes the waker out |
//! | `sequence`, `revision` | the last write of which every change is merged, or contained in the subscriber's snapshot: its number, and the revision of the table after it |
//! | `awaits_merge` | whether the subscriber is woken when the merge in progress ends, even if no change is pending then |
//! | `until` | a ticket: changes with a lower ticket belong to the initial state; `None` until the first list is merged |
//! | `idle` | whether the subscriber's last request found no pending change |
//! | `signal_pending` | whether the outcome of the `initial_processed` signal is still open; the code that sets the outcome first clears this field |
//! | `ended` | whether the subscription has ended: no more changes are merged, but the pending ones are still delivered |
//! | `detached` | whether the subscriber was dropped, or could not restart because the store was dropped; later changes are ignored |
//! | `lost` | the changes that were pending when the number of keys exceeded `most`; `None` if it has not |
//!
//! While `lost` is set, new changes are ignored; a restart of the subscription clears `lost` and drops the changes in it. Two fields never change, so
//! they need no lock: `selection`, which filters the changes, and `most`, the maximum number of pending keys.
//!
//! A write does not lock the buffer of a subscription whose selection it does not concern. So for a subscription with a selection, `sequence`
//! and `revision` may be behind; then those in [`MergeProgress`] count, which the store and all these subscriptions share. The lock of
//! [`MergeProgress`] comes after the lock of a buffer in the lock order.
//!
//! The store has one writer at a time, so no entry is added between [`find`](SubscriptionBuffer::find) and [`merge`](SubscriptionBuffer::merge). An
//! entry may be removed between these calls, when the subscriber takes the entry's change or restarts.
//!
//! # Invariants
//! 1. `until` is set as soon as the whole first list is merged; if the store already has its first list, `until` is set when the subscriber
//!    registers. It is never unset.
//! 2. A subscriber is caught up when it has received its snapshot, `until` is set, and no ticket below `until` is pending or being delivered. The
//!    subscriber stays caught up until it restarts, because tickets ascend ([`Pending`], invariants 2 and 3).
//! 3. `initial_processed` is set when a caught-up subscriber asks for the next change. If the subscriber is idle, and no change is pending for it
//!    after the first list, the writer sets the signal instead. The signal fails if the subscriber is dropped before the signal is set, or if the
//!    subscription ends before the first list is merged.
//! 4. At most `most` keys are pending whenever the lock is free. While `lost` is set, no key is pending.
//! 5. A change that the subscriber's snapshot already contains is not merged: `revision` starts at the revision of the snapshot, and changes up to
//!    `revision` are skipped.

use std::cmp::Ordering;
use std::sync::{Arc, Weak};
use std::task::Waker;

use flyball_sync::locks::Mutex;
use flyball_sync::panics::DropContained;

use crate::changes::pending::{Dropped, Merged, Pending, Ticket};
use crate::changes::selection::Selection;
use crate::signal::synced::Synced;
use crate::signal::wakers::Wakers;
use crate::table::Table;
use crate::table::record::Name;
use crate::{Change, Stopped};

/// What a subscription selects, and how far the store has merged its writes.
type Selected<K, V> = (Selection<K, V>, Arc<MergeProgress<K, V>>);

/// The pending changes of one subscription.
pub(crate) struct SubscriptionBuffer<K, V> {
    selection: Option<Selected<K, V>>,
    most: usize,
    state: Mutex<BufferState<K, V>>,
    /// In an `Arc` of its own, because a future that waits for this signal may outlive the buffer, and must not keep the buffer alive.
    initial_processed: Arc<Synced>,
}

struct BufferState<K, V> {
    pending: Pending<K, V>,
    waker: Option<Waker>,
    sequence: u64,
    revision: u64,
    until: Option<Ticket>,
    idle: bool,
    awaits_merge: bool,
    signal_pending: bool,
    ended: bool,
    detached: bool,
    lost: Option<Pending<K, V>>,
}

impl<K, V> BufferState<K, V> {
    /// Records that the subscriber asks for the next change, which means that it has processed all earlier ones. Returns whether the subscriber has
    /// thereby processed the whole initial state.
    fn record_request(&mut self) -> bool {
        self.idle = self.pending.is_empty();
        self.take_initial_complete()
    }

    /// Returns whether the subscriber has processed the whole initial state. Call this only if the subscriber has processed every change that it
    /// received. Returns `true` at most once.
    fn take_initial_complete(&mut self) -> bool {
        let through = self.lost.is_none() && self.until.is_some_and(|until| self.pending.oldest() >= until);
        through && std::mem::take(&mut self.signal_pending)
    }
}

/// The state of the store after the write whose changes [`merge`](SubscriptionBuffer::merge) merges.
#[derive(Clone, Copy)]
pub(crate) struct Merging {
    /// The number of the write. Each write to the published state has the next number.
    pub(crate) sequence: u64,
    /// The revision of the table after the write.
    pub(crate) revision: u64,
    /// Whether these changes complete the store's first list.
    pub(crate) first_list: bool,
}

/// The last write whose changes are merged into all buffers, for the subscriptions with a selection.
pub(crate) struct MergeProgress<K, V> {
    state: Mutex<ProgressState<K, V>>,
}

struct ProgressState<K, V> {
    sequence: u64,
    revision: u64,
    /// Buffers whose subscriber is woken when the merge in progress ends. A buffer is here at most twice.
    awaiting: Vec<Weak<SubscriptionBuffer<K, V>>>,
}

// `Default` is not derived, because a derive would require `K: Default` and `V: Default`.
impl<K, V> Default for MergeProgress<K, V> {
    fn default() -> Self {
        let state = ProgressState { sequence: 0, revision: 0, awaiting: Vec::new() };
        Self { state: Mutex::new(state) }
    }
}

impl<K, V> MergeProgress<K, V> {
    /// Records that all changes of a write are merged, and moves the wakers of the subscribers that wait for this to `wakers`. Returns buffers that the
    /// caller must drop after it has released its locks.
    pub(crate) fn merged(&self, write: Merging, wakers: &mut Wakers) -> Vec<Arc<SubscriptionBuffer<K, V>>> {
        let mut state = self.state.lock();
        (state.sequence, state.revision) = (write.sequence, write.revision);
        let awaiting = std::mem::take(&mut state.awaiting);
        drop(state);
        let awaiting: Vec<_> = awaiting.iter().filter_map(Weak::upgrade).collect();
        for buffer in &awaiting {
            let mut state = buffer.state.lock();
            if std::mem::take(&mut state.awaits_merge) {
                wakers.extend(state.waker.take());
            }
        }
        awaiting
    }
}

/// Whether a subscriber has received every change up to some revision of the table.
pub(crate) enum Settled<T> {
    Yes(T),
    /// A change is pending.
    Pending,
    /// A write is published, but its changes are not all merged yet.
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

/// The next item of a subscription buffer.
pub(crate) enum Popped<K, V> {
    Change(Ticket, Merged<K, V>),
    /// No change is pending.
    Empty,
    /// The capacity was exceeded.
    Overflowed,
    /// The subscription has ended and no change is pending.
    Ended,
}

impl<K, V> SubscriptionBuffer<K, V> {
    /// Creates the buffer of a subscriber whose snapshot is `table`, the state after the write with the number `sequence`. `listed` is true if the store has had its first list; `ended` is true if the
    /// subscription will receive no changes.
    pub(crate) fn new(
        (table, sequence): (&Table<K, V>, u64),
        listed: bool,
        ended: bool,
        selection: Option<Selected<K, V>>,
        most: usize,
    ) -> Self {
        let pending = Pending::new();
        let until = listed.then(|| pending.next());
        let initial_processed = Arc::<Synced>::default();
        let signal_pending = listed || !ended;
        if !signal_pending {
            // No task waits for the signal yet, so there is no waker to collect.
            initial_processed.end(Err(Stopped), &mut Wakers::default());
        }
        let state = BufferState {
            pending,
            waker: None,
            sequence,
            revision: table.revision,
            until,
            idle: false,
            awaits_merge: false,
            signal_pending,
            ended,
            detached: false,
            lost: None,
        };
        Self { selection, most, state: Mutex::new(state), initial_processed }
    }

    /// Returns the selection of the subscription, or `None` if it receives every key.
    pub(crate) fn selection(&self) -> Option<&Selection<K, V>> {
        self.selection.as_ref().map(|(selection, _)| selection)
    }

    /// Resets the buffer to its state after [`new`](Self::new), with a new snapshot. Returns the changes that were pending; the caller drops them
    /// after it has released its locks. The caller must ensure that no write commits during this call. A merge may be in progress; its remaining
    /// chunks skip this buffer.
    pub(crate) fn restart(
        &self,
        (table, sequence): (&Table<K, V>, u64),
        listed: bool,
        ended: bool,
    ) -> impl Sized + use<K, V> {
        let mut state = self.state.lock();
        let pending = state.pending.take_all();
        state.until = listed.then(|| state.pending.next());
        (state.sequence, state.revision) = (sequence, table.revision);
        (state.ended, state.idle) = (ended, false);
        (pending, state.lost.take())
    }

    /// Returns whether more keys were pending than the capacity allows. Does not take the lock if the buffer is unbounded.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.most < usize::MAX && self.state.lock().lost.is_some()
    }

    /// Returns the signal that is set once the subscriber has processed the initial state.
    pub(crate) fn initial_processed(&self) -> &Arc<Synced> {
        &self.initial_processed
    }

    /// Calls `found` with the number of each name whose key has a pending entry, and the ticket of this entry. Calls `Eq` of the keys. Does not change the
    /// buffer.
    pub(crate) fn find<'a>(
        &self,
        names: impl IntoIterator<Item = (usize, Option<&'a Arc<Name<K>>>)>,
        mut found: impl FnMut(usize, Ticket),
    ) where
        K: Eq + 'a,
    {
        let mut names = names.into_iter().peekable();
        while names.peek().is_some() {
            let mut state = None;
            for (at, name) in names.by_ref().take(CHUNK) {
                let Some(name) = name else { continue };
                let state = state.get_or_insert_with(|| self.state.lock());
                if let Some(ticket) = state.pending.find(name.hash, |key| *key == *name.key) {
                    found(at, ticket);
                }
            }
        }
    }

    /// Returns the ticket of the pending entry of this key, if there is one. Calls `Eq` of the keys.
    pub(crate) fn ticket(&self, name: &Name<K>) -> Option<Ticket>
    where
        K: Eq,
    {
        self.state.lock().pending.find(name.hash, |key| *key == *name.key)
    }

    /// Returns, as a [`Settled`], whether the subscriber has received every change up to `revision`. Returns `None` if no change is pending and the
    /// buffer is already at a later revision. If some changes up to `revision` are not merged yet, the subscriber is woken when they are.
    pub(crate) fn settled(self: &Arc<Self>, revision: u64) -> Option<Settled<()>> {
        let mut state = self.state.lock();
        let mut progress = self.selection.as_ref().map(|(_, progress)| progress.state.lock());
        let later = progress.as_ref().filter(|progress| progress.sequence > state.sequence);
        match later.map_or(state.revision, |progress| progress.revision).cmp(&revision) {
            _ if !state.pending.is_empty() || state.lost.is_some() => Some(Settled::Pending),
            Ordering::Equal => Some(Settled::Yes(())),
            Ordering::Less => {
                if let (false, Some(progress)) = (state.awaits_merge, &mut progress) {
                    progress.awaiting.push(Arc::downgrade(self));
                }
                state.awaits_merge = true;
                Some(Settled::Behind)
            }
            Ordering::Greater => None,
        }
    }

    /// Merges changes into the entries that [`find`](Self::find) found, and moves the subscriber's waker to `wakers`. Runs no user code. The caller
    /// must keep the changes alive until it has released every lock, and then wake `wakers` and drop `dropped`.
    ///
    /// The changes of one write may be merged by several calls; `last` is true for the last of them. Returns whether the subscriber still exists.
    pub(crate) fn merge(
        &self,
        changes: impl IntoIterator<Item = (Change<K, V>, Option<Ticket>)>,
        Merging { sequence, revision, first_list }: Merging,
        last: bool,
        wakers: &mut Wakers,
        dropped: &mut Vec<Dropped<K, V>>,
    ) -> bool {
        let mut changes = changes.into_iter().peekable();
        // The lock is released between two chunks, so that the subscriber can take changes while a big relist is merged. No other write runs between
        // two chunks.
        let mut state = loop {
            let mut state = self.state.lock();
            if state.detached {
                return false;
            }
            // Invariant 5: changes up to `state.revision` are skipped. Between two chunks, the subscriber may restart, or the subscription may end
            // because its index is removed.
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
                // These changes are kept until the subscriber drops them, so that the drops do not delay the writer.
                let lost = state.pending.take_all();
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
            (state.sequence, state.revision) = (sequence, revision);
        }
        if std::mem::take(&mut state.awaits_merge) {
            wakers.extend(state.waker.take());
        }
        // If the index of the subscription was removed, the subscription has ended and receives no change of the list.
        if first_list && !state.ended {
            // Set only after the last chunk, because the subscriber may have received every pending change while a part of the list is not merged
            // yet.
            state.until = Some(state.pending.next());
            // Wakes the subscriber's task even if no change is pending, because the task may wait for the end of the initial state instead of the
            // next change.
            wakers.extend(state.waker.take());
        }
        if state.idle && state.take_initial_complete() {
            self.initial_processed.end(Ok(()), wakers);
        }
        true
    }

    /// Removes and returns the oldest pending change. The caller must have processed every earlier change that it received.
    pub(crate) fn pop(&self) -> Popped<K, V> {
        let mut state = self.state.lock();
        let initial_processed = state.record_request();
        let popped = match state.pending.pop() {
            Some((ticket, change)) => Popped::Change(ticket, change),
            None if state.lost.is_some() => Popped::Overflowed,
            None if state.ended => Popped::Ended,
            None => Popped::Empty,
        };
        drop(state);
        if initial_processed {
            self.initial_processed.set();
        }
        popped
    }

    /// Like [`pop`](Self::pop), but if no change is pending, stores `waker`, which is woken once a change is pending. Also returns a waker that the
    /// caller must drop: the previously stored waker, or `waker` itself if it was not stored.
    pub(crate) fn pop_or_wait(&self, waker: Waker) -> (Popped<K, V>, Option<Waker>) {
        let mut state = self.state.lock();
        let initial_processed = state.record_request();
        // The check and the storing of the waker are one critical section. Otherwise, a change that is merged between them would wake no task.
        let popped = match state.pending.pop() {
            Some((ticket, change)) => (Popped::Change(ticket, change), Some(waker)),
            None if state.lost.is_some() => (Popped::Overflowed, Some(waker)),
            None if state.ended => (Popped::Ended, Some(waker)),
            None => (Popped::Empty, state.waker.replace(waker)),
        };
        drop(state);
        if initial_processed {
            self.initial_processed.set();
        }
        popped
    }

    /// Removes and returns the pending change of one key, if there is one.
    pub(crate) fn take(&self, hash: u64, eq: impl Fn(&K) -> bool) -> Option<Merged<K, V>> {
        let mut state = self.state.lock();
        let ticket = state.pending.find(hash, eq)?;
        state.pending.take(ticket, hash)
    }

    /// Returns whether a change is pending for a key.
    pub(crate) fn contains(&self, hash: u64, eq: impl Fn(&K) -> bool) -> bool {
        self.state.lock().pending.find(hash, eq).is_some()
    }

    /// Returns whether every change of the initial state has been taken and delivered. `undelivered` is the ticket of a change that the subscription
    /// has taken from the buffer but not yet delivered, if there is one. O(1).
    pub(crate) fn is_initial_delivered(&self, undelivered: Option<Ticket>) -> bool {
        let state = self.state.lock();
        let oldest = undelivered.unwrap_or_else(|| state.pending.oldest());
        !state.detached && state.lost.is_none() && state.until.is_some_and(|until| oldest >= until)
    }

    /// Returns how many keys are pending.
    pub(crate) fn pending(&self) -> usize {
        let state = self.state.lock();
        state.pending.len() + state.lost.as_ref().map_or(0, Pending::len)
    }

    /// Ends the subscription: no more changes are merged.
    pub(crate) fn end(&self, wakers: &mut Wakers) {
        let mut state = self.state.lock();
        state.ended = true;
        wakers.extend(state.waker.take());
        if state.until.is_none() && std::mem::take(&mut state.signal_pending) {
            self.initial_processed.end(Err(Stopped), wakers);
        }
    }

    /// Marks the buffer as detached; called when the subscriber is dropped, or cannot restart because the store was dropped. Drops the pending changes after releasing the lock.
    pub(crate) fn detach(&self) {
        let mut state = self.state.lock();
        state.detached = true;
        let pending = std::mem::replace(&mut state.pending, Pending::new());
        let (lost, waker) = (state.lost.take(), state.waker.take().map(DropContained::new));
        let mut wakers = Wakers::default();
        if std::mem::take(&mut state.signal_pending) {
            self.initial_processed.end(Err(Stopped), &mut wakers);
        }
        drop(state);
        // Wakes the waiting tasks first, because dropping the changes may panic.
        wakers.wake();
        drop((pending, lost, waker));
    }

    /// Returns whether the buffer was detached.
    pub(crate) fn is_detached(&self) -> bool {
        self.state.lock().detached
    }

    pub(crate) fn check(&self) -> Result<(), String>
    where
        K: Eq,
    {
        let state = self.state.lock();
        if state.detached && !state.pending.is_empty() {
            return Err("subscription buffer: a change is pending for a dropped subscriber".into());
        }
        if state.pending.len() > self.most || state.lost.is_some() && !state.pending.is_empty() {
            return Err("subscription buffer invariant 4: too many keys are pending".into());
        }
        state.pending.check().map_err(|problem| format!("pending: {problem}"))
    }
}

/// The maximum number of keys that are looked up, or changes that are merged, before the lock is released and taken again.
const CHUNK: usize = 64;
