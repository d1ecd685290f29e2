//! SHELL. The locks of a store, and the order in which a write takes them.
//!
//! | lock | guards | held |
//! |---|---|---|
//! | `published` | the table; the lists of buffers, observers and waits; `listed`, `closed` | for one lookup, one commit in place, or one swap |
//! | a reader slot's | a second reference to the table, for one thread ([`ReaderSlots`](crate::store::reader_slots::ReaderSlots)) | for one lookup |
//! | a buffer's | the pending changes of one subscriber | for one step, or a small chunk of a relist |
//!
//! Lock order: `published` before a reader slot, and `published` before a buffer when a subscription is restarted or the list of buffers changes.
//! (`synced`, the outcome of each wait, and the list of `held` tables have their own locks, which come last in the order.)
//!
//! There is only one writer. So the results of its lookups are still valid when it commits, and changes are fanned out in the order in which they
//! were published. A write has five steps, in this order:
//! 1. **Prepare**, no lock: run the user's functions (key, version, identity, index values), which may panic or read the store, and compare keys and
//!    index values with those of the current table. Nothing has changed yet.
//! 2. **Find**, one buffer's lock after the other: look up the pending entries of the keys that are written. This step runs user code, too: it
//!    compares keys.
//! 3. **Commit**, under `published`: no user code. (A write of many keys builds its table outside the lock, and holds `published` only for a swap.)
//! 4. **Fan out**, one buffer's lock after the other: no user code. This step comes after step 3, so that a change is in the store before a
//!    subscriber receives it.
//! 5. **Notify and clean up**, no lock: wake tasks, call the observers, drop the replaced objects.
//!
//! Subscribers may be added and dropped during a write. If the list of buffers has changed between steps 2 and 3, step 2 is repeated. If a
//! subscription is restarted after step 3, its snapshot contains this write, so step 4 must skip its buffer. For this, each buffer stores a revision
//! of the table: the subscriber has every change up to this revision.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::changes::buffer::{MergeProgress, Settled, SubscriptionBuffer};
use crate::changes::selection::Selection;
use crate::signal::synced::Synced;
use crate::store::object_reader::{ObjectReader, ParsedObject, Transform};
use crate::store::published::{Published, PublishedState};
use crate::store::retained::Retained;
use crate::store::snapshot::Snapshot;
use crate::table::Table;
use crate::table::record::Object;

/// State shared by the handles of a store.
pub(crate) struct StoreInner<K, V> {
    pub(crate) reader: ObjectReader<K, V>,
    pub(crate) transform: Option<Transform<V>>,
    pub(crate) published: PublishedState<K, V>,
    pub(crate) held: Retained<K, V>,
    pub(crate) synced: Synced,
    pub(crate) progress: Arc<MergeProgress<K, V>>,
}

impl<K, V> StoreInner<K, V> {
    pub(crate) fn new(
        reader: ObjectReader<K, V>,
        transform: Option<Transform<V>>,
        published: PublishedState<K, V>,
    ) -> Self {
        let (held, synced, progress) = (Retained::default(), Synced::default(), Arc::default());
        Self { reader, transform, published, held, synced, progress }
    }

    pub(crate) fn table(&self) -> Arc<Table<K, V>> {
        self.published.with_table(Arc::clone)
    }

    pub(crate) fn snapshot(&self) -> Snapshot<K, V> {
        Snapshot { table: self.table(), reader: self.reader }
    }

    /// Returns the published table if the subscriber has taken every change up to this table from the buffer.
    pub(crate) fn settled(&self, buffer: &Arc<SubscriptionBuffer<K, V>>) -> Settled<Arc<Table<K, V>>> {
        loop {
            let table = self.table();
            match buffer.settled(table.revision) {
                // Another thread has published a newer table, and its changes are merged already, so the loop tries again.
                None => {}
                Some(settled) => return settled.map(|()| table),
            }
        }
    }

    /// Called before the table is changed. If a snapshot holds the table, the writer changes a copy, and the old table is registered as retained.
    #[inline]
    pub(crate) fn note_superseded(&self, published: &mut Published<K, V>) {
        // The write lock excludes new snapshots, so the reference count does not rise. It may fall, because snapshots can be dropped; then the table
        // is registered needlessly.
        if Arc::strong_count(&published.table) > 1 {
            self.held.superseded(&published.table);
        }
    }

    /// Creates a snapshot, and a buffer that receives every later change of the selected objects, or of all objects. The buffer holds pending changes
    /// of at most `most` keys.
    pub(crate) fn subscribe(
        &self,
        selection: Option<Selection<K, V>>,
        most: usize,
    ) -> (Snapshot<K, V>, Arc<SubscriptionBuffer<K, V>>) {
        let selection = selection.map(|selection| (selection, self.progress.clone()));
        let mut published = self.published.write_lists();
        let snapshot = Snapshot { table: published.table.clone(), reader: self.reader };
        // `listed` and `closed` are read in the same critical section as the table. So the first list is either in the snapshot, or is delivered to
        // the buffer later.
        let (listed, closed) = (published.listed, published.closed);
        let ended =
            closed || selection.as_ref().is_some_and(|(of, _)| !of.is_valid(&snapshot.table.index_set));
        let start = (&*snapshot.table, published.sequence);
        let buffer = Arc::new(SubscriptionBuffer::new(start, listed, ended, selection, most));
        let former = (!closed).then(|| Arc::make_mut(&mut published.buffers).insert(&buffer));
        drop(published);
        // Dropped after the lock is released: a buffer holds its selection, and dropping a selection may run user code.
        drop(former);
        (snapshot, buffer)
    }

    /// Restarts a buffer whose capacity was exceeded. After the restart, the buffer receives every change after the returned table.
    pub(crate) fn restart_buffer(&self, buffer: &SubscriptionBuffer<K, V>) -> Arc<Table<K, V>> {
        // A read lock on `published` excludes commits, so no write commits between reading the table and restarting the buffer.
        let published = self.published.read();
        let table = published.table.clone();
        let ended = published.closed || buffer.selection().is_some_and(|of| !of.is_valid(&table.index_set));
        let lost = buffer.restart((&table, published.sequence), published.listed, ended);
        drop(published);
        drop(lost);
        table
    }

    /// Removes the buffers of dropped subscribers to all objects, and returns them. The caller drops them while it holds no lock.
    pub(crate) fn remove_detached(&self) -> Vec<Arc<SubscriptionBuffer<K, V>>> {
        Arc::make_mut(&mut self.published.write_lists().buffers).remove_detached()
    }

    /// Removes the buffer of a subscription with a selection, which is being dropped. No write may ever concern it, so it would not be
    /// found otherwise.
    pub(crate) fn unsubscribe(&self, buffer: &Arc<SubscriptionBuffer<K, V>>) {
        if buffer.selection().is_some() {
            let mut published = self.published.write_lists();
            let removed = Arc::make_mut(&mut published.buffers).remove(buffer);
            drop(published);
            drop(removed);
        }
    }
}

impl<K: Hash, V> StoreInner<K, V> {
    /// Reads the key and the version of an object, then transforms the object.
    #[inline]
    pub(crate) fn read(&self, object: Object<V>) -> ParsedObject<K, V> {
        let (hash, key) = self.reader.name(&object);
        self.reader.read_named(hash, key, object, self.transform.as_ref())
    }
}

impl<K: Clone + Eq + Hash, V: 'static> StoreInner<K, V> {
    pub(crate) fn check(&self) -> Result<(), String> {
        let published = self.published.read();
        let (table, buffers) = (published.table.clone(), published.buffers.clone());
        published.waiters.check(table.version)?;
        drop(published);
        buffers.check()?;
        table.check(|key| self.reader.seed.hash_one(key))?;
        buffers.iter().try_for_each(|buffer| buffer.check())
    }
}
