//! PURE. One pod as an endpoint of a service: its addresses, its ports, and its readiness.

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::Family;
use crate::pods::is_ready;

/// Returns the endpoint for a pod; `None` if the pod has no address of this family.
pub(crate) fn endpoint(service: &Service, pod: &Pod, family: Family) -> Option<Endpoint> {
    let addresses = addresses(pod, family);
    if addresses.is_empty() {
        return None;
    }
    let spec = pod.spec.clone().unwrap_or_default();
    let (serving, terminating) = (is_ready(pod), pod.metadata.deletion_timestamp.is_some());
    let publish_not_ready =
        service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
    let has_name = spec.subdomain.is_some() && spec.subdomain == service.metadata.name;
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(publish_not_ready || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: spec.hostname.filter(|name| has_name && !name.is_empty()),
        node_name: spec.node_name.filter(|name| !name.is_empty()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.namespace(),
            name: pod.metadata.name.clone(),
            uid: pod.uid(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

fn addresses(pod: &Pod, family: Family) -> Vec<String> {
    let Some(status) = &pod.status else { return Vec::new() };
    let all = status.pod_ips.iter().flatten().map(|address| &address.ip);
    let all: Vec<_> = if status.pod_ips.is_some() { all.collect() } else { status.pod_ip.iter().collect() };
    all.into_iter().filter(|address| Family::of(address) == family).cloned().collect()
}

/// Returns the ports of a service with the port numbers that they have in `pod`: a named port may have a different number in each pod. Ports that the
/// pod does not have are omitted.
pub(crate) fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let wanted = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let mut ports: Vec<_> = wanted
        .iter()
        .filter_map(|wanted| {
            Some(EndpointPort {
                port: Some(number(wanted, pod)?),
                name: Some(wanted.name.clone().unwrap_or_default()),
                protocol: Some(protocol(wanted.protocol.as_deref()).to_owned()),
                app_protocol: wanted.app_protocol.clone(),
            })
        })
        .collect();
    ports.sort_by(|a, b| (&a.name, a.port).cmp(&(&b.name, b.port)));
    ports
}

fn number(wanted: &ServicePort, pod: &Pod) -> Option<i32> {
    let name = match &wanted.target_port {
        None | Some(IntOrString::Int(0)) => return Some(wanted.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let mut ports =
        spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let is_it = |protocol_of: Option<&str>| protocol(protocol_of) == protocol(wanted.protocol.as_deref());
    ports
        .find(|port| port.name.as_ref() == Some(name) && is_it(port.protocol.as_deref()))
        .map(|port| port.container_port)
}

fn protocol(given: Option<&str>) -> &str {
    given.unwrap_or("TCP")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        from_value(json!({"metadata": {"name": "web", "namespace": "n"}, "spec": spec})).unwrap()
    }

    fn pod(ready: bool, deleting: bool) -> Pod {
        let at = deleting.then_some("2026-01-01T00:00:00Z");
        from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "deletionTimestamp": at},
            "spec": {"hostname": "zero", "subdomain": "web", "nodeName": "node", "containers": [{"name": "main", "ports": [
                {"name": "http", "containerPort": 8080}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}]}],
                "initContainers": [{"name": "once", "ports": [{"name": "early", "containerPort": 1}]},
                    {"name": "side", "restartPolicy": "Always", "ports": [{"name": "mesh", "containerPort": 2}]}]},
            "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        }))
        .unwrap()
    }

    #[test]
    fn conditions_of_endpoint() {
        for (ready, deleting, publish_not_ready, expected) in [
            (true, false, false, [true, true, false]),
            (false, false, false, [false, false, false]),
            (true, true, false, [false, true, true]),
            (false, true, false, [false, false, true]),
            (false, false, true, [true, false, false]),
            (true, true, true, [true, true, true]),
        ] {
            let service = service(json!({"publishNotReadyAddresses": publish_not_ready}));
            let endpoint = endpoint(&service, &pod(ready, deleting), Family::V4).unwrap();
            let is = endpoint.conditions.unwrap();
            assert_eq!(
                [is.ready, is.serving, is.terminating],
                expected.map(Some),
                "{ready} {deleting} {publish_not_ready}"
            );
        }
    }

    #[test]
    fn addresses_names_and_nodes() {
        let of = |family| endpoint(&service(json!({})), &pod(true, false), family).unwrap();
        assert_eq!(
            (of(Family::V4).addresses, of(Family::V6).addresses),
            (vec!["10.0.0.1".into()], vec!["fd00::1".into()])
        );
        assert_eq!(
            (of(Family::V4).hostname.as_deref(), of(Family::V4).node_name.as_deref()),
            (Some("zero"), Some("node"))
        );
        assert!(
            endpoint(&service(json!({})), &Pod::default(), Family::V4).is_none(),
            "a pod without an address is an endpoint"
        );
    }

    #[test]
    fn ports_are_found_by_number_and_by_name() {
        for (port, expected) in [
            (json!({"port": 80}), Some(80)),
            (json!({"port": 80, "targetPort": 81}), Some(81)),
            (json!({"port": 80, "targetPort": "http"}), Some(8080)),
            (json!({"port": 80, "targetPort": "dns"}), None),
            (json!({"port": 80, "targetPort": "dns", "protocol": "UDP"}), Some(53)),
            (json!({"port": 80, "targetPort": "mesh"}), Some(2)),
            (json!({"port": 80, "targetPort": "early"}), None),
        ] {
            let found = ports(&service(json!({"ports": [port.clone()]})), &pod(true, false));
            assert_eq!(found.first().and_then(|found| found.port), expected, "{port}");
        }
    }
}
