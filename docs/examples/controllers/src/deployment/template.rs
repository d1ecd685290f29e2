//! PURE. Finds the ReplicaSet with the template of a deployment, and builds a new ReplicaSet.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::error::Error;
use crate::owner::controller_ref;

/// The label that distinguishes the pods of different templates.
const HASH_LABEL: &str = "pod-template-hash";
/// The maximum length of an object's name.
const NAME: usize = 253;
/// The letters of hashes. There are no vowels, so that a hash does not contain words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns true if two templates are equal, except for the label [`HASH_LABEL`].
pub(crate) fn same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    let plain = |template: &PodTemplateSpec| {
        let mut template = template.clone();
        let mut meta = template.metadata.take().unwrap_or_default();
        let mut labels = meta.labels.take().unwrap_or_default();
        labels.remove(HASH_LABEL);
        meta.annotations = meta.annotations.filter(|annotations| !annotations.is_empty());
        (template, meta, labels)
    };
    plain(a) == plain(b)
}

/// Returns true if the set has the template of the deployment.
pub(crate) fn is_new(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let (Some(deployment), Some(set)) = (&deployment.spec, &set.spec) else { return false };
    set.template.as_ref().is_some_and(|template| same_template(&deployment.template, template))
}

/// Returns a new set with the template of the deployment, and 0 replicas. The name depends only on the template and the collision
/// count, so a repeated creation does not result in a second set.
///
/// # Errors
/// Returns an error if the deployment has no uid or no spec.
pub(crate) fn new_set(deployment: &Deployment) -> Result<ReplicaSet, Error> {
    let spec = deployment.spec.as_ref().ok_or(Error::Invalid("no spec"))?;
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = hash(&spec.template, collisions);
    let label = |labels: Option<BTreeMap<String, String>>| {
        let mut labels = labels.unwrap_or_default();
        labels.insert(HASH_LABEL.to_owned(), hash.clone());
        Some(labels)
    };
    let mut template = spec.template.clone();
    let meta = template.metadata.get_or_insert_default();
    meta.labels = label(meta.labels.take());
    let labels = meta.labels.clone();
    let mut selector = spec.selector.clone();
    selector.match_labels = label(selector.match_labels.take());
    let name = deployment.name_any();
    let name = &name[..name.len().min(NAME - 1 - hash.len())];
    let metadata = ObjectMeta {
        name: Some(format!("{name}-{hash}")),
        namespace: deployment.metadata.namespace.clone(),
        owner_references: Some(vec![controller_ref(deployment)?]),
        labels,
        ..ObjectMeta::default()
    };
    let spec = ReplicaSetSpec {
        replicas: Some(0),
        min_ready_seconds: spec.min_ready_seconds,
        selector,
        template: Some(template),
    };
    Ok(ReplicaSet { metadata, spec: Some(spec), status: None })
}

/// Returns a short name for a template: the FNV-1a hash of its JSON and of the collision count, written in [`LETTERS`].
fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let json = serde_json::to_string(template).expect("a template can be serialised");
    let salt = collisions.map(|count| count.to_string()).unwrap_or_default();
    let mut hash = json
        .bytes()
        .chain(salt.bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let mut text = String::new();
    while hash > 0 || text.is_empty() {
        text.push(LETTERS[hash as usize % LETTERS.len()].into());
        hash /= LETTERS.len() as u32;
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn deployment(name: &str, image: &str, collisions: Option<i32>) -> Deployment {
        from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": "u"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "minReadySeconds": 5, "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}}},
            "status": {"collisionCount": collisions},
        }))
        .unwrap()
    }

    #[test]
    fn finds_the_new_set_and_no_old_one() {
        let set = new_set(&deployment("web", "a", None)).unwrap();
        assert!(is_new(&deployment("web", "a", Some(3)), &set));
        assert!(!is_new(&deployment("web", "b", None), &set));
    }

    #[test]
    fn the_name_depends_on_the_template_and_collisions_only() {
        let name = |image, collisions| new_set(&deployment("web", image, collisions)).unwrap().name_any();
        assert_eq!(name("a", None), name("a", None));
        assert_ne!(name("a", None), name("b", None));
        assert_ne!(name("a", None), name("a", Some(1)));
        assert_eq!(new_set(&deployment(&"x".repeat(253), "a", None)).unwrap().name_any().len(), NAME);
    }

    #[test]
    fn the_hash_label_selects_the_pods_of_one_template() {
        let set = new_set(&deployment("web", "a", None)).unwrap();
        let hash = set.labels()[HASH_LABEL].clone();
        let spec = set.spec.unwrap();
        let expected = json!({"app": "web", HASH_LABEL: hash});
        assert_eq!(json!(spec.selector.match_labels), expected);
        assert_eq!(json!(spec.template.unwrap().metadata.unwrap().labels), expected);
        assert_eq!((spec.replicas, spec.min_ready_seconds), (Some(0), Some(5)));
    }
}
