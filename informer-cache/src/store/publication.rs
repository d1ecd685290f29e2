//! SHELL. A write of many keys: it builds a new table outside the store, swaps the new table in, and then delivers the changes. It works in pieces,
//! and other tasks may run between two pieces.
//!
//! This module guards no data. Step numbers refer to the five steps of a write, which [`StoreInner`](crate::store::inner::StoreInner) lists. The
//! stages:
//!
//! | stage | a piece | runs | locks |
//! |---|---|---|---|
//! | `Comparing` | some stored or listed objects, of a list | none | none |
//! | `Building` | some keys, into a separate table | the user's code | none |
//! | `Finding` | some keys for one subscription | the user's code | that subscription's |
//! | `Committing` | one piece: a swap | none | `published` |
//! | `Merging` | first, dropping some writes; then, some changes for one subscription | drops, whose panics are caught | that subscription's |
//! | `Reporting` | some changes | wakers, observers | none |
//!
//! A panic before the commit leaves the store unchanged. After the commit, no stage panics. If the [`Publication`] is dropped before it is complete,
//! its destructor runs the remaining stages, so a published write is always delivered. No other write runs during a publication. Subscriptions and
//! indexes may be added and removed during a publication. If the list of subscriptions has changed at the commit, the publication goes back to
//! `Finding` for the new subscriptions that have a selection. If the indexes have changed, it goes back to `Building`. So every piece is short,
//! whatever other threads do. (If subscriptions were added again meanwhile, one piece is as long as it took to subscribe those.)

use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use flyball_sync::panics::{caught, drop_each};

use super::effects::Effects;
use super::relist::RelistDraft;
use super::write::VersionAdvance;
use crate::changes::buffer::{Merging, SubscriptionBuffer};
use crate::changes::findings::Findings;
use crate::changes::observer_fn;
use crate::changes::pending::Dropped;
use crate::changes::subscribers::SubscriptionBuffers;
use crate::table::index_set::IndexSet;
use crate::table::persist::{Chunked, Hashes, Paged};
use crate::table::record::{AnyValue, Values};
use crate::table::relist::RelistDiff;
use crate::table::{KeyWrite, Plan, Table};
use crate::{Change, ChangeKind, IndexError, Store, Version, WaitForError};

mod finding;

/// The stage of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Comparing,
    Building,
    Finding,
    /// The next step is the commit, which runs under the writer's `turn`.
    Committing,
    Merging,
    Reporting,
    Done,
}

/// A value of the user that a completed publication no longer needs, and which may be the last reference.
enum Unneeded<K, V> {
    IndexValue { _dropped: Arc<AnyValue> },
    IndexError { _dropped: Arc<IndexError> },
    States { _dropped: Dropped<K, V> },
}

/// A write of many keys in progress.
pub(crate) struct Publication<K, V> {
    store: Store<K, V>,
    stage: Stage,
    /// The table that the write starts from, and the table that is built so far.
    base: Arc<Table<K, V>>,
    next: Option<Table<K, V>>,
    /// The index set for which the index values of the writes were computed; `None` if it is the index set of `base`.
    renews: Option<Arc<IndexSet<V>>>,
    /// The changes of an abandoned attempt. They and the tables of this attempt, which are in `old_tables`, are freed in pieces, before the next piece
    /// of the publication.
    abandoned: Vec<Change<K, V>>,
    plan: Plan,
    arrival: VersionAdvance,
    first_list: bool,
    /// The list, while its writes are being created.
    list: Option<RelistDiff<K, V>>,
    /// The index of the listed keys that were not stored, which is no longer needed.
    listed_keys: Hashes,
    writes: Vec<KeyWrite<K, V>>,
    /// For each row of `next` whose object a write has stored, and for each row of `base` whose object a write has deleted: the position of this write,
    /// plus one. A subscription that is added during the publication finds with these the writes that concern it, however many others there are.
    stored_by: Paged,
    deleted_by: Paged,
    changes: Vec<Change<K, V>>,
    buffers: SubscriptionBuffers<K, V>,
    findings: Findings<K, V>,
    /// How often the stage `Finding` was completed: first for all subscriptions, and then only for those that had been added meanwhile.
    searches: u32,
    /// Subscriptions with a selection that have been added during this publication, and whose effects must still be found.
    late: Vec<Arc<SubscriptionBuffer<K, V>>>,
    merging: Option<Merging>,
    /// The position within a stage: the index of the subscription (`buffer`), and that of the write or change (`at`). In `Finding`, subscription 0
    /// stands for all with a selection, and those to all objects follow. In `Merging`, those to all objects come first; then, those with a selection
    /// that the write concerns; and after a first list, all with a selection.
    buffer: usize,
    at: usize,
    effects: Effects<K, V>,
    before: Option<Arc<Table<K, V>>>,
    /// Former tables that nothing else holds, while they are freed.
    old_tables: Vec<Table<K, V>>,
    unneeded: Chunked<Unneeded<K, V>>,
}

impl<K, V> Publication<K, V> {
    /// Creates a publication of writes to `base`, the store's current table.
    pub(super) fn new(
        store: Store<K, V>,
        base: Arc<Table<K, V>>,
        arrival: VersionAdvance,
        writes: Vec<KeyWrite<K, V>>,
    ) -> Self {
        let published = store.inner.published.read();
        let first_list = arrival.is_list() && !published.listed;
        let buffers = published.buffers.clone();
        drop(published);
        Self {
            next: Some(Table::clone(&base)),
            renews: None,
            abandoned: Vec::new(),
            changes: Vec::with_capacity(writes.len()),
            store,
            stage: Stage::Building,
            base,
            plan: Plan::default(),
            arrival,
            first_list,
            list: None,
            listed_keys: Hashes::new(),
            writes,
            stored_by: Paged::new(),
            deleted_by: Paged::new(),
            buffers,
            findings: Findings::default(),
            searches: 0,
            late: Vec::new(),
            merging: None,
            buffer: 0,
            at: 0,
            effects: Effects::default(),
            before: None,
            old_tables: Vec::new(),
            unneeded: Chunked::new(),
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// Wakes the subscribers that have a pending change.
    pub(crate) fn wake(&mut self) {
        std::mem::take(&mut self.effects.wakers).wake();
    }

    /// Returns the changes of a completed publication, deletions first. Drops everything else, and these drops may panic.
    pub(crate) fn into_changes(mut self) -> Vec<Change<K, V>> {
        let changes = std::mem::take(&mut self.changes);
        drop(self);
        changes
    }

    /// Frees the former tables and the changes of a completed publication, up to `most` objects or nodes. Returns whether nothing is left. A panic of
    /// a destructor propagates; then the next call continues.
    pub(crate) fn release(&mut self, most: usize) -> bool {
        // The tables are freed first, while the changes still hold the objects. So the objects themselves are dropped later, in pieces, with the
        // changes.
        if let Some(before) = self.before.take() {
            let base = std::mem::replace(&mut self.base, self.store.inner.table());
            // If a snapshot holds a table, this only drops a reference.
            self.old_tables.extend([before, base].into_iter().filter_map(Arc::into_inner));
        }
        while let Some(table) = self.old_tables.last_mut() {
            if !table.free(most) {
                return false;
            }
            self.old_tables.pop();
        }
        let unneeded = &mut self.unneeded;
        drop_last(&mut self.changes, most) && self.listed_keys.free(most) > 0 && {
            drop_each((0..most).map_while(|_| unneeded.pop()));
            unneeded.is_empty()
        }
    }

    /// Frees an abandoned attempt, up to `most` objects or nodes. Returns whether nothing is left. Panics of destructors are ignored, because the
    /// publication goes on.
    fn free_abandoned(&mut self, most: usize) -> bool {
        while let Some(table) = self.old_tables.last_mut() {
            if caught(|| table.free(most)) != Some(true) {
                return false;
            }
            self.old_tables.pop();
        }
        caught(|| drop_last(&mut self.abandoned, most));
        self.abandoned.is_empty()
    }

    /// Moves what a piece has left behind to a list that grows in small steps.
    fn collect_unneeded(&mut self) {
        let Effects { garbage, dropped, .. } = &mut self.effects;
        let unneeded = &mut self.unneeded;
        garbage.values.drain(..).for_each(|it| unneeded.push(Unneeded::IndexValue { _dropped: it }));
        garbage.errors.drain(..).for_each(|it| unneeded.push(Unneeded::IndexError { _dropped: it }));
        dropped.drain(..).for_each(|it| unneeded.push(Unneeded::States { _dropped: it }));
    }

    fn enter(&mut self, stage: Stage) {
        (self.stage, self.buffer, self.at) = (stage, 0, 0);
    }

    /// Returns the next range of at most `most` items, out of `all` items, and moves the position to the end of the range.
    fn part(&mut self, all: usize, most: usize) -> Range<usize> {
        let from = self.at;
        self.at = from.saturating_add(most).min(all);
        from..self.at
    }

    /// Performs a piece of the delivery after the commit. Returns the number of changes in the piece. Never panics.
    fn deliver(&mut self, most: usize) -> usize {
        let Some(merging) = self.merging else { return 0 };
        if self.stage == Stage::Reporting {
            // Tasks are woken first, so that a slow observer does not delay them: readers can see the changes already.
            self.wake();
            // Each call of an observer counts.
            let calls =
                self.effects.observer_fns.as_ref().map_or(1, |observer_fns| observer_fns.len().max(1));
            let part = self.part(self.changes.len(), most.div_ceil(calls));
            let (done, is_last) = (part.len().saturating_mul(calls), part.end == self.changes.len());
            if let Some(observer_fns) = &self.effects.observer_fns {
                observer_fn::report(observer_fns, &self.changes[part]);
            }
            if is_last {
                if self.first_list {
                    self.store.inner.synced.end(Ok(()), &mut self.effects.wakers);
                }
                self.effects.finish(&self.store.inner);
                self.enter(Stage::Done);
            }
            return done;
        }
        if !self.writes.is_empty() {
            // The table and the changes hold the objects, so no object is dropped here. But the writes may hold the last references to index values.
            let from = self.writes.len().saturating_sub(most);
            let done = self.writes.len() - from;
            caught(|| self.writes.truncate(from));
            return done;
        }
        let (all, selecting) = (self.buffers.all.len(), self.findings.selecting());
        if self.buffer < all {
            let part = self.part(self.changes.len(), most);
            // A buffer counts as a step even if there is nothing to merge, because there may be many.
            let (done, is_last) = (part.len().max(1), part.end == self.changes.len());
            let (buffer, effects) = ((self.buffer, &*self.buffers.all[self.buffer]), &mut self.effects);
            let unseen = (&mut effects.wakers, &mut effects.dropped);
            let is_there = self.findings.merge(buffer, &self.changes, part, (merging, is_last), unseen);
            effects.detached |= !is_there;
            if is_last || !is_there {
                (self.buffer, self.at) = (self.buffer + 1, 0);
            }
            return done;
        }
        let place = self.buffer - all;
        if place < selecting {
            let len = self.findings.count(place);
            let part = self.part(len, most);
            let (done, is_last) = (part.len(), part.end == len);
            let effects = &mut self.effects;
            let unseen = (&mut effects.wakers, &mut effects.dropped);
            // After a first list, the last part follows below.
            let last = is_last && !merging.first_list;
            self.findings.merge_selecting(place, &self.changes, part, (merging, last), unseen);
            if is_last {
                (self.buffer, self.at) = (self.buffer + 1, 0);
            }
            return done;
        }
        if merging.first_list {
            let buffers = self.buffers.clone();
            let mut rest = buffers.selecting(self.at as u32);
            let (mut done, effects) = (0, &mut self.effects);
            for (_, buffer) in rest.by_ref().take(most) {
                buffer.merge([], merging, true, &mut effects.wakers, &mut effects.dropped);
                done += 1;
            }
            if let Some((next, _)) = rest.next() {
                self.at = next as usize;
                return done;
            }
        }
        if self.buffers.has_selecting() {
            let awaited = self.store.inner.progress.merged(merging, &mut self.effects.wakers);
            self.effects.awaited.extend(awaited);
        }
        self.enter(Stage::Reporting);
        0
    }
}

impl<K: Eq + Hash, V: 'static> Publication<K, V> {
    /// Creates a publication that replaces the store's content by a complete list. O(1).
    pub(crate) fn of_list(store: &Store<K, V>, draft: RelistDraft<K, V>, version: Version) -> Self {
        let writes = Vec::with_capacity(draft.most_writes());
        let base = draft.list.base.clone();
        let mut publication = Self::new(store.clone(), base, VersionAdvance::List(version), writes);
        (publication.stage, publication.list) = (Stage::Comparing, Some(draft.list));
        publication.listed_keys = draft.new;
        publication
    }

    /// Performs one piece of the current stage, with at most `most` keys, and returns the number of keys in the piece. Does not perform the commit:
    /// at the stage `Committing`, it returns 0.
    pub(crate) fn advance(&mut self, most: usize) -> usize {
        let is_abandoned =
            self.before.is_none() && !(self.old_tables.is_empty() && self.abandoned.is_empty());
        if is_abandoned && !self.free_abandoned(most) {
            return most;
        }
        let done = self.advance_stage(most);
        self.collect_unneeded();
        done
    }

    fn advance_stage(&mut self, most: usize) -> usize {
        match self.stage {
            Stage::Comparing => {
                let done = self.list.as_mut().map_or(0, |list| list.advance(&mut self.writes, most));
                if self.list.as_ref().is_none_or(RelistDiff::is_done) {
                    self.list = None;
                    self.changes.reserve_exact(self.writes.len());
                    self.enter(Stage::Building);
                }
                done
            }
            Stage::Building => {
                let part = self.part(self.writes.len(), most);
                let Some(next) = &mut self.next else { return 0 };
                let done = part.len();
                for write in &mut self.writes[part] {
                    if self.first_list && write.kind == ChangeKind::Added {
                        write.kind = ChangeKind::Initial;
                    }
                    if let Some(before) = self.renews.as_ref().filter(|_| !write.kind.is_deletion()) {
                        let (mut values, seed) =
                            (std::mem::take(&mut write.values), &self.store.inner.reader.seed);
                        let before = (&**before, &mut values);
                        write.values = next.renew(before, write.row, &write.record.object, seed);
                        // What is left are the values of removed indexes.
                        caught(|| drop(values));
                    }
                    debug_assert!(
                        write.values.iter().all(Values::is_lasting),
                        "earlier keys may have changed the columns"
                    );
                    next.plan(write, &mut self.plan, &mut self.effects.garbage);
                    let put = (write.kind, write.row, write.record.clone());
                    let (row, old, _) = next.commit(put, &mut self.plan, &mut self.effects.garbage);
                    let is_deletion = write.kind.is_deletion();
                    let written_by = if is_deletion { &mut self.deleted_by } else { &mut self.stored_by };
                    written_by.set(row, self.changes.len() as u32 + 1);
                    let (name, object) = (write.record.name.clone(), write.record.object.clone());
                    self.changes.push(Change::of(name, write.kind, old, object));
                }
                if self.at == self.writes.len() {
                    self.renews = None;
                    self.enter(Stage::Finding);
                }
                done
            }
            Stage::Finding => self.find(most),
            Stage::Committing | Stage::Done => 0,
            Stage::Merging | Stage::Reporting => self.deliver(most),
        }
    }

    /// Performs step 3, the commit, while the caller holds the writer's `turn`. Readers wait only for a pointer swap. If subscriptions or indexes
    /// have changed, returns to an earlier stage instead.
    pub(crate) fn commit(&mut self) {
        let store = self.store.clone();
        let inner = &*store.inner;
        let mut published = inner.published.write();
        let now = &published.table;
        if !Arc::ptr_eq(&now.index_set, &self.base.index_set) {
            let table = now.clone();
            drop(published);
            return self.restart(table);
        }
        if !Arc::ptr_eq(&published.buffers, &self.buffers) {
            let buffers = published.buffers.clone();
            drop(published);
            self.find_late(&buffers);
            self.effects.buffers.push(std::mem::replace(&mut self.buffers, buffers));
            return self.enter(Stage::Finding);
        }
        debug_assert_eq!(self.base.revision, now.revision, "there is one writer");
        let Some(mut next) = self.next.take() else { return };
        let (effects, now) = (&mut self.effects, now.version);
        let version = self.arrival.version(now);
        next.version = version;
        let own = usize::from(Arc::ptr_eq(&published.table, &self.base));
        if Arc::strong_count(&published.table) > 1 + own {
            inner.held.superseded(&published.table);
        }
        self.before = Some(std::mem::replace(&mut published.table, Arc::new(next)));
        self.merging = Some(published.next_write(self.first_list));
        published.listed |= self.arrival.is_list();
        published.waiters.reached(version, &mut effects.wakers);
        if version < now {
            published.waiters.end_all(WaitForError::Rewound(version), &mut effects.wakers);
        }
        if !published.observer_fns.is_empty() {
            effects.observer_fns = Some(published.observer_fns.clone());
        }
        drop(published);
        self.enter(Stage::Merging);
    }

    /// Restarts from `table`, because indexes were added or removed. The functions of new indexes run when the writes are applied again.
    fn restart(&mut self, table: Arc<Table<K, V>>) {
        self.renews = Some(self.base.index_set.clone());
        self.old_tables.extend(self.next.replace(Table::clone(&table)));
        // If a snapshot holds the table, this only drops a reference.
        self.old_tables.extend(Arc::into_inner(std::mem::replace(&mut self.base, table)));
        // `abandoned` is empty: an earlier attempt was freed before this one was complete.
        let changes = Vec::with_capacity(self.writes.len());
        self.abandoned = std::mem::replace(&mut self.changes, changes);
        (self.stored_by, self.deleted_by) = (Paged::new(), Paged::new());
        self.findings = Findings::default();
        (self.searches, self.late) = (0, Vec::new());
        self.enter(Stage::Building);
    }

    /// Runs all stages before `stage` in one go, while the caller holds the writer's `turn`.
    pub(crate) fn run_to(&mut self, stage: Stage) {
        while self.stage < stage {
            match self.stage {
                Stage::Committing => self.commit(),
                _ => {
                    self.advance(usize::MAX);
                }
            }
        }
    }
}

/// Drops up to `most` elements from the end of a list. Returns whether the list is empty.
fn drop_last<T>(list: &mut Vec<T>, most: usize) -> bool {
    list.truncate(list.len().saturating_sub(most));
    list.is_empty()
}

/// Completes the delivery of a published write when the publication is dropped early, for example together with the future of the writer.
impl<K, V> Drop for Publication<K, V> {
    fn drop(&mut self) {
        while matches!(self.stage, Stage::Merging | Stage::Reporting) {
            self.deliver(usize::MAX);
        }
    }
}
