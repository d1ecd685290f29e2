//! SHELL. The builder for stores with expiry.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use flyball_sync::{Clock, Monotonic};

use super::{Policy, schema};
use crate::{AnyIndex, DuplicateIndex, Store, StoreBuilder, TtlEntry, TtlStore};

/// Builds a [`TtlStore`]. [`TtlStore::builder`] creates the builder.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{ManualClock, Monotonic, TtlEntry, TtlStore, TtlStoreBuilder};
/// use std::time::Duration;
///
/// let builder: TtlStoreBuilder<usize, &str, Monotonic> = TtlStore::builder(|word: &TtlEntry<&str>| word.len());
/// let words = builder
///     .ttl_with(|word| (*word != "pinned").then_some(Duration::from_secs(60)))
///     .clock(ManualClock::new()) // by default, the machine's clock
///     .seed(1) // in tests: the same order of iteration in every run
///     .build()?;
/// words.upsert("one");
/// words.upsert("pinned");
/// assert_eq!(words.snapshot().iter().filter(|(_, word)| word.expires_at().is_none()).count(), 1);
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[must_use = "a builder does nothing until built"]
pub struct TtlStoreBuilder<K, V, C = Monotonic> {
    store: StoreBuilder<K, TtlEntry<V>>,
    key: fn(&TtlEntry<V>) -> K,
    policy: Box<Policy<V>>,
    clock: C,
}

impl<K, V> TtlStoreBuilder<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(key: fn(&TtlEntry<V>) -> K) -> Self {
        Self { store: Store::builder(schema(key)), key, policy: Box::new(|_| None), clock: Monotonic }
    }
}

impl<K, V, C> TtlStoreBuilder<K, V, C>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    C: Clock,
{
    /// Sets the time to live of all objects.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.ttl_with(move |_| Some(ttl))
    }

    /// Sets the function that returns the time to live of an object, or `None` for an object that never expires. [`upsert`](TtlStore::upsert)
    /// and [`replace`](TtlStore::replace) call the function once per object, before they change the store.
    pub fn ttl_with(mut self, policy: impl Fn(&V) -> Option<Duration> + Send + Sync + 'static) -> Self {
        self.policy = Box::new(policy);
        self
    }

    /// Adds an index of any kind. An index value is dropped when no object has it any more.
    pub fn index(mut self, index: &impl AnyIndex<TtlEntry<V>>) -> Self {
        self.store = self.store.index(index);
        self
    }

    /// Sets the clock. The default is the clock of the machine. The store never reads the clock while it holds a lock.
    pub fn clock<D: Clock>(self, clock: D) -> TtlStoreBuilder<K, V, D> {
        TtlStoreBuilder { store: self.store, key: self.key, policy: self.policy, clock }
    }

    /// Sets the seed for the hasher, like [`StoreBuilder::seed`].
    pub fn seed(mut self, seed: u64) -> Self {
        self.store = self.store.seed(seed);
        self
    }

    /// Like [`StoreBuilder::reader_slots`]. For loom models.
    #[doc(hidden)]
    pub fn reader_slots(mut self, slots: usize, lookups_to_fill: u32) -> Self {
        self.store = self.store.reader_slots(slots, lookups_to_fill);
        self
    }

    /// Builds an empty store.
    ///
    /// # Errors
    /// Returns an error if two indexes have the same name.
    pub fn build(self) -> Result<TtlStore<K, V, C>, DuplicateIndex> {
        Ok(TtlStore::new(self.store.build()?.into_shared(), self.key, self.policy, self.clock))
    }
}

impl<K, V, C> fmt::Debug for TtlStoreBuilder<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TtlStoreBuilder").field("store", &self.store).finish_non_exhaustive()
    }
}
