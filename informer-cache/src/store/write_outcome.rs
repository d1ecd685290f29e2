//! PURE. The outcome of a write.

use crate::Version;

/// The effect of a write on the object with the written key. The event type (added or modified) is ignored; the effect depends on the stored object
/// and its version.
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
    /// The object was added. The store had no object with this key before.
    Added,
    /// The stored object was updated to the written state.
    Updated,
    /// The stored object was replaced by a different object with the same key. Subscribers receive
    /// [`ChangeKind::Replaced`](crate::ChangeKind::Replaced).
    Replaced,
    /// The object was deleted.
    Deleted,
    /// The write did not change the stored object, because that object has a newer version, or is the same object at the same version. (A deletion is
    /// stale if the stored object has a newer version, or is another object with the same version; see [`Writer::delete`](crate::Writer::delete).)
    Stale {
        /// The version of the stored object.
        stored: Version,
    },
    /// The deletion had no effect, because no object with this key was stored.
    Absent,
    /// The event was a bookmark or the end of a streaming list. It raised the version of the store, or had no effect.
    Bookmarked,
}

impl WriteOutcome {
    /// Returns whether an object was added, updated, replaced or deleted.
    #[must_use]
    pub const fn is_change(self) -> bool {
        matches!(self, Self::Added | Self::Updated | Self::Replaced | Self::Deleted)
    }
}
