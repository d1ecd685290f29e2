//! PURE. The typed handles of indexes, and the definitions of indexes inside a store.

use std::any::TypeId;
use std::cmp::Ordering;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use crate::IndexError;
use crate::table::definition::{Definition, IndexId, typed};
use crate::table::record::AnyValue;

mod define;
mod labels;
pub(crate) mod selector;

pub(crate) use labels::Label;
pub use labels::LabelIndex;
pub use selector::{ParseSelectorError, Selector, SelectorOperator, SelectorRequirement};

/// A typed handle of an index. An index finds objects by a value other than their key.
///
/// Pass the same handle to the store's builder and to its queries. A store identifies an index by its name and its kind: the type of its values,
/// whether an object has one value or [many](Self::many), whether it is [unique](Self::unique), and whether it is [ordered](Self::ordered). So a
/// different handle with the same name and kind refers to the same index, and a query with a handle of another kind is an error. Handles whose
/// function [captures](Self::capturing) its environment are the same only if one is a clone of the other.
///
/// The index function returns the values of an object. It runs **once per object version**, before the write changes the store, and outside the locks
/// of the store; the store keeps the values. (A [`SharedWriter`](crate::SharedWriter) calls it under its own lock.) The function must be pure. If it
/// panics, the panic is an error for that object, as if the index were [`fallible`](Self::fallible). An object may have several values. An object
/// without a value is not in the index. If the function returns a value twice for an object, the value counts once. For a compound index, the
/// function returns tuples.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, NamespacedName, Schema, Store, Version};
/// use std::sync::Arc;
///
/// struct Pod { name: NamespacedName, uid: u64, node: Arc<str>, owners: Vec<u64> }
///
/// static BY_NODE: Index<Pod, Arc<str>> = Index::new("node", |pod| pod.node.clone());
/// static BY_OWNER: Index<Pod, u64> = Index::many("owner", |pod| pod.owners.clone());
/// static BY_UID: Index<Pod, u64> = Index::new("uid", |pod: &Pod| pod.uid).unique();
///
/// let schema = Schema::new(|pod: &Pod| pod.name.clone(), |_| Version::ZERO);
/// let mut store = Store::builder(schema).index(&BY_NODE).index(&BY_OWNER).index(&BY_UID).build()?;
/// store.upsert(Pod { name: "default/a".parse()?, uid: 1, node: "node-7".into(), owners: vec![70, 71] });
/// assert_eq!(store.by_index(&BY_NODE, "node-7")?.len(), 1);
/// assert_eq!(store.by_index(&BY_NODE, "node-8")?.len(), 0);
/// assert_eq!(store.by_index(&BY_OWNER, &71)?.len(), 1);
///
/// // A cache cannot reject an object of its source. So both objects are stored, and the unique index reports the violation.
/// store.upsert(Pod { name: "default/b".parse()?, uid: 1, node: "node-7".into(), owners: vec![] });
/// assert_eq!(store.snapshot().unique_violations(&BY_UID)?.map(|(uid, pods)| (*uid, pods.len())).collect::<Vec<_>>(), [(1, 2)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Index<V, IK> {
    name: &'static str,
    function: Function<V, IK>,
    unique: bool,
    /// `Some` if the index is ordered.
    compare: Option<fn(&AnyValue, &AnyValue) -> Ordering>,
}

enum Function<V, IK> {
    One(fn(&V) -> IK),
    Many(fn(&V) -> Vec<IK>),
    Fallible(fn(&V) -> Result<Vec<IK>, IndexError>),
    Capturing(Arc<ManyFn<V, IK>>),
}

type ManyFn<V, IK> = dyn Fn(&V) -> Vec<IK> + Send + Sync;

impl<V, IK> Index<V, IK> {
    /// Creates an index with exactly one value per object.
    #[must_use]
    pub const fn new(name: &'static str, value: fn(&V) -> IK) -> Self {
        Self::with(name, Function::One(value))
    }

    /// Creates an index with any number of values per object.
    #[must_use]
    pub const fn many(name: &'static str, values: fn(&V) -> Vec<IK>) -> Self {
        Self::with(name, Function::Many(values))
    }

    /// Creates an index whose function may fail. If the function returns an error, the object is stored but is not in this index, and
    /// [`Snapshot::index_errors`](crate::Snapshot::index_errors) returns the error.
    #[must_use]
    pub const fn fallible(name: &'static str, values: fn(&V) -> Result<Vec<IK>, IndexError>) -> Self {
        Self::with(name, Function::Fallible(values))
    }

    /// Creates an index with any number of values per object, whose function may capture its environment, for example configuration.
    ///
    /// Pass this handle, or clones of it, to the builder and to the queries. A handle of another call of this function refers to another index, even
    /// if it has the same name, because its function may have captured something else.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Index, Schema, Store, Version};
    /// use std::collections::BTreeMap;
    ///
    /// type Pod = (u32, BTreeMap<&'static str, &'static str>);
    ///
    /// fn by_team(label: String) -> Index<Pod, &'static str> {
    ///     Index::capturing("team", move |pod: &Pod| pod.1.get(&*label).copied().into_iter().collect())
    /// }
    ///
    /// let by_owner = by_team("owner".into()); // for example from a flag
    /// let mut store = Store::builder(Schema::new(|pod: &Pod| pod.0, |_| Version::ZERO)).index(&by_owner).build()?;
    /// store.upsert((1, BTreeMap::from([("owner", "storage")])));
    /// assert_eq!(store.by_index(&by_owner, "storage")?.len(), 1);
    /// assert!(store.by_index(&by_team("squad".into()), "storage").is_err()); // the function is a different one
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn capturing(name: &'static str, values: impl Fn(&V) -> Vec<IK> + Send + Sync + 'static) -> Self {
        Self::with(name, Function::Capturing(Arc::new(values)))
    }

    const fn with(name: &'static str, function: Function<V, IK>) -> Self {
        Self { name, function, unique: false, compare: None }
    }

    /// Marks the index as unique: no two objects are expected to have the same value. If two objects do have the same value, both are stored, and
    /// [`Snapshot::unique_violations`](crate::Snapshot::unique_violations) returns the value.
    #[must_use]
    pub const fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// Orders the values of the index, so that you can also query it by [range](crate::Snapshot::range) and by
    /// [prefix](crate::Snapshot::prefix).
    ///
    /// To keep the values ordered, a write needs O(log values) comparisons if it adds the first object with a value or removes the last one. Other
    /// writes need no comparisons. A compound value that is ordered by its parts, such as (namespace, name), can also be queried by its first part:
    /// [`Snapshot::range_by`](crate::Snapshot::range_by). If several values of an object are in a range, a query of the range returns the object once
    /// for each of these values.
    ///
    /// If `Ord` of the values is inconsistent, the values may be in a wrong order. If it panics, or if a sort detects the inconsistency and panics, the
    /// panic is an error for the object that is written, like a panic of the index function. So a value that cannot be compared with itself, for example
    /// because it contains NaN, does not affect other objects. If the comparison of two different values panics, the object that is written later has the
    /// error, until it is written anew.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Index, Schema, Store, Version};
    ///
    /// struct Job { id: u64, start: u32, path: &'static str }
    ///
    /// static BY_START: Index<Job, u32> = Index::new("start", |job: &Job| job.start).ordered();
    /// static BY_PATH: Index<Job, &str> = Index::new("path", |job: &Job| job.path).ordered();
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
    #[must_use]
    pub const fn ordered(mut self) -> Self
    where
        IK: Ord + 'static,
    {
        self.compare = Some(|a, b| typed::<IK>(a).cmp(typed::<IK>(b)));
        self
    }

    /// Returns the name of the index. Names are unique within a store.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn id(&self) -> IndexId
    where
        IK: 'static,
    {
        IndexId {
            name: self.name,
            value_type: TypeId::of::<IK>(),
            single: matches!(self.function, Function::One(_)),
            unique: self.unique,
            ordered: self.compare.is_some(),
            captured: match &self.function {
                // The definition of an index and each handle hold a reference to the function, so no other function has its address meanwhile.
                Function::Capturing(values) => Arc::as_ptr(values).cast::<()>().addr(),
                Function::One(_) | Function::Many(_) | Function::Fallible(_) => 0,
            },
        }
    }
}

/// The trait that every kind of index implements: [`Index`] and [`LabelIndex`]. The trait is sealed.
///
/// # Examples
/// A function that accepts any kind of index:
/// ```
/// use flyball_informer_cache::{AnyIndex, DuplicateIndex, Index, LabelIndex, Schema, Store, Version, Writer};
///
/// type Pod = (u32, &'static str);
/// static BY_NAME: Index<Pod, &str> = Index::new("name", |pod| pod.1);
/// static LABELS: LabelIndex<Pod> = LabelIndex::new("labels", |pod, each| each("app", pod.1));
///
/// fn ensure(store: &mut Writer<u32, Pod>, index: &impl AnyIndex<Pod>) {
///     if let Err(duplicate) = store.add_index(index) {
///         println!("{} was there already", duplicate.name());
///     }
/// }
///
/// let mut store = Store::builder(Schema::new(|pod: &Pod| pod.0, |_| Version::ZERO)).build()?;
/// ensure(&mut store, &BY_NAME);
/// ensure(&mut store, &LABELS);
/// store.upsert((1, "web"));
/// assert_eq!(store.by_index(&BY_NAME, "web").unwrap().len(), 1);
/// # Ok::<(), DuplicateIndex>(())
/// ```
///
/// The object type of an index must be the type that the store holds, so this does not compile:
/// ```compile_fail,E0277
/// use flyball_informer_cache::{Index, Schema, Store, Version};
///
/// static BY_LENGTH: Index<&str, usize> = Index::new("length", |word| word.len()); // must be an index of `String`
/// let words = Store::builder(Schema::new(|word: &String| word.clone(), |_| Version::ZERO)).index(&BY_LENGTH);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no index of the objects of this store, which are `{V}`",
    note = "a store takes an `Index` or a `LabelIndex` of its objects"
)]
pub trait AnyIndex<V>: sealed::Sealed<V> {}

pub(crate) mod sealed {
    pub trait Sealed<V> {
        #[doc(hidden)]
        fn define(&self) -> crate::table::definition::Definition<V>;
    }
}

impl<V: 'static, IK: Eq + Hash + Send + Sync + 'static> AnyIndex<V> for Index<V, IK> {}

impl<V: 'static, IK: Eq + Hash + Send + Sync + 'static> sealed::Sealed<V> for Index<V, IK> {
    fn define(&self) -> Definition<V> {
        Definition::new(self)
    }
}

// Not derived, because a derive would require `V: Clone` and `IK: Clone`.

impl<V, IK> Clone for Index<V, IK> {
    fn clone(&self) -> Self {
        Self { function: self.function.clone(), ..*self }
    }
}

impl<V, IK> Clone for Function<V, IK> {
    fn clone(&self) -> Self {
        match self {
            Self::One(value) => Self::One(*value),
            Self::Many(values) => Self::Many(*values),
            Self::Fallible(values) => Self::Fallible(*values),
            Self::Capturing(values) => Self::Capturing(values.clone()),
        }
    }
}

impl<V, IK> fmt::Debug for Index<V, IK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("name", &self.name).finish_non_exhaustive()
    }
}
