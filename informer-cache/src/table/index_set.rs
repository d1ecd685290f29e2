//! PURE. The indexes of a store. An index set is immutable: adding or removing an index creates a new index set.

use std::sync::Arc;

use crate::MissingIndex;
use crate::table::definition::{Definition, IndexId};

/// The indexes of a store. A table has one column for each of them, in the same order.
pub(crate) struct IndexSet<V> {
    pub(crate) indexes: Vec<Arc<Definition<V>>>,
}

impl<V> IndexSet<V> {
    /// Returns the name of the first of `indexes` that is not in this set, if any.
    pub(crate) fn lacks(&self, indexes: &[Arc<Definition<V>>]) -> Option<&'static str>
    where
        V: 'static,
    {
        let missing = indexes.iter().find(|index| !self.indexes.iter().any(|known| known.id == index.id));
        missing.map(|index| index.id.name)
    }

    /// Returns the position of this definition. Definitions are compared by address.
    pub(crate) fn place(&self, index: &Arc<Definition<V>>) -> Option<usize> {
        self.indexes.iter().position(|known| Arc::ptr_eq(known, index))
    }

    /// Returns the position of the index that a handle refers to.
    pub(crate) fn find(&self, id: IndexId) -> Result<usize, MissingIndex> {
        let found = self.indexes.iter().position(|index| index.id == id);
        found.ok_or(MissingIndex::new(id.name))
    }
}
