//! PURE. What a watch tells: one object changed, or everything up to a version has been told.

use crate::Version;

/// One message of a [`Watch`](crate::Watch).
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Event, Version};
///
/// let event = Event::Modified("pod-7").map(str::len);
/// assert_eq!(event.object(), Some(&5));
/// assert_eq!(Event::<()>::Bookmark(Version::new(9)).object(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<V> {
    /// The object is new, or it was there when the watch began.
    Added(V),
    /// The object changed; this is its new state.
    Modified(V),
    /// The object is gone; this is its last state, ideally with the version of the delete.
    Deleted(V),
    /// Everything up to this version has been told; nothing changed.
    Bookmark(Version),
    /// A streaming list is complete: all objects that existed at this version have been told as [`Added`](Self::Added).
    ///
    /// Has a meaning only in a watch that was asked for with
    /// [`streaming_list`](crate::WatchRequest::streaming_list); anywhere else it counts as a bookmark.
    InitialEnd(Version),
}

impl<V> Event<V> {
    /// The object it tells of; `None` for bookmarks.
    pub const fn object(&self) -> Option<&V> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => Some(object),
            Self::Bookmark(_) | Self::InitialEnd(_) => None,
        }
    }

    /// The same event, with the object borrowed.
    pub const fn as_ref(&self) -> Event<&V> {
        match self {
            Self::Added(object) => Event::Added(object),
            Self::Modified(object) => Event::Modified(object),
            Self::Deleted(object) => Event::Deleted(object),
            Self::Bookmark(version) => Event::Bookmark(*version),
            Self::InitialEnd(version) => Event::InitialEnd(*version),
        }
    }

    /// The same event of another object type.
    pub fn map<W>(self, f: impl FnOnce(V) -> W) -> Event<W> {
        match self {
            Self::Added(object) => Event::Added(f(object)),
            Self::Modified(object) => Event::Modified(f(object)),
            Self::Deleted(object) => Event::Deleted(f(object)),
            Self::Bookmark(version) => Event::Bookmark(version),
            Self::InitialEnd(version) => Event::InitialEnd(version),
        }
    }
}
