//! PURE. One version of one object as the store keeps it, and the values that indexes have for it.

use std::any::Any;
use std::sync::Arc;

use crate::{IndexError, Version};

/// One version of one object, with its key and version. Never changes, so whoever holds it holds that state.
pub(crate) struct Record<K, V> {
    pub(crate) hash: u64,
    pub(crate) key: K,
    pub(crate) version: Version,
    pub(crate) object: Arc<V>,
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
    /// The one value that the record before has, too: while that is stored, there is nothing to be done.
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

    /// The record before is not stored any more.
    pub(crate) fn let_go(&mut self) {
        *self = match std::mem::replace(self, Self::NONE) {
            Self::Kept(value) => Self::One(value),
            Self::KeptMany(values) => Self::Many(values),
            other => other,
        };
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
