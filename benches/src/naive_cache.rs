//! A naive port of client-go's indexer. All maps are under one mutex, and every write runs the index functions.

#![allow(clippy::disallowed_types, reason = "the naive port uses std's locks")]

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An index function. It returns the index values of an object.
pub type IndexFn<V> = fn(&V) -> Vec<Arc<str>>;

/// The store.
#[derive(Debug)]
pub struct NaiveCache<K, V> {
    functions: Vec<IndexFn<V>>,
    state: Mutex<State<K, V>>,
}

#[derive(Debug)]
struct State<K, V> {
    items: HashMap<K, Arc<V>>,
    indexes: Vec<HashMap<Arc<str>, HashSet<K>>>,
}

impl<K: Clone + Eq + Hash, V> NaiveCache<K, V> {
    /// Builds a store with the given indexes.
    #[must_use]
    pub fn new(functions: Vec<IndexFn<V>>) -> Self {
        let indexes = functions.iter().map(|_| HashMap::new()).collect();
        Self { functions, state: Mutex::new(State { items: HashMap::new(), indexes }) }
    }

    fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or updates an object.
    pub fn upsert(&self, key: K, object: V) {
        let object = Arc::new(object);
        let mut state = self.lock();
        let old = state.items.insert(key.clone(), object.clone());
        for (function, index) in self.functions.iter().zip(&mut state.indexes) {
            let new = function(&object);
            let old = old.as_ref().map(|old| function(old)).unwrap_or_default();
            if old.len() == 1 && old == new {
                continue;
            }
            for value in old {
                if let Some(keys) = index.get_mut(&value) {
                    keys.remove(&key);
                    if keys.is_empty() {
                        index.remove(&value);
                    }
                }
            }
            for value in new {
                index.entry(value).or_default().insert(key.clone());
            }
        }
    }

    /// The object of a key.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        self.lock().items.get(key).cloned()
    }

    /// All objects. The store has no snapshots, so only the result of one call is consistent.
    pub fn list(&self) -> Vec<Arc<V>> {
        self.lock().items.values().cloned().collect()
    }

    /// The objects with an index value.
    pub fn by_index(&self, index: usize, value: &str) -> Vec<Arc<V>> {
        let state = self.lock();
        let keys = state.indexes[index].get(value).into_iter().flatten();
        keys.filter_map(|key| state.items.get(key).cloned()).collect()
    }

    /// Replaces all objects.
    pub fn replace(&self, items: Vec<(K, V)>) {
        let items = items.into_iter().map(|(key, object)| (key, Arc::new(object))).collect::<HashMap<_, _>>();
        let mut state = self.lock();
        let mut indexes = vec![HashMap::<Arc<str>, HashSet<K>>::new(); self.functions.len()];
        for (key, object) in &items {
            for (function, index) in self.functions.iter().zip(&mut indexes) {
                for value in function(object) {
                    index.entry(value).or_default().insert(key.clone());
                }
            }
        }
        state.items = items;
        state.indexes = indexes;
    }
}
