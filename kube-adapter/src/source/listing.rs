//! EDGE. Which objects of the list under way could not be read: they are there, so the end of the list is not theirs.
//!
//! An informer asks for one list at a time, page by page or as a stream, and then for what is missing in it. Each list begins with none.

use std::collections::HashMap;
use std::sync::Arc;

use flyball_informer_cache::NamespacedName;
use flyball_sync::locks::Mutex;

use super::decode::Unreadable;

/// What could not be read. Clones share it: a streaming list is delivered by a watch.
#[derive(Clone, Default)]
pub(super) struct Listing(Arc<Mutex<HashMap<NamespacedName, Listed>>>);

struct Listed {
    uid: Option<String>,
    /// Until the list is stored, for a source that makes something of it then.
    unread: Option<Unreadable>,
}

impl Listing {
    /// A list begins.
    pub(super) fn begin(&self) {
        drop(std::mem::take(&mut *self.0.lock()));
    }

    pub(super) fn add(&self, unread: Unreadable, keeps: bool) {
        // What has no key was never in the cache.
        if let Some(key) = unread.key() {
            self.0.lock().insert(key, Listed { uid: unread.uid.clone(), unread: keeps.then_some(unread) });
        }
    }

    /// It is read, or gone, before the list is complete.
    pub(super) fn remove(&self, key: &NamespacedName) {
        self.0.lock().remove(key);
    }

    /// Whether one of this key and identity is there. Another identity means that the one asked for is gone; what is stored may have lost its own by a
    /// transformation, which is no other one.
    pub(super) fn has(&self, key: &NamespacedName, uid: Option<&str>) -> bool {
        self.0.lock().get(key).is_some_and(|listed| match (&listed.uid, uid) {
            (Some(listed), Some(uid)) => listed == uid,
            _ => true,
        })
    }

    /// The list is stored: what of it could not be read, once.
    pub(super) fn take(&self) -> Vec<(NamespacedName, Unreadable)> {
        let mut listed = self.0.lock();
        listed.iter_mut().filter_map(|(key, listed)| Some((key.clone(), listed.unread.take()?))).collect()
    }
}
