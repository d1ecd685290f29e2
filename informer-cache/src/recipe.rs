//! PURE. What a store asks about its objects: the one place that runs the owner's functions.
//!
//! All of it happens outside every lock and before anything changes, so a function may panic, block or call back
//! into the store. A recipe never changes: with another set of indexes the store has another recipe, and what was asked
//! under the old one is asked again where it has to be.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::index::Definition;
use crate::record::{Record, Values};
use crate::seed::Seed;
use crate::{MissingIndex, Schema, Version};

/// What a store asks about its objects.
pub(crate) struct Recipe<V> {
    pub(crate) indexes: Vec<Arc<Definition<V>>>,
}

/// How a store reads an object; never changes.
pub(crate) struct Reading<K, V> {
    pub(crate) schema: Schema<K, V>,
    pub(crate) transform: Option<fn(V) -> V>,
    pub(crate) seed: Seed,
}

// Not derived: functions and a number.

impl<K, V> Copy for Reading<K, V> {}

impl<K, V> Clone for Reading<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Hash, V> Reading<K, V> {
    /// Reads an object: key and version as it came, the rest as it is to be stored.
    pub(crate) fn read(&self, object: V) -> Arrived<K, V> {
        let (hash, key) = self.name(&object);
        self.read_named(hash, key, object)
    }

    /// The key of an object, and its hash.
    pub(crate) fn name(&self, object: &V) -> (u64, K) {
        let key = self.schema.key(object);
        (self.seed.hash_one(&key), key)
    }

    /// Reads the rest of an object.
    pub(crate) fn read_named(&self, hash: u64, key: K, object: V) -> Arrived<K, V> {
        let version = self.schema.version(&object);
        Arrived { hash, key, version, object: Arc::new(self.transform(object)) }
    }

    pub(crate) fn transform(&self, object: V) -> V {
        match self.transform {
            Some(transform) => transform(object),
            None => object,
        }
    }
}

/// An object as it was read, before anybody looked for what is stored under its key.
pub(crate) struct Arrived<K, V> {
    pub(crate) hash: u64,
    pub(crate) key: K,
    version: Version,
    object: Arc<V>,
}

impl<K, V> Arrived<K, V> {
    /// As a record, after the one with this key if there is one.
    pub(crate) fn after(self, old: Option<&Record<K, V>>) -> Record<K, V> {
        let Self { hash, key, version, object } = self;
        match old {
            Some(old) => {
                // First, since a panic of it would take along what is being returned.
                drop(key);
                old.next(version, object)
            }
            None => Record::new(hash, key, version, object),
        }
    }
}

/// What the indexes of a recipe say about an object.
pub(crate) struct Drafted<V> {
    pub(crate) recipe: Arc<Recipe<V>>,
    /// One for each index.
    pub(crate) values: Vec<Values>,
}

impl<V: 'static> Drafted<V> {
    pub(crate) fn new(recipe: Arc<Recipe<V>>, object: &V, seed: &Seed) -> Self {
        let values = recipe.indexes.iter().map(|index| index.values(object, seed)).collect();
        Self { recipe, values }
    }

    /// That of an object whose key had another one with these values. Equal values are kept, so that most updates neither
    /// allocate nor hash for an index.
    pub(crate) fn update(recipe: Arc<Recipe<V>>, object: &V, old: Vec<Values>, seed: &Seed) -> Self {
        if old.len() != recipe.indexes.len() {
            return Self::new(recipe, object, seed);
        }
        let mut values = old;
        for (value, index) in values.iter_mut().zip(&recipe.indexes) {
            index.update(value, object, seed);
        }
        Self { recipe, values }
    }

    /// What was drafted before, as far as it goes.
    pub(crate) fn again(
        before: Option<Self>,
        recipe: Arc<Recipe<V>>,
        object: &V,
        old: Vec<Values>,
        seed: &Seed,
    ) -> Self {
        let Some(mut drafted) = before else { return Self::update(recipe, object, old, seed) };
        drafted.values.iter_mut().for_each(Values::let_go);
        drafted.renew(&recipe, object, |_| None, seed);
        drafted
    }

    /// Becomes that of another recipe. An index that both have is not asked again, nor one whose values `stored` knows, by its place in the recipe.
    pub(crate) fn renew(
        &mut self,
        recipe: &Arc<Recipe<V>>,
        object: &V,
        stored: impl Fn(usize) -> Option<Values>,
        seed: &Seed,
    ) {
        if Arc::ptr_eq(&self.recipe, recipe) {
            return;
        }
        let known = |index| self.recipe.indexes.iter().position(|other| Arc::ptr_eq(other, index));
        // All new values first, as the functions may panic.
        let new: Vec<_> = recipe
            .indexes
            .iter()
            .enumerate()
            .map(|(at, index)| match known(index) {
                Some(at) => Ok(at),
                None => Err(stored(at).unwrap_or_else(|| index.values(object, seed))),
            })
            .collect();
        let values = new.into_iter().map(|value| match value {
            Ok(at) => std::mem::replace(&mut self.values[at], Values::NONE),
            Err(new) => new,
        });
        self.values = values.collect();
        self.recipe = recipe.clone();
    }

    /// Taken out; what stays says nothing.
    pub(crate) fn take(&mut self) -> Self {
        Self { recipe: self.recipe.clone(), values: std::mem::take(&mut self.values) }
    }
}

impl<V> Recipe<V> {
    /// Where this very index is.
    pub(crate) fn place(&self, index: &Arc<Definition<V>>) -> Option<usize> {
        self.indexes.iter().position(|known| Arc::ptr_eq(known, index))
    }

    pub(crate) fn find<IK: 'static>(&self, name: &'static str) -> Result<usize, MissingIndex>
    where
        V: 'static,
    {
        let found = self.indexes.iter().position(|index| index.is::<IK>(name));
        found.ok_or(MissingIndex { name })
    }
}
