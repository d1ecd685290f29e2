//! PURE. Properties of pods that several controllers use.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Returns true if the pod has ended and will not run again.
#[must_use]
pub fn is_over(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Returns true if the pod has not ended and is not being deleted.
#[must_use]
pub fn is_active(pod: &Pod) -> bool {
    !is_over(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Returns true if the pod is being deleted and has not ended yet.
#[must_use]
pub fn is_terminating(pod: &Pod) -> bool {
    !is_over(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// Returns the rank of the pod's phase: 0 for pending, 1 for unknown, 2 for running.
#[must_use]
pub fn progress(pod: &Pod) -> u8 {
    match phase(pod) {
        "Pending" => 0,
        "Running" => 2,
        _ => 1,
    }
}

fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns true if the pod is ready.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some()
}

/// Returns the time at which the pod became ready; `None` if the pod is not ready, or if its condition has no time.
#[must_use]
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    Some(ready_condition(pod)?.last_transition_time.as_ref()?.0)
}

/// Returns true if the pod is ready and has been ready for at least `min_ready_seconds`.
#[must_use]
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(pod)
        && (min_ready_seconds == 0
            || ready_since(pod).is_some_and(|at| at + seconds(min_ready_seconds) <= now))
}

/// Returns the time after which the pod is available if it stays ready. `None` if the pod is not ready, or if it is already available.
#[must_use]
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<std::time::Duration> {
    let left = (ready_since(pod)? + seconds(min_ready_seconds)).duration_since(now);
    left.is_positive().then(|| left.unsigned_abs())
}

fn seconds(number: i32) -> SignedDuration {
    SignedDuration::from_secs(number.into())
}
