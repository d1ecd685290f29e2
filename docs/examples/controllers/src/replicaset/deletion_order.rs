//! PURE. The order in which surplus pods are deleted.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::owner::uid_of;
use crate::pods::{is_active, is_ready, progress, ready_since};

/// The annotation with a pod's deletion cost. Pods with a lower cost are deleted first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Selects the `number` pods of `pods` to delete, in the same order as kube-controller-manager. `related` contains the pods of all sets with the same
/// owner. A pod is deleted earlier if more of the related pods run on its node.
pub(crate) fn pods_to_delete(
    mut pods: Vec<Arc<Pod>>,
    related: &[Arc<Pod>],
    number: usize,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    let mut on_node = HashMap::<&str, usize>::new();
    for pod in related.iter().filter(|pod| is_active(pod)) {
        *on_node.entry(node(pod)).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| DeletionRank::of(pod, &on_node, now));
    pods.truncate(number);
    pods
}

/// The sort key of a pod; pods with a lower key are deleted first. Earlier fields take precedence, and `false` is less than `true`.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DeletionRank {
    assigned: bool,
    progress: u8,
    ready: bool,
    deletion_cost: i32,
    neighbours: Reverse<usize>,
    ready_for: Age,
    restarts: Reverse<i32>,
    sidecar_restarts: Reverse<i32>,
    age: Age,
}

impl DeletionRank {
    fn of(pod: &Pod, on_node: &HashMap<&str, usize>, now: Timestamp) -> Self {
        let (restarts, sidecar_restarts) = restarts(pod);
        let uid = uid_of(pod);
        Self {
            assigned: !node(pod).is_empty(),
            progress: progress(pod),
            ready: is_ready(pod),
            deletion_cost: pod
                .annotations()
                .get(DELETION_COST)
                .and_then(|cost| cost.parse().ok())
                .unwrap_or(0),
            neighbours: Reverse(on_node.get(node(pod)).copied().unwrap_or(0)),
            ready_for: Age::of(ready_since(pod), uid, now),
            restarts: Reverse(restarts),
            sidecar_restarts: Reverse(sidecar_restarts),
            age: Age::of(pod.metadata.creation_timestamp.as_ref().map(|at| at.0), uid, now),
        }
    }
}

/// An age that is compared by its order of magnitude. Each age in nanoseconds is rounded down to a power of two before the comparison. If these
/// powers are equal, the uids, which are random, are compared. If exact ages were compared, the newest pod would always be deleted, and old defective
/// pods would stay.
struct Age {
    since: Option<Timestamp>,
    magnitude: u32,
    uid: String,
}

impl Age {
    fn of(since: Option<Timestamp>, uid: &str, now: Timestamp) -> Self {
        let age = since.map_or(0, |at| now.duration_since(at).as_nanos());
        let magnitude = u128::try_from(age).ok().and_then(u128::checked_ilog2).map_or(0, |log| log + 1);
        Self { since, magnitude, uid: uid.to_owned() }
    }
}

impl Ord for Age {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.since == other.since {
            return Ordering::Equal;
        }
        let ages = (self.since.is_some(), self.magnitude).cmp(&(other.since.is_some(), other.magnitude));
        ages.then_with(|| self.uid.cmp(&other.uid))
    }
}

impl PartialOrd for Age {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Age {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Age {}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// Returns the largest number of restarts among the main containers of the pod, and the largest among its sidecars.
fn restarts(pod: &Pod) -> (i32, i32) {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { return (0, 0) };
    let main = status.container_statuses.iter().flatten().map(|container| container.restart_count).max();
    let is_sidecar = |name: &str| {
        let mut initial = spec.init_containers.iter().flatten();
        initial
            .any(|container| container.name == name && container.restart_policy.as_deref() == Some("Always"))
    };
    let initial = status.init_container_statuses.iter().flatten();
    let sidecar = initial
        .filter(|container| is_sidecar(&container.name))
        .map(|container| container.restart_count)
        .max();
    (main.unwrap_or(0), sidecar.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    const NOW: &str = "2026-01-01T12:00:00Z";

    fn pod(uid: &str, patch: &Value) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"name": uid, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "a", "containers": [], "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "once"}]},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        merge(&mut pod, patch);
        Arc::new(from_value(pod).unwrap())
    }

    fn merge(into: &mut Value, patch: &Value) {
        match (into, patch) {
            (Value::Object(into), Value::Object(patch)) => {
                for (key, value) in patch {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, patch) => *into = patch.clone(),
        }
    }

    fn ready_at(time: &str) -> Value {
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}]}})
    }

    fn restarted(kind: &str, name: &str) -> Value {
        let container = json!({"name": name, "restartCount": 3, "image": "", "imageID": "", "ready": true});
        json!({"status": {kind: [container]}})
    }

    /// Pods, each of which differs from the usual pod in one property. Each pod is deleted before all pods that follow it in this table.
    fn pods_by_rank() -> Vec<(&'static str, Value)> {
        vec![
            ("unassigned", json!({"spec": {"nodeName": null}})),
            ("pending", json!({"status": {"phase": "Pending"}})),
            ("unknown", json!({"status": {"phase": "Unknown"}})),
            ("not ready", json!({"status": {"conditions": []}})),
            ("cheap", json!({"metadata": {"annotations": {DELETION_COST: "-5"}}})),
            ("doubled up", json!({"spec": {"nodeName": "crowded"}})),
            ("ready for less time", ready_at("2026-01-01T11:59:00Z")),
            ("restarted", restarted("containerStatuses", "main")),
            ("sidecar restarted", restarted("initContainerStatuses", "side")),
            ("younger", json!({"metadata": {"creationTimestamp": "2026-01-01T11:00:00Z"}})),
            ("usual", json!({})),
            ("dear", json!({"metadata": {"annotations": {DELETION_COST: "5"}}})),
        ]
    }

    #[test]
    fn earlier_fields_take_precedence() {
        let now = NOW.parse().unwrap();
        let related: Vec<_> =
            (0..3).map(|_| pod("related", &json!({"spec": {"nodeName": "crowded"}}))).collect();
        let pods: Vec<_> = pods_by_rank().iter().map(|(name, patch)| pod(name, patch)).collect();
        for (at, worse) in pods.iter().enumerate() {
            for better in &pods[at + 1..] {
                for pair in [[worse, better], [better, worse]] {
                    let pair = pair.map(Arc::clone).to_vec();
                    let deleted = pods_to_delete(pair, &related, 1, now);
                    assert_eq!(
                        deleted[0].name_any(),
                        worse.name_any(),
                        "compared with {}",
                        better.name_any()
                    );
                }
            }
        }
    }

    #[test]
    fn ignores_containers_that_run_once() {
        let once = pod("a", &restarted("initContainerStatuses", "once"));
        assert_eq!(restarts(&once), (0, 0));
    }

    #[test]
    fn compares_uids_of_pods_of_equal_age() {
        let pods = |a, b| vec![pod("a", &ready_at(a)), pod("b", &ready_at(b))];
        let deleted = |pods| pods_to_delete(pods, &[], 1, NOW.parse().unwrap())[0].name_any();
        // In nanoseconds, the ages 11 h and 10 h are rounded down to the same power of two; the ages 11 h and 1 min are not.
        assert_eq!(deleted(pods("2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z")), "a");
        assert_eq!(deleted(pods("2026-01-01T01:00:00Z", "2026-01-01T11:59:00Z")), "b");
    }
}
