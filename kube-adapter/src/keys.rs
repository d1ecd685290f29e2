//! PURE. The schema of Kubernetes objects of any kind: key, version and identity.

use flyball_informer_cache::{NamespacedName, ParseNamespacedNameError, Schema, Version};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;

use crate::unreadable_reason;

/// Returns the schema of Kubernetes objects: the key is `namespace/name`, or `name` for a kind without namespaces, the version is the
/// `resourceVersion`, and two objects with the same key are the same object if they have the same `uid`.
///
/// An object without a name has no key. The sources of this crate never return such an object.
///
/// A relist treats an object as unchanged if its `resourceVersion` equals the stored one. A new default of a custom resource, or a conversion between
/// its API versions, changes an object but not its `resourceVersion`. So a running cache gets the new state only after the next write to the object.
/// `schema().with_content_eq(|a, b| a == b)` makes each relist compare the objects; see [`Schema::with_content_eq`].
///
/// # Panics
/// The schema's key function panics for an object without a name, or with a slash in its name.
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
        // An object that could not be decoded is replaced when it can be decoded again, even if its version is the same: a new default, for example,
        // can make an object readable without a write.
        .with_content_eq(|a, b| unreadable_reason(a).is_some() == unreadable_reason(b).is_some())
}

/// Returns the key of an object: `namespace/name`, or `name` for a kind without namespaces.
///
/// # Errors
/// Returns an error if the object has no name, or a name that no API server accepts.
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

/// Returns the key of the object that a reference names.
///
/// # Errors
/// Returns an error if the reference has no name, or a name that no API server accepts.
pub(crate) fn reference_key<K>(reference: &ObjectRef<K>) -> Result<NamespacedName, ParseNamespacedNameError>
where
    K: kube::runtime::reflector::Lookup,
{
    named(reference.namespace.as_deref(), &reference.name)
}

/// Returns a reference to the object with this key, for kube's functions.
pub(crate) fn object_ref<K: Resource>(key: &NamespacedName, dyntype: K::DynamicType) -> ObjectRef<K> {
    let reference = ObjectRef::new_with(key.name(), dyntype);
    match key.namespace() {
        Some(namespace) => reference.within(namespace),
        None => reference,
    }
}

/// Returns the version of an object. An invalid version counts as no version, and an object without a version always replaces the stored object.
pub(crate) fn version_of(object: &impl Resource) -> Version {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn named(namespace: Option<&str>, name: &str) -> Result<NamespacedName, ParseNamespacedNameError> {
    match namespace {
        None | Some("") => NamespacedName::cluster_scoped(name),
        Some(namespace) => NamespacedName::new(namespace, name),
    }
}
