//! PURE. The outcome of a write.

use crate::Version;

/// The effect of a write on the object of its key. The event type (added, modified) is ignored: the stored version decides.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, Version, WatchEvent, WriteOutcome};
///
/// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
/// assert_eq!(pods.apply(WatchEvent::Modified(("a", 7))), WriteOutcome::Added); // the event type is ignored
/// assert_eq!(pods.apply(WatchEvent::Deleted(("a", 6))), WriteOutcome::Stale { stored: Version::new(7) });
/// assert_eq!(pods.delete("b", None), WriteOutcome::Absent);
/// assert!(pods.delete("a", None).is_change());
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The object was added; there was none under the key.
    Added,
    /// The stored object was updated to the written state.
    Updated,
    /// The stored object was replaced by a different object under the same key: subscribers receive
    /// [`ChangeKind::Replaced`](crate::ChangeKind::Replaced).
    Replaced,
    /// The object was deleted.
    Deleted,
    /// The write did not change the object, because a newer version is stored, or the same object at the same version. (A deletion is stale only if a
    /// newer version is stored.)
    Stale {
        /// The version of the stored object.
        stored: Version,
    },
    /// No effect, because there was no object to delete.
    Absent,
    /// The event was a bookmark, which changes at most the version of the store.
    Bookmarked,
}

impl WriteOutcome {
    /// Returns whether an object was added, updated, replaced or deleted.
    #[must_use]
    pub const fn is_change(self) -> bool {
        matches!(self, Self::Added | Self::Updated | Self::Replaced | Self::Deleted)
    }
}
