//! PURE. What happened to one key, seen from one consumer.

use std::fmt;
use std::sync::Arc;

/// What happened to the object of one key since a consumer last heard of it.
///
/// Several events may have been merged into it; then `old` is what this consumer was told last, and `new` is newest.
pub struct Change<K, V> {
    key: K,
    /// What happened.
    pub kind: ChangeKind<V>,
}

/// The kinds of [`Change`].
pub enum ChangeKind<V> {
    /// The key was unknown to this consumer.
    Added {
        /// The object now.
        object: Arc<V>,
        /// Whether it belongs to what there was at the beginning: the snapshot a subscription or an observer starts with, or, where that was
        /// taken earlier, the store's first list.
        initial: bool,
    },
    /// The same object, newer (or the same again: a resync).
    Updated {
        /// What this consumer was told last.
        old: Arc<V>,
        /// The object now.
        new: Arc<V>,
    },
    /// The object is gone.
    Deleted {
        /// Its last known state.
        last: Arc<V>,
        /// Nobody saw the deletion itself (it was noticed by a relist, say), so there may have been newer states.
        missed: bool,
    },
}

impl<K, V> Change<K, V> {
    /// A key unknown so far. For tests and adapters; stores make their own.
    pub fn added(key: K, object: Arc<V>, initial: bool) -> Self {
        Self { key, kind: ChangeKind::Added { object, initial } }
    }

    /// The same object, newer.
    pub fn updated(key: K, old: Arc<V>, new: Arc<V>) -> Self {
        Self { key, kind: ChangeKind::Updated { old, new } }
    }

    /// An object that is gone.
    pub fn deleted(key: K, last: Arc<V>, missed: bool) -> Self {
        Self { key, kind: ChangeKind::Deleted { last, missed } }
    }

    /// The key of the object.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The key of the object, without the change.
    pub fn into_key(self) -> K {
        self.key
    }

    /// What this consumer was told before: of an update the old state, of a deletion the last one.
    pub fn old(&self) -> Option<&Arc<V>> {
        match &self.kind {
            ChangeKind::Added { .. } => None,
            ChangeKind::Updated { old, .. } => Some(old),
            ChangeKind::Deleted { last, .. } => Some(last),
        }
    }

    /// The object now; `None` after a deletion.
    #[expect(clippy::new_ret_no_self, reason = "the counterpart of `old`, no constructor")]
    pub fn new(&self) -> Option<&Arc<V>> {
        match &self.kind {
            ChangeKind::Added { object, .. } => Some(object),
            ChangeKind::Updated { new, .. } => Some(new),
            ChangeKind::Deleted { .. } => None,
        }
    }

    /// The newest state there is: the object now, or the last state of a deleted one.
    pub fn object(&self) -> &Arc<V> {
        match &self.kind {
            ChangeKind::Added { object, .. } => object,
            ChangeKind::Updated { new, .. } => new,
            ChangeKind::Deleted { last, .. } => last,
        }
    }

    /// Whether this is an object of the beginning: of the snapshot that a subscription or an observer starts with, or of the store's first
    /// list.
    pub fn is_initial(&self) -> bool {
        matches!(self.kind, ChangeKind::Added { initial: true, .. })
    }

    /// Puts deletions first, and leaves the rest in order.
    pub(crate) fn sort(changes: &mut [Self]) {
        changes.sort_by_key(|change| !matches!(change.kind, ChangeKind::Deleted { .. }));
    }
}

impl<K: Clone, V> Clone for Change<K, V> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), kind: self.kind.clone() }
    }
}

// Not derived: the objects are shared, so nothing is asked of `V`.
impl<V> Clone for ChangeKind<V> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added { object: object.clone(), initial: *initial },
            Self::Updated { old, new } => Self::Updated { old: old.clone(), new: new.clone() },
            Self::Deleted { last, missed } => Self::Deleted { last: last.clone(), missed: *missed },
        }
    }
}

impl<K: fmt::Debug, V> fmt::Debug for Change<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("key", &self.key).field("kind", &self.kind).finish()
    }
}

/// Without the objects, so that nothing is asked of them.
impl<V> fmt::Debug for ChangeKind<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { initial, .. } => {
                f.debug_struct("Added").field("initial", initial).finish_non_exhaustive()
            }
            Self::Updated { .. } => f.debug_struct("Updated").finish_non_exhaustive(),
            Self::Deleted { missed, .. } => {
                f.debug_struct("Deleted").field("missed", missed).finish_non_exhaustive()
            }
        }
    }
}
