//! PURE. An index inside a store: what it asks of objects and values, with the type of the values erased.

use std::any::{Any, TypeId};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use flyball_sync::panics::attempt;

use super::{Function, Index, Label, Labels};
use crate::IndexError;
use crate::index::seed::Seed;
use crate::table::record::{AnyValue, Value, Values};

/// How one index reads objects and tells values apart. Public in name only: no path leads to it.
pub struct Definition<V> {
    pub(crate) name: &'static str,
    value_type: TypeId,
    /// Whether every object has exactly one value.
    pub(crate) single: bool,
    pub(crate) unique: bool,
    values: Box<ValuesFn<V>>,
    equal: fn(&AnyValue, &AnyValue) -> bool,
    /// The order of values, of an index that keeps one.
    pub(crate) compare: Option<fn(&AnyValue, &AnyValue) -> Ordering>,
}

/// Makes the values of an object out of those of the one before: an equal one is kept.
type ValuesFn<V> = dyn Fn(&mut Values, &V, &Seed) + Send + Sync;

impl<V: 'static> Definition<V> {
    pub(crate) fn new<IK: Eq + Hash + Send + Sync + 'static>(index: Index<V, IK>) -> Self {
        let values: Box<ValuesFn<V>> = match index.function {
            Function::One(value) => Box::new(move |known, object, seed| {
                let new = value(object);
                match std::mem::replace(known, Values::NONE) {
                    Values::One(old) if *typed::<IK>(&old) == new => *known = Values::Kept(old),
                    _ => *known = Values::One(erased(new, seed)),
                }
            }),
            Function::Many(values) => {
                Box::new(move |known, object, seed| *known = many(known, values(object), seed))
            }
            Function::Fallible(values) => Box::new(move |known, object, seed| {
                *known = match values(object) {
                    Ok(values) => many(known, values, seed),
                    Err(error) => Values::Failed(Arc::new(error)),
                };
            }),
        };
        Self {
            name: index.name,
            value_type: TypeId::of::<IK>(),
            single: matches!(index.function, Function::One(_)),
            unique: index.unique,
            values,
            equal: |a, b| typed::<IK>(a) == typed::<IK>(b),
            compare: None,
        }
    }

    /// An index whose values another function gives.
    pub(crate) fn capturing<IK: Eq + Hash + Send + Sync + 'static>(
        index: Index<V, IK>,
        values: Arc<super::ManyFn<V, IK>>,
    ) -> Self {
        let values: Box<ValuesFn<V>> =
            Box::new(move |known, object, seed| *known = many(known, values(object), seed));
        Self { single: false, values, ..Self::new(index) }
    }

    pub(crate) fn ordered<IK: Ord + Hash + Send + Sync + 'static>(index: Index<V, IK>) -> Self {
        let compare = |a: &AnyValue, b: &AnyValue| typed::<IK>(a).cmp(typed::<IK>(b));
        Self { compare: Some(compare), ..Self::new(index) }
    }

    pub(crate) fn labels(labels: Labels<V>) -> Self {
        Self {
            name: labels.name(),
            value_type: TypeId::of::<Label>(),
            single: false,
            unique: false,
            values: Box::new(move |known, object, seed| {
                let told = labels.labels(object, known.as_slice());
                *known = many(known, told, seed);
            }),
            equal: |a, b| typed::<Label>(a) == typed::<Label>(b),
            compare: Some(|a, b| typed::<Label>(a).cmp(typed::<Label>(b))),
        }
    }

    pub(crate) fn is<IK: 'static>(&self, name: &str) -> bool {
        self.name == name && self.value_type == TypeId::of::<IK>()
    }

    /// Whether the other one has the same name and type of values.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.name, self.value_type) == (other.name, other.value_type)
    }

    /// Runs the user's function.
    pub(crate) fn values(&self, object: &V, seed: &Seed) -> Values {
        let mut values = Values::NONE;
        self.update(&mut values, object, seed);
        values
    }

    /// Runs the user's function, for an object that follows one with these values. A panic of it, or of `Hash` and `Eq` of what it says, is an error
    /// of this object.
    pub(crate) fn update(&self, known: &mut Values, object: &V, seed: &Seed) {
        if let Err(message) = attempt(|| (self.values)(known, object, seed)) {
            let error = IndexError::new(format!("the index function panicked: {message}"));
            *known = Values::Failed(Arc::new(error));
        }
    }
}

impl<V> Definition<V> {
    #[inline]
    pub(crate) fn equal(&self, a: &AnyValue, b: &AnyValue) -> bool {
        a.hash == b.hash && (std::ptr::addr_eq(a, b) || (self.equal)(a, b))
    }
}

impl<V> fmt::Debug for Definition<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A value as an index keeps it.
pub(crate) fn erased<IK: Hash + Send + Sync + 'static>(key: IK, seed: &Seed) -> Arc<AnyValue> {
    Arc::new(Value { hash: seed.hash_one(&key), key })
}

/// The values of an object, after one with the `known` ones.
fn many<IK: Eq + Hash + Send + Sync + 'static>(known: &mut Values, values: Vec<IK>, seed: &Seed) -> Values {
    match std::mem::replace(known, Values::NONE) {
        Values::Many(old) if is_same(&old, &values) => Values::KeptMany(old),
        _ => distinct(values, seed),
    }
}

/// Whether these are the values, in any order, and each once. None are never the same: the index may be on its way to the values there
/// were.
fn is_same<IK: Eq + 'static>(old: &[Arc<AnyValue>], values: &[IK]) -> bool {
    let among = |value: &IK| old.iter().filter(|old| typed::<IK>(old) == value).count() == 1;
    let distinct = || (1..values.len()).all(|at| !values[..at].contains(&values[at]));
    !old.is_empty()
        && old.len() == values.len()
        && values.len() <= FEW
        && values.iter().all(among)
        && distinct()
}

/// More values than this are not compared one by one.
const FEW: usize = 16;

/// Sorts by hash and drops what is there twice.
fn distinct<IK: Eq + Hash + Send + Sync + 'static>(values: Vec<IK>, seed: &Seed) -> Values {
    let mut values: Vec<_> = values.into_iter().map(|key| erased(key, seed)).collect();
    values.sort_by_key(|value| value.hash);
    let mut kept: Vec<Arc<AnyValue>> = Vec::with_capacity(values.len());
    for value in values {
        let mut same_hash = kept.iter().rev().take_while(|earlier| earlier.hash == value.hash);
        if !same_hash.any(|earlier| typed::<IK>(earlier) == typed::<IK>(&value)) {
            kept.push(value);
        }
    }
    Values::Many(kept)
}

/// The value behind the erased one.
///
/// # Panics
/// Never: indexes are found by name and type.
pub(crate) fn typed<IK: 'static>(value: &AnyValue) -> &IK {
    let key: &dyn Any = &value.key;
    key.downcast_ref().expect("an index holds values of its own type")
}
