//! PURE. The typed handles of indexes, and the definitions of indexes inside a store.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use crate::IndexError;
use crate::table::definition::Definition;

mod define;
mod labels;
mod ordered;
pub(crate) mod selector;

pub(crate) use labels::Label;
pub use labels::LabelIndex;
pub use ordered::OrderedIndex;
pub use selector::{ParseSelectorError, Selector, SelectorOperator, SelectorRequirement};

/// A typed handle of an index. An index finds objects by a value other than their key.
///
/// Pass the same handle to the store's builder and to its queries. A store identifies an index by its name and the type of its values, so a different
/// handle with the same name and type refers to the same index.
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
}

enum Function<V, IK> {
    One(fn(&V) -> IK),
    Many(fn(&V) -> Vec<IK>),
    Fallible(fn(&V) -> Result<Vec<IK>, IndexError>),
}

impl<V, IK> Index<V, IK> {
    /// Creates an index with exactly one value per object.
    #[must_use]
    pub const fn new(name: &'static str, value: fn(&V) -> IK) -> Self {
        Self { name, function: Function::One(value), unique: false }
    }

    /// Creates an index with any number of values per object.
    #[must_use]
    pub const fn many(name: &'static str, values: fn(&V) -> Vec<IK>) -> Self {
        Self { name, function: Function::Many(values), unique: false }
    }

    /// Creates an index whose function may fail. If the function returns an error, the object is stored but is not in this index, and
    /// [`Snapshot::index_errors`](crate::Snapshot::index_errors) returns the error.
    #[must_use]
    pub const fn fallible(name: &'static str, values: fn(&V) -> Result<Vec<IK>, IndexError>) -> Self {
        Self { name, function: Function::Fallible(values), unique: false }
    }

    /// Marks the index as unique: no two objects are expected to have the same value. If two objects do have the same value, both are stored, and
    /// [`Snapshot::unique_violations`](crate::Snapshot::unique_violations) returns the value.
    #[must_use]
    pub const fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// Returns the name of the index. Names are unique within a store.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns an index with the same name and a different function, which may capture configuration. Pass the result to the store's builder, and use
    /// the original handle for queries.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Index, Schema, Store, Version};
    /// use std::collections::BTreeMap;
    ///
    /// type Pod = (u32, BTreeMap<&'static str, &'static str>);
    /// static BY_TEAM: Index<Pod, &str> = Index::many("team", |pod| pod.1.get("team").copied().into_iter().collect());
    ///
    /// let label = String::from("owner"); // for example from a flag
    /// let by_team = BY_TEAM.with_function(move |pod| pod.1.get(&*label).copied().into_iter().collect());
    /// let mut store = Store::builder(Schema::new(|pod: &Pod| pod.0, |_| Version::ZERO)).index(&by_team).build()?;
    /// store.upsert((1, BTreeMap::from([("owner", "storage")])));
    /// assert_eq!(store.by_index(&BY_TEAM, "storage")?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_function(
        &self,
        values: impl Fn(&V) -> Vec<IK> + Send + Sync + 'static,
    ) -> CapturingIndex<V, IK> {
        CapturingIndex { index: *self, values: Arc::new(values) }
    }
}

/// An [`Index`] whose function may capture configuration. [`Index::with_function`] creates it.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{AnyIndex, CapturingIndex, Index};
///
/// static BY_TEAM: Index<(u32, String), String> = Index::new("team", |pod| pod.1.clone());
///
/// /// An index of the same name, whose values carry a prefix from the configuration.
/// fn prefixed(prefix: String) -> CapturingIndex<(u32, String), String> {
///     BY_TEAM.with_function(move |pod| vec![format!("{prefix}/{}", pod.1)])
/// }
/// assert_eq!(prefixed("eu".into()).name(), BY_TEAM.name());
/// ```
pub struct CapturingIndex<V, IK> {
    index: Index<V, IK>,
    values: Arc<ManyFn<V, IK>>,
}

type ManyFn<V, IK> = dyn Fn(&V) -> Vec<IK> + Send + Sync;

impl<V: 'static, IK: Eq + Hash + Send + Sync + 'static> AnyIndex<V> for CapturingIndex<V, IK> {
    fn name(&self) -> &'static str {
        self.index.name
    }
}

impl<V: 'static, IK: Eq + Hash + Send + Sync + 'static> sealed::Sealed<V> for CapturingIndex<V, IK> {
    fn define(&self) -> Definition<V> {
        Definition::capturing(self.index, self.values.clone())
    }
}

impl<V, IK> fmt::Debug for CapturingIndex<V, IK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapturingIndex").field("name", &self.index.name).finish_non_exhaustive()
    }
}

/// The trait that every kind of index implements: [`Index`], [`CapturingIndex`], [`OrderedIndex`] and [`LabelIndex`]. The trait is sealed.
///
/// # Examples
/// A function that accepts any kind of index:
/// ```
/// use flyball_informer_cache::{AnyIndex, DuplicateIndex, LabelIndex, OrderedIndex, Schema, Store, Version, Writer};
///
/// type Pod = (u32, &'static str);
/// static BY_NAME: OrderedIndex<Pod, &str> = OrderedIndex::new("name", |pod| pod.1);
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
    note = "a store takes an `Index`, a `CapturingIndex`, an `OrderedIndex` or a `LabelIndex` of its objects"
)]
pub trait AnyIndex<V>: sealed::Sealed<V> {
    /// Returns the name of the index, unique in a store.
    fn name(&self) -> &'static str;
}

pub(crate) mod sealed {
    pub trait Sealed<V> {
        #[doc(hidden)]
        fn define(&self) -> crate::table::definition::Definition<V>;
    }
}

impl<V: 'static, IK: Eq + Hash + Send + Sync + 'static> AnyIndex<V> for Index<V, IK> {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl<V: 'static, IK: Eq + Hash + Send + Sync + 'static> sealed::Sealed<V> for Index<V, IK> {
    fn define(&self) -> Definition<V> {
        Definition::new(*self)
    }
}

// Not derived, because a derive would require `V: Copy` and `IK: Copy`. Function pointers are `Copy` for all types.

impl<V, IK> Copy for Index<V, IK> {}

impl<V, IK> Clone for Index<V, IK> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V, IK> Copy for Function<V, IK> {}

impl<V, IK> Clone for Function<V, IK> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V, IK> fmt::Debug for Index<V, IK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("name", &self.name).finish_non_exhaustive()
    }
}
