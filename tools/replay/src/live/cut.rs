//! PURE. The cluster's objects, reduced to the fields that the controllers need.

use std::sync::Arc;

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use kube::Resource;

use crate::interned::Interned;
use crate::objects::{Labels, Meta, Moment, Object, Owner, Pod, ReplicaSet, Service};

/// An EndpointSlice, reduced to the fields that the program needs.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) meta: Meta,
    /// `namespace/name` of the Service; `None` if the slice belongs to no Service.
    pub(crate) service: Option<Arc<str>>,
    /// `IPv4` or `IPv6`.
    pub(crate) family: Arc<str>,
    pub(crate) ready: Vec<Arc<str>>,
}

impl Object for Slice {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

pub(super) fn pod(interned: &mut Interned, pod: core::Pod) -> Pod {
    let meta = meta(interned, &pod);
    let status = pod.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let owners = pod.metadata.owner_references.unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| Owner {
        uid: interned.text(&owner.uid),
        replicaset: (owner.kind == "ReplicaSet").then(|| {
            let name = interned.name(&meta.namespace, &owner.name);
            interned.replicaset(name)
        }),
    });
    Pod {
        labels: labels(interned, pod.metadata.labels.as_ref()),
        owner,
        ready: conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        // Pods that terminate and pods that have finished are treated alike, because the cluster's controllers count neither of them.
        leaving: pod.metadata.deletion_timestamp.is_some()
            || status.phase.is_some_and(|phase| phase == "Succeeded" || phase == "Failed"),
        address: status.pod_ip.map(|address| interned.text(&address)),
        meta,
    }
}

pub(super) fn replicaset(interned: &mut Interned, replicaset: apps::ReplicaSet) -> ReplicaSet {
    let meta = meta(interned, &replicaset);
    let status = replicaset.status.unwrap_or_default();
    let count = |count: i32| count.try_into().unwrap_or_default();
    let reported = (count(status.replicas), count(status.ready_replicas.unwrap_or_default()));
    ReplicaSet { key: interned.replicaset(meta.name.clone()), meta, reported }
}

/// Reduces a Service to the fields that the controllers need. Removes the selector of a Service that has the type `ExternalName` or that publishes
/// the addresses of pods that are not ready, because this program does not implement the rules for such Services.
pub(super) fn service(interned: &mut Interned, service: core::Service) -> Service {
    let meta = meta(interned, &service);
    let spec = service.spec.unwrap_or_default();
    let other = spec.type_.is_some_and(|kind| kind == "ExternalName")
        || spec.publish_not_ready_addresses == Some(true);
    let selector = spec.selector.filter(|_| !other);
    Service { key: interned.service(meta.name.clone()), selector: labels(interned, selector.as_ref()), meta }
}

pub(super) fn slice(interned: &mut Interned, slice: discovery::EndpointSlice) -> Slice {
    let meta = meta(interned, &slice);
    let labels = slice.metadata.labels.unwrap_or_default();
    let service = labels.get("kubernetes.io/service-name");
    // An endpoint without a ready condition counts as ready (discovery.k8s.io/v1).
    let ready = |endpoint: &&discovery::Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    };
    let addresses = slice.endpoints.iter().flatten().filter(ready).flat_map(|endpoint| &endpoint.addresses);
    Slice {
        service: service.map(|service| interned.name(&meta.namespace, service)),
        family: interned.text(&slice.address_type),
        ready: addresses.map(|address| interned.text(address)).collect(),
        meta,
    }
}

fn meta<K: Resource>(interned: &mut Interned, object: &K) -> Meta {
    let version = flyball_kube::schema::<K>().version(object);
    let meta = object.meta();
    let (name, namespace) =
        (meta.name.as_deref().unwrap_or_default(), meta.namespace.as_deref().unwrap_or_default());
    Meta {
        name: interned.name(namespace, name),
        namespace: interned.text(namespace),
        uid: interned.text(meta.uid.as_deref().unwrap_or_default()),
        version,
        happened: Moment::default(),
    }
}

fn labels(interned: &mut Interned, labels: Option<&std::collections::BTreeMap<String, String>>) -> Labels {
    interned.labels(labels.into_iter().flatten().map(|(name, value)| (&**name, &**value)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn object<K: serde::de::DeserializeOwned>(metadata: Value, rest: Value) -> K {
        let mut object =
            json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"}});
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        from_value(object).unwrap()
    }

    #[test]
    fn a_pod_keeps_its_owner_and_whether_it_counts() {
        let interned = &mut Interned::default();
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "w", "controller": true}]);
        let status = |phase: &str| json!({"status": {"phase": phase, "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}});
        let running = pod(
            interned,
            object(json!({"ownerReferences": owner, "labels": {"b": "2", "a": "1"}}), status("Running")),
        );
        assert_eq!((&*running.meta.name, running.meta.version.get()), ("n/a", 7));
        assert_eq!(
            (running.ready, running.leaving, running.address.as_deref()),
            (true, false, Some("10.0.0.1"))
        );
        assert_eq!(running.owner.unwrap().replicaset.unwrap().name().as_ref(), "n/r");
        assert_eq!(running.labels.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["a", "b"]);
        assert!(pod(interned, object(json!({}), status("Failed"))).leaving);
        assert!(
            pod(interned, object(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), status("Running")))
                .leaving
        );
    }

    #[test]
    fn a_service_by_another_rule_has_no_selector() {
        let interned = &mut Interned::default();
        let mut selector =
            |spec: Value| service(interned, object(json!({}), json!({"spec": spec}))).selector.len();
        assert_eq!(selector(json!({"selector": {"app": "x"}})), 1);
        assert_eq!(selector(json!({"selector": {"app": "x"}, "type": "ExternalName"})), 0);
        assert_eq!(selector(json!({"selector": {"app": "x"}, "publishNotReadyAddresses": true})), 0);
    }

    #[test]
    fn endpoints_without_condition_are_ready() {
        let endpoints = json!({"addressType": "IPv4", "endpoints": [
            {"addresses": ["1"], "conditions": {"ready": true}}, {"addresses": ["2"], "conditions": {"ready": false}},
            {"addresses": ["3"], "conditions": {}}, {"addresses": ["4"]},
        ]});
        let labels = json!({"labels": {"kubernetes.io/service-name": "s"}});
        let slice = slice(&mut Interned::default(), object(labels, endpoints));
        assert_eq!(slice.service.as_deref(), Some("n/s"));
        assert_eq!(slice.ready, ["1".into(), "3".into(), "4".into()] as [Arc<str>; 3]);
    }
}
