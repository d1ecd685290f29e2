//! SHELL. The path of every write to the published state; its steps are numbered in [`StoreInner`](crate::store::inner::StoreInner).
//!
//! [`WriterCore`] is the store's only writer, so the table does not change between its lookups and its commit. The functions of the schema and of indexes,
//! and the equality and order of keys and index values, run on that table under no lock.

use std::borrow::Borrow;
use std::hash::Hash;
use std::slice;
use std::sync::Arc;

use flyball_sync::locks::RwLockWriteGuard;

use crate::changes::buffer::{Merging, SubscriptionBuffer, SubscriptionBuffers};
use crate::changes::findings::Findings;
use crate::store::effects::{Effects, fan_out};
use crate::store::inner::StoreInner;
use crate::store::object_reader::{ObjectReader, ParsedObject};
use crate::store::published::Published;
use crate::table::record::Record;
use crate::table::relist::ListedState;
use crate::table::{KeyWrite, Plan, Table};
use crate::{Change, ChangeKind, Schema, Stopped, Store, Version, WaitForError, WriteOutcome};

/// The writing end of a store. Its methods collect the work that must run without locks in [`Effects`], for the caller to finish.
pub(crate) struct WriterCore<K, V> {
    pub(crate) store: Store<K, V>,
    /// A cached reference to the published table, which only this writer changes. Released before a change, so that the table can be changed in place.
    table: Option<Arc<Table<K, V>>>,
    /// Kept to reuse its allocations.
    plan: Plan,
}

/// How a write of many keys changes the version of the store.
#[derive(Clone, Copy)]
pub(crate) enum VersionAdvance {
    /// A list: sets the store's version, even to an older one.
    List(Version),
    /// Single changes: raises the store's version to at least this one.
    Changes(Version),
}

impl<K, V> WriterCore<K, V> {
    pub(crate) fn new(store: Store<K, V>) -> Self {
        Self { store, table: None, plan: Plan::default() }
    }

    pub(crate) fn inner(&self) -> &StoreInner<K, V> {
        &self.store.inner
    }

    fn reader(&self) -> ObjectReader<K, V> {
        self.inner().reader
    }

    /// Returns the published table. Takes the cached reference.
    pub(crate) fn table(&mut self) -> Arc<Table<K, V>> {
        self.table.take().unwrap_or_else(|| self.inner().table())
    }

    /// Releases the cached reference, because another table is about to be published.
    pub(super) fn release_table(&mut self) {
        self.table = None;
    }

    /// Raises the store's version to this one; changes no object.
    pub(crate) fn bookmark(&mut self, version: Version, effects: &mut Effects<K, V>) {
        let Self { store, table, .. } = self;
        let inner = &*store.inner;
        // Most stale events do not raise the version.
        if version <= inner.published.with_table(|table| table.version) {
            return;
        }
        *table = None;
        let (buffers, merging) = {
            let mut published = inner.published.write();
            inner.note_superseded(&mut published);
            let version = published.change(version, &mut effects.wakers, |_| {});
            let merging = Merging { version, revision: published.table.revision, first_list: false };
            (published.buffers.clone(), merging)
        };
        fan_out(&buffers, &[], &Findings::default(), merging, effects);
        effects.buffers.push(buffers);
    }

    /// Ends the buffers, the observers and the waits.
    pub(crate) fn close(&mut self, effects: &mut Effects<K, V>) {
        let inner = self.inner();
        let (buffers, observer_fns, listed) = {
            let mut published = inner.published.write();
            published.closed = true;
            published.waiters.end_all(WaitForError::Closed, &mut effects.wakers);
            let buffers = std::mem::replace(&mut published.buffers, Arc::new([]));
            (buffers, std::mem::replace(&mut published.observer_fns, Arc::new([])), published.listed)
        };
        for buffer in &*buffers {
            buffer.end(&mut effects.wakers);
        }
        // A published first list counts even if it has not been reported to the observers yet.
        inner.synced.end(if listed { Ok(()) } else { Err(Stopped) }, &mut effects.wakers);
        // Moved here to be dropped after unlocking; there is no change to report to these observers.
        effects.observer_fns = Some(observer_fns);
        effects.buffers.push(buffers);
    }
}

impl<K: Clone + Eq + Hash, V: 'static> WriterCore<K, V> {
    pub(crate) fn upsert(
        &mut self,
        arrived: ParsedObject<K, V>,
        effects: &mut Effects<K, V>,
    ) -> WriteOutcome {
        let ObjectReader { schema, seed, .. } = self.reader();
        let table = self.table();
        let row = table.find(arrived.hash, |key| *key == arrived.key);
        row.inspect(|row| table.prefetch(*row));
        let old = row.and_then(|row| table.rows.get(row));
        let (new, key) = arrived.after(old);
        effects.key = key;
        let version = new.version;
        let (kind, outcome) = match old {
            None => (ChangeKind::Added, WriteOutcome::Added),
            Some(old) => match compare_event(&schema, old, &new) {
                ListedState::Unchanged => {
                    effects.stale = Some(new);
                    let stored = old.version;
                    drop(table);
                    // The source has reached this version nevertheless, and a task may wait for the version.
                    self.bookmark(version, effects);
                    return WriteOutcome::Stale { stored };
                }
                ListedState::Updated => (ChangeKind::Updated, WriteOutcome::Updated),
                ListedState::Replaced => (ChangeKind::Replaced, WriteOutcome::Replaced),
            },
        };
        let values = table.values(row, &new.object, &seed);
        self.commit(table, KeyWrite { kind, row, record: new, values }, version, effects);
        outcome
    }

    pub(crate) fn delete<Q>(
        &mut self,
        (hash, key): (u64, &Q),
        last: Option<&Arc<V>>,
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
        if !version.is_zero() && version < stored {
            drop(table);
            self.bookmark(version, effects);
            return WriteOutcome::Stale { stored };
        }
        let write = deletion(&self.reader().schema, row, old, last);
        self.commit(table, write, version, effects);
        WriteOutcome::Deleted
    }

    /// Performs steps 2 to 4 for one key, in place.
    fn commit(
        &mut self,
        table: Arc<Table<K, V>>,
        write: KeyWrite<K, V>,
        version: Version,
        effects: &mut Effects<K, V>,
    ) {
        let Self { store, plan, table: at_hand } = self;
        let inner = &*store.inner;
        table.plan(&write, plan);
        let (mut published, found) = find_and_lock(inner, &table, slice::from_ref(&write), effects);
        // The published state holds another reference, so this drops no table.
        drop(table);
        inner.note_superseded(&mut published);
        let mut old = None;
        let version = published.change(version, &mut effects.wakers, |table| {
            old = table.commit(&write, plan, &mut effects.garbage);
        });
        *at_hand = Some(published.table.clone());
        let merging = Merging { version, revision: published.table.revision, first_list: false };
        if !published.observer_fns.is_empty() {
            effects.observer_fns = Some(published.observer_fns.clone());
        }
        drop(published);
        if found.is_some() || effects.observer_fns.is_some() {
            let (name, object) = (write.record.name.clone(), write.record.object.clone());
            effects.change = Some(Change::of(name, write.kind, old, object));
        } else {
            effects.old = old;
        }
        if let Some((buffers, findings)) = found {
            let change = effects.change.clone();
            fan_out(&buffers, change.as_slice(), &findings, merging, effects);
            effects.buffers.push(buffers);
        }
        effects.write = Some(write);
    }
}

/// Subscriptions, and the pending entries that were found in them.
type Found<K, V> = Option<(SubscriptionBuffers<K, V>, Findings)>;

/// Performs step 2, and takes the lock of step 3. The findings cover exactly the subscriptions that exist under that lock. `None` if there is no
/// subscription.
fn find_and_lock<'a, K: Eq, V>(
    inner: &'a StoreInner<K, V>,
    table: &Table<K, V>,
    writes: &[KeyWrite<K, V>],
    effects: &mut Effects<K, V>,
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
        // A subscription was added or removed meanwhile.
        if let Some((buffers, _)) = found.take() {
            effects.buffers.push(buffers);
        }
        let mut findings = Findings::default();
        let is_plain = |buffer: &Arc<SubscriptionBuffer<K, V>>| buffer.selection().is_none();
        if !buffers.iter().all(is_plain) || writes.iter().any(|write| write.kind.is_addition()) {
            for (at, buffer) in buffers.iter().enumerate() {
                findings.find((at, buffer), writes, 0..writes.len(), table);
            }
        }
        found = Some((buffers, findings));
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

/// Compares an event's object with the stored one. An older state counts as `Unchanged`, so that it never overwrites a newer one.
pub(crate) fn compare_event<K, V>(
    schema: &Schema<K, V>,
    old: &Record<K, V>,
    new: &Record<K, V>,
) -> ListedState {
    let same = schema.same_identity(&old.object, &new.object);
    // Two objects may have the same version, if one write of the source deleted one and created the other.
    let stale = new.version < old.version || new.version == old.version && same;
    match (stale && !new.version.is_zero(), same) {
        (true, _) => ListedState::Unchanged,
        (false, true) => ListedState::Updated,
        (false, false) => ListedState::Replaced,
    }
}

/// Creates the deletion of the stored object in a row. The last known state is `last` if that is a state of the same object, otherwise the stored
/// state.
pub(super) fn deletion<K, V>(
    schema: &Schema<K, V>,
    row: u32,
    old: &Record<K, V>,
    last: Option<&Arc<V>>,
) -> KeyWrite<K, V> {
    let (kind, last) = match last {
        Some(last) if schema.same_identity(&old.object, last) => (ChangeKind::Deleted, last),
        _ => (ChangeKind::Missed, &old.object),
    };
    KeyWrite { kind, row: Some(row), record: old.next(old.version, last.clone()), values: Vec::new() }
}
