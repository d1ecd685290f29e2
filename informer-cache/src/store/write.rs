//! SHELL. The writes to the published state. Step numbers refer to the five steps of a write, which [`StoreInner`](crate::store::inner::StoreInner)
//! lists.
//!
//! [`WriterCore`] is the store's only writer, so the table does not change between its lookups and its commit. So in step 1 it calls the functions of
//! the schema and of indexes, and compares keys and index values with those of the table, while no lock of the store is held.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;

use flyball_sync::locks::RwLockWriteGuard;

use crate::changes::findings::Findings;
use crate::changes::subscribers::{Subscribers, SubscriptionBuffers};
use crate::store::effects::{Effects, fan_out};
use crate::store::inner::StoreInner;
use crate::store::object_reader::{ObjectReader, ParsedObject};
use crate::store::published::Published;
use crate::table::record::{AllValues, Object, Record, object_of};
use crate::table::relist::ListedState;
use crate::table::{KeyWrite, Plan, Table};
use crate::{Change, ChangeKind, Schema, Stopped, Store, Version, WaitForError, WriteOutcome};

/// The only writer of a store. Its methods collect the work that must run without locks in [`Effects`], and the caller finishes that work.
pub(crate) struct WriterCore<K, V> {
    pub(crate) store: Store<K, V>,
    /// A cached reference to the published table, which only this writer changes. It is released before a change, so that the table can be changed in
    /// place.
    table: Option<Arc<Table<K, V>>>,
    /// The plan of the last write, kept to reuse its allocations.
    plan: Plan,
    /// An empty list, kept to reuse its allocation. Only a `Writer` keeps it: a `SharedWriter` drops the values after it has released its lock.
    values: AllValues,
}

/// How a write of many keys changes the version of the store.
#[derive(Clone, Copy)]
pub(crate) enum VersionAdvance {
    /// A list: sets the store's version to this version, even if that lowers it.
    List(Version),
    /// Single changes: raises the store's version to this version, unless the store's version is newer already.
    Changes(Version),
}

impl<K, V> WriterCore<K, V> {
    pub(crate) fn new(store: Store<K, V>) -> Self {
        Self { store, table: None, plan: Plan::default(), values: AllValues::new() }
    }

    pub(crate) fn inner(&self) -> &StoreInner<K, V> {
        &self.store.inner
    }

    fn reader(&self) -> ObjectReader<K, V> {
        self.inner().reader
    }

    /// Returns the published table; takes the cached reference if there is one.
    pub(crate) fn table(&mut self) -> Arc<Table<K, V>> {
        self.table.take().unwrap_or_else(|| self.inner().table())
    }

    /// Prefetches what an [`upsert`](Self::upsert) of a key with this hash reads first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(table) = &self.table {
            table.prefetch(hash);
        }
    }

    /// Drops index values while no lock is held, and keeps the memory of their list for the next write.
    #[inline]
    pub(super) fn drop_values(&mut self, mut values: AllValues) {
        values.clear();
        // A write without index values leaves the kept list alone.
        if values.capacity() > 0 {
            self.values = values;
        }
    }

    /// Releases the cached reference, because another table is about to be published.
    pub(super) fn release_table(&mut self) {
        self.table = None;
    }

    /// Raises the store's version to `version`, unless the store has this version or a newer one. Changes no object.
    pub(crate) fn bookmark(&mut self, version: Version, effects: &mut Effects<K, V>) {
        let Self { store, table, .. } = self;
        let inner = &*store.inner;
        // This check avoids the write lock for most stale events, because they do not raise the version.
        if version <= inner.published.with_table(|table| table.version) {
            return;
        }
        *table = None;
        let mut published = inner.published.write();
        inner.note_superseded(&mut published);
        published.change(version, &mut effects.wakers, |_| {});
    }

    /// Ends all subscriptions and waits, and removes all observers.
    pub(crate) fn close(&mut self, effects: &mut Effects<K, V>) {
        let inner = self.inner();
        let (buffers, observer_fns, listed) = {
            let mut published = inner.published.write_lists();
            published.closed = true;
            published.waiters.end_all(WaitForError::Closed, &mut effects.wakers);
            let buffers = std::mem::replace(&mut published.buffers, Arc::new(Subscribers::new()));
            (buffers, std::mem::replace(&mut published.observer_fns, Arc::new([])), published.listed)
        };
        for buffer in buffers.iter() {
            buffer.end(&mut effects.wakers);
        }
        // Once the first list is published, the store counts as synced, even if the list has not been reported to the observers yet.
        inner.synced.end(if listed { Ok(()) } else { Err(Stopped) }, &mut effects.wakers);
        // The observers are moved to `effects` only to be dropped without a lock; there is no change to report to them.
        effects.observer_fns = Some(observer_fns);
        effects.buffers.push(buffers);
    }
}

impl<K: Clone + Eq + Hash, V: 'static> WriterCore<K, V> {
    /// Stores the object in `arrived`. While user code runs, the user's values are in `arrived` or in `effects`: if the user code panics, they must not
    /// be dropped before the `turn` of a `SharedWriter` is released.
    pub(crate) fn upsert(
        &mut self,
        arrived: &mut Option<ParsedObject<K, V>>,
        effects: &mut Effects<K, V>,
    ) -> WriteOutcome {
        let ObjectReader { schema, seed, .. } = self.reader();
        let table = self.table();
        let found = arrived
            .as_ref()
            .and_then(|arrived| table.entry_to_write(arrived.hash, |key| *key == *arrived.key));
        let (row, old) = found.unzip();
        let arrived = arrived.take().expect("the caller passes an object");
        let (new, key) = arrived.after(old);
        effects.key = key;
        let new = KeyWrite { kind: ChangeKind::Added, row, record: new, values: Vec::new() };
        let write = effects.write.insert(new);
        let version = write.record.version;
        let outcome = match old {
            None => WriteOutcome::Added,
            Some(old) => match compare_event(&schema, old, &write.record) {
                ListedState::Unchanged => {
                    let stored = old.version;
                    drop(table);
                    // The write is stale, but the source has reached its version, and a task may be waiting for that version.
                    self.bookmark(version, effects);
                    return WriteOutcome::Stale { stored };
                }
                ListedState::Updated => {
                    write.kind = ChangeKind::Updated;
                    WriteOutcome::Updated
                }
                ListedState::Replaced => {
                    write.kind = ChangeKind::Replaced;
                    WriteOutcome::Replaced
                }
            },
        };
        write.values = table.values(row, &write.record.object, &seed, std::mem::take(&mut self.values));
        self.commit(table, version, effects);
        outcome
    }

    pub(crate) fn delete<Q>(
        &mut self,
        (hash, key): (u64, &Q),
        last: Option<&Object<V>>,
        version: Version,
        effects: &mut Effects<K, V>,
    ) -> WriteOutcome
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let table = self.table();
        let found = table.find(hash, |known| known.borrow() == key);
        let Some((row, old)) = found.and_then(|row| Some((row, table.rows.get(row)?))) else {
            drop(table);
            self.bookmark(version, effects);
            return WriteOutcome::Absent;
        };
        let stored = old.version;
        if is_stale_deletion(&self.reader().schema, old, last.map(object_of), version) {
            drop(table);
            self.bookmark(version, effects);
            return WriteOutcome::Stale { stored };
        }
        effects.write = Some(deletion(&self.reader().schema, row, old, last));
        self.commit(table, version, effects);
        WriteOutcome::Deleted
    }

    /// Deletes the object in this row, whose stored state is its last one.
    pub(super) fn delete_row(&mut self, row: u32, effects: &mut Effects<K, V>) {
        let table = self.table();
        if let Some(record) = table.rows.get(row).cloned() {
            let (kind, values) = (ChangeKind::Deleted, AllValues::new());
            effects.write = Some(KeyWrite { kind, row: Some(row), record, values });
            self.commit(table, Version::ZERO, effects);
        }
    }

    /// Commits `effects.write`: plans its changes of the indexes, and performs steps 2 to 4 for its key. Changes the table in place if no snapshot holds
    /// it.
    fn commit(&mut self, table: Arc<Table<K, V>>, version: Version, effects: &mut Effects<K, V>) {
        let Self { store, plan, table: at_hand, .. } = self;
        let inner = &*store.inner;
        let Effects { write, garbage, buffers, .. } = effects;
        write.iter_mut().for_each(|write| table.plan(write, plan, garbage));
        let writes = write.as_slice();
        let (mut published, found) = find_and_lock(inner, &table, writes, buffers);
        let KeyWrite { kind, row, record, values } = write.take().expect("the caller sets the write");
        // This drops only a reference, because the published state holds the table, too.
        drop(table);
        inner.note_superseded(&mut published);
        if !published.observer_fns.is_empty() {
            effects.observer_fns = Some(published.observer_fns.clone());
        }
        let is_reported = found.is_some() || effects.observer_fns.is_some();
        let reported = is_reported.then(|| (record.name.clone(), record.object.clone()));
        let (mut at, mut old) = (0, None);
        published.change(version, &mut effects.wakers, |table| {
            (at, old, effects.unused) = table.commit((kind, row, record), plan, &mut effects.garbage);
        });
        *at_hand = Some(published.table.clone());
        let merging = published.next_write(false);
        drop(published);
        plan.give_back();
        effects.row = Some(at);
        effects.values = values;
        match reported {
            Some((name, object)) => effects.change = Some(Change::of(name, kind, old, object)),
            None => effects.old = old,
        }
        if let Some((buffers, findings)) = found {
            let change = effects.change.clone();
            fan_out(inner, &buffers, change.as_slice(), &findings, merging, effects);
        }
    }
}

/// The buffers of the subscriptions, and what step 2 found in them.
type Found<K, V> = Option<(SubscriptionBuffers<K, V>, Findings<K, V>)>;

/// Performs step 2, and takes the lock of step 3. The findings are for exactly the subscriptions that exist when the lock is taken; they are `None`
/// if there is no subscription. Adds to `held` the lists of buffers that it has used, because these may hold the last reference to a buffer.
fn find_and_lock<'a, K: Eq, V>(
    inner: &'a StoreInner<K, V>,
    table: &Table<K, V>,
    writes: &[KeyWrite<K, V>],
    held: &mut Vec<SubscriptionBuffers<K, V>>,
) -> (RwLockWriteGuard<'a, Published<K, V>>, Found<K, V>) {
    let mut found: Found<K, V> = None;
    loop {
        let published = inner.published.write();
        match &found {
            Some((buffers, _)) if Arc::ptr_eq(buffers, &published.buffers) => return (published, found),
            None if published.buffers.is_empty() => return (published, None),
            _ => {}
        }
        let buffers = published.buffers.clone();
        drop(published);
        held.push(buffers.clone());
        found = Some(match found.take() {
            None => {
                let mut findings = Findings::default();
                if buffers.has_selecting() {
                    findings.find_selecting(&buffers, writes, 0, table, usize::MAX);
                }
                if writes.iter().any(|write| write.kind.is_addition()) {
                    for (at, buffer) in buffers.all.iter().enumerate() {
                        findings.find((at, buffer), writes, 0..writes.len());
                    }
                }
                (buffers, findings)
            }
            // A subscription was added or removed meanwhile. Only what is new is looked up, so that a program that adds subscriptions all the time does
            // not keep the write from being committed, however many there are. A new subscription to all objects has no pending change.
            Some((before, mut findings)) => {
                findings.rearrange(&before, &buffers);
                for late in buffers.selecting_since(&before) {
                    writes
                        .iter()
                        .enumerate()
                        .for_each(|write| findings.find_one(late, write, table, |_| true));
                }
                (buffers, findings)
            }
        });
    }
}

impl VersionAdvance {
    pub(super) fn is_list(self) -> bool {
        matches!(self, Self::List(_))
    }

    pub(super) fn version(self, now: Version) -> Version {
        match self {
            Self::List(version) => version,
            Self::Changes(version) => version.max(now),
        }
    }
}

/// Compares the object of an event with the stored object. If the event is older, the result is `Unchanged`, so that an older state never overwrites
/// a newer one.
pub(crate) fn compare_event<K, V>(
    schema: &Schema<K, V>,
    old: &Record<K, V>,
    new: &Record<K, V>,
) -> ListedState {
    let same = schema.same_identity(&old.object, &new.object);
    // Two different objects may have the same version, if the source deleted one and created the other in a single write.
    let stale = new.version < old.version || new.version == old.version && same;
    match (stale && !new.version.is_zero(), same) {
        (true, _) => ListedState::Unchanged,
        (false, true) => ListedState::Updated,
        (false, false) => ListedState::Replaced,
    }
}

/// Returns whether a deletion is stale: it is older than the stored object, or it is the deletion of another object and not newer. `last` is the last
/// state of the deleted object, if known.
///
/// A source may delete an object and create another one under its key in a single write. If the deletion is delivered late or again, it must not
/// delete the object that was created.
pub(crate) fn is_stale_deletion<K, V>(
    schema: &Schema<K, V>,
    old: &Record<K, V>,
    last: Option<&V>,
    version: Version,
) -> bool {
    if version.is_zero() || version > old.version {
        return false;
    }
    version < old.version || last.is_some_and(|last| !schema.same_identity(&old.object, last))
}

/// Creates a write that deletes the stored object in `row`. The last known state is `last` if this is a state of the stored object, otherwise the
/// stored state.
pub(super) fn deletion<K, V>(
    schema: &Schema<K, V>,
    row: u32,
    old: &Record<K, V>,
    last: Option<&Object<V>>,
) -> KeyWrite<K, V> {
    let (kind, last) = match last {
        Some(last) if schema.same_identity(&old.object, last) => (ChangeKind::Deleted, last),
        _ => (ChangeKind::Missed, &old.object),
    };
    KeyWrite { kind, row: Some(row), record: old.next(old.version, last.clone()), values: Vec::new() }
}
