//! PURE. The status of a set.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::plan::{min_ready_seconds, replicas};
use crate::pods::{available_in, is_available, is_ready};

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Returns the status of `set`, which has the active pods `active` and `terminating` terminating pods. `failure` is the error message if pods could
/// not be created or deleted.
pub(crate) fn status(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<String>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let old = set.status.clone().unwrap_or_default();
    let template =
        set.spec.as_ref().and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.clone());
    let template = template.unwrap_or_default();
    let fully_labeled = |pod: &Pod| template.iter().all(|(key, value)| pod.labels().get(key) == Some(value));
    let available = |pod: &Pod| is_available(pod, min_ready_seconds(set), now);
    let count = |wanted: &dyn Fn(&Pod) -> bool| number(active.iter().filter(|pod| wanted(pod)).count());
    ReplicaSetStatus {
        replicas: number(active.len()),
        fully_labeled_replicas: Some(count(&fully_labeled)),
        ready_replicas: Some(count(&is_ready)),
        available_replicas: Some(count(&available)),
        terminating_replicas: Some(number(terminating)),
        observed_generation: set.metadata.generation,
        conditions: conditions(set, old.conditions.unwrap_or_default(), active.len(), failure, now),
    }
}

/// Returns the new conditions. If there is already a failure condition, it is kept unchanged, so that a repeated failure does not change the status
/// each time.
fn conditions(
    set: &ReplicaSet,
    mut conditions: Vec<ReplicaSetCondition>,
    active: usize,
    failure: Option<String>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let has_condition = conditions.iter().any(|condition| condition.type_ == REPLICA_FAILURE);
    match failure {
        None => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
        Some(_) if has_condition => {}
        Some(message) => conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.into(),
            status: "True".into(),
            reason: Some(if number(active) < replicas(set) { "FailedCreate" } else { "FailedDelete" }.into()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        }),
    }
    (!conditions.is_empty()).then_some(conditions)
}

/// Returns the time until the next ready pod becomes available. At that time the status changes, although no event occurs.
pub(crate) fn changes_in(set: &ReplicaSet, active: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    active.iter().filter_map(|pod| available_in(pod, min_ready_seconds(set), now)).min()
}

/// Returns true if two statuses are equal. An absent number of pods equals zero, except for terminating pods.
pub(crate) fn same(a: &ReplicaSetStatus, b: &ReplicaSetStatus) -> bool {
    let zeros = |status: &ReplicaSetStatus| {
        let counts = [status.fully_labeled_replicas, status.ready_replicas, status.available_replicas];
        (status.replicas, counts.map(|count| count.unwrap_or(0)), status.terminating_replicas)
    };
    let conditions = |status: &ReplicaSetStatus| status.conditions.clone().unwrap_or_default();
    zeros(a) == zeros(b) && a.observed_generation == b.observed_generation && conditions(a) == conditions(b)
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    const NOW: &str = "2026-01-01T00:01:00Z";

    fn pod(label: &str, ready_for: Option<u32>) -> Arc<Pod> {
        let condition = ready_for.map(|seconds| {
            let at = format!("2026-01-01T00:00:{:02}Z", 60 - seconds);
            json!({"type": "Ready", "status": "True", "lastTransitionTime": at})
        });
        let conditions: Vec<_> = condition.into_iter().collect();
        let pod = json!({"metadata": {"labels": {"app": "web", "more": label}}, "status": {"conditions": conditions}});
        Arc::new(from_value(pod).unwrap())
    }

    fn set() -> ReplicaSet {
        let template = json!({"metadata": {"labels": {"app": "web", "more": "yes"}}});
        let spec = json!({"replicas": 9, "minReadySeconds": 10, "selector": {}, "template": template});
        from_value(json!({"metadata": {"generation": 4}, "spec": spec})).unwrap()
    }

    #[test]
    fn pods_are_counted() {
        let now = NOW.parse().unwrap();
        let pods = [pod("yes", None), pod("yes", Some(9)), pod("no", Some(10)), pod("yes", Some(30))];
        let status = status(&set(), &pods, 2, None, now);
        let expected = json!({"replicas": 4, "fullyLabeledReplicas": 3, "readyReplicas": 3, "availableReplicas": 2,
            "terminatingReplicas": 2, "observedGeneration": 4});
        assert_eq!(serde_json::to_value(&status).unwrap(), expected);
        assert_eq!(changes_in(&set(), &pods, now), Some(Duration::from_secs(1)));
        assert_eq!(changes_in(&set(), &pods[2..], now), None);
    }

    #[test]
    fn reports_a_failure_once_and_removes_the_condition() {
        let mut set = set();
        let [first, later] = [NOW, "2026-01-01T00:02:00Z"].map(|at| at.parse().unwrap());
        let status_with_failure = status(&set, &[], 0, Some("quota".into()), first);
        let condition = &status_with_failure.conditions.as_ref().unwrap()[0];
        assert_eq!(
            (&*condition.type_, condition.reason.as_deref()),
            ("ReplicaFailure", Some("FailedCreate"))
        );

        set.status = Some(status_with_failure.clone());
        assert!(same(&status_with_failure, &status(&set, &[], 0, Some("other words".into()), later)));
        assert_eq!(status(&set, &[], 0, None, later).conditions, None);

        set.status = None;
        let too_many: Vec<_> = (0..10).map(|_| pod("yes", None)).collect();
        let status_with_failure = status(&set, &too_many, 0, Some("no".into()), first);
        assert_eq!(status_with_failure.conditions.unwrap()[0].reason.as_deref(), Some("FailedDelete"));
    }
}
