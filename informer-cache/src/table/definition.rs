//! PURE. The definition of an index inside a store: its name and its functions, with the type of the index values erased.

use std::any::{Any, TypeId};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use flyball_sync::panics::{DropContained, attempt};

use crate::table::Column;
use crate::table::record::{AnyValue, Value, Values};
use crate::table::seed::Seed;

/// What identifies an index: its name and its kind. A handle refers to an index of a store if their ids are equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexId {
    pub(crate) name: &'static str,
    pub(crate) value_type: TypeId,
    /// Whether every object has exactly one value in this index.
    pub(crate) single: bool,
    pub(crate) unique: bool,
    pub(crate) ordered: bool,
    /// The address of the index function if it captures its environment, else 0.
    pub(crate) captured: usize,
}

/// The functions with which one index reads objects and compares values. The type is `pub`, but unreachable, because the crate does not export it.
pub struct Definition<V> {
    pub(crate) id: IndexId,
    pub(crate) values: DropContained<Box<ValuesFn<V>>>,
    pub(crate) equal: fn(&AnyValue, &AnyValue) -> bool,
    /// Compares two values; `Some` only in an ordered index.
    pub(crate) compare: Option<fn(&AnyValue, &AnyValue) -> Ordering>,
}

/// Returns the index values of an object. The row in which the object will be stored is the second argument; it is `None` for a new row.
pub(crate) type ValuesFn<V> = dyn Fn(&Column, Option<u32>, &V, &Seed) -> Values + Send + Sync;

impl<V: 'static> Definition<V> {
    /// Like [`read`](Self::read), but a panic becomes an index error of this object.
    pub(crate) fn values(&self, column: &Column, row: Option<u32>, object: &V, seed: &Seed) -> Values {
        attempt(|| self.read(column, row, object, seed)).unwrap_or_else(Values::of_panic)
    }

    /// Runs the user's function for an object that will be stored in `row` (`None` for a new row). Returns [`Values::Kept`] if the row already has
    /// the same values. If a row of the column already has an equal value, the new row shares that value. So most writes do not allocate memory for
    /// an index, and most updates do not hash index values either. Panics if the function, or `Hash` or `Eq` of its values, panics.
    #[inline]
    pub(crate) fn read(&self, column: &Column, row: Option<u32>, object: &V, seed: &Seed) -> Values {
        (self.values)(column, row, object, seed)
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
        f.debug_struct("Definition").field("name", &self.id.name).finish_non_exhaustive()
    }
}

/// Converts an index value to the type-erased form in which it is stored.
pub(crate) fn erased<IK: Hash + Send + Sync + 'static>(key: IK, seed: &Seed) -> Arc<AnyValue> {
    let key = DropContained::new(key);
    Arc::new(Value { hash: seed.hash_one(&*key), key })
}

/// Converts a type-erased value back to its type.
///
/// # Panics
/// Panics only if the value has a different type; indexes are looked up by name and type, so this does not happen.
#[inline]
pub(crate) fn typed<IK: 'static>(value: &AnyValue) -> &IK {
    let key: &dyn Any = &value.key;
    let key: &DropContained<IK> = key.downcast_ref().expect("an index holds values of its own type");
    key
}
