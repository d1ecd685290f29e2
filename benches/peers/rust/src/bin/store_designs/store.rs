//! A store that puts the same lock around every design.

use std::sync::Arc;

use benches::designs::{Design, Entry, Pod, hash};
use parking_lot::RwLock;

#[derive(Default)]
pub(crate) struct Store<D>(RwLock<Arc<D>>);

impl<D: Design> Store<D> {
    pub(crate) fn new(design: D) -> Self {
        Self(RwLock::new(Arc::new(design)))
    }

    /// The replaced object is dropped after the lock is released. `delete` and `replace` do the same.
    pub(crate) fn upsert(&self, pod: &Arc<Pod>) {
        let new = Entry::new(pod.clone());
        let mut design = self.0.write();
        let old = Arc::make_mut(&mut design).upsert(new);
        drop(design);
        drop(old);
    }

    pub(crate) fn delete(&self, key: &str) {
        let hash = hash(key);
        let mut design = self.0.write();
        let old = Arc::make_mut(&mut design).remove(hash, key);
        drop(design);
        drop(old);
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Pod>> {
        let hash = hash(key);
        self.0.read().get(hash, key).cloned()
    }

    pub(crate) fn snapshot(&self) -> Arc<D> {
        self.0.read().clone()
    }

    pub(crate) fn replace(&self, design: D) {
        let mut new = Arc::new(design);
        std::mem::swap(&mut *self.0.write(), &mut new);
    }
}

/// A store that shares no cache line with other stores, for the measurement in which each reader has its own store.
#[repr(align(128))]
pub(crate) struct Padded<D>(pub(crate) Store<D>);
