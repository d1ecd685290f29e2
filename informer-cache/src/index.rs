//! PURE. A typed handle of an index, and its form inside a store, where the type of its values is erased.

use std::any::{Any, TypeId};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::IndexError;
use crate::record::{AnyValue, Value};
use crate::seed::Seed;

/// A typed handle of an index: how objects are found by something other than their key.
///
/// The same handle builds the store and asks it. What identifies an index in a store is its name and the type of its values,
/// so a handle made anew with the same name and type finds the same index.
///
/// The function runs **once per object version**, outside every lock, before anything changes; its values are kept beside
/// the object. It must be pure. A panic in it leaves the store untouched. An object may have several values, or none: then the index
/// does not hold it. A value named twice by one object counts once.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, NamespacedName, Schema, Store, Version};
/// use std::sync::Arc;
///
/// struct Pod { name: NamespacedName, node: Arc<str>, labels: Vec<(String, String)> }
///
/// static BY_NODE: Index<Pod, Arc<str>> = Index::new("node", |pod| pod.node.clone());
/// static BY_LABEL: Index<Pod, (String, String)> = Index::many("label", |pod| pod.labels.clone());
///
/// let schema = Schema::new(|pod: &Pod| pod.name.clone(), |_| Version::ZERO);
/// let store = Store::builder(schema).index(&BY_NODE).index(&BY_LABEL).build()?;
/// store.upsert(Pod { name: "default/a".parse()?, node: "node-7".into(), labels: vec![] });
/// assert_eq!(store.by_index(&BY_NODE, "node-7")?.len(), 1);
/// assert_eq!(store.by_index(&BY_NODE, "node-8")?.len(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Index<V, IK> {
    name: &'static str,
    function: Function<V, IK>,
}

enum Function<V, IK> {
    One(fn(&V) -> IK),
    Many(fn(&V) -> Vec<IK>),
    Fallible(fn(&V) -> Result<Vec<IK>, IndexError>),
}

impl<V, IK> Index<V, IK> {
    /// An index with exactly one value per object.
    #[must_use]
    pub const fn new(name: &'static str, value: fn(&V) -> IK) -> Self {
        Self { name, function: Function::One(value) }
    }

    /// An index with any number of values per object.
    #[must_use]
    pub const fn many(name: &'static str, values: fn(&V) -> Vec<IK>) -> Self {
        Self { name, function: Function::Many(values) }
    }

    /// An index whose function may fail. The object is stored all the same, this index does not hold it, and
    /// [`Snapshot::index_errors`](crate::Snapshot::index_errors) tells of it.
    #[must_use]
    pub const fn fallible(name: &'static str, values: fn(&V) -> Result<Vec<IK>, IndexError>) -> Self {
        Self { name, function: Function::Fallible(values) }
    }

    /// The name of the index, unique in a store.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    fn values(&self, object: &V) -> Result<Vec<IK>, IndexError> {
        match self.function {
            Function::One(value) => Ok(vec![value(object)]),
            Function::Many(values) => Ok(values(object)),
            Function::Fallible(values) => values(object),
        }
    }
}

// Not derived: function pointers are `Copy` whatever the types are.

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

// === impl Column ===

/// An index inside a store.
pub(crate) struct Column<V> {
    pub(crate) name: &'static str,
    value_type: TypeId,
    values: Box<ValuesFn<V>>,
    equal: fn(&AnyValue, &AnyValue) -> bool,
}

type ValuesFn<V> = dyn Fn(&V, &Seed) -> Result<Vec<Arc<AnyValue>>, IndexError> + Send + Sync;

impl<V: 'static> Column<V> {
    pub(crate) fn new<IK: Eq + Hash + Send + Sync + 'static>(index: Index<V, IK>) -> Self {
        let values = move |object: &V, seed: &Seed| {
            let values = index.values(object)?;
            Ok(distinct(values.into_iter().map(|key| Value { hash: seed.hash_one(&key), key }).collect()))
        };
        Self {
            name: index.name,
            value_type: TypeId::of::<IK>(),
            values: Box::new(values),
            equal: equal::<IK>,
        }
    }

    pub(crate) fn is<IK: 'static>(&self, name: &str) -> bool {
        self.name == name && self.value_type == TypeId::of::<IK>()
    }

    /// Runs the user's function: the distinct values of an object in the order of their hashes.
    pub(crate) fn values(&self, object: &V, seed: &Seed) -> Result<Vec<Arc<AnyValue>>, IndexError> {
        (self.values)(object, seed)
    }

    pub(crate) fn equal(&self, a: &AnyValue, b: &AnyValue) -> bool {
        a.hash == b.hash && (self.equal)(a, b)
    }
}

/// Sorts by hash and drops what is there twice.
fn distinct<IK: Eq + Send + Sync + 'static>(mut values: Vec<Value<IK>>) -> Vec<Arc<AnyValue>> {
    values.sort_by_key(|value| value.hash);
    let mut kept: Vec<Value<IK>> = Vec::with_capacity(values.len());
    for value in values {
        let mut equal_hashes = kept.iter().rev().take_while(|earlier| earlier.hash == value.hash);
        if !equal_hashes.any(|earlier| earlier.key == value.key) {
            kept.push(value);
        }
    }
    kept.into_iter().map(|value| Arc::new(value) as Arc<AnyValue>).collect()
}

fn equal<IK: Eq + 'static>(a: &AnyValue, b: &AnyValue) -> bool {
    typed::<IK>(a) == typed::<IK>(b)
}

/// The value behind the erased one.
///
/// # Panics
/// Never: columns are found by name and type.
pub(crate) fn typed<IK: 'static>(value: &AnyValue) -> &IK {
    let key: &dyn Any = &value.key;
    key.downcast_ref().expect("a column holds values of its own type")
}
