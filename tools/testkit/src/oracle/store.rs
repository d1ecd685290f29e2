//! The oracle of the store: one sorted map, all of which every query scans.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// The functions with which the oracle reads the objects.
#[derive(Clone, Copy, Debug)]
pub struct Rules<K, V> {
    /// The key.
    pub key: fn(&V) -> K,
    /// The version; 0 means no version.
    pub version: fn(&V) -> u64,
    /// Whether two objects with the same key are two states of one object, and not an object and its replacement.
    pub same: fn(&V, &V) -> bool,
}

impl<K, V> Rules<K, V> {
    /// Whether the write of an object at a version is stale where `stored` is the version and the object before it.
    fn is_stale_upsert(&self, stored: (u64, &V), version: u64, new: &V) -> bool {
        match version {
            0 => false,
            _ if (self.same)(stored.1, new) => version <= stored.0,
            _ => version < stored.0,
        }
    }

    /// Whether a deletion is stale. `last` is the version and the last state of the deleted object.
    fn is_stale_deletion(&self, stored: (u64, &V), last: Option<(u64, &V)>) -> bool {
        match last {
            None | Some((0, _)) => false,
            Some((version, last)) if (self.same)(stored.1, last) => version < stored.0,
            Some((version, _)) => version <= stored.0,
        }
    }
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum OracleChange<K, V> {
    Added { key: K, object: V, initial: bool },
    Updated { key: K, old: V, new: V },
    Replaced { key: K, last: V, new: V },
    Deleted { key: K, last: V, missed: bool },
}

impl<K, V> OracleChange<K, V> {
    /// The key.
    pub fn key(&self) -> &K {
        match self {
            Self::Added { key, .. }
            | Self::Updated { key, .. }
            | Self::Replaced { key, .. }
            | Self::Deleted { key, .. } => key,
        }
    }
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum OracleOutcome {
    Added,
    Updated,
    Replaced,
    Deleted,
    Stale(u64),
    Absent,
}

/// The effect of one write on one key. A subscriber that reads several steps of a key at once has to coalesce them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum OracleStep<K, V> {
    Added { key: K, new: V, initial: bool },
    Updated { key: K, old: V, new: V },
    Replaced { key: K, old: V, new: V },
    Deleted { key: K, old: V, last: V, missed: bool },
}

impl<K, V> OracleStep<K, V> {
    /// The key.
    pub fn key(&self) -> &K {
        match self {
            Self::Added { key, .. }
            | Self::Updated { key, .. }
            | Self::Replaced { key, .. }
            | Self::Deleted { key, .. } => key,
        }
    }
}

impl<K: Clone, V: Clone> OracleStep<K, V> {
    /// The object before and after the write.
    pub fn ends(&self) -> (Option<&V>, Option<&V>) {
        match self {
            Self::Added { new, .. } => (None, Some(new)),
            Self::Updated { old, new, .. } | Self::Replaced { old, new, .. } => (Some(old), Some(new)),
            Self::Deleted { old, .. } => (Some(old), None),
        }
    }

    /// The step as it appears in a store that contains only the objects for which `of_interest` returns true; `None` if that store does not change.
    #[must_use]
    pub fn narrowed(&self, of_interest: impl Fn(&V) -> bool) -> Option<Self> {
        let (before, after) = self.ends();
        let (before, after) = (before.filter(|old| of_interest(old)), after.filter(|new| of_interest(new)));
        let key = self.key().clone();
        match (before, after) {
            (None, None) => None,
            (None, Some(new)) => {
                let initial = matches!(self, Self::Added { initial: true, .. });
                Some(Self::Added { key, new: new.clone(), initial })
            }
            (Some(_), Some(_)) => Some(self.clone()),
            (Some(old), None) => Some(match self {
                Self::Deleted { .. } => self.clone(),
                // If the object was replaced, its deletion was missed. If it was only updated and is no longer of interest, no deletion was missed.
                _ => {
                    let missed = matches!(self, Self::Replaced { .. });
                    Self::Deleted { key, last: old.clone(), old: old.clone(), missed }
                }
            }),
        }
    }
}

/// The oracle of the store: its objects by key, and its version.
#[derive(Clone, Debug)]
pub struct OracleStore<K, V> {
    rules: Rules<K, V>,
    transform: fn(V) -> V,
    /// Whether two objects with the same version have the same content.
    equal: fn(&V, &V) -> bool,
    /// The objects.
    pub objects: BTreeMap<K, V>,
    /// The versions of the objects. They are stored separately, because the transformation may remove the version from an object.
    versions: BTreeMap<K, u64>,
    /// The number of the write that stored each object.
    written: BTreeMap<K, u64>,
    writes: u64,
    /// The version.
    pub version: u64,
    /// Whether the store has received a complete list.
    pub listed: bool,
}

/// An object that arrives: its key, its version, and the transformed object, which is stored.
type Arrived<K, V> = (K, u64, V);

impl<K: Ord + Clone, V: Clone> OracleStore<K, V> {
    /// Creates an empty store.
    #[must_use]
    pub fn new(rules: Rules<K, V>) -> Self {
        Self::with_transform(rules, |object| object)
    }

    /// Creates an empty store that stores each object as `transform` returns it. The key and the version of an object are read before the
    /// transformation.
    #[must_use]
    pub fn with_transform(rules: Rules<K, V>, transform: fn(V) -> V) -> Self {
        Self {
            rules,
            transform,
            equal: |_, _| true,
            objects: BTreeMap::new(),
            versions: BTreeMap::new(),
            written: BTreeMap::new(),
            writes: 0,
            version: 0,
            listed: false,
        }
    }

    /// Makes the store compare the contents of objects: a listed object that has the same version as the stored one counts as unchanged only if
    /// `equal` returns true.
    #[must_use]
    pub fn comparing(mut self, equal: fn(&V, &V) -> bool) -> Self {
        self.equal = equal;
        self
    }

    fn arrived(&self, object: V) -> Arrived<K, V> {
        ((self.rules.key)(&object), (self.rules.version)(&object), (self.transform)(object))
    }

    /// Stores the object of a watch event, unless the stored object is newer.
    pub fn upsert(&mut self, new: V) -> (OracleOutcome, Option<OracleStep<K, V>>) {
        let arrived = self.arrived(new);
        self.write(arrived)
    }

    fn write(&mut self, (key, version, new): Arrived<K, V>) -> (OracleOutcome, Option<OracleStep<K, V>>) {
        self.bookmark(version);
        let Some(old) = self.objects.get(&key).cloned() else {
            self.put(key.clone(), version, new.clone());
            return (OracleOutcome::Added, Some(OracleStep::Added { key, new, initial: false }));
        };
        let stored = self.versions[&key];
        let another = !(self.rules.same)(&old, &new);
        if self.rules.is_stale_upsert((stored, &old), version, &new) {
            return (OracleOutcome::Stale(stored), None);
        }
        self.put(key.clone(), version, new.clone());
        if another {
            return (OracleOutcome::Replaced, Some(OracleStep::Replaced { key, old, new }));
        }
        (OracleOutcome::Updated, Some(OracleStep::Updated { key, old, new }))
    }

    fn put(&mut self, key: K, version: u64, new: V) {
        self.writes += 1;
        self.objects.insert(key.clone(), new);
        self.versions.insert(key.clone(), version);
        self.written.insert(key, self.writes);
    }

    fn take(&mut self, key: &K) {
        self.objects.remove(key);
        self.versions.remove(key);
        self.written.remove(key);
    }

    /// Deletes the stored object of a key, unless it is newer than `last`.
    pub fn delete(&mut self, key: &K, last: Option<V>) -> (OracleOutcome, Option<OracleStep<K, V>>) {
        let last = last.map(|last| self.arrived(last));
        self.erase(key, last.map(|(_, version, last)| (version, last)))
    }

    fn erase(&mut self, key: &K, last: Option<(u64, V)>) -> (OracleOutcome, Option<OracleStep<K, V>>) {
        let version = last.as_ref().map_or(0, |last| last.0);
        self.bookmark(version);
        let Some(old) = self.objects.get(key).cloned() else {
            return (OracleOutcome::Absent, None);
        };
        let stored = self.versions[key];
        let deleted = last.as_ref().map(|(version, last)| (*version, last));
        if self.rules.is_stale_deletion((stored, &old), deleted) {
            return (OracleOutcome::Stale(stored), None);
        }
        self.take(key);
        let (last, missed) = match last {
            Some((_, last)) if (self.rules.same)(&old, &last) => (last, false),
            _ => (old.clone(), true),
        };
        (OracleOutcome::Deleted, Some(OracleStep::Deleted { key: key.clone(), old, last, missed }))
    }

    /// Raises the version of the store to `version`, unless it is already higher.
    pub fn bookmark(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    /// Stores a listed object and returns the step that this causes; `None` if the object is the same as the stored one.
    fn list(&mut self, (key, version, new): Arrived<K, V>) -> Option<OracleStep<K, V>> {
        let step = match self.objects.get(&key).cloned() {
            None => OracleStep::Added { key: key.clone(), new: new.clone(), initial: !self.listed },
            Some(old) if !(self.rules.same)(&old, &new) => {
                OracleStep::Replaced { key: key.clone(), old, new: new.clone() }
            }
            Some(old) if self.versions[&key] == version && version != 0 && (self.equal)(&old, &new) => {
                return None;
            }
            Some(old) => OracleStep::Updated { key: key.clone(), old, new: new.clone() },
        };
        self.put(key, version, new);
        Some(step)
    }

    /// Returns the keys of the objects for which `test` returns true.
    pub fn which(&self, test: impl Fn(&V) -> bool) -> Vec<K> {
        self.objects.iter().filter(|(_, object)| test(object)).map(|(key, _)| key.clone()).collect()
    }

    /// Returns all values that `values` returns for any object and that `within` accepts, in ascending order. Each comes with the keys of the objects
    /// that have it.
    pub fn by_values<IK: Ord>(
        &self,
        values: impl Fn(&V) -> Vec<IK>,
        within: impl Fn(&IK) -> bool,
    ) -> Vec<(IK, Vec<K>)> {
        let values_of = |(key, object): (&K, &V)| {
            let within = values(object).into_iter().filter(&within);
            within.map(|value| (value, key.clone())).collect::<Vec<_>>()
        };
        let mut pairs: Vec<(IK, K)> = self.objects.iter().flat_map(values_of).collect();
        pairs.sort();
        pairs.dedup();
        let mut groups: Vec<(IK, Vec<K>)> = Vec::new();
        for (value, key) in pairs {
            match groups.last_mut().filter(|(last, _)| *last == value) {
                Some((_, keys)) => keys.push(key),
                None => groups.push((value, vec![key])),
            }
        }
        groups
    }
}

/// A list that is being received, with a copy of the store that was made when the list began.
#[derive(Clone, Debug)]
pub struct OracleStage<K, V> {
    base: OracleStore<K, V>,
    listed: Vec<Arrived<K, V>>,
    /// The keys whose stored objects are kept, each with the number of the write that stored its object.
    kept: BTreeMap<K, u64>,
}

impl<K: Ord + Clone, V: Clone> OracleStage<K, V> {
    /// Begins a list.
    #[must_use]
    pub fn new(store: &OracleStore<K, V>) -> Self {
        Self { base: store.clone(), listed: Vec::new(), kept: BTreeMap::new() }
    }

    /// The number of listed keys.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// Adds an object to the list. If a key is listed twice, the later object replaces the earlier one. For an unchanged object, the stored object is
    /// used instead of the listed one.
    pub fn put(&mut self, object: V) {
        let (key, version, mut new) = self.base.arrived(object);
        if self.base.clone().list((key.clone(), version, new.clone())).is_none() {
            new = self.base.objects[&key].clone();
        }
        match self.listed.iter_mut().find(|(other, ..)| *other == key) {
            Some(earlier) => {
                self.kept.remove(&key);
                *earlier = (key, version, new);
            }
            None => self.listed.push((key, version, new)),
        }
    }

    /// Returns the stored objects whose keys are not in the list.
    pub fn missing(&self) -> Vec<(K, V)> {
        let stored =
            self.base.objects.iter().filter(|(key, _)| self.listed.iter().all(|(other, ..)| other != *key));
        stored.map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    /// Adds the stored object of a key to the list, so that the object stays unchanged when the list is published.
    pub fn keep(&mut self, key: &K) {
        self.listed.push((key.clone(), self.base.versions[key], self.base.objects[key].clone()));
        self.kept.insert(key.clone(), self.base.written[key]);
    }

    /// Removes a key from the list.
    pub fn remove(&mut self, key: &K) {
        self.kept.remove(key);
        self.listed.retain(|(other, ..)| other != key);
    }

    /// Replaces the content of the store by the list. Returns the steps that this causes: first the deletions, in no defined order, then the others.
    pub fn publish(self, store: &mut OracleStore<K, V>, version: u64) -> Vec<OracleStep<K, V>> {
        let mut steps = Vec::new();
        for (key, old) in store.objects.clone() {
            if self.listed.iter().all(|(other, ..)| *other != key) {
                store.take(&key);
                steps.push(OracleStep::Deleted { key, last: old.clone(), old, missed: true });
            }
        }
        for arrived in self.listed {
            // A kept object causes no step, unless the store has written its key since the list began.
            if self.kept.get(&arrived.0).is_none_or(|write| store.written.get(&arrived.0) != Some(write)) {
                steps.extend(store.list(arrived));
            }
        }
        (store.version, store.listed) = (version, true);
        steps
    }
}

/// Several writes that are committed together, as if they were made one after the other.
#[derive(Clone, Debug)]
pub struct OracleTransaction<K, V> {
    writes: Vec<(K, Vec<Write<V>>)>,
}

#[derive(Clone, Debug)]
enum Write<V> {
    Upsert(u64, V),
    Delete(Option<(u64, V)>),
}

impl<K, V> Default for OracleTransaction<K, V> {
    fn default() -> Self {
        Self { writes: Vec::new() }
    }
}

impl<K: Ord + Clone, V: Clone> OracleTransaction<K, V> {
    /// The number of keys that the transaction writes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Adds the write of an object to the transaction.
    pub fn upsert(&mut self, store: &OracleStore<K, V>, object: V) {
        let (key, version, new) = store.arrived(object);
        self.put(key, Write::Upsert(version, new));
    }

    /// Adds the deletion of a key to the transaction.
    pub fn delete(&mut self, store: &OracleStore<K, V>, key: K, last: Option<V>) {
        let last = last.map(|last| store.arrived(last)).map(|(_, version, last)| (version, last));
        self.put(key, Write::Delete(last));
    }

    fn put(&mut self, key: K, write: Write<V>) {
        match self.writes.iter_mut().find(|(other, _)| *other == key) {
            Some((_, writes)) => writes.push(write),
            None => self.writes.push((key, vec![write])),
        }
    }

    /// Applies all writes, and returns for each key the step from its object before to its object after them, deletions first.
    pub fn commit(self, store: &mut OracleStore<K, V>) -> Vec<OracleStep<K, V>> {
        let (mut deleted, mut changed) = (Vec::new(), Vec::new());
        let same = store.rules.same;
        for (key, writes) in self.writes {
            let (before, written) = (store.objects.get(&key).cloned(), store.written.get(&key).copied());
            let is_before = |last: &V| before.as_ref().is_some_and(|before| same(before, last));
            let mut last_state = None;
            for write in writes {
                match write {
                    Write::Upsert(version, new) => drop(store.write((key.clone(), version, new))),
                    Write::Delete(last) => {
                        let state = last.as_ref().map(|(_, last)| last.clone()).filter(&is_before);
                        if store.erase(&key, last).1.is_some() {
                            last_state = state.or(last_state);
                        }
                    }
                }
            }
            match (before, store.objects.get(&key).cloned()) {
                (None, None) => {}
                (None, Some(new)) => changed.push(OracleStep::Added { key, new, initial: false }),
                (Some(old), None) => {
                    let missed = last_state.is_none();
                    let last = last_state.unwrap_or_else(|| old.clone());
                    deleted.push(OracleStep::Deleted { key, old, last, missed });
                }
                (Some(_), Some(_)) if store.written.get(&key).copied() == written => {}
                (Some(old), Some(new)) if same(&old, &new) => {
                    changed.push(OracleStep::Updated { key, old, new })
                }
                (Some(old), Some(new)) => changed.push(OracleStep::Replaced { key, old, new }),
            }
        }
        deleted.extend(changed);
        deleted
    }
}

/// A consumer that applies the changes that it receives, and asserts that each of them is possible after the previous ones.
#[derive(Clone, Debug)]
pub struct Consumer<K, V> {
    same: fn(&V, &V) -> bool,
    /// The objects, as they are after all changes that were applied.
    pub held: BTreeMap<K, V>,
    /// Whether all initial objects were delivered. After that, no addition may be marked as initial.
    pub initial_processed: bool,
}

impl<K: Ord + Clone + Debug, V: Clone + Debug + PartialEq> Consumer<K, V> {
    /// A consumer without objects.
    #[must_use]
    pub fn new(same: fn(&V, &V) -> bool) -> Self {
        Self { same, held: BTreeMap::new(), initial_processed: false }
    }

    /// Applies a change.
    ///
    /// # Panics
    /// Panics if the change is not possible: an addition of a key that is present, an addition that is marked as initial after all initial objects
    /// were delivered, an update whose old state is not the state that was delivered before, or an update, replacement or deletion of a key that is
    /// absent or that has a different object.
    pub fn apply(&mut self, change: OracleChange<K, V>) {
        match change {
            OracleChange::Added { key, object, initial } => {
                assert!(
                    !(initial && self.initial_processed),
                    "{key:?} is initial although the initial objects were complete"
                );
                assert!(self.held.insert(key.clone(), object).is_none(), "{key:?} was added twice");
            }
            OracleChange::Updated { key, old, new } => {
                assert!((self.same)(&old, &new), "{key:?} was updated to another object");
                let held = self.held.insert(key.clone(), new);
                assert_eq!(
                    held.as_ref(),
                    Some(&old),
                    "{key:?} was updated from another state than the delivered one"
                );
            }
            OracleChange::Replaced { key, last, new } => {
                assert!(!(self.same)(&last, &new), "{key:?} was replaced by the same object");
                let held = self.held.insert(key.clone(), new);
                let held = held.unwrap_or_else(|| panic!("{key:?} was replaced and is not known"));
                assert!((self.same)(&held, &last), "{key:?} was replaced as another object");
            }
            OracleChange::Deleted { key, last, .. } => {
                let held = self.held.remove(&key);
                let held = held.unwrap_or_else(|| panic!("{key:?} was deleted and is not known"));
                assert!((self.same)(&held, &last), "{key:?} was deleted as another object");
            }
        }
    }
}
