//! SHELL. Indexes that come and go while the store runs.
//!
//! A new index is first made known: from then on every write fills it, and its column is not asked. Then the objects there were at
//! that instant are gone through, a few at a time: the index function without a lock, and under the locks what it said, for each row that still
//! has the same record. (One that has another was written since, and is in the column.) Last the column is opened to readers.
//!
//! Writers that drafted an object under the old recipe find another one when they commit, and draft what is missing.

use std::hash::Hash;
use std::sync::Arc;

use crate::feed::Feed;
use crate::held::HeldSnapshots;
use crate::index::Definition;
use crate::inner::Inner;
use crate::interest::Interest;
use crate::recipe::Recipe;
use crate::record::{Record, Values};
use crate::table::{Column, Garbage, Plan, Table};
use crate::wakers::Wakers;
use crate::{DuplicateIndex, MissingIndex};

/// So many objects get into a new index under one lock.
const CHUNK: usize = 64;

impl<K: Clone + Eq + Hash, V: 'static> Inner<K, V> {
    pub(crate) fn add_index(&self, index: Definition<V>) -> Result<(), DuplicateIndex> {
        let index = Arc::new(index);
        let column = Arc::new(Column::new(&*index, false));
        let base = {
            let _writing = self.writing.lock();
            let mut published = self.published.write();
            if published.table.recipe.indexes.iter().any(|known| known.name == index.name) {
                return Err(DuplicateIndex { name: index.name });
            }
            self.note_superseded(&mut published);
            let table = Arc::make_mut(&mut published.table);
            let indexes = table.recipe.indexes.iter().chain([&index]).cloned().collect();
            table.recipe = Arc::new(Recipe { indexes });
            table.columns.push(column);
            table.revision += 1;
            published.table.clone()
        };
        let coming = Coming { inner: self, index };
        let mut rows = base.rows.iter();
        loop {
            let chunk = rows.by_ref().take(CHUNK).map(|(row, record)| {
                let values = coming.index.values(&record.object, &self.reading.seed);
                (row, record, values)
            });
            let chunk: Vec<_> = chunk.collect();
            if chunk.is_empty() {
                break;
            }
            if !coming.fill(&chunk) {
                break;
            }
        }
        coming.open();
        Ok(())
    }

    pub(crate) fn remove_index(&self, index: &Definition<V>) -> Result<(), MissingIndex> {
        match self.take_index(|known, column| column.ready && known.is_like(index)) {
            true => Ok(()),
            false => Err(MissingIndex { name: index.name }),
        }
    }

    /// Takes out the index that `which` accepts, if there is one.
    fn take_index(&self, which: impl Fn(&Definition<V>, &Column) -> bool) -> bool {
        let writing = self.writing.lock();
        let mut published = self.published.write();
        let table = &published.table;
        let found =
            table.recipe.indexes.iter().zip(&table.columns).position(|(index, column)| which(index, column));
        let Some(at) = found else { return false };
        self.note_superseded(&mut published);
        let table = Arc::make_mut(&mut published.table);
        let mut indexes = table.recipe.indexes.clone();
        let index = indexes.remove(at);
        let recipe = std::mem::replace(&mut table.recipe, Arc::new(Recipe { indexes }));
        let column = table.columns.remove(at);
        table.revision += 1;
        let feeds = published.feeds.clone();
        drop(published);
        let mut wakers = Wakers::default();
        let of_it = |feed: &Feed<K, V>| matches!(feed.interest(), Some(Interest::Value { index: of, .. }) if Arc::ptr_eq(of, &index));
        feeds.iter().filter(|feed| of_it(feed)).for_each(|feed| feed.end(&mut wakers));
        drop(writing);
        wakers.wake();
        // After unlocking: its values are the user's.
        drop((column, recipe, index));
        true
    }

    pub(crate) fn held_snapshots(&self) -> HeldSnapshots {
        let (states, oldest) = self.held.oldest();
        let now = self.table().revision;
        HeldSnapshots {
            states,
            oldest: oldest.map(|(version, _)| version),
            behind: oldest.map_or(0, |(_, revision)| now.saturating_sub(revision)),
        }
    }
}

/// A row, its record, and what the function said about it.
type Said<'a, K, V> = (u32, &'a Record<K, V>, Values);

/// An index that is being added. Dropped before it is opened, by a panic of `Eq` or `Ord` of its values, it is taken out again.
struct Coming<'a, K: Clone + Eq + Hash, V: 'static> {
    inner: &'a Inner<K, V>,
    index: Arc<Definition<V>>,
}

impl<K: Clone + Eq + Hash, V: 'static> Coming<'_, K, V> {
    fn place(&self, table: &Table<K, V>) -> Option<usize> {
        table.recipe.indexes.iter().position(|index| Arc::ptr_eq(index, &self.index))
    }

    /// Fills in what the function said of some rows.
    fn fill(&self, chunk: &[Said<'_, K, V>]) -> bool {
        let (mut plan, mut garbage) = (Plan::default(), Garbage::default());
        let _writing = self.inner.writing.lock();
        let mut published = self.inner.published.write();
        let Some(at) = self.place(&published.table) else { return false };
        for (row, record, values) in chunk {
            if published.table.has(*row, record) {
                self.inner.note_superseded(&mut published);
                // A relist may have brought this very record back, and another answer with it, if the function is not pure.
                published.table.plan_column(at, *row, values, &mut plan);
                Arc::make_mut(&mut published.table).fill(*row, &mut plan, &mut garbage);
            }
        }
        true
    }

    /// Lets readers ask it.
    fn open(&self) {
        let _writing = self.inner.writing.lock();
        let mut published = self.inner.published.write();
        if let Some(at) = self.place(&published.table) {
            self.inner.note_superseded(&mut published);
            let table = Arc::make_mut(&mut published.table);
            Arc::make_mut(&mut table.columns[at]).ready = true;
        }
    }
}

impl<K: Clone + Eq + Hash, V: 'static> Drop for Coming<'_, K, V> {
    fn drop(&mut self) {
        self.inner.take_index(|index, column| !column.ready && std::ptr::eq(index, &*self.index));
    }
}
