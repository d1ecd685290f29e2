//! EDGE. The objects of a controller: an informer, or a store of kube-runtime.
//!
//! Cancel safety: dropping [`Objects::ready`] ends the wait and has no other effect.

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flyball_informer_cache::{Informer, NamespacedName, Stopped};
use kube::Resource;
use kube::runtime::reflector::store::WriterDropped;
use kube::runtime::reflector::{self, ObjectRef};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::kube_mirror::KubeMirror;
use crate::keys::{object_key, object_ref};

/// The interval at which a task polls whether a kube store is ready. Polling is needed because such a store wakes only its last waiter.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The objects of a controller. This is an enum and not a trait object, because a [`ControllerStore`](super::ControllerStore) must return the
/// informer or the store from which it was created.
pub(crate) enum Objects<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    Informer {
        informer: Informer<NamespacedName, K>,
        dyntype: K::DynamicType,
        /// The kube store that mirrors the informer; set when it is first requested.
        mirror: Arc<OnceLock<KubeMirror<K>>>,
    },
    Kube {
        store: reflector::Store<K>,
        /// The kind of the objects; set before the first key is created.
        dyntype: Arc<OnceLock<K::DynamicType>>,
        /// Set once the store is ready or its writer has been dropped. One task polls the store, and all other waiters wait for this cell.
        decided: Arc<OnceCell<()>>,
    },
}

/// The reason why the first list of a controller's objects will never be complete.
#[derive(Debug)]
pub(crate) enum NeverReady {
    Informer(Stopped),
    Kube(WriterDropped),
}

impl<K> Objects<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    pub(crate) fn of_informer(informer: &Informer<NamespacedName, K>, dyntype: K::DynamicType) -> Self {
        Self::Informer { informer: informer.clone(), dyntype, mirror: Arc::default() }
    }

    pub(crate) fn of_kube(store: reflector::Store<K>) -> Self {
        Self::Kube { store, dyntype: Arc::default(), decided: Arc::default() }
    }

    pub(crate) fn informer(&self) -> Option<&Informer<NamespacedName, K>> {
        match self {
            Self::Informer { informer, .. } => Some(informer),
            Self::Kube { .. } => None,
        }
    }

    /// Returns a reference to the object with this key.
    pub(crate) fn reference(&self, key: &NamespacedName) -> ObjectRef<K> {
        let dyntype = match self {
            Self::Informer { dyntype, .. } => dyntype,
            Self::Kube { dyntype, .. } => dyntype.get().expect("the kind is set before the first key"),
        };
        object_ref(key, dyntype.clone())
    }

    /// Returns the object with exactly this key.
    pub(crate) fn get(&self, key: &NamespacedName) -> Option<Arc<K>> {
        match self {
            Self::Informer { informer, .. } => informer.store().get(key),
            // kube's store also returns a cluster-scoped object for a reference that has a namespace. Without the filter, one object would have two
            // keys.
            Self::Kube { store, .. } => store.get(&self.reference(key)).filter(|object| {
                object.meta().namespace.as_deref().filter(|it| !it.is_empty()) == key.namespace()
            }),
        }
    }

    /// Returns whether an object with this key, or with the key to which it [resolves](Self::resolve), exists. An informer that has not synced returns
    /// `true` for every key. A store of kube-runtime may not be complete either; its controller adds all of its keys at the election.
    pub(crate) fn may_exist(&self, key: &NamespacedName) -> bool {
        self.informer().is_some_and(|informer| !informer.is_synced())
            || self.get(&self.resolve(key.clone())).is_some()
    }

    /// Returns the keys of all objects.
    pub(crate) fn keys(&self) -> Vec<NamespacedName> {
        match self {
            Self::Informer { informer, .. } => informer.snapshot().keys().cloned().collect(),
            Self::Kube { store, .. } => {
                store.state().iter().filter_map(|object| object_key(&**object).ok()).collect()
            }
        }
    }

    /// Converts the key of a reference to the key of the referenced object. A namespaced object may have a cluster-scoped owner, but kube's reference
    /// to this owner has a namespace. Without the conversion, one object would have two keys.
    pub(crate) fn resolve(&self, key: NamespacedName) -> NamespacedName {
        if key.namespace().is_none() {
            return key;
        }
        let Ok(without) = NamespacedName::cluster_scoped(key.name()) else { return key };
        let has_no_namespace = match self {
            Self::Informer { informer, .. } => {
                let view = informer.snapshot();
                !view.contains_key(&key) && view.contains_key(&without)
            }
            Self::Kube { .. } => self.get(&key).is_none() && self.get(&without).is_some(),
        };
        if has_no_namespace { without } else { key }
    }

    /// Waits until the first list is complete. Any number of tasks may wait.
    pub(crate) async fn ready(&self) -> Result<(), NeverReady> {
        match self {
            Self::Informer { informer, mirror, .. } => {
                informer.synced().await.map_err(NeverReady::Informer)?;
                // Reconciles may read the mirror, so it is completed before they start.
                mirror.get().inspect(|mirror| mirror.complete());
                Ok(())
            }
            Self::Kube { store, decided, .. } => {
                let decide =
                    async || while timeout(POLL_INTERVAL, store.wait_until_ready()).await.is_err() {};
                decided.get_or_init(decide).await;
                store.wait_until_ready().await.map_err(NeverReady::Kube)
            }
        }
    }
}

impl<K> Clone for Objects<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    fn clone(&self) -> Self {
        match self {
            Self::Informer { informer, dyntype, mirror } => Self::Informer {
                informer: informer.clone(),
                dyntype: dyntype.clone(),
                mirror: mirror.clone(),
            },
            Self::Kube { store, dyntype, decided } => {
                Self::Kube { store: store.clone(), dyntype: dyntype.clone(), decided: decided.clone() }
            }
        }
    }
}

impl<K> fmt::Debug for Objects<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Informer { informer, .. } => f.debug_tuple("Informer").field(informer).finish(),
            Self::Kube { .. } => f.write_str("Kube(..)"),
        }
    }
}
