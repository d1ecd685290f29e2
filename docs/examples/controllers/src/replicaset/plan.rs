//! PURE. The number of pods to create or delete, and the content of a new pod.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::error::Error;
use crate::owner::controller_ref;

/// The maximum number of pods that one reconcile creates or deletes.
const BURST: usize = 500;

/// How the number of pods must be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Create this number of pods.
    Create(usize),
    /// Delete this number of pods.
    Delete(usize),
    /// The set already has the wanted number of pods.
    Nothing,
}

/// Returns the wanted number of pods of a set; 1, the API server's default, if the field is absent.
#[must_use]
pub fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns the number of seconds for which a pod must be ready to count as available.
#[must_use]
pub fn min_ready_seconds(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
}

/// Returns the change that `set` requires if it has `active` active pods.
pub(crate) fn step(set: &ReplicaSet, active: usize) -> Step {
    let wanted = usize::try_from(replicas(set)).unwrap_or(0);
    match active.cmp(&wanted) {
        std::cmp::Ordering::Less => Step::Create((wanted - active).min(BURST)),
        std::cmp::Ordering::Equal => Step::Nothing,
        std::cmp::Ordering::Greater => Step::Delete((active - wanted).min(BURST)),
    }
}

/// Returns a new pod with the template of the set. The API server generates its name.
///
/// # Errors
/// Returns an error if the set has no uid or no template.
pub(crate) fn pod(set: &ReplicaSet) -> Result<Pod, Error> {
    let template =
        set.spec.as_ref().and_then(|spec| spec.template.clone()).ok_or(Error::Invalid("no template"))?;
    let meta = template.metadata.unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: set.metadata.name.as_ref().map(|name| format!("{name}-")),
        namespace: set.metadata.namespace.clone(),
        labels: meta.labels,
        annotations: meta.annotations,
        finalizers: meta.finalizers,
        owner_references: Some(vec![controller_ref(set)?]),
        ..ObjectMeta::default()
    };
    Ok(Pod { metadata, spec: template.spec, status: None })
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn the_step_is_bounded_and_reaches_the_size() {
        for (wanted, active, expected) in [
            (0, 0, Step::Nothing),
            (3, 0, Step::Create(3)),
            (3, 2, Step::Create(1)),
            (3, 3, Step::Nothing),
            (3, 5, Step::Delete(2)),
            (501, 0, Step::Create(500)),
            (0, 501, Step::Delete(500)),
        ] {
            let set =
                from_value(json!({"metadata": {}, "spec": {"replicas": wanted, "selector": {}}})).unwrap();
            assert_eq!(step(&set, active), expected, "{wanted} wanted, {active} there");
        }
    }

    #[test]
    fn a_pod_has_the_template_and_the_owner() {
        let set: ReplicaSet = from_value(json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "u"},
            "spec": {"selector": {}, "template": {
                "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"], "name": "no"},
                "spec": {"containers": [{"name": "main"}]}}},
        }))
        .unwrap();
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
            "controller": true, "blockOwnerDeletion": true});
        let expected: Pod = from_value(json!({
            "metadata": {"generateName": "web-", "namespace": "n", "labels": {"a": "b"}, "annotations": {"c": "d"},
                "finalizers": ["e/f"], "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "main"}]},
        }))
        .unwrap();
        assert_eq!(pod(&set).unwrap(), expected);
    }
}
