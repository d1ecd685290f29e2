//! PURE. What a write did.

use crate::Version;

/// What a write did to the object of its key. The event type (added, modified) is ignored: the stored version decides.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, Version, WatchEvent, WriteOutcome};
///
/// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
/// assert_eq!(pods.apply(WatchEvent::Modified(("a", 7))), WriteOutcome::Added); // whatever the event says
/// assert_eq!(pods.apply(WatchEvent::Deleted(("a", 6))), WriteOutcome::Stale { stored: Version::new(7) });
/// assert_eq!(pods.delete("b", None), WriteOutcome::Absent);
/// assert!(pods.delete("a", None).is_change());
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The key was not there.
    Added,
    /// A newer state of the same object.
    Updated,
    /// Another object under the same key: subscribers receive [`ChangeKind::Replaced`](crate::ChangeKind::Replaced).
    Replaced,
    /// The object is gone.
    Deleted,
    /// Nothing: the same object is stored at this version, which is not older. (For a deletion: which is newer.)
    Stale {
        /// The version of the stored object.
        stored: Version,
    },
    /// Nothing: there was no object to delete.
    Absent,
    /// Nothing but the store's version may have changed: a bookmark.
    Bookmarked,
}

impl WriteOutcome {
    /// Whether an object was added, changed or deleted.
    #[must_use]
    pub const fn is_change(self) -> bool {
        matches!(self, Self::Added | Self::Updated | Self::Replaced | Self::Deleted)
    }
}
