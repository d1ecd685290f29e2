//! PURE. What a controller wants to know about a pod.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Whether it has ended and will not run again.
#[must_use]
pub fn is_over(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it runs or will, and nobody has deleted it.
#[must_use]
pub fn is_active(pod: &Pod) -> bool {
    !is_over(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether it is deleted and has not ended yet.
#[must_use]
pub fn is_terminating(pod: &Pod) -> bool {
    !is_over(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// How far it has come: pending, unknown, running.
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

/// Whether it serves.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some()
}

/// Since when it serves, if it does and says so.
#[must_use]
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    Some(ready_condition(pod)?.last_transition_time.as_ref()?.0)
}

/// Whether it has served for so many seconds.
#[must_use]
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(pod)
        && (min_ready_seconds == 0
            || ready_since(pod).is_some_and(|at| at + seconds(min_ready_seconds) <= now))
}

/// How long until it will have served for so many seconds, if nothing happens to it.
#[must_use]
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<std::time::Duration> {
    let left = (ready_since(pod)? + seconds(min_ready_seconds)).duration_since(now);
    left.is_positive().then(|| left.unsigned_abs())
}

fn seconds(number: i32) -> SignedDuration {
    SignedDuration::from_secs(number.into())
}
