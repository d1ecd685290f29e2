//! SHELL. How a store is put together.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use crate::index::Column;
use crate::inner::Inner;
use crate::recipe::Recipe;
use crate::seed::Seed;
use crate::{DuplicateIndex, Index, Schema, Store};

/// Builds a [`Store`]; made by [`Store::builder`].
#[must_use = "a builder does nothing until built"]
pub struct StoreBuilder<K, V> {
    schema: Schema<K, V>,
    columns: Vec<Column<V>>,
    duplicate: Option<DuplicateIndex>,
    seed: Seed,
}

impl<K, V> StoreBuilder<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(crate) fn new(schema: Schema<K, V>) -> Self {
        Self { schema, columns: Vec::new(), duplicate: None, seed: Seed::random() }
    }

    /// Keeps this index. The values are dropped with the objects that have them.
    pub fn index<IK>(mut self, index: &Index<V, IK>) -> Self
    where
        IK: Eq + Hash + Send + Sync + 'static,
    {
        match self.columns.iter().any(|column| column.name == index.name()) {
            true => self.duplicate = Some(DuplicateIndex { name: index.name() }),
            false => self.columns.push(Column::new(*index)),
        }
        self
    }

    /// Fixes the seed of the hasher, which is random by default: the same writes then give the same order of
    /// iteration in every run. For tests and simulations.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Seed::fixed(seed);
        self
    }

    /// The store, empty.
    ///
    /// # Errors
    /// When two indexes have the same name.
    pub fn build(self) -> Result<Store<K, V>, DuplicateIndex> {
        match self.duplicate {
            Some(duplicate) => Err(duplicate),
            None => {
                let recipe = Recipe { schema: self.schema, columns: self.columns, seed: self.seed };
                Ok(Store { inner: Arc::new(Inner::new(recipe)) })
            }
        }
    }
}

impl<K, V> fmt::Debug for StoreBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.columns.iter().map(|column| column.name);
        f.debug_struct("StoreBuilder").field("indexes", &names.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
