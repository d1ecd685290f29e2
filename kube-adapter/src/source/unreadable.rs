//! EDGE. Objects whose newest state cannot be decoded. For such an object, the cache stores the last state that was decoded, with the newest metadata
//! and a mark.
//!
//! The mark is part of the object, so every copy of a marked state has the mark. If the object can be decoded in a later list, it replaces the marked
//! object even if both have the same version. The mark is stored in `metadata.selfLink`: API servers have not set this field since Kubernetes 1.20,
//! and clear it at every write. So the mark overwrites no value, and is never persisted. Two alternatives were rejected: an annotation, which a
//! client that replaces the object would write to the server, and a separate table, whose changes would be visible earlier or later than those of the
//! cache.
//!
//! Cancel safety: nothing here waits.

use std::sync::{Arc, OnceLock};

use flyball_informer_cache::{NamespacedName, Store, WatchEvent};
use kube::Resource;

use super::decode::{Unreadable, trim};
use crate::keys::version_of;

const MARK: &str = "unreadable: ";

/// Returns why the newest state of this object cannot be decoded, such as "missing field `spec`"; `None` if it can be decoded. An object
/// that cannot be decoded has its newest metadata; its other fields are those of the state that was decoded last.
///
/// The cache of an [`ApiSource`](crate::ApiSource) contains such an object if an earlier state of the object was decoded.
///
/// # Examples
/// ```
/// # use flyball_kube::{ApiSource, unreadable_reason};
/// # use flyball_kube_testing::ApiServer;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kube::{Api, api::{Patch, PatchParams}, runtime::watcher};
/// # use serde_json::{from_value, json};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = ApiServer::new();
/// # server.register::<ConfigMap>();
/// # server.put(&from_value::<ConfigMap>(json!({"metadata": {"name": "a"}, "data": {"size": "3"}}))?);
/// let api = Api::<ConfigMap>::namespaced(server.client(), "default");
/// let maps = flyball_kube::informer(api.clone(), watcher::Config::default()).start()?;
/// maps.synced().await?;
/// # let mut changes = maps.subscribe();
/// # changes.next().await;
/// // The data of a ConfigMap is no list.
/// let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "web"}}, "data": [7]}));
/// let _ = api.patch("a", &PatchParams::default(), &patch).await;
/// # changes.next().await;
/// let map = maps.store().get("default/a").expect("it is there");
/// assert_eq!(map.metadata.labels.as_ref().expect("new ones")["app"], "web");
/// assert_eq!(map.data.as_ref().expect("the last that could be read")["size"], "3");
/// assert!(unreadable_reason(&*map).expect("it is marked").starts_with("invalid type"));
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn unreadable_reason<K: Resource>(object: &K) -> Option<&str> {
    object.meta().self_link.as_deref()?.strip_prefix(MARK)
}

/// The cache that is filled from a source. It contains the last decoded state of each object. Clones share the cache.
pub(super) struct StoredObjects<K>(Arc<OnceLock<Stored<K>>>);

/// A function that returns a copy of the stored object with this key.
type Stored<K> = Box<dyn Fn(&NamespacedName) -> Option<K> + Send + Sync>;

impl<K> Clone for StoredObjects<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Default for StoredObjects<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Resource + Send + 'static> StoredObjects<K> {
    pub(super) fn attach(&self, store: &Store<NamespacedName, K>)
    where
        K: Clone + Sync,
    {
        let store = store.clone();
        // `set` cannot fail, because it is called once: a source fills one cache.
        let _ = self.0.set(Box::new(move |key| store.get(key).map(|object| K::clone(&object))));
    }

    pub(super) fn is_attached(&self) -> bool {
        self.0.get().is_some()
    }

    /// Returns the stored object with its new metadata and the mark. Returns `None` if no object with this `uid` is stored, or if the stored object
    /// already has this version or a newer version. All delivered events must be in the store before this is called.
    pub(super) fn with_new_metadata(
        &self,
        key: &NamespacedName,
        unread: Unreadable,
    ) -> Option<WatchEvent<K>> {
        let Unreadable { uid, version, meta, error, .. } = unread;
        let mut object = self.0.get().and_then(|stored| stored(key))?;
        let another = object.meta().uid.is_some() && uid.is_some() && object.meta().uid != uid;
        if another || version.is_zero() || version <= version_of(&object) {
            return None;
        }
        match meta {
            Some(meta) => *object.meta_mut() = *meta,
            // The metadata cannot be decoded either. The object keeps its previous metadata, but gets the new version.
            None => object.meta_mut().resource_version = Some(version.to_string()),
        }
        object.meta_mut().self_link = Some(format!("{MARK}{error}"));
        trim(&mut object);
        Some(WatchEvent::Modified(object))
    }
}
