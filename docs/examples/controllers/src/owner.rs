//! PURE. The controlling owner of an object, and the patches that adopt or release an object.

use flyball_informer_cache::{Index, Selector};
use flyball_kube::SelectorExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use crate::error::Error;

/// The controlling owner of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The object is controlled by the object with this uid.
    Uid(String),
    /// The object has no controller: it is an orphan. The string is the namespace of the object.
    Orphan(String),
}

impl Owner {
    /// Returns the controlling owner of `object`.
    pub fn of(object: &impl Resource) -> Self {
        match controller_of(object) {
            Some(owner) => Self::Uid(owner.uid.clone()),
            None => Self::Orphan(object.namespace().unwrap_or_default()),
        }
    }

    /// Returns the value with which you query the index [`by_owner`] for the objects that `object` controls.
    pub fn of_uid(object: &impl Resource) -> Self {
        Self::Uid(uid_of(object).to_owned())
    }
}

/// Returns an index of objects by their controlling owner.
#[must_use]
pub fn by_owner<K: Resource>() -> Index<K, Owner> {
    Index::new("owner", Owner::of)
}

/// Returns the owner reference of `object` that names its controller.
pub fn controller_of(object: &impl Resource) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// Returns the uid of an object; an empty string before the API server has created the object.
pub fn uid_of(object: &impl Resource) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

/// Converts the label selector in the spec of a controller such as a ReplicaSet to a [`Selector`].
///
/// # Errors
/// Returns an error if the selector is invalid, or if it is empty, because an empty selector would select all objects.
pub fn selector_of(selector: &LabelSelector) -> Result<Selector, Error> {
    let selector = Selector::from_label_selector(selector).map_err(|_| Error::Invalid("selector"))?;
    if selector.is_everything() { Err(Error::Invalid("empty selector")) } else { Ok(selector) }
}

/// The relation of a controller to an object, which determines the required write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The controller owns the object.
    Owned,
    /// The object has no controller, and the selector matches it.
    Adopt,
    /// The controller owns the object, but the selector no longer matches it.
    Release,
    /// The controller must not change the object.
    Ignore,
}

/// Returns the relation of `controller` to `object`. A controller that is being deleted adopts nothing and releases nothing.
pub fn claim(controller: &impl Resource, selector: &Selector, object: &impl Resource) -> Claim {
    let selected = selector.selects(object);
    let deleting = controller.meta().deletion_timestamp.is_some();
    match controller_of(object) {
        Some(owner) if owner.uid != uid_of(controller) => Claim::Ignore,
        Some(_) if selected => Claim::Owned,
        Some(_) if !deleting => Claim::Release,
        None if selected && !deleting && object.meta().deletion_timestamp.is_none() => Claim::Adopt,
        _ => Claim::Ignore,
    }
}

/// Returns the JSON merge patch that makes `controller` the controller of `object`. The patch contains the `resourceVersion`, so it fails if the
/// object has changed.
///
/// # Errors
/// Returns an error if the controller has no uid.
pub fn adoption<K>(controller: &K, object: &impl Resource) -> Result<Value, Error>
where
    K: Resource<DynamicType = ()>,
{
    let mut owners = object.owner_references().to_vec();
    owners.retain(|owner| owner.uid != uid_of(controller));
    owners.push(controller_ref(controller)?);
    Ok(owners_patch(object, &owners))
}

/// Returns the JSON merge patch that removes `controller` from the owners of `object`. The patch contains the `resourceVersion`, so it fails if the
/// object has changed.
pub fn release(controller: &impl Resource, object: &impl Resource) -> Value {
    let mut owners = object.owner_references().to_vec();
    owners.retain(|owner| owner.uid != uid_of(controller));
    owners_patch(object, &owners)
}

fn owners_patch(object: &impl Resource, owners: &[OwnerReference]) -> Value {
    let meta = object.meta();
    json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "ownerReferences": owners}})
}

/// Returns the owner reference for an object that `controller` controls.
///
/// # Errors
/// Returns an error if the controller has no uid.
pub fn controller_ref<K: Resource<DynamicType = ()>>(controller: &K) -> Result<OwnerReference, Error> {
    controller
        .controller_owner_ref(&())
        .map(|owner| OwnerReference { block_owner_deletion: Some(true), ..owner })
        .ok_or(Error::Invalid("no uid"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::from_value;

    use super::*;

    fn set(deleting: bool) -> ReplicaSet {
        let at = deleting.then_some("2026-01-01T00:00:00Z");
        from_value(json!({"metadata": {"name": "s", "uid": "s1", "deletionTimestamp": at}})).unwrap()
    }

    fn pod(label: &str, owner: Option<&str>, deleting: bool) -> Pod {
        let at = deleting.then_some("2026-01-01T00:00:00Z");
        let owners: Vec<_> = owner
            .map(|uid| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s", "uid": uid, "controller": true}))
            .into_iter()
            .collect();
        from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "p1", "resourceVersion": "5",
            "labels": {"app": label}, "ownerReferences": owners, "deletionTimestamp": at}}))
        .unwrap()
    }

    #[test]
    fn classifies_objects_by_owner_and_selector() {
        let selector = Selector::everything().equals("app", "web");
        for (label, owner, pod_goes, set_goes, expected) in [
            ("web", Some("s1"), false, false, Claim::Owned),
            ("web", Some("s1"), true, true, Claim::Owned),
            ("web", Some("s2"), false, false, Claim::Ignore),
            ("web", None, false, false, Claim::Adopt),
            ("web", None, true, false, Claim::Ignore),
            ("web", None, false, true, Claim::Ignore),
            ("db", None, false, false, Claim::Ignore),
            ("db", Some("s1"), false, false, Claim::Release),
            ("db", Some("s1"), false, true, Claim::Ignore),
            ("db", Some("s2"), false, false, Claim::Ignore),
        ] {
            assert_eq!(
                claim(&set(set_goes), &selector, &pod(label, owner, pod_goes)),
                expected,
                "{label} {owner:?}"
            );
        }
    }

    #[test]
    fn patches_keep_other_owners() {
        let mut pod = pod("web", None, false);
        let other: OwnerReference =
            from_value(json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "o"})).unwrap();
        pod.owner_references_mut().push(other.clone());
        let adopted = adoption(&set(false), &pod).unwrap();
        assert_eq!(adopted["metadata"]["resourceVersion"], "5");
        pod.meta_mut().owner_references =
            Some(from_value(adopted["metadata"]["ownerReferences"].clone()).unwrap());
        assert_eq!(controller_of(&pod).map(|owner| (&*owner.kind, &*owner.uid)), Some(("ReplicaSet", "s1")));
        let released = release(&set(false), &pod);
        assert_eq!(released["metadata"]["ownerReferences"], json!([other]));
    }

    #[test]
    fn rejects_an_empty_selector() {
        assert!(selector_of(&LabelSelector::default()).is_err());
    }
}
