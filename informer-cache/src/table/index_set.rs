//! PURE. The indexes of a store. An index set is immutable: adding or removing an index creates a new index set.

use std::sync::Arc;

use crate::MissingIndex;
use crate::table::definition::Definition;

/// The indexes of a store. A table has one column for each of them, in the same order.
pub(crate) struct IndexSet<V> {
    pub(crate) indexes: Vec<Arc<Definition<V>>>,
}

impl<V> IndexSet<V> {
    /// Returns the name of the first of `indexes` whose queries this set cannot answer, if any.
    pub(crate) fn lacks(&self, indexes: &[Arc<Definition<V>>]) -> Option<&'static str>
    where
        V: 'static,
    {
        let missing = indexes.iter().find(|index| !self.indexes.iter().any(|known| known.serves(index)));
        missing.map(|index| index.name)
    }

    /// Returns the position of this definition. Definitions are compared by address.
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
