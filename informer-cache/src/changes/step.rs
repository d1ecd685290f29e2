//! PURE. What one write does to one key, as the store sees it, before any consumer's view of it.

use std::sync::Arc;

use crate::table::record::Record;

/// A change of one key in the store.
pub(crate) enum Step<K, V> {
    /// The key was not there; whether it came with the store's first list.
    Added { new: Record<K, V>, initial: bool },
    /// The same object, newer.
    Updated { old: Record<K, V>, new: Record<K, V> },
    /// Another object under the same key, or one of which nobody could yet tell whether it is another: whoever delivers
    /// the change asks for the identity, outside every lock.
    Replaced { old: Record<K, V>, new: Record<K, V> },
    /// The key is gone; `last` is the last state that was told, or else the stored one.
    Deleted { old: Record<K, V>, last: Last<V> },
}

/// The last known state of an object that is gone.
pub(crate) struct Last<V> {
    pub(crate) object: Arc<V>,
    /// Nobody saw the deletion itself.
    pub(crate) missed: bool,
}

impl<K, V> Step<K, V> {
    /// What is in the store after.
    pub(crate) fn after(&self) -> Option<&Record<K, V>> {
        match self {
            Self::Added { new, .. } | Self::Updated { new, .. } | Self::Replaced { new, .. } => Some(new),
            Self::Deleted { .. } => None,
        }
    }

    /// The step as it is to who knows only some of the objects: whether the one before it was among them, and whether the one after it is.
    pub(crate) fn seen(&self, was: bool, is: bool) -> Option<Self> {
        let added = |new: &Record<K, V>| Self::Added { new: new.clone(), initial: false };
        let left = |old: &Record<K, V>, missed| {
            let last = Last { object: old.object.clone(), missed };
            Self::Deleted { old: old.clone(), last }
        };
        match (self, was, is) {
            (Self::Added { .. }, _, true)
            | (Self::Updated { .. } | Self::Replaced { .. }, true, true)
            | (Self::Deleted { .. }, true, _) => Some(self.clone()),
            (Self::Updated { new, .. } | Self::Replaced { new, .. }, false, true) => Some(added(new)),
            (Self::Updated { old, .. }, true, false) => Some(left(old, false)),
            // It may be another object that is not among them.
            (Self::Replaced { old, .. }, true, false) => Some(left(old, true)),
            (_, _, false) | (Self::Deleted { .. }, false, _) => None,
        }
    }

    /// It belongs to the store's first list.
    pub(crate) fn begins(&mut self) {
        if let Self::Added { initial, .. } = self {
            *initial = true;
        }
    }

    /// The record that tells the key.
    pub(crate) fn record(&self) -> &Record<K, V> {
        match self {
            Self::Added { new, .. } => new,
            Self::Updated { old, .. } | Self::Replaced { old, .. } | Self::Deleted { old, .. } => old,
        }
    }
}

// Not derived: nothing is asked of the types.
impl<K, V> Clone for Step<K, V> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { new, initial } => Self::Added { new: new.clone(), initial: *initial },
            Self::Updated { old, new } => Self::Updated { old: old.clone(), new: new.clone() },
            Self::Replaced { old, new } => Self::Replaced { old: old.clone(), new: new.clone() },
            Self::Deleted { old, last } => Self::Deleted { old: old.clone(), last: last.clone() },
        }
    }
}

impl<V> Clone for Last<V> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), missed: self.missed }
    }
}
