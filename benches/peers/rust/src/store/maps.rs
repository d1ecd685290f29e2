//! Concurrent maps without indexes and views, with the same hasher as flyball's store.

use std::sync::Arc;

use dashmap::DashMap;
use foldhash::fast::RandomState;

use crate::keys::Key;
use crate::store::cache::{Reads, Writes};
use crate::store::pods::Pod;

pub(crate) type Dash = Arc<DashMap<Key, Arc<Pod>, RandomState>>;
pub(crate) type Papaya = Arc<papaya::HashMap<Key, Arc<Pod>, RandomState>>;

impl Writes for Dash {
    type Reader = Self;

    fn new(_indexes: usize) -> Self {
        Self::default()
    }

    fn reader(&self) -> Self {
        self.clone()
    }

    fn put(&mut self, pod: Pod) {
        self.insert(pod.key.clone(), Arc::new(pod));
    }
}

impl Reads for Dash {
    type Key = Key;

    fn key(pod: &Pod) -> Key {
        pod.key.clone()
    }

    /// The object is cloned, as in the other stores: a reader does not keep a shard locked while it reads an object.
    fn get(&self, key: &Key) -> Option<u64> {
        let pod = DashMap::get(self, key).map(|entry| entry.value().clone());
        pod.map(|pod| pod.version)
    }
}

impl Writes for Papaya {
    type Reader = Self;

    fn new(_indexes: usize) -> Self {
        Self::default()
    }

    fn reader(&self) -> Self {
        self.clone()
    }

    fn put(&mut self, pod: Pod) {
        self.pin().insert(pod.key.clone(), Arc::new(pod));
    }
}

impl Reads for Papaya {
    type Key = Key;

    fn key(pod: &Pod) -> Key {
        pod.key.clone()
    }

    /// The object is cloned, as in the other stores.
    fn get(&self, key: &Key) -> Option<u64> {
        let pod = self.pin().get(key).cloned();
        pod.map(|pod| pod.version)
    }
}
