//! SHELL. A user's handle to an informer in a set. This module has no lock of its own: cloning and dropping a handle takes the lock of the set.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;

use super::{Id, InformerSet, Slot};
use crate::Informer;

/// A handle to an informer that other users may share; returned by [`InformerSet::get_or_start`]. Derefs to the [`Informer`].
///
/// The informer is shut down when the last of its `SharedInformer`s is dropped, if it has not been stopped before. (Clones of the [`Informer`]
/// itself, its store handles and its subscriptions do not keep it running. They stay readable after it has ended.)
///
/// # Examples
/// ```
/// use flyball_informer_cache::testing::TestServer;
/// use flyball_informer_cache::{Informer, InformerSet, ManualClock, Schema, SharedInformer, Version};
///
/// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
/// let server = TestServer::new(NUMBERS, |_, _, _| {});
/// let builder = || Informer::builder(NUMBERS, server.clone()).timer(ManualClock::new().timer());
/// let set = InformerSet::new(|run| drop(std::thread::spawn(|| flyball_sync::block_on(run))));
/// let first: SharedInformer<u32, u32> = set.get_or_start("numbers", builder())?;
/// let second = first.clone(); // the same as a second call of `get_or_start`
/// drop(first);
/// flyball_sync::block_on(second.synced())?; // a method of `Informer`
///
/// let informer: Informer<u32, u32> = (*second).clone();
/// drop(second); // the last user
/// flyball_sync::block_on(set.stopped());
/// assert!(informer.is_stopped());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedInformer<K, V> {
    set: InformerSet,
    id: Id,
    number: u64,
    informer: Informer<K, V>,
}

impl<K, V> SharedInformer<K, V> {
    pub(super) fn new(set: &InformerSet, id: Id, number: u64, informer: Informer<K, V>) -> Self {
        Self { set: set.clone(), id, number, informer }
    }

    /// Adds a user to a slot. The caller holds the lock.
    pub(super) fn of(set: &InformerSet, id: &Id, slot: &mut Slot) -> Option<Self>
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        // The downcast succeeds, because the id contains the key type and the object type.
        let informer = slot.member.as_any().downcast_ref::<Informer<K, V>>()?.clone();
        slot.users += 1;
        Some(Self::new(set, id.clone(), slot.number, informer))
    }
}

impl<K, V> Deref for SharedInformer<K, V> {
    type Target = Informer<K, V>;

    fn deref(&self) -> &Informer<K, V> {
        &self.informer
    }
}

impl<K, V> Clone for SharedInformer<K, V> {
    fn clone(&self) -> Self {
        self.set.retain(&self.id, self.number);
        Self::new(&self.set, self.id.clone(), self.number, self.informer.clone())
    }
}

impl<K, V> Drop for SharedInformer<K, V> {
    fn drop(&mut self) {
        self.set.release(&self.id, self.number);
    }
}

impl<K, V> fmt::Debug for SharedInformer<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer").field("name", &self.id.0).finish_non_exhaustive()
    }
}
