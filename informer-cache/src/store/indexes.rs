//! SHELL. Indexes that are added and removed while the store runs.
//!
//! [`IndexBuild`] builds a new index outside the store, from the objects of one table, and then updates the index to later tables. An update compares
//! the later table with the one before, and skips the nodes that both tables share. The last update runs under the lock `turn` of the writer (see
//! [`SharedWriter`](crate::SharedWriter)). Then the index is installed in the published table. Before that, readers cannot use the index.

use std::hash::Hash;
use std::sync::Arc;

use super::effects::Effects;
use super::write::WriterCore;
use crate::changes::buffer::SubscriptionBuffer;
use crate::changes::selection::Selection;
use crate::table::definition::Definition;
use crate::table::index_set::IndexSet;
use crate::table::persist::NodeArc;
use crate::table::seed::Seed;
use crate::table::{Column, Garbage, Plan, Table};
use crate::{DuplicateIndex, MissingIndex, Store};

/// An index that is being built for a store.
pub(super) struct IndexBuild<K, V> {
    index: Arc<Definition<V>>,
    seed: Seed,
    column: [NodeArc<Column>; 1],
    /// The table whose objects the column contains; `None` before the first update.
    table: Option<Arc<Table<K, V>>>,
    /// The earlier tables. A table may hold the last references to objects, so these tables are dropped together with this struct, after `turn` is
    /// released.
    passed: Vec<Arc<Table<K, V>>>,
    plan: Plan,
    garbage: Garbage,
}

impl<K: Clone + Eq + Hash, V: 'static> IndexBuild<K, V> {
    pub(super) fn new(index: Definition<V>, store: &Store<K, V>) -> Result<Self, DuplicateIndex> {
        is_new(&store.inner.table(), &index)?;
        let column = [NodeArc::new(Column::new(&index))];
        Ok(Self {
            index: Arc::new(index),
            seed: store.inner.reader.seed,
            column,
            table: None,
            passed: Vec::new(),
            plan: Plan::default(),
            garbage: Garbage::default(),
        })
    }

    /// Updates the column to a later table. The first call is O(objects), every other call O(changes since the previous table). Runs the user's
    /// functions.
    pub(super) fn catch_up(&mut self, table: Arc<Table<K, V>>) {
        if self.table.as_ref().is_some_and(|before| before.revision == table.revision) {
            return;
        }
        let before = self.table.replace(table.clone());
        let rows = before.as_ref().map(|before| before.rows.items());
        for (row, old, new) in table.rows.items().differing(rows) {
            if old.zip(new).is_some_and(|(old, new)| old.is(new)) {
                continue;
            }
            let old = old.map(|_| row);
            let values = new.map(|new| self.index.values(&self.column[0], old, &new.object, &self.seed));
            let (column, garbage) = (&self.column[0], &mut self.garbage);
            self.plan.one_column(column, &self.index, old, values.as_ref(), garbage);
            self.plan.carry_out(&mut self.column, row, &mut self.garbage);
        }
        self.passed.extend(before);
    }

    /// Installs the column in the store. The column must contain the objects of the published table.
    pub(super) fn install(&mut self, core: &mut WriterCore<K, V>) -> Result<(), DuplicateIndex> {
        is_new(&core.table(), &self.index)?;
        // If `self.table` is the published table, this reference is released: otherwise `note_superseded` would register the table as if a snapshot
        // held it. If it is an older table, because the version of the store or its other indexes have changed since the last update, it is kept in
        // `held`.
        let held = self.table.take().filter(|held| !Arc::ptr_eq(held, &core.table()));
        self.passed.extend(held);
        let inner = core.inner();
        let mut published = inner.published.write();
        inner.note_superseded(&mut published);
        let table = Arc::make_mut(&mut published.table);
        let indexes = table.index_set.indexes.iter().chain([&self.index]).cloned().collect();
        // This assignment drops no index definition, because the new index set holds all definitions of the replaced index set.
        table.index_set = Arc::new(IndexSet { indexes });
        table.columns.push(self.column[0].clone());
        Ok(())
    }
}

fn is_new<K, V>(table: &Table<K, V>, index: &Definition<V>) -> Result<(), DuplicateIndex> {
    match table.index_set.indexes.iter().any(|known| known.id.name == index.id.name) {
        true => Err(DuplicateIndex { name: index.id.name }),
        false => Ok(()),
    }
}

/// The parts of a removed index. The caller drops them after it has released `turn`, because dropping index values runs user code.
pub(super) type Removed<V> = (NodeArc<Column>, Arc<IndexSet<V>>, Arc<Definition<V>>);

impl<K, V: 'static> WriterCore<K, V> {
    /// Removes the index with the name and the kind of `index`, and ends the subscriptions that select objects by a value of this index.
    pub(super) fn remove_index(
        &mut self,
        index: &Definition<V>,
        effects: &mut Effects<K, V>,
    ) -> Result<Removed<V>, MissingIndex> {
        let at = self.table().index_set.indexes.iter().position(|known| known.id == index.id);
        let Some(at) = at else { return Err(MissingIndex::new(index.id.name)) };
        let inner = self.inner();
        let mut published = inner.published.write();
        inner.note_superseded(&mut published);
        let table = Arc::make_mut(&mut published.table);
        let mut indexes = table.index_set.indexes.clone();
        let index = indexes.remove(at);
        let index_set = std::mem::replace(&mut table.index_set, Arc::new(IndexSet { indexes }));
        let column = table.columns.remove(at);
        let buffers = published.buffers.clone();
        drop(published);
        let is_of_it = |buffer: &SubscriptionBuffer<K, V>| matches!(buffer.selection(), Some(Selection::Value { index: of, .. }) if Arc::ptr_eq(of, &index));
        for (_, buffer) in buffers.selecting(0).filter(|(_, buffer)| is_of_it(buffer)) {
            buffer.end(&mut effects.wakers);
        }
        effects.buffers.push(buffers);
        Ok((column, index_set, index))
    }
}
