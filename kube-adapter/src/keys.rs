//! PURE. What a cache has to know about a Kubernetes object, whatever its kind: its key, its version and its identity.

use flyball_informer_cache::{NamespacedName, ParseNamespacedNameError, Schema, Version};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;

use crate::unreadable_reason;

/// How a cache reads objects of Kubernetes: the key is `namespace/name`, or `name` of a kind without namespaces, the version is the
/// `resourceVersion`, and two objects of one key are the same object if their `uid` is.
///
/// An object without a name has no key; the sources of this crate hand none out.
///
/// A relist takes an object at the `resourceVersion` it is stored with as unchanged. New defaults of a custom resource, and conversions between its versions, come
/// without a new `resourceVersion`, so a cache that is running sees them with the next write to the object. `schema().content(|a, b| a == b)` makes each relist
/// compare the objects; see [`Schema::with_content_eq`].
///
/// # Panics
/// The schema's key, for an object without a name, or with a slash in one.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Store, Version};
/// use k8s_openapi::api::core::v1::Pod;
/// use serde_json::{from_value, json};
///
/// let pod = |uid, version| json!({"metadata": {"namespace": "default", "name": "a", "uid": uid, "resourceVersion": version}});
/// let mut store = Store::builder(flyball_kube::schema::<Pod>()).build()?;
/// store.upsert(from_value(pod("u1", "7"))?);
/// assert!(store.get("default/a").is_some());
///
/// let schema = flyball_kube::schema::<Pod>();
/// assert_eq!(schema.version(&from_value(pod("u1", "7"))?), Version::new(7));
/// assert!(!schema.same_identity(&from_value(pod("u1", "7"))?, &from_value(pod("u2", "9"))?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn schema<K: Resource>() -> Schema<NamespacedName, K> {
    Schema::new(|object: &K| object_key(object).expect("an object of a source has a name"), version_of)
        .with_identity(|a, b| a.meta().uid == b.meta().uid)
        // One that could not be read is replaced when it can, which may take no write: a new default is enough.
        .with_content_eq(|a, b| unreadable_reason(a).is_some() == unreadable_reason(b).is_some())
}

/// The key of an object: `namespace/name`, or `name` of a kind without namespaces.
///
/// # Errors
/// When it has no name, or one that no API server gives.
///
/// # Examples
/// ```
/// # use k8s_openapi::api::core::v1::{Node, Pod};
/// # use kube::Resource;
/// let mut pod = Pod::default();
/// assert!(flyball_kube::object_key(&pod).is_err());
/// pod.meta_mut().name = Some("a".into());
/// pod.meta_mut().namespace = Some("default".into());
/// assert_eq!(flyball_kube::object_key(&pod)?.as_str(), "default/a");
/// # Ok::<(), flyball_informer_cache::ParseNamespacedNameError>(())
/// ```
pub fn object_key(object: &impl Resource) -> Result<NamespacedName, ParseNamespacedNameError> {
    let meta = object.meta();
    named(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

/// The key of the object a reference means.
///
/// # Errors
/// When it names none, or one that no API server has.
pub(crate) fn reference_key<K>(reference: &ObjectRef<K>) -> Result<NamespacedName, ParseNamespacedNameError>
where
    K: kube::runtime::reflector::Lookup,
{
    named(reference.namespace.as_deref(), &reference.name)
}

/// A reference to the object of this key, as kube's functions want it.
pub(crate) fn object_ref<K: Resource>(key: &NamespacedName, dyntype: K::DynamicType) -> ObjectRef<K> {
    let reference = ObjectRef::new_with(key.name(), dyntype);
    match key.namespace() {
        Some(namespace) => reference.within(namespace),
        None => reference,
    }
}

/// A version that is none counts as no version, as a source without versions has: the object replaces what is there.
pub(crate) fn version_of(object: &impl Resource) -> Version {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn named(namespace: Option<&str>, name: &str) -> Result<NamespacedName, ParseNamespacedNameError> {
    match namespace {
        None | Some("") => NamespacedName::cluster_scoped(name),
        Some(namespace) => NamespacedName::new(namespace, name),
    }
}
