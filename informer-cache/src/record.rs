//! PURE. One version of one object as the store keeps it, with everything its owner's functions said about it.

use std::any::Any;
use std::sync::Arc;

use crate::trie::Hashed;
use crate::{IndexError, Version};

/// One version of one object, with its key, its version and its index values.
///
/// # Invariants
/// 1. `labels` is sorted by column and hash, and holds no value of a column twice.
/// 2. A column that failed has no labels.
/// 3. Once the record is in a table, every label's value is the very allocation that the group of that value holds.
///    So tables compare values by address, and a change runs no equality of the user's halfway through.
pub(crate) struct Record<K, V> {
    pub(crate) hash: u64,
    pub(crate) key: K,
    pub(crate) version: Version,
    pub(crate) object: Arc<V>,
    pub(crate) labels: Box<[Label]>,
    pub(crate) failures: Box<[Failure]>,
}

/// One value of one index.
#[derive(Clone)]
pub(crate) struct Label {
    /// The index, by its place among the store's indexes.
    pub(crate) column: usize,
    pub(crate) value: Arc<AnyValue>,
}

/// An index that failed on an object.
pub(crate) struct Failure {
    pub(crate) column: usize,
    pub(crate) error: Arc<IndexError>,
}

/// An index value with its hash.
pub(crate) struct Value<T: ?Sized> {
    pub(crate) hash: u64,
    pub(crate) key: T,
}

/// A value whose type only its index knows.
pub(crate) type AnyValue = Value<dyn Any + Send + Sync>;

impl<K, V> Record<K, V> {
    /// Whether `value` of `column` is among the labels, by address (invariant 3).
    pub(crate) fn has_label(&self, column: usize, value: &Arc<AnyValue>) -> bool {
        let place = |label: &Label| (label.column, label.value.hash);
        let first = self.labels.partition_point(|label| place(label) < (column, value.hash));
        let mut candidates =
            self.labels[first..].iter().take_while(|label| place(label) == (column, value.hash));
        candidates.any(|label| Arc::ptr_eq(&label.value, value))
    }
}

impl<K, V> Hashed for Arc<Record<K, V>> {
    fn hash(&self) -> u64 {
        self.hash
    }
}
