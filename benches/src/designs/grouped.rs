//! Records in a set by key, and for each index value a set of the same records: the common part of `trie` and `shards`.
//!
//! `informer-cache` was built this way before it had rows. An update inserts the new record into every set that
//! contains the old one, so it costs a search and a path copy per index even when no value changes.

use std::fmt::Debug;
use std::sync::Arc;

use super::{Design, Entry, INDEXES, Pod, hash};

/// An item that carries its hash.
pub trait Hashed: Clone + Debug + Send + Sync {
    /// The hash under which a set finds the item.
    fn hash(&self) -> u64;
}

/// A set of items found by hash. A clone shares all nodes.
pub trait Set<T>: Clone + Debug + Default + Send + Sync {
    /// The item with this hash that `eq` accepts.
    fn get(&self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<&T>;
    /// Like `get`, but returns a mutable reference, for a change in place.
    fn get_mut(&mut self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<&mut T>;
    /// Inserts an item, and returns the item that it replaces.
    fn insert(&mut self, item: T, eq: impl Fn(&T) -> bool) -> Option<T>;
    /// Removes an item.
    fn remove(&mut self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<T>;
    /// All items.
    fn iter<'a>(&'a self) -> impl Iterator<Item = &'a T>
    where
        T: 'a;
    /// Returns true if the set has no items.
    fn is_empty(&self) -> bool;
}

/// An implementation of sets, generic over the item type.
pub trait Family: Clone + Debug + Default + Send + Sync {
    /// A set of this implementation.
    type Of<T: Hashed>: Set<T>;
}

/// One stored object.
#[derive(Debug)]
pub struct Record {
    pub(super) hash: u64,
    pub(super) pod: Arc<Pod>,
    /// The index values, whose allocations are shared with the groups.
    pub(super) values: [Arc<Value>; INDEXES],
}

/// An index value with its hash.
#[derive(Debug)]
pub struct Value {
    pub(super) hash: u64,
    pub(super) text: Arc<str>,
}

/// The records with one index value.
#[derive(Debug)]
pub struct Group<F: Family> {
    value: Arc<Value>,
    records: F::Of<Arc<Record>>,
}

/// The store.
#[derive(Debug, Default)]
pub struct Grouped<F: Family> {
    records: F::Of<Arc<Record>>,
    groups: [F::Of<Group<F>>; INDEXES],
}

impl Hashed for Arc<Record> {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl<F: Family> Hashed for Group<F> {
    fn hash(&self) -> u64 {
        self.value.hash
    }
}

impl<F: Family> Grouped<F> {
    /// Returns a value that shares its allocation with the old record or with a group, or a new value if neither has it.
    fn interned(&self, index: usize, text: &Arc<str>, old: Option<&Arc<Record>>) -> Arc<Value> {
        if let Some(old) = old.filter(|old| old.values[index].text == *text) {
            return old.values[index].clone();
        }
        let hash = hash(text);
        match self.groups[index].get(hash, |group| group.value.text == *text) {
            Some(group) => group.value.clone(),
            None => Arc::new(Value { hash, text: text.clone() }),
        }
    }

    fn leave(&mut self, index: usize, old: &Arc<Record>) {
        let (groups, value) = (&mut self.groups[index], &old.values[index]);
        let same = |group: &Group<F>| Arc::ptr_eq(&group.value, value);
        if let Some(group) = groups.get_mut(value.hash, same) {
            group.records.remove(old.hash, |record| Arc::ptr_eq(record, old));
            if group.records.is_empty() {
                groups.remove(value.hash, same);
            }
        }
    }

    fn join(&mut self, index: usize, new: &Arc<Record>, old: Option<&Arc<Record>>) {
        let (groups, value) = (&mut self.groups[index], &new.values[index]);
        let is_old = |record: &Arc<Record>| old.is_some_and(|old| Arc::ptr_eq(record, old));
        match groups.get_mut(value.hash, |group| Arc::ptr_eq(&group.value, value)) {
            Some(group) => drop(group.records.insert(new.clone(), is_old)),
            None => {
                let mut records: F::Of<Arc<Record>> = Default::default();
                records.insert(new.clone(), |_| false);
                groups.insert(Group { value: value.clone(), records }, |_| false);
            }
        }
    }
}

impl<F: Family> Design for Grouped<F> {
    type Old = Arc<Record>;

    fn upsert(&mut self, Entry { hash, pod }: Entry) -> Option<Arc<Record>> {
        let old = self.records.get(hash, |record| record.pod.key == pod.key).cloned();
        let values = std::array::from_fn(|index| self.interned(index, &pod.values[index], old.as_ref()));
        let new = Arc::new(Record { hash, pod, values });
        self.records.insert(new.clone(), |record| old.as_ref().is_some_and(|old| Arc::ptr_eq(record, old)));
        for index in 0..INDEXES {
            if let Some(old) = old.as_ref().filter(|old| !Arc::ptr_eq(&old.values[index], &new.values[index]))
            {
                self.leave(index, old);
            }
            self.join(index, &new, old.as_ref());
        }
        old
    }

    fn remove(&mut self, hash: u64, key: &str) -> Option<Arc<Record>> {
        let old = self.records.remove(hash, |record| *record.pod.key == *key)?;
        (0..INDEXES).for_each(|index| self.leave(index, &old));
        Some(old)
    }

    fn get(&self, hash: u64, key: &str) -> Option<&Arc<Pod>> {
        self.records.get(hash, |record| *record.pod.key == *key).map(|record| &record.pod)
    }

    fn by_index<'a>(&'a self, index: usize, value: &str) -> impl Iterator<Item = &'a Arc<Pod>> {
        let group = self.groups[index].get(hash(value), |group| *group.value.text == *value);
        group.into_iter().flat_map(|group| group.records.iter()).map(|record| &record.pod)
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.records.iter().map(|record| &record.pod)
    }
}

// Not derived: a derived impl would require `F: Clone`.

impl<F: Family> Clone for Group<F> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), records: self.records.clone() }
    }
}

impl<F: Family> Clone for Grouped<F> {
    fn clone(&self) -> Self {
        Self { records: self.records.clone(), groups: self.groups.clone() }
    }
}
