//! PURE. The stored form of one state of an object, and its index values.

use std::any::Any;
use std::sync::Arc;

use crate::{IndexError, Version};

/// One state of one object, with its key and version. A write never changes the clones of a record.
///
/// A record has no allocation of its own. A new version of an object shares the [`Name`] of the previous version, so an update allocates only the
/// object and its index values, and a row points directly to the name and the object.
///
/// So a record may hold the key of an earlier version. Then it keeps alive any string that the key shares with that version.
pub(crate) struct Record<K, V> {
    /// The first field: its word also encodes whether an `Option` of a record is `None`, so iterating over the objects reads one word per row.
    pub(crate) object: Arc<V>,
    pub(crate) name: Arc<Name<K>>,
    pub(crate) version: Version,
}

/// The part of a record that all versions of an object, and the changes to it, share.
pub(crate) struct Name<K> {
    pub(crate) hash: u64,
    pub(crate) key: K,
}

impl<K, V> Record<K, V> {
    pub(crate) fn new(hash: u64, key: K, version: Version, object: Arc<V>) -> Self {
        Self { name: Arc::new(Name { hash, key }), version, object }
    }

    /// Creates a record of another version of the object.
    pub(crate) fn next(&self, version: Version, object: Arc<V>) -> Self {
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

    /// Returns whether both are the same record. Compares the addresses of the objects, which is safe because both objects are alive.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.object, &other.object)
    }

    /// The memory of a name, in bytes, without the memory that the key points to.
    pub(crate) const NAME: usize = size_of::<Name<K>>() + 2 * size_of::<usize>();
}

// Not derived, because a derive would require `Clone` of the types.
impl<K, V> Clone for Record<K, V> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), version: self.version, object: self.object.clone() }
    }
}

/// Loads the reference counts of an object into the CPU cache.
///
/// Most callers clone or drop the object next. That is an atomic read-modify-write, which the CPU neither starts early nor overlaps with other cache
/// misses; a plain load overlaps with everything that follows.
#[inline]
pub(crate) fn prefetch<V>(object: &Arc<V>) {
    std::hint::black_box(Arc::strong_count(object));
}

/// Clones objects. The loads of their reference counts overlap, because a few objects are [prefetched](prefetch) before the first of them is cloned.
pub(crate) fn cloned<'a, V: 'a>(mut objects: impl Iterator<Item = &'a Arc<V>>) -> Vec<Arc<V>> {
    const AHEAD: usize = 16;
    let mut cloned = Vec::with_capacity(objects.size_hint().0);
    let mut prefetched: [Option<&Arc<V>>; AHEAD] = [None; AHEAD];
    loop {
        let mut count = 0;
        for (place, object) in prefetched.iter_mut().zip(objects.by_ref()) {
            prefetch(object);
            *place = Some(object);
            count += 1;
        }
        if count == 0 {
            return cloned;
        }
        cloned.extend(prefetched[..count].iter().flatten().map(|object| Arc::clone(object)));
    }
}

/// An index value with its hash.
pub(crate) struct Value<T: ?Sized> {
    pub(crate) hash: u64,
    pub(crate) key: T,
}

/// A type-erased value. Its index determines the type.
pub(crate) type AnyValue = Value<dyn Any + Send + Sync>;

/// A value that an index function returned.
pub(crate) struct IndexValue {
    pub(crate) value: Arc<AnyValue>,
    /// The group that already had this value, if any. In a write of many keys, an earlier key's write may have removed the group before this one is
    /// planned.
    pub(crate) group: Option<u32>,
}

/// The distinct values that an index function returned for an object.
pub(crate) enum Values {
    /// The object has the same values as the stored one, so nothing changes.
    Kept,
    One(IndexValue),
    Many(Vec<IndexValue>),
    Failed(Arc<IndexError>),
}

/// The values of an object in each index, in the order of the indexes. Missing elements at the end are [kept](Values::Kept), so that most updates need no list.
pub(crate) type AllValues = Vec<Values>;

impl Values {
    pub(crate) fn as_slice(&self) -> &[IndexValue] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
            Self::Kept | Self::Failed(_) => &[],
        }
    }

    pub(crate) fn error(&self) -> Option<&Arc<IndexError>> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Kept | Self::One(_) | Self::Many(_) => None,
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
