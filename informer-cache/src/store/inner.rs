//! SHELL. The locks of a store, and the order in which a write takes them.
//!
//! | lock | guards | held |
//! |---|---|---|
//! | `published` | the table, the lists of buffers and observers, the waits for versions, `listed`, `closed` | for one lookup, one commit in place, or one swap |
//! | a reader slot's | a second reference to the table, for one thread ([`ReaderSlots`](crate::store::reader_slots::ReaderSlots)) | for one lookup |
//! | a buffer's | the pending changes of its subscriber | for one step, or a small chunk of a relist |
//!
//! Lock order: `published` before a reader slot, and before a buffer if a subscriber restarts. (`synced`, the outcome of each wait and the list of
//! `held` tables have locks of their own, which come last.)
//!
//! There is one writer, so the results of its lookups are still valid when it commits, and changes are fanned out in the order in which they were
//! published. A write has five steps, in this order:
//! 1. **Prepare**, no lock: run the owner's functions (key, version, identity, index values), which may panic or read the store, and compare keys and
//!    index values with those of the current table. Nothing has changed yet.
//! 2. **Find**, one buffer's lock after the other: look up the pending entries of the keys. This step compares keys, too.
//! 3. **Commit**, under `published`: no user code. (A write of many keys builds its table outside the lock, and holds `published` only for a swap.)
//! 4. **Fan out**, one buffer's lock after the other: no user code. This comes after step 3, so that a subscriber that receives a change finds it
//!    in the store.
//! 5. **Notify and clean up**, no lock: call the observers, wake tasks, drop the replaced objects.
//!
//! Subscribers may be added and dropped during a write. If the list of buffers has changed between steps 2 and 3, step 2 is repeated. A subscriber
//! that restarts after step 3 has this write in its snapshot, so step 4 skips its buffer: each buffer stores the revision of the table up to which
//! its subscriber has every change.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::changes::buffer::{Settled, SubscriptionBuffer, SubscriptionBuffers};
use crate::changes::selection::Selection;
use crate::signal::synced::Synced;
use crate::store::object_reader::{ObjectReader, ParsedObject, Transform};
use crate::store::published::{Published, PublishedState};
use crate::store::retained::Retained;
use crate::store::snapshot::Snapshot;
use crate::table::Table;

/// State shared by the handles of a store.
pub(crate) struct StoreInner<K, V> {
    pub(crate) reader: ObjectReader<K, V>,
    pub(crate) transform: Option<Transform<V>>,
    pub(crate) published: PublishedState<K, V>,
    pub(crate) held: Retained<K, V>,
    pub(crate) synced: Synced,
}

impl<K, V> StoreInner<K, V> {
    pub(crate) fn new(
        reader: ObjectReader<K, V>,
        transform: Option<Transform<V>>,
        published: PublishedState<K, V>,
    ) -> Self {
        Self { reader, transform, published, held: Retained::default(), synced: Synced::default() }
    }

    pub(crate) fn table(&self) -> Arc<Table<K, V>> {
        self.published.with_table(Arc::clone)
    }

    pub(crate) fn snapshot(&self) -> Snapshot<K, V> {
        Snapshot { table: self.table(), reader: self.reader }
    }

    /// Returns the published table, if all its changes have been merged into this buffer and taken by the subscriber.
    pub(crate) fn settled(&self, buffer: &SubscriptionBuffer<K, V>) -> Settled<Arc<Table<K, V>>> {
        loop {
            let table = self.table();
            match buffer.settled(table.revision) {
                // A newer table was published meanwhile, and its changes were merged. Tries again.
                None => {}
                Some(settled) => return settled.map(|()| table),
            }
        }
    }

    /// Called before the table is changed. If snapshots hold the table, they keep the old state, and the table is registered as retained.
    pub(crate) fn note_superseded(&self, published: &mut Published<K, V>) {
        // No snapshot can be taken meanwhile. If a snapshot is dropped meanwhile, the table is registered needlessly.
        if Arc::strong_count(&published.table) > 1 {
            self.held.superseded(&published.table);
        }
    }

    /// Creates a snapshot and a buffer for every later change of the selected objects, or of all objects. At most `most` keys may be pending.
    pub(crate) fn subscribe(
        &self,
        selection: Option<Selection<K, V>>,
        most: usize,
    ) -> (Snapshot<K, V>, Arc<SubscriptionBuffer<K, V>>) {
        let mut published = self.published.write();
        let snapshot = Snapshot { table: published.table.clone(), reader: self.reader };
        // Read in the same critical section as the table, so that the first list is either in the snapshot or still to be delivered.
        let (listed, closed) = (published.listed, published.closed);
        let ended = closed || selection.as_ref().is_some_and(|of| !of.is_valid(&snapshot.table.index_set));
        let buffer = Arc::new(SubscriptionBuffer::new(&snapshot.table, listed, ended, selection, most));
        let former = (!closed).then(|| {
            // Removes the buffers whose subscription was dropped or disconnected.
            let alive = published.buffers.iter().filter(|buffer| !buffer.is_detached());
            let buffers = alive.chain([&buffer]).cloned().collect();
            std::mem::replace(&mut published.buffers, buffers)
        });
        drop(published);
        // After unlocking, because a buffer holds its selection, whose drop may run user code.
        drop(former);
        (snapshot, buffer)
    }

    /// Restarts a buffer whose capacity was exceeded. After the restart, the buffer receives every change after the returned table.
    pub(crate) fn restart_buffer(&self, buffer: &SubscriptionBuffer<K, V>) -> Arc<Table<K, V>> {
        // Takes the lock that a commit takes, so that no write commits between reading the table and restarting the buffer.
        let published = self.published.read();
        let table = published.table.clone();
        let ended = published.closed || buffer.selection().is_some_and(|of| !of.is_valid(&table.index_set));
        let lost = buffer.restart(&table, published.listed, ended);
        drop(published);
        drop(lost);
        table
    }

    /// Removes the buffers of dropped and of disconnected subscribers. Returns the former list, to be dropped without locks, because a buffer holds its selection.
    pub(crate) fn remove_detached(&self) -> SubscriptionBuffers<K, V> {
        let mut published = self.published.write();
        let alive = published.buffers.iter().filter(|buffer| !buffer.is_detached());
        let alive = alive.cloned().collect();
        std::mem::replace(&mut published.buffers, alive)
    }
}

impl<K: Hash, V> StoreInner<K, V> {
    /// Reads the key and the version of an object, then transforms the object.
    pub(crate) fn read(&self, object: V) -> ParsedObject<K, V> {
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
        table.check(|key| self.reader.seed.hash_one(key))?;
        buffers.iter().try_for_each(|buffer| buffer.check())
    }
}

#[cfg(test)]
mod tests {
    use crate::{OverflowPolicy, Schema, Store, Version};

    #[test]
    fn disconnected_subscription_is_removed_although_it_is_held() {
        let schema = Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1));
        let mut store = Store::builder(schema).build().unwrap();
        let mut changes = store.subscription().bounded(1.try_into().unwrap(), OverflowPolicy::Disconnect);
        let buffers = |store: &Store<u8, (u8, u64)>| store.inner.published.read().buffers.len();
        (1..4).for_each(|key| drop(store.upsert((key, 1))));
        assert_eq!(buffers(&store), 1);
        changes.try_next().unwrap_err();
        store.upsert((4, 2));
        assert_eq!(buffers(&store), 0);
        drop(changes);
    }
}
