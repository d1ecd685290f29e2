//! SHELL. The builder of stores.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use flyball_sync::panics::DropContained;

use crate::store::inner::StoreInner;
use crate::store::object_reader::{ObjectReader, Transform};
use crate::store::published::PublishedState;
use crate::store::reader_slots::{ReaderSlotOptions, ReaderSlots};
use crate::table::definition::Definition;
use crate::table::index_set::IndexSet;
use crate::table::seed::Seed;
use crate::{AnyIndex, DuplicateIndex, Schema, Store, Writer};

/// Builds a [`Store`]; made by [`Store::builder`].
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, Schema, Store, StoreBuilder, Version};
///
/// type Pod = (u32, &'static str, Vec<u8>);
/// static BY_NODE: Index<Pod, &str> = Index::new("node", |pod| pod.1);
///
/// let builder: StoreBuilder<u32, Pod> = Store::builder(Schema::new(|pod: &Pod| pod.0, |_| Version::ZERO));
/// let mut pods = builder
///     .index(&BY_NODE)
///     .transform(|pod| (pod.0, pod.1, Vec::new())) // no reader needs the last field
///     .seed(1) // in tests: the same order of iteration in every run
///     .build()?;
/// pods.upsert((1, "n1", vec![0; 4096]));
/// assert!(pods.by_index(&BY_NODE, "n1")?[0].2.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until built"]
pub struct StoreBuilder<K, V> {
    schema: Schema<K, V>,
    indexes: Vec<Arc<Definition<V>>>,
    duplicate: Option<DuplicateIndex>,
    transform: Option<Transform<V>>,
    seed: Seed,
    options: ReaderSlotOptions,
}

impl<K, V> StoreBuilder<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(crate) fn new(schema: Schema<K, V>) -> Self {
        Self {
            schema,
            indexes: Vec::new(),
            duplicate: None,
            transform: None,
            seed: Seed::random(),
            options: ReaderSlotOptions::default(),
        }
    }

    /// Adds this index to the store. The store drops an index value when no object has it any more.
    pub fn index(mut self, index: &impl AnyIndex<V>) -> Self {
        let index = index.define();
        let name = index.id.name;
        match self.indexes.iter().any(|known| known.id.name == name) {
            true => self.duplicate = Some(DuplicateIndex { name }),
            false => self.indexes.push(Arc::new(index)),
        }
        self
    }

    /// Sets a function that changes every object before it is stored, for example to remove fields that no reader needs. It runs once for each object
    /// that is passed to the store, including the last state of a deleted object. The store holds none of its locks meanwhile.
    ///
    /// The store reads the key and the version of an object before it calls the function, so the function may remove them. Index functions, and the
    /// schema's functions for identity and content, receive the changed object. The function must be pure. It may be a closure that captures
    /// configuration.
    pub fn transform(mut self, transform: impl Fn(V) -> V + Send + Sync + 'static) -> Self {
        let transform: Arc<dyn Fn(V) -> V + Send + Sync> = Arc::new(transform);
        self.transform = Some(DropContained::new(transform));
        self
    }

    pub(crate) fn transforms(&self) -> bool {
        self.transform.is_some()
    }

    /// Returns the name of an index that this builder has and `store` lacks.
    pub(crate) fn index_missing_in(&self, store: &Store<K, V>) -> Option<&'static str> {
        store.inner.table().index_set.lacks(&self.indexes)
    }

    /// Sets the seed of the hasher, which is random by default. With a fixed seed, the same writes result in the same order of
    /// iteration in every run. For tests and simulations.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Seed::fixed(seed);
        self
    }

    /// Sets the number of reader slots. A slot is filled after `lookups_to_fill` lookups without a write in between. By default, there are 8 to 32
    /// slots, depending on the number of cores. For loom models.
    #[doc(hidden)]
    pub fn reader_slots(mut self, slots: usize, lookups_to_fill: u32) -> Self {
        self.options = ReaderSlotOptions { slots, lookups_to_fill };
        self
    }

    /// Builds an empty store. Returns its writer; [`Writer::store`] returns handles for readers.
    ///
    /// # Errors
    /// Returns an error if two indexes have the same name.
    pub fn build(self) -> Result<Writer<K, V>, DuplicateIndex> {
        match self.duplicate {
            Some(duplicate) => Err(duplicate),
            None => {
                let reader = ObjectReader { schema: self.schema, seed: self.seed };
                let slots = ReaderSlots::new(self.options);
                let published = PublishedState::new(IndexSet { indexes: self.indexes }, slots);
                Ok(Writer::new(Store { inner: Arc::new(StoreInner::new(reader, self.transform, published)) }))
            }
        }
    }
}

impl<K, V> fmt::Debug for StoreBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.indexes.iter().map(|index| index.id.name);
        f.debug_struct("StoreBuilder").field("indexes", &names.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
