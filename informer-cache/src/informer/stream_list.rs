//! PURE. The half list of a streaming list: objects by key, as additions, changes and deletions come in.
//!
//! # Invariants
//! 1. `places` names each key that is listed once, and nothing else; every place it names holds an object.

use std::collections::HashMap;
use std::hash::Hash;

/// Objects by key, in the order in which their keys came first.
pub(super) struct StreamList<K, V> {
    objects: Vec<Option<V>>,
    places: HashMap<K, usize>,
}

impl<K: Eq + Hash, V> StreamList<K, V> {
    pub(super) fn new() -> Self {
        Self { objects: Vec::new(), places: HashMap::new() }
    }

    pub(super) fn put(&mut self, key: K, object: V) {
        let end = self.objects.len();
        let place = *self.places.entry(key).or_insert(end);
        if place == end {
            self.objects.push(Some(object));
        } else {
            self.objects[place] = Some(object);
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(place) = self.places.remove(key) {
            self.objects[place] = None;
        }
    }

    pub(super) fn into_objects(self) -> impl Iterator<Item = V> {
        self.objects.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_the_order_is_of_first_mention() {
        let mut list = StreamList::new();
        for (key, object) in [("a", 1), ("b", 2), ("c", 3), ("a", 4)] {
            list.put(key, object);
        }
        list.remove(&"b");
        list.remove(&"never");
        list.put("b", 5);
        list.remove(&"c");
        assert_eq!(list.into_objects().collect::<Vec<_>>(), [4, 5]);
    }
}
