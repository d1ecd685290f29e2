//! PURE. The half list of a streaming list: objects by key, as additions, changes and deletions come in.
//!
//! # Invariants
//! 1. `places` names each key that is listed once, and nothing else; every place it names holds an object.
//! 2. `holes` names every place without an object, once. So there are never more places than keys were listed at one time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// Objects by key, in the order in which their keys came first; a key that comes after a deletion takes the free place.
pub(super) struct StreamList<K, V> {
    objects: Vec<Option<V>>,
    places: HashMap<K, usize>,
    holes: Vec<usize>,
}

impl<K: Eq + Hash, V> StreamList<K, V> {
    pub(super) fn new() -> Self {
        Self { objects: Vec::new(), places: HashMap::new(), holes: Vec::new() }
    }

    pub(super) fn put(&mut self, key: K, object: V) {
        match self.places.entry(key) {
            Entry::Occupied(known) => self.objects[*known.get()] = Some(object),
            Entry::Vacant(new) => match self.holes.pop() {
                Some(hole) => self.objects[*new.insert(hole)] = Some(object),
                None => {
                    new.insert(self.objects.len());
                    self.objects.push(Some(object));
                }
            },
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(place) = self.places.remove(key) {
            self.holes.push(place);
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

    #[test]
    fn keys_that_come_and_go_take_no_more_room_than_those_that_stay() {
        let mut list = StreamList::new();
        list.put(0, 0);
        for round in 1..1_000 {
            list.put(1, round);
            list.remove(&1);
            list.put(round + 1, round);
            list.remove(&(round + 1));
        }
        list.put(1, 7);
        assert_eq!((list.objects.len(), list.places.len(), list.holes.len()), (2, 2, 0));
        assert_eq!(list.into_objects().collect::<Vec<_>>(), [0, 7]);
    }
}
