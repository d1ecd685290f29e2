//! Simulates a kubelet for tests: pods become running and ready immediately, and are removed when they are deleted.

use std::sync::Arc;

use flyball_informer_cache::{Informer, NamespacedName};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// A function that returns the current time, for the timestamps in the status of a pod.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A pod with this image never becomes ready.
pub const BROKEN: &str = "broken";

/// Simulates the kubelet for all pods until the returned future is dropped. If `node` is given, binds the pods to this node.
///
/// # Panics
/// Panics if a pod has no namespace.
pub async fn run_pods(client: Client, clock: Clock, pods: Informer<NamespacedName, Pod>, node: Option<&str>) {
    let mut changes = pods.subscribe();
    let mut address = 0_u32;
    while let Some(change) = changes.next().await {
        if change.kind().is_deletion() {
            continue;
        }
        let pod = change.object();
        let api = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap());
        // Failed requests are ignored, because the pod may already have been deleted.
        if pod.metadata.deletion_timestamp.is_some() {
            drop(api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await);
        } else if is_new(pod) {
            address += 1;
            if let Some(node) = node {
                let target = json!({"kind": "Node", "name": node});
                let metadata = json!({"name": pod.name_any()});
                let binding =
                    json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target});
                let params = PostParams::default();
                drop(api.create_subresource::<_, Value>("binding", &pod.name_any(), &params, &binding).await);
            }
            let status = json!({"status": running(pod, address, clock())});
            drop(api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await);
        }
    }
}

fn is_new(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), None | Some("Pending"))
}

fn running(pod: &Pod, address: u32, now: Timestamp) -> Value {
    let broken = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .any(|container| container.image.as_deref() == Some(BROKEN));
    let at = Timestamp::from_second(now.as_second()).unwrap();
    let ip = format!("10.0.{}.{}", address / 250, address % 250 + 1);
    json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [
        {"type": "Ready", "status": if broken { "False" } else { "True" }, "lastTransitionTime": at}]})
}
