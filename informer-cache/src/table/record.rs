//! PURE. The stored form of one state of an object, and its index values.

use std::any::Any;
use std::sync::Arc;

use flyball_sync::panics::DropContained;

use crate::table::Garbage;
use crate::{IndexError, Version};

/// An object. Its destructor runs with the last reference, and may panic, so each reference of the crate is contained.
pub(crate) type Object<V> = DropContained<Arc<V>>;

/// Moves an object to its allocation.
#[inline]
pub(crate) fn allocated<V>(object: V) -> Object<V> {
    DropContained::new(Arc::new(object))
}

/// Returns the object itself.
pub(crate) fn object_of<V>(object: &Object<V>) -> &V {
    object
}

/// One state of one object, with its key and version. A write never changes the clones of a record.
///
/// A record is stored inline in its row, and points directly to the name and the object. A new version of an object shares the [`Name`] of the
/// previous version, so an update allocates memory only for the object and its index values.
///
/// So a record may hold the key that was read from an earlier version of its object. If this key shares a string with the earlier version, the record
/// keeps that string alive.
pub(crate) struct Record<K, V> {
    pub(crate) object: Object<V>,
    /// An `Option<Record>` encodes `None` in this word, because `object` uses its own null pointer.
    pub(crate) name: Arc<Name<K>>,
    pub(crate) version: Version,
}

/// The key of an object, with its hash. All versions of an object, and all changes to it, share one `Name`.
pub(crate) struct Name<K> {
    pub(crate) hash: u64,
    pub(crate) key: DropContained<K>,
}

impl<K, V> Record<K, V> {
    pub(crate) fn new(hash: u64, key: DropContained<K>, version: Version, object: Object<V>) -> Self {
        Self { name: Arc::new(Name { hash, key }), version, object }
    }

    /// Creates a record of a different version of the same object.
    pub(crate) fn next(&self, version: Version, object: Object<V>) -> Self {
        Self { name: self.name.clone(), version, object }
    }

    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.name.hash
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        &self.name.key
    }

    /// Returns whether both records hold the same allocation of an object. Comparing addresses is reliable, because both objects are alive.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.object, &other.object)
    }

    /// The memory of a name in bytes, without the memory to which its key points.
    pub(crate) const NAME: usize = size_of::<Name<K>>() + 2 * size_of::<usize>();
}

// `Clone` is not derived, because a derive would require `K: Clone` and `V: Clone`.
impl<K, V> Clone for Record<K, V> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), version: self.version, object: self.object.clone() }
    }
}

/// Loads the reference counts of an object that is cloned next. A clone is an atomic read-modify-write operation, which the CPU neither starts early
/// nor overlaps with other cache misses. The plain loads of a few objects overlap with each other.
#[inline]
fn load_counts<V>(object: &Arc<V>) {
    std::hint::black_box(Arc::strong_count(object));
}

/// Clones objects. The loads of their reference counts overlap, because the counts of a few objects are [loaded](load_counts) before the first of them is cloned.
pub(crate) fn cloned<'a, V: 'a>(mut objects: impl Iterator<Item = &'a Arc<V>>) -> Vec<Arc<V>> {
    const AHEAD: usize = 16;
    let mut cloned = Vec::with_capacity(objects.size_hint().0);
    let mut prefetched: [Option<&Arc<V>>; AHEAD] = [None; AHEAD];
    loop {
        let mut count = 0;
        for (place, object) in prefetched.iter_mut().zip(objects.by_ref()) {
            load_counts(object);
            *place = Some(object);
            count += 1;
        }
        if count == 0 {
            return cloned;
        }
        cloned.extend(prefetched[..count].iter().flatten().map(|object| Arc::clone(object)));
    }
}

/// A value (here, an index value) with its hash.
pub(crate) struct Value<T: ?Sized> {
    pub(crate) hash: u64,
    pub(crate) key: T,
}

/// A type-erased index value, in a [`DropContained`]. The definition of the index determines the type.
pub(crate) type AnyValue = Value<dyn Any + Send + Sync>;

/// A value that an index function returned.
pub(crate) struct IndexValue {
    pub(crate) value: Arc<AnyValue>,
    /// The group that already had this value, if any. If one write changes many keys, the group may be removed for an earlier key before the change
    /// of this key is planned.
    pub(crate) group: Option<u32>,
}

/// The distinct values that an index function returned for an object.
pub(crate) enum Values {
    /// The object has the same values as the stored object, so the column does not change.
    Kept,
    /// The object has one value, and this group of the column has it. Valid only until the column changes.
    Known(u32),
    One(IndexValue),
    Many(Vec<IndexValue>),
    Failed(Arc<IndexError>),
}

/// The values of an object in each index, in the order of the indexes. Missing elements at the end mean [`Values::Kept`], so that the list of most
/// updates is empty.
pub(crate) type AllValues = Vec<Values>;

impl Values {
    /// The result of an index function that panicked with this message.
    pub(crate) fn of_panic(message: String) -> Self {
        Self::Failed(Arc::new(IndexError::new(format!("the index function panicked: {message}"))))
    }

    /// Moves the values, which may be the last references, to `garbage`.
    pub(super) fn discard(self, garbage: &mut Garbage) {
        match self {
            Self::One(value) => garbage.values.push(value.value),
            Self::Many(values) => garbage.values.extend(values.into_iter().map(|value| value.value)),
            Self::Failed(error) => garbage.errors.push(error),
            Self::Kept | Self::Known(_) => {}
        }
    }

    /// Returns whether the values stay valid when the columns change.
    pub(crate) fn is_lasting(&self) -> bool {
        !matches!(self, Self::Known(_))
    }

    pub(crate) fn as_slice(&self) -> &[IndexValue] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
            Self::Kept | Self::Known(_) | Self::Failed(_) => &[],
        }
    }

    pub(crate) fn error(&self) -> Option<&Arc<IndexError>> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Kept | Self::Known(_) | Self::One(_) | Self::Many(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloned_keeps_number_and_order() {
        for number in [0, 1, 15, 16, 17, 32, 33, 100] {
            let objects: Vec<Arc<i32>> = (0..number).map(Arc::new).collect();
            assert_eq!(cloned(objects.iter()), objects);
            assert!(
                objects.iter().all(|object| Arc::strong_count(object) == 1),
                "every clone was dropped once"
            );
        }
    }
}
