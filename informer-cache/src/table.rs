//! PURE. The objects, all indexes and the version: one persistent value, changed in two steps.
//!
//! **Find, then commit.** Finding may run the equality of keys and index values, which is the user's and may panic;
//! it changes nothing. Committing compares addresses only, runs no foreign code (what it replaces is still held
//! by the caller, so nothing is dropped either) and cannot fail halfway.
//!
//! # Invariants
//! 1. Keys are distinct; a record is found by its hash and key.
//! 2. A record is in the group of each of its labels, by that label's own value (record invariant 3), and in no other.
//! 3. Values of a column are distinct; no group is empty.
//! 4. `failed` holds exactly the records with failures.
//! 5. All tries obey their own invariants.
//!
//! Hence every index is a function of the objects, whatever happened before.

use std::hash::Hash;
use std::sync::Arc;

use crate::Version;
use crate::recipe::Recipe;
use crate::record::{AnyValue, Record};
use crate::trie::{Hashed, Trie};

mod check;

/// The whole state of a store at one version; cloned in O(indexes), by address in O(1).
pub(crate) struct Table<K, V> {
    pub(crate) recipe: Arc<Recipe<K, V>>,
    pub(crate) version: Version,
    pub(crate) records: Trie<Arc<Record<K, V>>>,
    pub(crate) failed: Trie<Arc<Record<K, V>>>,
    /// Per column: its values, each with the records that have it.
    pub(crate) groups: Vec<Trie<Group<K, V>>>,
}

/// The records that have one value of one index.
pub(crate) struct Group<K, V> {
    pub(crate) value: Arc<AnyValue>,
    pub(crate) records: Trie<Arc<Record<K, V>>>,
}

impl<K, V> Table<K, V> {
    pub(crate) fn new(recipe: Arc<Recipe<K, V>>) -> Self {
        let groups = recipe.columns.iter().map(|_| Trie::new()).collect();
        Self { recipe, version: Version::ZERO, records: Trie::new(), failed: Trie::new(), groups }
    }

    /// The record whose key `eq` accepts.
    pub(crate) fn find(&self, hash: u64, eq: impl Fn(&K) -> bool) -> Option<&Arc<Record<K, V>>> {
        self.records.get(hash, |record| eq(&record.key))
    }

    /// The group of a value that `eq` accepts.
    pub(crate) fn group(
        &self,
        column: usize,
        hash: u64,
        eq: impl Fn(&AnyValue) -> bool,
    ) -> Option<&Group<K, V>> {
        self.groups[column].get(hash, |group| eq(&group.value))
    }

    /// Takes a record out, puts one in, or both (then of one key). Both must have been found: `old` is in the table,
    /// no other record has `new`'s key, and `new` went through [`intern`](Self::intern) since the last change.
    ///
    /// The caller keeps `old` alive until it holds no lock.
    pub(crate) fn commit(&mut self, old: Option<&Arc<Record<K, V>>>, new: Option<&Arc<Record<K, V>>>) {
        let is_old = |record: &Arc<Record<K, V>>| old.is_some_and(|old| Arc::ptr_eq(record, old));
        swap(&mut self.records, old, new);
        swap(
            &mut self.failed,
            old.filter(|record| !record.failures.is_empty()),
            new.filter(|record| !record.failures.is_empty()),
        );
        if let Some(old) = old {
            for label in &old.labels {
                // What both have is replaced below, without emptying the group in between.
                if new.is_some_and(|new| new.has_label(label.column, &label.value)) {
                    continue;
                }
                let groups = &mut self.groups[label.column];
                let same = |group: &Group<K, V>| Arc::ptr_eq(&group.value, &label.value);
                if let Some(group) = groups.get_mut(label.value.hash, same) {
                    group.records.remove(old.hash, is_old);
                    if group.records.is_empty() {
                        groups.remove(label.value.hash, same);
                    }
                }
            }
        }
        if let Some(new) = new {
            for label in &new.labels {
                let groups = &mut self.groups[label.column];
                let same = |group: &Group<K, V>| Arc::ptr_eq(&group.value, &label.value);
                match groups.get_mut(label.value.hash, same) {
                    Some(group) => drop(group.records.insert(new.clone(), is_old)),
                    None => {
                        let mut records = Trie::new();
                        records.insert(new.clone(), |_| false);
                        groups.insert(Group { value: label.value.clone(), records }, |_| false);
                    }
                }
            }
        }
    }
}

impl<K: Eq + Hash, V: 'static> Table<K, V> {
    /// Makes a new record speak of the values this table already has (record invariant 3). What it held instead goes to
    /// `replaced`, to be dropped where no lock is held. `old` is the record of its key, if there is one.
    pub(crate) fn intern(
        &self,
        record: &mut Record<K, V>,
        old: Option<&Record<K, V>>,
        replaced: &mut Vec<Arc<AnyValue>>,
    ) {
        for label in &mut record.labels {
            if old.is_some_and(|old| old.has_label(label.column, &label.value)) {
                continue;
            }
            let column = &self.recipe.columns[label.column];
            let known = self.group(label.column, label.value.hash, |value| column.equal(value, &label.value));
            if let Some(group) = known {
                replaced.push(std::mem::replace(&mut label.value, group.value.clone()));
            }
        }
    }
}

/// Replaces one record by another of the same key, or takes it out, or puts one in.
fn swap<K, V>(
    trie: &mut Trie<Arc<Record<K, V>>>,
    old: Option<&Arc<Record<K, V>>>,
    new: Option<&Arc<Record<K, V>>>,
) {
    let is_old = |record: &Arc<Record<K, V>>| old.is_some_and(|old| Arc::ptr_eq(record, old));
    match (old, new) {
        (_, Some(new)) => drop(trie.insert(new.clone(), is_old)),
        (Some(old), None) => drop(trie.remove(old.hash, is_old)),
        (None, None) => {}
    }
}

impl<K, V> Hashed for Group<K, V> {
    fn hash(&self) -> u64 {
        self.value.hash
    }
}

// Not derived: everything in it is shared, so nothing is asked of the types.

impl<K, V> Clone for Group<K, V> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), records: self.records.clone() }
    }
}

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self {
            recipe: self.recipe.clone(),
            version: self.version,
            records: self.records.clone(),
            failed: self.failed.clone(),
            groups: self.groups.clone(),
        }
    }
}
