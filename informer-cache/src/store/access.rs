//! SHELL. The operations of a [`Writer`](crate::Writer) and of a [`SharedWriter`], which have the same implementation.
//!
//! This module guards no data. A step of a write runs with the only [`WriterCore`] of a store: a `Writer` has it to itself, a `SharedWriter` locks it
//! for the step. What a step leaves to be done or dropped is in the caller's `after`, and runs after the step.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};

use flyball_sync::panics::DropContained;

use super::effects::Effects;
use super::indexes::IndexBuild;
use super::object_reader::{ParsedObject, transformed};
use super::publication::{Publication, Stage};
use super::relist::{RelistDraft, Unlisted};
use super::write::{VersionAdvance, WriterCore};
use crate::table::record::{Object, allocated};
use crate::table::{KeyWrite, Table};
use crate::{
    AnyIndex, Change, DuplicateIndex, MissingIndex, SharedWriter, Store, Version, WatchEvent, WriteOutcome,
};

/// Access to the writer of a store.
pub(super) enum Access<'a, K, V> {
    /// The access of a `Writer`.
    Exclusive(&'a mut WriterCore<K, V>),
    /// The access of a `SharedWriter`.
    Locked(&'a SharedWriter<K, V>),
}

/// A list that replaces the content of a store. What is left of it is dropped after the step, even if user code panics in it.
struct Replacement<K, V> {
    /// The objects that are not listed yet.
    items: VecDeque<ParsedObject<K, V>>,
    draft: Option<RelistDraft<K, V>>,
    unlisted: Unlisted<K, V>,
    list: Option<Publication<K, V>>,
}

/// The number of rounds in which a new index is updated while other threads can write. One more round follows, which blocks other writers.
const ROUNDS: usize = 3;

impl<K, V> Access<'_, K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn store(&self) -> &Store<K, V> {
        match self {
            Self::Exclusive(core) => &core.store,
            Self::Locked(writer) => writer,
        }
    }

    pub(super) fn apply(self, event: WatchEvent<V>) -> WriteOutcome {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => self.upsert(object),
            WatchEvent::Deleted(object) => {
                let object = DropContained::new(object);
                let key = DropContained::new(self.store().inner.reader.schema.key(&object));
                self.delete(&*key, Some(object.into_inner()))
            }
            WatchEvent::Bookmark(version) | WatchEvent::InitialListEnd(version) => {
                self.bookmark(version);
                WriteOutcome::Bookmarked
            }
        }
    }

    #[inline]
    pub(super) fn upsert(self, object: V) -> WriteOutcome {
        let object = allocated(object);
        let inner = &self.store().inner;
        let (hash, key) = inner.reader.name(&object);
        if let Self::Exclusive(core) = &self {
            // The cache miss overlaps with moving the object to its allocation.
            core.prefetch(hash);
        }
        let mut arrived = Some(inner.reader.read_named(hash, key, object, inner.transform.as_ref()));
        self.write(|core, effects| core.upsert(&mut arrived, effects))
    }

    pub(super) fn delete<Q>(self, key: &Q, last: Option<V>) -> WriteOutcome
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (hash, last, version) = self.store().deletion(key, last.map(allocated));
        self.write(|core, effects| core.delete((hash, key), last.as_ref(), version, effects))
    }

    pub(super) fn bookmark(self, version: Version) {
        self.write(|core, effects| core.bookmark(version, effects));
    }

    pub(super) fn replace(
        mut self,
        items: impl IntoIterator<Item = V>,
        version: Version,
    ) -> Vec<Change<K, V>> {
        if let Self::Exclusive(core) = &self {
            // No other thread can write, so each object is compared, and dropped if it is unchanged, before the next one is read.
            let mut draft = RelistDraft::new(&core.store);
            let mut items = DropContained::new(items.into_iter());
            items.by_ref().for_each(|item| draft.insert(item));
            drop(items);
            return self.publish(draft, version);
        }
        let inner = &self.store().inner;
        let mut rest = DropContained::new(items.into_iter());
        let items = rest.by_ref().map(|item| inner.read(allocated(item))).collect();
        drop(rest);
        let mut replacement = Replacement { items, draft: None, unlisted: Unlisted::default(), list: None };
        self.step(&mut replacement, |core, Replacement { items, draft, unlisted, list }| {
            core.release_table();
            let listing = draft.insert(RelistDraft::new(&core.store));
            while listing.insert_next(items, unlisted) {}
            if let Some(draft) = draft.take() {
                list.insert(Publication::of_list(&core.store, draft, version)).run_to(Stage::Reporting);
            }
        });
        let Replacement { list, unlisted, .. } = replacement;
        let changes = finish(list);
        // Dropped explicitly, because a panic in a destructor while the function returns would leak the return value.
        drop(unlisted);
        changes
    }

    /// Publishes a list, which was compared with the state that the store still has.
    pub(super) fn publish(mut self, draft: RelistDraft<K, V>, version: Version) -> Vec<Change<K, V>> {
        let mut list = Some(Publication::of_list(self.store(), draft, version));
        self.step(&mut list, |core, list| {
            core.release_table();
            list.iter_mut().for_each(|list| list.run_to(Stage::Reporting));
        });
        finish(list)
    }

    /// Publishes writes, which `compare` creates from the published table.
    pub(super) fn commit(
        mut self,
        version: Version,
        compare: impl FnOnce(&Table<K, V>) -> Vec<KeyWrite<K, V>>,
    ) -> Vec<Change<K, V>> {
        let mut writes = None;
        self.step(&mut writes, |core, writes| {
            core.release_table();
            let table = core.inner().table();
            let compared = compare(&table);
            let store = core.store.clone();
            let publication = Publication::new(store, table, VersionAdvance::Changes(version), compared);
            writes.insert(publication).run_to(Stage::Reporting);
        });
        finish(writes)
    }

    pub(super) fn add_index(self, index: &impl AnyIndex<V>) -> Result<(), DuplicateIndex> {
        let mut build = IndexBuild::new(index.define(), self.store())?;
        // Each round after the first indexes the objects that were written during the previous round.
        for _ in 0..ROUNDS {
            build.catch_up(self.store().inner.table());
        }
        self.write(|core, _| {
            build.catch_up(core.table());
            build.install(core)
        })
    }

    pub(super) fn remove_index(self, index: &impl AnyIndex<V>) -> Result<(), MissingIndex> {
        let index = index.define();
        let removed = self.write(|core, effects| core.remove_index(&index, effects));
        drop(removed?);
        Ok(())
    }

    pub(super) fn close(self) {
        self.write(|core, effects| core.close(effects));
    }

    /// Performs a write of one key, or of none.
    #[inline]
    pub(super) fn write<R>(
        mut self,
        write: impl FnOnce(&mut WriterCore<K, V>, &mut Effects<K, V>) -> R,
    ) -> R {
        let mut effects = Effects::default();
        let written = self.step(&mut effects, write);
        effects.finish(&self.store().inner);
        if let Self::Exclusive(core) = &mut self {
            core.drop_values(std::mem::take(&mut effects.values));
        }
        // `effects` is dropped explicitly, because a panic in a destructor while the function returns would leak the return value.
        drop(effects);
        written
    }

    /// Runs `step` with the writer. `step` puts the work that must run without a lock into `after`, which the caller drops later, even if `step` panics.
    #[inline]
    fn step<E, R>(&mut self, after: &mut E, step: impl FnOnce(&mut WriterCore<K, V>, &mut E) -> R) -> R {
        match self {
            Self::Exclusive(core) => step(core, after),
            Self::Locked(writer) => writer.turn(after, step),
        }
    }
}

/// Reports the changes of a publication, and returns them.
fn finish<K, V>(publication: Option<Publication<K, V>>) -> Vec<Change<K, V>>
where
    K: Eq + Hash,
    V: 'static,
{
    let mut publication = publication.expect("the writes were published in a step");
    publication.run_to(Stage::Done);
    publication.into_changes()
}

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Prepares a deletion: returns the hash of the key, the last state after the transformation, and the version of the last state.
    pub(super) fn deletion<Q>(&self, key: &Q, last: Option<Object<V>>) -> (u64, Option<Object<V>>, Version)
    where
        Q: Hash + ?Sized,
    {
        let reader = &self.inner.reader;
        let hash = reader.seed.hash_one(key);
        let version = last.as_ref().map_or(Version::ZERO, |last| reader.schema.version(last));
        (hash, last.map(|last| transformed(last, self.inner.transform.as_ref())), version)
    }
}
