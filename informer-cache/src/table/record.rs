//! PURE. One version of one object as the store keeps it, and the values that indexes have for it.

use std::any::Any;
use std::sync::Arc;

use crate::{IndexError, Version};

/// One state of one object, with its key and version. Immutable: every holder of it sees the same state.
///
/// A value, not an allocation of its own: a new version of an object shares its name with the one before, so an update allocates only the object and
/// its index values, and a row points directly to name and object. (In a transaction a new version has a name of its own.)
///
/// So the key is that of an earlier version: text that it shared with that object stays.
pub(crate) struct Record<K, V> {
    /// First, so that its word also encodes whether there is a record: iterating over the objects of rows reads one word of each.
    pub(crate) object: Arc<V>,
    pub(crate) name: Arc<Name<K>>,
    pub(crate) version: Version,
}

/// What versions of an object share, and changes of it.
pub(crate) struct Name<K> {
    pub(crate) hash: u64,
    pub(crate) key: K,
}

impl<K, V> Record<K, V> {
    pub(crate) fn new(hash: u64, key: K, version: Version, object: Arc<V>) -> Self {
        Self { name: Arc::new(Name { hash, key }), version, object }
    }

    /// Another version of the object.
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

    /// Whether it is this very version. By address: who asks holds the object, so its address is not used again.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.object, &other.object)
    }

    /// The memory of a name, in bytes, without what the key points to.
    pub(crate) const NAME: usize = size_of::<Name<K>>() + 2 * size_of::<usize>();
}

// Not derived: nothing is asked of the types.
impl<K, V> Clone for Record<K, V> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), version: self.version, object: self.object.clone() }
    }
}

/// An index value with its hash.
pub(crate) struct Value<T: ?Sized> {
    pub(crate) hash: u64,
    pub(crate) key: T,
}

/// A value whose type only its index knows.
pub(crate) type AnyValue = Value<dyn Any + Send + Sync>;

/// A value that an index function said.
pub(crate) struct Said {
    pub(crate) value: Arc<AnyValue>,
    /// The group that it is shared with. In a write of many keys that may be gone when its turn comes.
    pub(crate) group: Option<u32>,
}

/// What an index function said about an object: distinct values.
pub(crate) enum Values {
    /// Those that the object before has in this index: there is nothing to be done.
    Kept,
    One(Said),
    Many(Vec<Said>),
    Failed(Arc<IndexError>),
}

/// What the indexes said about an object, in their order. What is cut off at the end is [kept](Values::Kept), so that most updates need no list.
pub(crate) type AllValues = Vec<Values>;

impl Values {
    pub(crate) fn as_slice(&self) -> &[Said] {
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
