//! SHELL. A relist in the making: collected page by page, published at once, or thrown away.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::due::Due;
use crate::inner::Inner;
use crate::pending::State;
use crate::record::Record;
use crate::relist::{Verdict, judge};
use crate::step::Step;
use crate::{Change, Schema, Version};

/// A list that is not complete yet; made by [`Store::stage`](crate::Store::stage).
///
/// Nothing of it is seen before [`publish`](Self::publish). Dropping it throws the half list away. A key that is listed twice counts once, with its
/// last object.
pub struct Stage<K, V> {
    inner: Arc<Inner<K, V>>,
    listed: Vec<Arc<Record<K, V>>>,
    /// Where in `listed` a key is.
    places: HashTable<usize>,
}

impl<K, V> Stage<K, V>
where
    K: Clone + Eq + Hash,
    V: 'static,
{
    pub(crate) fn new(inner: Arc<Inner<K, V>>) -> Self {
        Self { inner, listed: Vec::new(), places: HashTable::new() }
    }

    /// The number of keys listed so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// Whether nothing is listed so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Lists one object. The index functions run here, once.
    pub fn put(&mut self, object: V) {
        let record = Arc::new(self.inner.recipe.record(object));
        let (listed, places) = (&mut self.listed, &mut self.places);
        let known =
            places.find(record.hash, |&at| listed[at].hash == record.hash && listed[at].key == record.key);
        match known {
            Some(&at) => drop(std::mem::replace(&mut listed[at], record)),
            None => {
                let hash = record.hash;
                listed.push(record);
                places.insert_unique(hash, listed.len() - 1, |&at| listed[at].hash);
            }
        }
    }

    /// Makes the listed objects the store's, at this version, and says what changed: deletions first, with the last known state, then
    /// updates and additions in the order of the list.
    ///
    /// Everything that is not listed is deleted. What is listed with the version and identity it is stored with did not change; the stored object
    /// stays. The list wins even when it is older than the store. An object that another writer changes
    /// while the difference is being computed counts as changed.
    ///
    /// Readers keep reading the old state until they see the new one; other writers wait. O(stored + listed).
    pub fn publish(mut self, version: Version) -> Vec<Change<K, V>> {
        let schema = self.inner.recipe.schema;
        let base = self.inner.table();
        let verdicts: Vec<_> = self
            .listed
            .iter_mut()
            .map(|new| {
                let old = base.find(new.hash, |key| *key == new.key)?.clone();
                let verdict = judge(&schema, &old, new);
                if let Some(new) = Arc::get_mut(new) {
                    self.inner.recipe.share_labels(new, &old);
                }
                Some((old, verdict))
            })
            .collect();
        drop(base);
        let steps = self.inner.replace(version, std::mem::take(&mut self.listed), |at, stored| {
            match &verdicts[at] {
                Some((judged, verdict)) if Arc::ptr_eq(judged, stored) => *verdict,
                // Another writer was here in between. Identity cannot be asked for under a lock, so whoever tells of it does.
                _ => Verdict::Replaced,
            }
        });
        let changes = changes(&steps, &schema);
        // Here, because an object whose drop panics while this function returns would take the return value with it.
        drop((steps, verdicts, self));
        changes
    }
}

/// What the caller is told of a relist.
fn changes<K: Clone, V>(steps: &[Step<K, V>], schema: &Schema<K, V>) -> Vec<Change<K, V>> {
    let changes = steps.iter().flat_map(|step| Due::Changed(State::first(step)).changes(schema)).flatten();
    let mut changes: Vec<_> = changes.collect();
    Change::sort(&mut changes);
    changes
}

impl<K, V> fmt::Debug for Stage<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("len", &self.listed.len()).finish_non_exhaustive()
    }
}
