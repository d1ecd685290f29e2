//! EDGE. Which objects of the list under way could not be read: they are there, so the end of the list is not theirs.
//!
//! An informer asks for one list at a time, page by page or as a stream, and then for what is missing in it. Each list begins with none.

use std::collections::HashMap;
use std::sync::Arc;

use flyball_informer_cache::NamespacedName;

use super::decode::Unreadable;
use crate::sync::Mutex;

/// Their keys and identities. Clones share them: a streaming list is told by a watch.
#[derive(Clone, Default)]
pub(super) struct Unread(Arc<Mutex<HashMap<NamespacedName, Option<String>>>>);

impl Unread {
    /// A list begins.
    pub(super) fn begin(&self) {
        drop(std::mem::take(&mut *self.0.lock()));
    }

    pub(super) fn add(&self, object: &Unreadable) {
        // What has no key was never in the cache.
        if let Some(key) = object.name.as_deref().and_then(|name| name.parse().ok()) {
            self.0.lock().insert(key, object.uid.clone());
        }
    }

    /// It is gone before the list is complete.
    pub(super) fn remove(&self, key: &NamespacedName) {
        self.0.lock().remove(key);
    }

    /// Whether one of this key and identity is there. Another identity means that the one asked for is gone; what is stored may have lost its own by a
    /// transformation, which is no other one.
    pub(super) fn has(&self, key: &NamespacedName, uid: Option<&str>) -> bool {
        self.0.lock().get(key).is_some_and(|unread| match (unread, uid) {
            (Some(unread), Some(uid)) => unread == uid,
            _ => true,
        })
    }
}
