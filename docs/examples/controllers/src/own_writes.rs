//! EDGE. Waits until a cache contains the controller's own writes. A cache lags behind the API server. So a controller that counts the pods in its
//! cache can miss pods that it has just created, and would create them again. kube-controller-manager prevents this with a count of the creations and
//! deletions that its cache does not contain yet, and stops waiting for them after five minutes. Instead of a count, [`OwnWrites`] stores the
//! versions of the responses. The resource versions of an API server form one sequence, so a cache that has reached the newest stored version
//! contains all these writes. The response to a deletion may not contain a version; therefore the names and uids of deleted objects are stored until
//! the cache no longer contains these objects.
//!
//! Cancel safety: dropping [`OwnWrites::wait_until_cached`] ends the wait; the stored versions stay.

use std::collections::HashMap;
use std::time::Duration;

use flyball_informer_cache::{Informer, NamespacedName, Version};
use flyball_kube::object_key;
use kube::Resource;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::error::Error;
use crate::owner::uid_of;

/// The longest time for which a reconcile waits for the cache. After this time the reconcile fails, so that its worker can process other keys.
const CACHE_TIMEOUT: Duration = Duration::from_secs(5);

/// The writes of a controller to objects of kind `K`, and the informer whose cache must contain these writes before a reconcile continues.
#[derive(Debug)]
pub struct OwnWrites<K> {
    informer: Informer<NamespacedName, K>,
    /// For each owner, by its uid: the newest version of the objects that were written on its behalf.
    newest: Mutex<HashMap<String, Version>>,
    /// The uids of deleted objects, by key.
    deleted: Mutex<HashMap<NamespacedName, String>>,
}

impl<K: Resource + Send + Sync + 'static> OwnWrites<K> {
    /// Creates an `OwnWrites` without writes, for the cache of `informer`.
    #[must_use]
    pub fn new(informer: &Informer<NamespacedName, K>) -> Self {
        Self { informer: informer.clone(), newest: Mutex::default(), deleted: Mutex::default() }
    }

    /// Stores the version of `answer`, the API server's response to a write on behalf of `owner`.
    pub fn wrote(&self, owner: &impl Resource, answer: &K) {
        let version = answer.meta().resource_version.as_deref().and_then(|text| text.parse().ok());
        let Some(version) = version.map(Version::new) else { return };
        let mut newest = self.newest.lock();
        let known = newest.entry(uid_of(owner).to_owned()).or_default();
        *known = version.max(*known);
    }

    /// Records that the API server has accepted the deletion of `object`.
    pub fn deleted(&self, object: &K) {
        if let Ok(key) = object_key(object) {
            self.deleted.lock().insert(key, uid_of(object).to_owned());
        }
    }

    /// Returns true if `object` was deleted, although the cache may still contain it.
    pub fn is_deleted(&self, object: &K) -> bool {
        object_key(object)
            .is_ok_and(|key| self.deleted.lock().get(&key).is_some_and(|uid| uid == uid_of(object)))
    }

    /// Waits until the cache contains all writes on behalf of `owner`.
    ///
    /// # Errors
    /// Returns an error if the cache does not contain these writes within five seconds, or if the informer has ended.
    pub async fn wait_until_cached(&self, owner: &impl Resource) -> Result<(), Error> {
        let store = self.informer.store();
        self.deleted.lock().retain(|key, uid| store.get(key).is_some_and(|object| uid_of(&*object) == uid));
        let awaited = {
            let mut newest = self.newest.lock();
            // The versions that the cache has reached are removed, so that deleted owners take no memory.
            let reached = store.version();
            newest.retain(|_, version| *version > reached);
            newest.get(uid_of(owner)).copied()
        };
        let Some(version) = awaited else { return Ok(()) };
        match timeout(CACHE_TIMEOUT, store.wait_for_version(version)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Error::Behind),
        }
    }
}
