//! A slow obvious store: one sorted map, scanned for everything.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// How the naive store reads objects.
#[derive(Clone, Copy, Debug)]
pub struct Rules<K, V> {
    /// The key.
    pub key: fn(&V) -> K,
    /// The version; 0 is none.
    pub version: fn(&V) -> u64,
    /// Whether two objects of one key are one object at two points in time.
    pub same: fn(&V, &V) -> bool,
}

/// What happened to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NaiveChange<K, V> {
    Added { key: K, object: V, initial: bool },
    Updated { key: K, old: V, new: V },
    Deleted { key: K, last: V, missed: bool },
}

impl<K, V> NaiveChange<K, V> {
    /// The key.
    pub fn key(&self) -> &K {
        match self {
            Self::Added { key, .. } | Self::Updated { key, .. } | Self::Deleted { key, .. } => key,
        }
    }
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NaiveOutcome {
    Added,
    Updated,
    Replaced,
    Deleted,
    Stale(u64),
    Absent,
}

/// What one write did to one key, as every consumer has to merge it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NaiveStep<K, V> {
    Added { key: K, new: V },
    Updated { key: K, old: V, new: V },
    Replaced { key: K, old: V, new: V },
    Deleted { key: K, old: V, last: V, missed: bool },
}

impl<K, V> NaiveStep<K, V> {
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

/// The store: its objects by key, and its version.
#[derive(Clone, Debug)]
pub struct NaiveStore<K, V> {
    rules: Rules<K, V>,
    /// The objects.
    pub objects: BTreeMap<K, V>,
    /// The version.
    pub version: u64,
}

impl<K: Ord + Clone, V: Clone> NaiveStore<K, V> {
    /// An empty one.
    #[must_use]
    pub fn new(rules: Rules<K, V>) -> Self {
        Self { rules, objects: BTreeMap::new(), version: 0 }
    }

    /// Stores an event's object, if it is newer.
    pub fn upsert(&mut self, new: V) -> (NaiveOutcome, Option<NaiveStep<K, V>>) {
        let (key, version) = ((self.rules.key)(&new), (self.rules.version)(&new));
        let Some(old) = self.objects.get(&key).cloned() else {
            self.put(new.clone());
            return (NaiveOutcome::Added, Some(NaiveStep::Added { key, new }));
        };
        let stored = (self.rules.version)(&old);
        let another = !(self.rules.same)(&old, &new);
        if version != 0 && (version < stored || (version == stored && !another)) {
            self.bookmark(version);
            return (NaiveOutcome::Stale(stored), None);
        }
        if another {
            self.put(new.clone());
            return (NaiveOutcome::Replaced, Some(NaiveStep::Replaced { key, old, new }));
        }
        self.put(new.clone());
        (NaiveOutcome::Updated, Some(NaiveStep::Updated { key, old, new }))
    }

    fn put(&mut self, new: V) {
        self.version = self.version.max((self.rules.version)(&new));
        self.objects.insert((self.rules.key)(&new), new);
    }

    /// Deletes what is not newer than `last`.
    pub fn delete(&mut self, key: &K, last: Option<V>) -> (NaiveOutcome, Option<NaiveStep<K, V>>) {
        let version = last.as_ref().map_or(0, self.rules.version);
        let Some(old) = self.objects.get(key).cloned() else {
            self.version = self.version.max(version);
            return (NaiveOutcome::Absent, None);
        };
        let stored = (self.rules.version)(&old);
        if version != 0 && version < stored {
            self.bookmark(version);
            return (NaiveOutcome::Stale(stored), None);
        }
        self.version = self.version.max(version);
        self.objects.remove(key);
        let (last, missed) = match last {
            Some(last) if (self.rules.same)(&old, &last) => (last, false),
            _ => (old.clone(), true),
        };
        (NaiveOutcome::Deleted, Some(NaiveStep::Deleted { key: key.clone(), old, last, missed }))
    }

    /// Notes a version.
    pub fn bookmark(&mut self, version: u64) {
        self.version = self.version.max(version);
    }

    /// Makes a list the content: deletions in no order, then the list's in its order.
    pub fn replace(&mut self, listed: &[V], version: u64) -> Vec<NaiveStep<K, V>> {
        // The last object of a key counts, at the place of the first.
        let mut order = Vec::new();
        let mut distinct = BTreeMap::new();
        for object in listed {
            let key = (self.rules.key)(object);
            if distinct.insert(key.clone(), object.clone()).is_none() {
                order.push(key);
            }
        }
        let mut steps = Vec::new();
        for (key, old) in &self.objects {
            if !distinct.contains_key(key) {
                let (key, old) = (key.clone(), old.clone());
                steps.push(NaiveStep::Deleted { key, last: old.clone(), old, missed: true });
            }
        }
        for key in order {
            let new = distinct[&key].clone();
            match self.objects.get(&key).cloned() {
                None => steps.push(NaiveStep::Added { key, new }),
                Some(old) if !(self.rules.same)(&old, &new) => {
                    steps.push(NaiveStep::Replaced { key, old, new });
                }
                Some(old) => {
                    let (before, after) = ((self.rules.version)(&old), (self.rules.version)(&new));
                    if before != after || after == 0 {
                        steps.push(NaiveStep::Updated { key, old, new });
                    } else {
                        // The stored object stays.
                        distinct.insert(key, old);
                    }
                }
            }
        }
        self.objects = distinct;
        self.version = version;
        steps
    }

    /// The keys of the objects for which `values` names `value`.
    pub fn by_value<IK: PartialEq>(&self, values: impl Fn(&V) -> Vec<IK>, value: &IK) -> Vec<K> {
        let hits = self.objects.iter().filter(|(_, object)| values(object).contains(value));
        hits.map(|(key, _)| key.clone()).collect()
    }
}

/// What a consumer ends up with that applies the changes it is told, and whether each of them is legal.
#[derive(Clone, Debug)]
pub struct Consumer<K, V> {
    same: fn(&V, &V) -> bool,
    /// What it holds.
    pub held: BTreeMap<K, V>,
    caught_up: bool,
}

impl<K: Ord + Clone + Debug, V: Clone + Debug + PartialEq> Consumer<K, V> {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(same: fn(&V, &V) -> bool) -> Self {
        Self { same, held: BTreeMap::new(), caught_up: false }
    }

    /// Applies a change.
    ///
    /// # Panics
    /// When it is not legal: an addition of a known key, an initial object after other changes, an update from something else
    /// than what was told, of something unknown or of another object, a deletion of something unknown or of another object.
    pub fn apply(&mut self, change: NaiveChange<K, V>) {
        match change {
            NaiveChange::Added { key, object, initial } => {
                assert!(!(initial && self.caught_up), "{key:?} is initial after a change");
                self.caught_up |= !initial;
                assert!(self.held.insert(key.clone(), object).is_none(), "{key:?} was added twice");
            }
            NaiveChange::Updated { key, old, new } => {
                self.caught_up = true;
                assert!((self.same)(&old, &new), "{key:?} was updated to another object");
                let held = self.held.insert(key.clone(), new);
                assert_eq!(held.as_ref(), Some(&old), "{key:?} was updated from something else");
            }
            NaiveChange::Deleted { key, last, .. } => {
                self.caught_up = true;
                let held = self.held.remove(&key);
                let held = held.unwrap_or_else(|| panic!("{key:?} was deleted and is not known"));
                assert!((self.same)(&held, &last), "{key:?} was deleted as another object");
            }
        }
    }
}
