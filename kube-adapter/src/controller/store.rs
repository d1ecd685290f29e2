//! EDGE. The objects of a controller, with the methods of kube-runtime's `Store`.
//!
//! Cancel safety: dropping [`ControllerStore::wait_until_ready`] ends the wait and has no other effect.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use flyball_informer_cache::{Informer, NamespacedName, Stopped};
use kube::core::{Selector, SelectorExt};
use kube::runtime::reflector::{self, ObjectRef};
use kube::{Resource, ResourceExt};

use super::kube_mirror::KubeMirror;
use super::objects::Objects;
use crate::keys::reference_key;

/// The objects that a controller reads. Its methods have the same names and meanings as those of kube-runtime's `Store`. Cloning increments a
/// reference count.
///
/// A `ControllerStore` is a handle to an informer, or to a `Store` of kube-runtime:
///
/// | from | by |
/// |---|---|
/// | a controller | [`Controller::store`](crate::Controller::store) |
/// | an informer | `ControllerStore::from(informer)` |
/// | a store of kube | `ControllerStore::from(store)`, for example for a store that a test fills |
///
/// [`informer`](Self::informer) returns the informer, which also has indexes, lookups by label, subscriptions to changes, the status of the watch,
/// and consistent snapshots that block no writer. [`to_kube`](Self::to_kube) returns a kube-runtime `Store`, for signatures that need this type.
///
/// # Examples
/// Tests a mapper that looks up its objects in a store, without an informer:
/// ```
/// use flyball_kube::ControllerStore;
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use kube::ResourceExt;
/// use kube::runtime::reflector::{self, ObjectRef};
/// use kube::runtime::watcher::Event;
/// use serde_json::{from_value, json};
///
/// fn users_of(secret: Secret, maps: &ControllerStore<ConfigMap>) -> Vec<ObjectRef<ConfigMap>> {
///     let uses = |map: &ConfigMap| map.annotations().get("uses") == Some(&secret.name_any());
///     maps.state_filter(uses).iter().map(|map| ObjectRef::from_obj(&**map)).collect()
/// }
///
/// let (store, mut writer) = reflector::store::<ConfigMap>();
/// let map = json!({"metadata": {"name": "a", "namespace": "default", "annotations": {"uses": "token"}}});
/// writer.apply_watcher_event(&Event::Apply(from_value(map)?));
///
/// let secret = from_value(json!({"metadata": {"name": "token", "namespace": "default"}}))?;
/// assert_eq!(users_of(secret, &store.into()), [ObjectRef::new("a").within("default")]);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// The methods of a store:
/// ```
/// # use flyball_kube_testing::ApiServer;
/// use flyball_kube::{ControllerStore, informer};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::core::{Expression, Selector};
/// use kube::runtime::{reflector::ObjectRef, watcher};
/// use kube::{Api, ResourceExt};
/// # use serde_json::{from_value, json};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = ApiServer::new();
/// # server.register::<ConfigMap>();
/// # server.put::<ConfigMap>(&from_value(json!({"metadata": {"name": "a", "labels": {"app": "web"}}}))?);
/// # server.put::<ConfigMap>(&from_value(json!({"metadata": {"name": "b"}}))?);
/// # let client = server.client();
/// let maps = informer(Api::<ConfigMap>::all(client), watcher::Config::default()).start()?;
/// let store = ControllerStore::from(maps);
/// store.wait_until_ready().await?;
///
/// assert_eq!((store.len(), store.is_empty(), store.state().len()), (2, false, 2));
/// let b = store.get(&ObjectRef::new("b").within("default")).expect("it is stored");
/// assert!(b.labels().is_empty());
/// assert!(store.find(|map| map.name_any() == "c").is_none());
/// let web = Selector::from_iter([Expression::Equal("app".into(), "web".into())]);
/// assert_eq!(store.state_filter_selector(&web)[0].name_any(), "a");
/// # Ok(())
/// # }
/// ```
pub struct ControllerStore<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    objects: Objects<K>,
}

impl<K> ControllerStore<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    pub(crate) fn new(objects: Objects<K>) -> Self {
        Self { objects }
    }

    /// Returns the informer of this store; `None` if the store was created from a store of kube.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube::{Controller, ControllerStore, NamespacedName};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn example(controller: Controller<Pod>) {
    /// if let Some(informer) = controller.store().informer() {
    ///     println!("{} pods at version {}", informer.snapshot().len(), informer.store().version());
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn informer(&self) -> Option<&Informer<NamespacedName, K>> {
        self.objects.informer()
    }

    /// Returns a kube-runtime store with the same objects: the store from which this handle was created, or a mirror of the informer.
    ///
    /// The first call creates the mirror, which all clones of this handle share. The mirror exists as long as the informer's store, not as long as the
    /// handle. So keep one handle: each new handle from `ControllerStore::from(informer)` would create one more mirror. If the informer has not
    /// synced yet, a task of the current runtime marks the mirror as ready later. Each change is written to the mirror when the informer publishes
    /// it. A controller that starts after the creation of the mirror is notified of a change after the write of this change. Each write clones the
    /// object twice and allocates an entry with its name, namespace, `uid` and version (D14 and D16 of the [crate's
    /// documentation](crate#coming-from-kube-runtime)). The mirror has the limits of kube's store: `wait_until_ready` wakes only one of several
    /// waiters (D6), a `find` or `state_filter` of a reader blocks the informer (D13), and there is no index (D15).
    ///
    /// The store is ready when the first list is complete. A controller starts to reconcile only after the store of its own objects is ready. Before
    /// you read the mirror of a shared informer, await the mirror's `wait_until_ready`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime if the call creates a mirror of an informer that has not synced.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube::Controller;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// use kube::runtime::reflector::Store;
    ///
    /// struct Context {
    ///     pods: Store<Pod>, // kube-runtime's type
    /// }
    ///
    /// # fn example(controller: Controller<Pod>) {
    /// let context = Context { pods: controller.store().to_kube() };
    /// # }
    /// ```
    #[must_use]
    #[track_caller]
    pub fn to_kube(&self) -> reflector::Store<K> {
        match &self.objects {
            Objects::Kube { store, .. } => store.clone(),
            Objects::Informer { informer, dyntype, mirror } => {
                mirror.get_or_init(|| KubeMirror::new(informer, dyntype.clone())).reader()
            }
        }
    }

    /// Waits until the first list is complete. Any number of tasks may wait. An informer wakes all of them. A kube-runtime store wakes only its last
    /// waiter; the other tasks continue at most one second later.
    ///
    /// # Errors
    /// Returns an error if the informer ended, for example because its controller was dropped, or the writer of kube's store was dropped, before the
    /// first list was complete.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait and has no other effect.
    pub async fn wait_until_ready(&self) -> Result<(), Stopped> {
        self.objects.ready().await.map_err(|_| Stopped)
    }

    /// Returns the object that a reference names. An object of a kind without namespaces is found even if the reference has
    /// a namespace.
    #[must_use]
    pub fn get(&self, reference: &ObjectRef<K>) -> Option<Arc<K>> {
        match &self.objects {
            Objects::Kube { store, .. } => store.get(reference),
            Objects::Informer { informer, .. } => {
                let store = informer.store();
                let key = reference_key(reference).ok()?;
                store.get(&key).or_else(|| match key.namespace() {
                    Some(_) => store.get(key.name()),
                    None => None,
                })
            }
        }
    }

    /// Returns all objects, in unspecified order. O(n).
    #[must_use]
    pub fn state(&self) -> Vec<Arc<K>> {
        match &self.objects {
            Objects::Kube { store, .. } => store.state(),
            Objects::Informer { informer, .. } => informer.snapshot().objects().cloned().collect(),
        }
    }

    /// Returns one of the objects for which `wanted` returns `true`. O(n); a lookup in an index of the informer is O(1).
    pub fn find(&self, mut wanted: impl FnMut(&K) -> bool) -> Option<Arc<K>> {
        match &self.objects {
            // kube's own `find` would block writers during the search.
            Objects::Kube { store, .. } => store.state().into_iter().find(|object| wanted(object)),
            Objects::Informer { informer, .. } => {
                informer.snapshot().objects().find(|object| wanted(object)).cloned()
            }
        }
    }

    /// Returns the objects for which `wanted` returns `true`. O(n).
    pub fn state_filter(&self, mut wanted: impl FnMut(&K) -> bool) -> Vec<Arc<K>> {
        match &self.objects {
            Objects::Kube { store, .. } => {
                store.state().into_iter().filter(|object| wanted(object)).collect()
            }
            Objects::Informer { informer, .. } => {
                informer.snapshot().objects().filter(|object| wanted(object)).cloned().collect()
            }
        }
    }

    /// Returns the objects whose labels this selector selects. O(n).
    #[must_use]
    pub fn state_filter_selector(&self, selector: &Selector) -> Vec<Arc<K>> {
        self.state_filter(|object| selector.matches(object.labels()))
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.objects {
            Objects::Kube { store, .. } => store.len(),
            Objects::Informer { informer, .. } => informer.store().len(),
        }
    }

    /// Returns whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Creates a store of a shared informer.
impl<K> From<Informer<NamespacedName, K>> for ControllerStore<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone + Send + Sync,
{
    fn from(informer: Informer<NamespacedName, K>) -> Self {
        Self::new(Objects::of_informer(&informer, K::DynamicType::default()))
    }
}

/// Creates a store from a store of kube-runtime.
impl<K> From<reflector::Store<K>> for ControllerStore<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    fn from(store: reflector::Store<K>) -> Self {
        Self::new(Objects::of_kube(store))
    }
}

impl<K> Clone for ControllerStore<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone() }
    }
}

impl<K> fmt::Debug for ControllerStore<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerStore").field("objects", &self.objects).finish()
    }
}
