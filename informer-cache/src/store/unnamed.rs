//! PURE. The listed objects on which the key function panicked. The list does not contain them, so a stored object that is not listed may be one of them.

use flyball_sync::panics::{attempt, caught};

use crate::Schema;
use crate::store::object_reader::{Transform, transformed};
use crate::table::record::Object;

/// The maximum number of objects that are compared with the stored objects. The comparison takes time in proportion to the product of both numbers.
const MOST: usize = 16;

/// The objects of a list on which the key function panicked.
pub(super) struct Unnamed<V> {
    pub(super) count: u64,
    /// The message of the last panic.
    pub(super) panic: String,
    /// The first objects, at most [`MOST`].
    objects: Vec<Object<V>>,
}

/// Stored objects that a list does not contain, and that are kept because they may be listed objects whose key function panicked.
pub(crate) struct Withheld {
    /// The number of stored objects that are kept.
    pub(crate) objects: u64,
    /// The number of listed objects on which the key function panicked.
    pub(crate) unnamed: u64,
    /// The message of the last panic.
    pub(crate) panic: String,
}

/// The objects with which stored objects are compared; `None` if every stored object may be one of the objects.
pub(super) struct Candidates<V>(Option<Vec<Object<V>>>);

// `Default` is not derived, because a derive would require `V: Default`.
impl<V> Default for Unnamed<V> {
    fn default() -> Self {
        Self { count: 0, panic: String::new(), objects: Vec::new() }
    }
}

impl<V> Unnamed<V> {
    pub(super) fn add(&mut self, object: Object<V>, panic: &str) {
        self.count += 1;
        self.panic = panic.into();
        if self.objects.len() < MOST {
            self.objects.push(object);
        }
    }

    /// Returns the objects as they would be stored. If the transformation panics on one of them, or if there are too many, each stored object counts as
    /// a possible state of them.
    pub(super) fn transformed(&mut self, transform: Option<&Transform<V>>) -> Candidates<V> {
        let objects = std::mem::take(&mut self.objects);
        if self.count > objects.len() as u64 {
            caught(|| drop(objects));
            return Candidates(None);
        }
        Candidates(
            attempt(|| objects.into_iter().map(|object| transformed(object, transform)).collect()).ok(),
        )
    }
}

impl<V> Candidates<V> {
    /// Returns whether a stored object may be a state of one of the objects. If the identity function panics, it may.
    pub(super) fn may_be<K>(&self, schema: &Schema<K, V>, stored: &V) -> bool {
        let Some(objects) = &self.0 else { return true };
        objects.iter().any(|object| attempt(|| schema.same_identity(stored, object)).unwrap_or(true))
    }

    /// Drops the objects. Panics of their destructors are ignored: the list that contained them is complete without them.
    pub(super) fn discard(self) {
        caught(|| drop(self));
    }
}
