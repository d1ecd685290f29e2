//! SHELL. What readers see of a store, and the lock before it.

use std::ops::Deref;
use std::sync::Arc;

use flyball_sync::locks::{RwLock, RwLockWriteGuard};

use crate::Version;
use crate::changes::buffer::SubscriptionBuffers;
use crate::changes::observer_fn::ObserverFns;
use crate::signal::wakers::Wakers;
use crate::store::reader_slots::ReaderSlots;
use crate::store::waiters::Waiters;
use crate::table::Table;
use crate::table::index_set::IndexSet;

/// What readers see, all of it at once.
pub(crate) struct Published<K, V> {
    pub(crate) table: Arc<Table<K, V>>,
    pub(crate) buffers: SubscriptionBuffers<K, V>,
    pub(crate) observer_fns: ObserverFns<K, V>,
    pub(crate) waiters: Waiters,
    /// Whether a list was published, so whether the table shows one.
    pub(crate) listed: bool,
    pub(crate) closed: bool,
}

impl<K, V> Published<K, V> {
    /// Changes the table, in place where nobody holds it: otherwise it is copied, which is a few counts and no object. The version grows to this
    /// one at least.
    pub(crate) fn change(
        &mut self,
        version: Version,
        wakers: &mut Wakers,
        change: impl FnOnce(&mut Table<K, V>),
    ) -> Version {
        let table = Arc::make_mut(&mut self.table);
        change(table);
        if version > table.version {
            table.version = version;
            self.waiters.reached(version, wakers);
        }
        table.version
    }
}

/// What is published, behind a lock; and the seats of those who only look at the table.
pub(crate) struct PublishedState<K, V> {
    published: RwLock<Published<K, V>>,
    seats: ReaderSlots<Table<K, V>>,
}

impl<K, V> PublishedState<K, V> {
    pub(crate) fn new(index_set: IndexSet<V>, seats: ReaderSlots<Table<K, V>>) -> Self {
        let published = Published {
            table: Arc::new(Table::new(Arc::new(index_set))),
            buffers: Arc::new([]),
            observer_fns: Arc::new([]),
            waiters: Waiters::default(),
            listed: false,
            closed: false,
        };
        Self { published: RwLock::new(published), seats }
    }

    /// Looks at the table of this instant. What runs in it takes no lock.
    #[inline]
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Arc<Table<K, V>>) -> R) -> R {
        match self.seats.look(look) {
            Ok(seen) => seen,
            Err(look) => {
                let published = self.published.read();
                self.seats.looked(&published.table);
                look(&published.table)
            }
        }
    }

    pub(crate) fn read(&self) -> impl Deref<Target = Published<K, V>> {
        self.published.read()
    }

    /// Nobody else looks at it from here on.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Published<K, V>> {
        let published = self.published.write();
        // ReaderSlots invariant 1. Also where only the buffers change: a clear that is forgotten shows an old table for ever.
        self.seats.clear();
        published
    }
}
