//! EDGE. Records the objects of the current list that could not be decoded. They still exist on the server, so the cache must not delete them at the
//! end of the list. An informer requests one list at a time, in pages or as a stream. After a list, the informer calls `Source::is_unreadable` for
//! each stored object that the list lacks. A new list clears the recorded objects.

use std::collections::HashMap;
use std::sync::Arc;

use flyball_informer_cache::NamespacedName;
use flyball_sync::locks::Mutex;

use super::decode::Unreadable;

/// The objects that could not be decoded. Clones share one record: the source adds objects of paged lists, and its watch adds objects of streaming
/// lists.
#[derive(Clone, Default)]
pub(super) struct Listing(Arc<Mutex<HashMap<NamespacedName, Listed>>>);

struct Listed {
    uid: Option<String>,
    /// The details of the object; `None` if they are not needed, or once `Listing::take` has moved them out, which it does when the list is stored.
    unread: Option<Unreadable>,
}

impl Listing {
    /// Starts a list.
    pub(super) fn begin(&self) {
        drop(std::mem::take(&mut *self.0.lock()));
    }

    pub(super) fn add(&self, unread: Unreadable, keeps: bool) {
        // An object without a key need not be recorded, because it was never in the cache.
        if let Some(key) = unread.key() {
            self.0.lock().insert(key, Listed { uid: unread.uid.clone(), unread: keeps.then_some(unread) });
        }
    }

    /// Removes the record of an object, because a later event of the same streaming list has a state of the object that could be decoded, or reports
    /// its deletion.
    pub(super) fn remove(&self, key: &NamespacedName) {
        self.0.lock().remove(key);
    }

    /// Returns whether the list has an undecoded object with this key and `uid`. If the `uid` in the list differs, the object in question was
    /// deleted. If a `uid` is missing, it matches any other, because a transformation may have removed the `uid` of the stored object.
    pub(super) fn has(&self, key: &NamespacedName, uid: Option<&str>) -> bool {
        self.0.lock().get(key).is_some_and(|listed| match (&listed.uid, uid) {
            (Some(listed), Some(uid)) => listed == uid,
            _ => true,
        })
    }

    /// Called when the list has been stored: takes the details of the objects that could not be decoded.
    pub(super) fn take(&self) -> Vec<(NamespacedName, Unreadable)> {
        let mut listed = self.0.lock();
        listed.iter_mut().filter_map(|(key, listed)| Some((key.clone(), listed.unread.take()?))).collect()
    }
}
