//! PURE. One version of one object as the store keeps it, and the values that indexes have for it.

use std::any::Any;
use std::sync::Arc;

use crate::{IndexError, Version};

/// One version of one object, with its key and version. Never changes, so whoever holds it holds that state.
///
/// A value, not an allocation of its own: a new version of an object shares its name with the one before, so an update allocates
/// the object and what indexes are asked, and a look at a row leads to name and object at once. (In a transaction it brings its own.)
///
/// So the key is that of an earlier version: text that it shared with that object stays.
pub(crate) struct Record<K, V> {
    pub(crate) name: Arc<Name<K>>,
    pub(crate) version: Version,
    pub(crate) object: Arc<V>,
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

/// What an index function said about an object: distinct values.
pub(crate) enum Values {
    One(Arc<AnyValue>),
    /// The one value that the record before has, too: there is nothing to be done.
    Kept(Arc<AnyValue>),
    /// The values that the record before has, too, at least one.
    KeptMany(Vec<Arc<AnyValue>>),
    Many(Vec<Arc<AnyValue>>),
    Failed(Arc<IndexError>),
}

impl Values {
    pub(crate) const NONE: Self = Self::Many(Vec::new());

    pub(crate) fn as_slice(&self) -> &[Arc<AnyValue>] {
        match self {
            Self::One(value) | Self::Kept(value) => std::slice::from_ref(value),
            Self::Many(values) | Self::KeptMany(values) => values,
            Self::Failed(_) => &[],
        }
    }

    pub(crate) fn are_kept(&self) -> bool {
        matches!(self, Self::Kept(_) | Self::KeptMany(_))
    }

    pub(crate) fn error(&self) -> Option<&Arc<IndexError>> {
        match self {
            Self::Failed(error) => Some(error),
            Self::One(_) | Self::Many(_) | Self::Kept(_) | Self::KeptMany(_) => None,
        }
    }
}
