//! Plain and persistent maps for reference. They have no indexes, and most have no snapshots.

use std::hint::black_box;
use std::sync::Arc;

use benches::designs::Pod;
use dashmap::DashMap;
use foldhash::fast::FixedState;
use parking_lot::RwLock;
use rpds::HashTrieMapSync;

use crate::report::Figures;
use crate::runs::{on_threads, per, timed};
use crate::world::World;

const GETS: usize = 200_000;

type Key = Arc<str>;

pub(crate) trait Map: Sync {
    fn new() -> Self;
    fn insert(&self, pod: &Arc<Pod>);
    fn get(&self, key: &str) -> Option<Arc<Pod>>;
}

pub(crate) fn all<M: Map>(world: &World) -> Figures {
    let map = M::new();
    let time = timed(|| {
        for number in &world.shuffled {
            map.insert(&world.pods[0][*number as usize]);
        }
    });
    let add = ("add, ns", per(time, world.shuffled.len()));
    let time = timed(|| world.random(1).take(GETS / 2).for_each(|pod| map.insert(pod)));
    let update = ("update, ns", per(time, GETS / 2));
    let time = timed(|| {
        for pod in world.random(0).take(GETS) {
            black_box(map.get(&pod.key).expect("there"));
        }
    });
    let get = ("get, 1 thread, ns", per(time, GETS));
    let time = on_threads(|thread| {
        for pod in world.random(0).skip(thread * 1000).take(GETS / 8) {
            black_box(map.get(&pod.key).expect("there"));
        }
    });
    vec![add, update, get, ("get, 8 threads, CPU ns", per(time, GETS))]
}

fn hasher() -> FixedState {
    FixedState::with_seed(1)
}

/// hashbrown's map under one lock.
pub(crate) struct Plain(RwLock<hashbrown::HashMap<Key, Arc<Pod>, FixedState>>);

impl Map for Plain {
    fn new() -> Self {
        Self(RwLock::new(hashbrown::HashMap::with_hasher(hasher())))
    }

    fn insert(&self, pod: &Arc<Pod>) {
        let old = self.0.write().insert(pod.key.clone(), pod.clone());
        drop(old);
    }

    fn get(&self, key: &str) -> Option<Arc<Pod>> {
        self.0.read().get(key).cloned()
    }
}

pub(crate) struct Dash(DashMap<Key, Arc<Pod>, FixedState>);

impl Map for Dash {
    fn new() -> Self {
        Self(DashMap::with_hasher(hasher()))
    }

    fn insert(&self, pod: &Arc<Pod>) {
        self.0.insert(pod.key.clone(), pod.clone());
    }

    fn get(&self, key: &str) -> Option<Arc<Pod>> {
        self.0.get(key).map(|pod| pod.clone())
    }
}

pub(crate) struct Papaya(papaya::HashMap<Key, Arc<Pod>, FixedState>);

impl Map for Papaya {
    fn new() -> Self {
        Self(papaya::HashMap::builder().hasher(hasher()).build())
    }

    fn insert(&self, pod: &Arc<Pod>) {
        self.0.pin().insert(pod.key.clone(), pod.clone());
    }

    fn get(&self, key: &str) -> Option<Arc<Pod>> {
        self.0.pin().get(key).cloned()
    }
}

/// imbl's persistent map under one lock, changed in place.
pub(crate) struct Imbl(
    RwLock<imbl::GenericHashMap<Key, Arc<Pod>, FixedState, imbl::shared_ptr::DefaultSharedPtr>>,
);

impl Map for Imbl {
    fn new() -> Self {
        Self(RwLock::new(imbl::GenericHashMap::with_hasher(hasher())))
    }

    fn insert(&self, pod: &Arc<Pod>) {
        let old = self.0.write().insert(pod.key.clone(), pod.clone());
        drop(old);
    }

    fn get(&self, key: &str) -> Option<Arc<Pod>> {
        self.0.read().get(key).cloned()
    }
}

/// rpds's persistent map under one lock, changed in place.
pub(crate) struct Rpds(RwLock<HashTrieMapSync<Key, Arc<Pod>, FixedState>>);

impl Map for Rpds {
    fn new() -> Self {
        Self(RwLock::new(HashTrieMapSync::new_with_hasher_and_ptr_kind(hasher())))
    }

    fn insert(&self, pod: &Arc<Pod>) {
        self.0.write().insert_mut(pod.key.clone(), pod.clone());
    }

    fn get(&self, key: &str) -> Option<Arc<Pod>> {
        self.0.read().get(key).cloned()
    }
}
