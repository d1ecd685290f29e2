//! PURE. The events of a watch. An event is a change of one object, a bookmark, or the end of a streaming list.

use crate::Version;

/// One message of a [`WatchStream`](crate::WatchStream).
///
/// # Examples
/// ```
/// use flyball_informer_cache::{WatchEvent, Version};
///
/// let event = WatchEvent::Modified("pod-7").map(str::len);
/// assert_eq!(event.object(), Some(&5));
/// assert_eq!(WatchEvent::<()>::Bookmark(Version::new(9)).object(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<V> {
    /// The object is new, or it already existed when the watch began.
    Added(V),
    /// The object changed; this is its new state.
    Modified(V),
    /// The object was deleted; this is its last state. The version of the object should be the version of the deletion.
    Deleted(V),
    /// The watch has delivered all events up to this version. A bookmark itself is not a change of an object.
    Bookmark(Version),
    /// A streaming list is complete: the watch has delivered all objects that existed at this version, as [`Added`](Self::Added).
    ///
    /// The event has this meaning only in a watch requested with [`streaming_list`](crate::WatchRequest::streaming_list); in any other watch it
    /// counts as a bookmark.
    InitialListEnd(Version),
}

impl<V> WatchEvent<V> {
    /// Returns the object of the event; `None` for a bookmark and for the end of a streaming list.
    pub const fn object(&self) -> Option<&V> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => Some(object),
            Self::Bookmark(_) | Self::InitialListEnd(_) => None,
        }
    }

    /// Returns the same event with a reference to the object.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::WatchEvent;
    ///
    /// let event = WatchEvent::Added(String::from("pod-7"));
    /// assert_eq!(event.as_ref().map(|name| name.len()), WatchEvent::Added(5));
    /// assert_eq!(event.object().map(String::as_str), Some("pod-7")); // the event still owns it
    /// ```
    pub const fn as_ref(&self) -> WatchEvent<&V> {
        match self {
            Self::Added(object) => WatchEvent::Added(object),
            Self::Modified(object) => WatchEvent::Modified(object),
            Self::Deleted(object) => WatchEvent::Deleted(object),
            Self::Bookmark(version) => WatchEvent::Bookmark(*version),
            Self::InitialListEnd(version) => WatchEvent::InitialListEnd(*version),
        }
    }

    /// Converts the object of the event with `f`.
    pub fn map<W>(self, f: impl FnOnce(V) -> W) -> WatchEvent<W> {
        match self {
            Self::Added(object) => WatchEvent::Added(f(object)),
            Self::Modified(object) => WatchEvent::Modified(f(object)),
            Self::Deleted(object) => WatchEvent::Deleted(f(object)),
            Self::Bookmark(version) => WatchEvent::Bookmark(version),
            Self::InitialListEnd(version) => WatchEvent::InitialListEnd(version),
        }
    }
}
