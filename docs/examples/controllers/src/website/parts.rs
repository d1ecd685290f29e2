//! PURE. The parts of a website, and its status.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::resource::{Website, WebsiteStatus};
use crate::error::Error;
use crate::owner::controller_ref;

/// Returns the ConfigMap that contains the page.
///
/// # Errors
/// Returns an error if the website has no uid.
pub fn page(site: &Website) -> Result<ConfigMap, Error> {
    part(site, "v1", "ConfigMap", json!({"data": {"index.html": site.spec.html}}))
}

/// Returns the Deployment of the pods that serve the page. The pod template contains a checksum of the page, so the pods are replaced when the page
/// changes.
///
/// # Errors
/// Returns an error if the website has no uid.
pub fn servers(site: &Website) -> Result<Deployment, Error> {
    let labels = json!({"app": site.name_any()});
    let volume = json!({"name": "page", "configMap": {"name": site.name_any()}});
    let container = json!({"name": "web", "image": site.spec.image, "ports": [{"name": "http", "containerPort": 80}],
        "volumeMounts": [{"name": "page", "mountPath": "/usr/share/nginx/html", "readOnly": true}]});
    let template = json!({
        "metadata": {"labels": labels, "annotations": {"examples.flyball.rs/page": checksum(&site.spec.html)}},
        "spec": {"containers": [container], "volumes": [volume]},
    });
    let spec =
        json!({"replicas": site.spec.replicas, "selector": {"matchLabels": labels}, "template": template});
    part(site, "apps/v1", "Deployment", json!({"spec": spec}))
}

/// Returns the Service in front of the pods.
///
/// # Errors
/// Returns an error if the website has no uid.
pub fn address(site: &Website) -> Result<Service, Error> {
    let port = json!({"name": "http", "port": 80, "targetPort": "http"});
    part(site, "v1", "Service", json!({"spec": {"selector": {"app": site.name_any()}, "ports": [port]}}))
}

/// Returns an object that has the name of the website, and is owned by the website. The object contains only the fields that the controller sets, so
/// that applying it does not change other fields.
fn part<K: serde::de::DeserializeOwned>(
    site: &Website,
    version: &str,
    kind: &str,
    mut rest: Value,
) -> Result<K, Error> {
    rest["apiVersion"] = version.into();
    rest["kind"] = kind.into();
    rest["metadata"] = json!({"name": site.name_any(), "namespace": site.namespace(), "ownerReferences": [controller_ref(site)?]});
    serde_json::from_value(rest).map_err(|_| Error::Invalid("a part of the website"))
}

/// Returns the status of the website, computed from its Deployment `servers`.
#[must_use]
pub fn status(site: &Website, servers: &Deployment, now: Timestamp) -> WebsiteStatus {
    let known = site.status.clone().unwrap_or_default();
    let observed = servers.status.clone().unwrap_or_default();
    let is_current = observed.observed_generation >= servers.metadata.generation;
    let available = observed.available_replicas.unwrap_or(0);
    let all_new = observed.updated_replicas.unwrap_or(0) == site.spec.replicas
        && observed.replicas.unwrap_or(0) == site.spec.replicas;
    let is_ready = is_current && all_new && available == site.spec.replicas;
    let (status, reason) = if is_ready { ("True", "Serving") } else { ("False", "Rolling") };
    let mut condition = Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: format!("{available} of {} serve", site.spec.replicas),
        observed_generation: site.metadata.generation,
        last_transition_time: Time(now),
    };
    if let Some(known) =
        known.conditions.iter().find(|known| known.type_ == "Ready" && known.status == status)
    {
        condition.last_transition_time = known.last_transition_time.clone();
    }
    WebsiteStatus {
        observed_generation: site.metadata.generation,
        available_replicas: available,
        conditions: vec![condition],
    }
}

/// Returns true if the website is ready in the status `after`, but not in `before`.
pub(crate) fn became_ready(before: Option<&WebsiteStatus>, after: &WebsiteStatus) -> bool {
    let is_ready =
        |status: &WebsiteStatus| status.conditions.iter().any(|condition| condition.status == "True");
    is_ready(after) && !before.is_some_and(is_ready)
}

fn checksum(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    fn site(html: &str) -> Website {
        let spec = json!({"html": html, "replicas": 2});
        let metadata = json!({"name": "home", "namespace": "n", "uid": "u", "generation": 3});
        from_value(json!({"apiVersion": "examples.flyball.rs/v1", "kind": "Website", "metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn a_new_page_changes_the_pod_template() {
        let template = |html| servers(&site(html)).unwrap().spec.unwrap().template;
        assert_eq!(template("a"), template("a"));
        assert_ne!(template("a"), template("b"));
        assert_eq!(page(&site("a")).unwrap().data.unwrap()["index.html"], "a");
    }

    #[test]
    fn parts_have_the_owner_and_matching_selectors() {
        let (servers, address) = (servers(&site("a")).unwrap(), address(&site("a")).unwrap());
        let labels = servers.spec.as_ref().unwrap().template.metadata.as_ref().unwrap().labels.clone();
        assert_eq!(address.spec.as_ref().unwrap().selector, labels);
        for owners in [servers.owner_references(), address.owner_references()] {
            assert_eq!(
                (&*owners[0].kind, &*owners[0].api_version, &*owners[0].uid),
                ("Website", "examples.flyball.rs/v1", "u")
            );
        }
    }

    #[test]
    fn is_ready_when_all_pods_are_updated_and_available() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let observed = |generation, updated, available| -> Deployment {
            let status = json!({"observedGeneration": generation, "replicas": 2, "updatedReplicas": updated, "availableReplicas": available});
            from_value(json!({"metadata": {"generation": 5}, "status": status})).unwrap()
        };
        let mut site = site("a");
        for (generation, updated, available, expected) in
            [(5, 2, 2, "True"), (4, 2, 2, "False"), (5, 1, 2, "False"), (5, 2, 1, "False")]
        {
            let status = status(&site, &observed(generation, updated, available), at(1));
            assert_eq!(status.conditions[0].status, expected, "{generation} {updated} {available}");
        }
        let first = status(&site, &observed(5, 2, 2), at(1));
        assert!(became_ready(None, &first));
        site.status = Some(first.clone());
        let second = status(&site, &observed(5, 2, 2), at(2));
        assert_eq!(first, second, "the transition time changed without the status");
        assert!(!became_ready(Some(&first), &second));
    }
}
