//! SHELL. The published state of a store, and its lock.

use std::ops::Deref;
use std::sync::Arc;

use flyball_sync::locks::{RwLock, RwLockWriteGuard};

use crate::Version;
use crate::changes::buffer::Merging;
use crate::changes::observer_fn::ObserverFns;
use crate::changes::subscribers::{Subscribers, SubscriptionBuffers};
use crate::signal::wakers::Wakers;
use crate::store::reader_slots::ReaderSlots;
use crate::store::waiters::Waiters;
use crate::table::Table;
use crate::table::index_set::IndexSet;

/// The published state: the table that readers use, the buffers of the subscribers, the observers, and the tasks that wait for a version.
pub(crate) struct Published<K, V> {
    pub(crate) table: Arc<Table<K, V>>,
    pub(crate) buffers: SubscriptionBuffers<K, V>,
    pub(crate) observer_fns: ObserverFns<K, V>,
    pub(crate) waiters: Waiters,
    /// Whether a list has been published.
    pub(crate) listed: bool,
    pub(crate) closed: bool,
    /// The number of the last write.
    pub(crate) sequence: u64,
}

impl<K, V> Published<K, V> {
    /// Returns a description of the write that has just changed the table, with the next number.
    pub(crate) fn next_write(&mut self, first_list: bool) -> Merging {
        self.sequence += 1;
        Merging { sequence: self.sequence, revision: self.table.revision, first_list }
    }

    /// Changes the table in place if there is no other reference to it. Otherwise, copies it first; a copy increments a few reference counts and
    /// copies no object. Raises the version to at least `version`.
    #[inline]
    pub(crate) fn change(
        &mut self,
        version: Version,
        wakers: &mut Wakers,
        change: impl FnOnce(&mut Table<K, V>),
    ) {
        let table = Arc::make_mut(&mut self.table);
        change(table);
        if version > table.version {
            table.version = version;
            self.waiters.reached(version, wakers);
        }
    }
}

/// The published state behind its lock, and the reader slots for lookups in the table.
pub(crate) struct PublishedState<K, V> {
    published: RwLock<Published<K, V>>,
    slots: ReaderSlots<Table<K, V>>,
}

impl<K, V> PublishedState<K, V> {
    pub(crate) fn new(index_set: IndexSet<V>, slots: ReaderSlots<Table<K, V>>) -> Self {
        let published = Published {
            table: Arc::new(Table::new(Arc::new(index_set))),
            buffers: Arc::new(Subscribers::new()),
            observer_fns: Arc::new([]),
            waiters: Waiters::default(),
            listed: false,
            closed: false,
            sequence: 0,
        };
        Self { published: RwLock::new(published), slots }
    }

    /// Calls `read` with the current table. `read` must not take a lock.
    #[inline]
    pub(crate) fn with_table<R>(&self, read: impl FnOnce(&Arc<Table<K, V>>) -> R) -> R {
        match self.slots.with_state(read) {
            Ok(seen) => seen,
            Err(read) => {
                let published = self.published.read();
                self.slots.count_lookup(&published.table);
                read(&published.table)
            }
        }
    }

    pub(crate) fn read(&self) -> impl Deref<Target = Published<K, V>> {
        self.published.read()
    }

    /// Takes the write lock, to change the lists of buffers, observers and waiters. The caller must not change the table: the reader slots are not
    /// cleared, so they keep serving lookups.
    pub(crate) fn write_lists(&self) -> RwLockWriteGuard<'_, Published<K, V>> {
        self.published.write()
    }

    /// Takes the write lock and clears the reader slots. No other thread can read the state until the guard is dropped.
    #[inline]
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Published<K, V>> {
        let published = self.published.write();
        // Invariant 1 of `ReaderSlots` requires this: otherwise, lookups through a slot could read an old table.
        self.slots.clear();
        published
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use crate::{Schema, Store, Version};

    #[test]
    fn only_a_change_of_the_table_clears_the_reader_slots() {
        let schema = Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1));
        let mut store = Store::builder(schema).build().unwrap();
        let fill = |store: &Store<u8, (u8, u64)>| (0..100).for_each(|_| drop(store.get(&1)));
        let is_filled = |store: &Store<u8, (u8, u64)>| store.inner.published.slots.with_state(|_| ()).is_ok();
        fill(&store);
        assert!(is_filled(&store));
        drop((store.subscribe(), store.subscription().for_key(1).subscribe(), store.observe(|_| {})));
        let wait = store.wait_for_version(Version::new(7));
        assert!(pin!(wait).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(is_filled(&store), "a subscription, an observer or a wait has cleared the slot");
        store.upsert((1, 1));
        assert!(!is_filled(&store));
    }
}
