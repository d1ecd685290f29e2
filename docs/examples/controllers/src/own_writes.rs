//! EDGE. Reading one's own writes.
//!
//! A cache is behind the API server. A controller that counts pods in one it has just created pods for, but which does not
//! show them yet, creates them twice. kube-controller-manager counts how many creations and deletions it has yet to see, and gives up after five
//! minutes. Here the versions of the answers are kept: versions of one API server are one sequence, so a cache that has reached the newest of
//! them shows all that was written. An answer to a deletion need not have a version, so what was deleted is kept by name and uid until the cache does
//! not show it any more.
//!
//! Cancel safety: dropping [`OwnWrites::seen`] forgets the wait; what is waited for stays.

use std::collections::HashMap;
use std::time::Duration;

use flyball_informer_cache::{Informer, NamespacedName, Version};
use flyball_kube::object_key;
use kube::Resource;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::error::Error;
use crate::holder::uid_of;

/// How long a cache may be behind before a reconcile makes room for others.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a controller wrote of a kind, and the cache that has to show it.
#[derive(Debug)]
pub struct OwnWrites<K> {
    informer: Informer<NamespacedName, K>,
    /// The newest version written on behalf of each object, by its uid.
    newest: Mutex<HashMap<String, Version>>,
    /// The uids of what was deleted, by key.
    deleted: Mutex<HashMap<NamespacedName, String>>,
}

impl<K: Resource + Send + Sync + 'static> OwnWrites<K> {
    /// Nothing is written yet.
    #[must_use]
    pub fn new(informer: &Informer<NamespacedName, K>) -> Self {
        Self { informer: informer.clone(), newest: Mutex::default(), deleted: Mutex::default() }
    }

    /// The API server answered a write on behalf of `owner` with this object.
    pub fn wrote(&self, owner: &impl Resource, answer: &K) {
        let version = answer.meta().resource_version.as_deref().and_then(|text| text.parse().ok());
        let Some(version) = version.map(Version::new) else { return };
        let mut newest = self.newest.lock();
        let known = newest.entry(uid_of(owner).to_owned()).or_default();
        *known = version.max(*known);
    }

    /// The API server says that this object is gone, or going.
    pub fn deleted(&self, object: &K) {
        if let Ok(key) = object_key(object) {
            self.deleted.lock().insert(key, uid_of(object).to_owned());
        }
    }

    /// Whether this object, which the cache may still show, was deleted.
    pub fn is_deleted(&self, object: &K) -> bool {
        object_key(object)
            .is_ok_and(|key| self.deleted.lock().get(&key).is_some_and(|uid| uid == uid_of(object)))
    }

    /// Waits until the cache shows all that was written on behalf of `owner`.
    ///
    /// # Errors
    /// When the cache takes too long, or is over.
    pub async fn seen(&self, owner: &impl Resource) -> Result<(), Error> {
        let store = self.informer.store();
        self.deleted.lock().retain(|key, uid| store.get(key).is_some_and(|object| uid_of(&*object) == uid));
        let awaited = {
            let mut newest = self.newest.lock();
            // So nothing is kept of owners that are gone.
            let reached = store.version();
            newest.retain(|_, version| *version > reached);
            newest.get(uid_of(owner)).copied()
        };
        let Some(version) = awaited else { return Ok(()) };
        match timeout(PATIENCE, store.wait_for_version(version)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Error::Behind),
        }
    }
}
