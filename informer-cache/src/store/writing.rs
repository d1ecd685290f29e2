//! SHELL. Writing to a store. What a write is judged by is looked up first, without holding anything; the commit confirms it, and
//! where another writer was quicker, the write is judged again.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::inner::Found;
use crate::recipe::Drafted;
use crate::record::Record;
use crate::relist::Verdict;
use crate::step::{Last, Step};
use crate::table::Side;
use crate::{Change, Event, Outcome, Schema, Stage, Store, Transaction, Version};

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Applies a watch event. Only whether it is a deletion counts, not whether it says that the object is new.
    pub fn apply(&self, event: Event<V>) -> Outcome {
        match event {
            Event::Added(object) | Event::Modified(object) => self.upsert(object),
            Event::Deleted(object) => self.delete(&self.inner.reading.schema.key(&object), Some(object)),
            Event::Bookmark(version) | Event::InitialEnd(version) => {
                self.bookmark(version);
                Outcome::Noted
            }
        }
    }

    /// Applies watch events, one after the other; how many of them changed an object.
    pub fn apply_many(&self, events: impl IntoIterator<Item = Event<V>>) -> usize {
        events.into_iter().map(|event| self.apply(event)).filter(|outcome| outcome.is_change()).count()
    }

    /// Stores an object, new or newer.
    ///
    /// Never goes back: the same object at the stored version or an older one is [stale](Outcome::Stale), unless one of the two has no
    /// version. Another object under the key, by the schema's identity, replaces the stored one unless its version is older.
    /// The store's version grows to that of the object, also when it is stale.
    ///
    /// Events of different objects may come in any order. A deleted object leaves nothing behind to compare with: an event of it that comes late adds it again.
    /// (An [`Informer`](crate::Informer) remembers deletions, so there it does not.)
    ///
    /// # Panics
    /// Only as functions of the schema, an index or a key do; then nothing has changed. The object that is replaced may be dropped here, too: a panic
    /// in that comes when all is done.
    pub fn upsert(&self, object: V) -> Outcome {
        let inner = &*self.inner;
        let arrived = inner.reading.read(object);
        let mut found = inner.find(arrived.hash, |key| *key == arrived.key);
        let new = arrived.after(found.old.as_ref().map(|(_, old)| old));
        let mut drafted = None;
        loop {
            let Found { recipe, old, values, revision } = found;
            let verdict = old.as_ref().map(|(_, old)| judge_event(&inner.reading.schema, old, &new));
            let row = old.as_ref().map(|(row, _)| *row);
            let (step, outcome) = match (old, verdict) {
                (Some((_, old)), Some(Verdict::Unchanged)) => {
                    // The source is this far all the same, and somebody may wait for that.
                    self.bookmark(new.version);
                    return Outcome::Stale { stored: old.version };
                }
                (Some((_, old)), Some(Verdict::Updated)) => {
                    (Step::Updated { old, new: new.clone() }, Outcome::Updated)
                }
                (Some((_, old)), Some(Verdict::Replaced)) => {
                    (Step::Replaced { old, new: new.clone() }, Outcome::Replaced)
                }
                (_, None) | (None, _) => (Step::Added { new: new.clone(), initial: false }, Outcome::Added),
            };
            let seed = &inner.reading.seed;
            let side = Side {
                row,
                judged: revision,
                drafted: Some(Drafted::again(drafted.take(), recipe, &new.object, values, seed)),
            };
            if inner.commit(&step, &side, new.version).is_ok() {
                return outcome;
            }
            drafted = side.drafted;
            found = inner.find(new.hash(), |key| key == new.key());
        }
    }

    /// Forgets the object of a key. `last` is its last state, if somebody knows it; otherwise the stored state is told, as one that may have
    /// missed something.
    ///
    /// A `last` that is older than what is stored is [stale](Outcome::Stale). The store's version grows to that of `last` in any case.
    ///
    /// # Panics
    /// Only as functions of the schema or a key do; then nothing has changed. As with [`upsert`](Self::upsert), a panic in the drop of what was stored
    /// comes when all is done.
    pub fn delete<Q>(&self, key: &Q, last: Option<V>) -> Outcome
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let reading = &self.inner.reading;
        let hash = reading.seed.hash_one(key);
        let version = last.as_ref().map_or(Version::ZERO, |last| reading.schema.version(last));
        let last = last.map(|last| Arc::new(reading.transform(last)));
        loop {
            let Found { old, revision, .. } = self.inner.find(hash, |known| known.borrow() == key);
            let Some((row, old)) = old else {
                self.bookmark(version);
                return Outcome::Absent;
            };
            if !version.is_none() && version < old.version {
                self.bookmark(version);
                return Outcome::Stale { stored: old.version };
            }
            let last = last_state(&reading.schema, &old, last.as_ref());
            let side = Side { row: Some(row), drafted: None, judged: revision };
            if self.inner.commit(&Step::Deleted { old, last }, &side, version).is_ok() {
                return Outcome::Deleted;
            }
        }
    }

    /// The source says that everything up to this version has been told. Never takes the store back.
    pub fn bookmark(&self, version: Version) {
        self.inner.advance(version);
    }

    /// Makes a complete list the store's content, at once, and says what changed: deletions first, with the last known state, then updates and
    /// additions. As [`stage`](Self::stage) in one go; see [`Stage::publish`].
    ///
    /// # Panics
    /// As [`Stage::publish`].
    pub fn replace(&self, items: impl IntoIterator<Item = V>, version: Version) -> Vec<Change<K, V>> {
        let mut stage = self.stage();
        for item in items {
            stage.put(item);
        }
        stage.publish(version)
    }

    /// Begins a complete list that comes in pages.
    pub fn stage(&self) -> Stage<K, V> {
        Stage::new(self.inner.clone())
    }

    /// Ends every subscription, after what is pending in it, and every wait. Again is the same.
    ///
    /// The store itself stays: it can be read, and written, but nobody is told. The same happens when its last handle is dropped.
    pub fn close(&self) {
        self.inner.close();
    }

    /// Begins a write of several objects that is seen as a whole or not at all.
    #[must_use = "a transaction that is dropped has written nothing"]
    pub fn transaction(&self) -> Transaction<K, V> {
        Transaction::new(self.inner.clone())
    }
}

/// What an event's object is to the stored one: never back in time.
pub(crate) fn judge_event<K, V>(schema: &Schema<K, V>, old: &Record<K, V>, new: &Record<K, V>) -> Verdict {
    let same = schema.same(&old.object, &new.object);
    // Two objects may share a version, where one write of the source ended the one and began the other.
    let stale = new.version < old.version || new.version == old.version && same;
    match (stale && !new.version.is_none(), same) {
        (true, _) => Verdict::Unchanged,
        (false, true) => Verdict::Updated,
        (false, false) => Verdict::Replaced,
    }
}

/// The last known state of a deleted object: what was told, if that is its own.
pub(crate) fn last_state<K, V>(schema: &Schema<K, V>, old: &Record<K, V>, told: Option<&Arc<V>>) -> Last<V> {
    match told {
        Some(last) if schema.same(&old.object, last) => Last { object: last.clone(), missed: false },
        _ => Last { object: old.object.clone(), missed: true },
    }
}
