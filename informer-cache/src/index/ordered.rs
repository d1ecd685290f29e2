//! PURE. An index whose values are ordered.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;

use super::{AnyIndex, Index, sealed};
use crate::IndexError;
use crate::table::definition::Definition;

/// An [`Index`] with ordered values, which you can also query by range and by prefix.
///
/// To keep the values ordered, a write needs O(log values) comparisons if it adds the first object with a value or removes the last one. Other writes
/// need no comparisons. A compound value that is ordered by its parts, such as (namespace, name), can also be queried by its first part:
/// [`Snapshot::range_by`](crate::Snapshot::range_by).
///
/// If `Ord` of the values is inconsistent, the values may be in a wrong order. A write may also panic, because a sort may detect the inconsistency
/// and panic; the store is then unchanged.
///
/// In all other respects, an `OrderedIndex` works like an [`Index`]: it dereferences to one. So the result of
/// [`with_function`](Index::with_function) is an index without order.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{OrderedIndex, Schema, Store, Version};
///
/// struct Job { id: u64, start: u32, path: &'static str }
///
/// static BY_START: OrderedIndex<Job, u32> = OrderedIndex::new("start", |job| job.start);
/// static BY_PATH: OrderedIndex<Job, &str> = OrderedIndex::new("path", |job| job.path);
///
/// let mut store = Store::builder(Schema::new(|job: &Job| job.id, |_| Version::ZERO)).index(&BY_START).index(&BY_PATH).build()?;
/// store.upsert(Job { id: 1, start: 30, path: "a/x" });
/// store.upsert(Job { id: 2, start: 10, path: "b/x" });
/// store.upsert(Job { id: 3, start: 20, path: "a/y" });
///
/// let view = store.snapshot();
/// assert!(view.range(&BY_START, 15..)?.map(|(start, job)| (*start, job.id)).eq([(20, 3), (30, 1)]));
/// assert!(view.range(&BY_START, ..)?.descending().map(|(_, job)| job.id).eq([1, 3, 2]));
/// assert!(view.prefix(&BY_PATH, "a/")?.map(|(_, job)| job.id).eq([1, 3]));
/// assert_eq!(view.by_index(&BY_START, &10)?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OrderedIndex<V, IK>(Index<V, IK>);

impl<V, IK> OrderedIndex<V, IK> {
    /// Creates an index with exactly one value per object.
    #[must_use]
    pub const fn new(name: &'static str, value: fn(&V) -> IK) -> Self {
        Self(Index::new(name, value))
    }

    /// Creates an index with any number of values per object. If several values of an object are in a range, a query of the range returns the object
    /// once for each of these values.
    #[must_use]
    pub const fn many(name: &'static str, values: fn(&V) -> Vec<IK>) -> Self {
        Self(Index::many(name, values))
    }

    /// Creates an index whose function may fail, like [`Index::fallible`].
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{IndexError, OrderedIndex, Schema, Store, Version};
    ///
    /// type Job = (u32, &'static str);
    /// static BY_START: OrderedIndex<Job, u32> = OrderedIndex::fallible("start", |job| match job.1.parse() {
    ///     Ok(start) => Ok(vec![start]),
    ///     Err(error) => Err(IndexError::new(error)),
    /// });
    ///
    /// let mut store = Store::builder(Schema::new(|job: &Job| job.0, |_| Version::ZERO)).index(&BY_START).build()?;
    /// store.replace([(1, "30"), (2, "soon"), (3, "10")], Version::new(1));
    /// assert!(store.snapshot().range(&BY_START, ..)?.map(|(_, job)| job.0).eq([3, 1]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn fallible(name: &'static str, values: fn(&V) -> Result<Vec<IK>, IndexError>) -> Self {
        Self(Index::fallible(name, values))
    }

    /// Marks the index as unique, like [`Index::unique`].
    #[must_use]
    pub const fn unique(self) -> Self {
        Self(self.0.unique())
    }
}

impl<V, IK> Deref for OrderedIndex<V, IK> {
    type Target = Index<V, IK>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<V: 'static, IK: Ord + Hash + Send + Sync + 'static> AnyIndex<V> for OrderedIndex<V, IK> {
    fn name(&self) -> &'static str {
        self.0.name()
    }
}

impl<V: 'static, IK: Ord + Hash + Send + Sync + 'static> sealed::Sealed<V> for OrderedIndex<V, IK> {
    fn define(&self) -> Definition<V> {
        Definition::ordered(self.0)
    }
}

// Not derived, because a derive would require `V: Copy` and `IK: Copy`. Function pointers are `Copy` for all types.

impl<V, IK> Copy for OrderedIndex<V, IK> {}

impl<V, IK> Clone for OrderedIndex<V, IK> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V, IK> fmt::Debug for OrderedIndex<V, IK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedIndex").field("name", &self.name()).finish_non_exhaustive()
    }
}
