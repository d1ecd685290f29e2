//! PURE. The status of a deployment: the counts of its pods, and the conditions of its rollout.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::bounds::wanted;
use super::rollout::{Rollout, available};
use crate::replicaset::replicas;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";

const DONE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

pub(super) fn conditions_of(deployment: &Deployment) -> Vec<DeploymentCondition> {
    deployment.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default()
}

fn find<'a>(conditions: &'a [DeploymentCondition], type_: &str) -> Option<&'a DeploymentCondition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

fn condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: Some(Time(now)),
        last_update_time: Some(Time(now)),
    }
}

/// Sets a condition, unless the existing condition already has the same status and reason. The transition time of a condition changes only when its
/// status changes.
fn set(conditions: &mut Vec<DeploymentCondition>, mut new: DeploymentCondition) {
    if let Some(known) = find(conditions, &new.type_).filter(|known| known.status == new.status) {
        if known.reason == new.reason {
            return;
        }
        new.last_transition_time = known.last_transition_time.clone();
    }
    conditions.retain(|condition| condition.type_ != new.type_);
    conditions.push(new);
}

/// Returns the time within which a rollout must make progress; `None` if there is no limit.
fn deadline(deployment: &Deployment) -> Option<SignedDuration> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != i32::MAX).then(|| SignedDuration::from_secs(seconds.into()))
}

/// Sets the condition Progressing when the deployment is paused or resumed, so that the time of the pause does not count as time without progress.
pub(super) fn note_pause(deployment: &Deployment, conditions: &mut Vec<DeploymentCondition>, now: Timestamp) {
    let known = find(conditions, PROGRESSING).and_then(|known| known.reason.as_deref());
    if deadline(deployment).is_none() || known == Some(TIMED_OUT) {
        return;
    }
    let is_paused = deployment.spec.as_ref().is_some_and(|spec| spec.paused == Some(true));
    let (reason, message) = match (is_paused, known == Some(PAUSED)) {
        (true, false) => (PAUSED, "Deployment is paused"),
        (false, true) => ("DeploymentResumed", "Deployment is resumed"),
        _ => return,
    };
    set(conditions, condition(PROGRESSING, "Unknown", reason, message.to_owned(), now));
}

/// If there is no condition Progressing, sets it to report that the new set was found.
pub(super) fn record_found(
    deployment: &Deployment,
    conditions: &mut Vec<DeploymentCondition>,
    new: &ReplicaSet,
    now: Timestamp,
) {
    if deadline(deployment).is_some() && find(conditions, PROGRESSING).is_none() {
        let message = format!("Found new replica set \"{}\"", new.name_any());
        set(conditions, condition(PROGRESSING, "True", "FoundNewReplicaSet", message, now));
    }
}

/// Sets the condition Progressing to report that the new set is created.
pub(super) fn record_created(
    deployment: &Deployment,
    conditions: &mut Vec<DeploymentCondition>,
    new: &ReplicaSet,
    now: Timestamp,
) {
    if deadline(deployment).is_some() {
        let message = format!("Created new replica set \"{}\"", new.name_any());
        set(conditions, condition(PROGRESSING, "True", "NewReplicaSetCreated", message, now));
    }
}

/// Returns true if all pods have the newest template and are available.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let all = Some(wanted(deployment));
    [status.updated_replicas, status.replicas, status.available_replicas].map(|count| count.or(Some(0)))
        == [all; 3]
        && status.observed_generation >= deployment.metadata.generation
}

/// Returns true if `new` shows progress over the status in `deployment`.
fn is_better(deployment: &Deployment, new: &DeploymentStatus) -> bool {
    let known = deployment.status.clone().unwrap_or_default();
    let counts = |status: &DeploymentStatus| {
        let [replicas, updated, ready, available] =
            [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas]
                .map(|count| count.unwrap_or(0));
        // `updated - replicas` is the negated number of old pods, so it increases when there are fewer old pods.
        [updated, updated - replicas, ready, available]
    };
    counts(new).into_iter().zip(counts(&known)).any(|(new, known)| new > known)
}

impl Rollout<'_> {
    /// Returns the new status, except for the conditions Progressing and ReplicaFailure, which it does not update yet.
    pub(super) fn status_without_progress(&self) -> DeploymentStatus {
        let sum = |count: fn(&ReplicaSet) -> i32| self.all().map(|set| count(set)).sum::<i32>();
        let existing = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
        let ready =
            |set: &ReplicaSet| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
        let available = sum(available);
        let mut conditions = self.conditions.clone();
        let (status, reason, message) = if available >= self.bounds.min_available() {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        set(&mut conditions, condition(AVAILABLE, status, reason, message.to_owned(), self.now));
        DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: Some(sum(existing)),
            updated_replicas: Some(self.new.as_ref().map_or(0, |new| existing(new))),
            ready_replicas: Some(sum(ready)),
            available_replicas: Some(available),
            unavailable_replicas: Some((sum(replicas) - available).max(0)),
            terminating_replicas: terminating(self.all()),
            collision_count: self.deployment.status.as_ref().and_then(|status| status.collision_count),
            conditions: Some(conditions),
        }
    }

    /// Returns the new status, including updates of the conditions Progressing and ReplicaFailure.
    pub(super) fn progress(&self) -> DeploymentStatus {
        let mut status = self.status_without_progress();
        let mut conditions = status.conditions.take().unwrap_or_default();
        let known = find(&self.conditions, PROGRESSING).cloned();
        let is_done = status.replicas == status.updated_replicas
            && known.as_ref().is_some_and(|known| known.reason.as_deref() == Some(DONE));
        match deadline(self.deployment) {
            None => conditions.retain(|condition| condition.type_ != PROGRESSING),
            Some(_) if is_done => {}
            Some(deadline) => self.record_progress(&status, &mut conditions, known, deadline),
        }
        match self.failure() {
            Some(failure) => set(&mut conditions, failure),
            None => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
        }
        status.conditions = Some(conditions);
        status
    }

    fn record_progress(
        &self,
        status: &DeploymentStatus,
        conditions: &mut Vec<DeploymentCondition>,
        known: Option<DeploymentCondition>,
        deadline: SignedDuration,
    ) {
        let what = match &self.new {
            Some(new) => format!("ReplicaSet \"{}\"", new.name_any()),
            None => format!("Deployment \"{}\"", self.deployment.name_any()),
        };
        let now = self.now;
        if is_complete(self.deployment, status) {
            set(
                conditions,
                condition(PROGRESSING, "True", DONE, format!("{what} has successfully progressed."), now),
            );
        } else if is_better(self.deployment, status) {
            let mut better =
                condition(PROGRESSING, "True", "ReplicaSetUpdated", format!("{what} is progressing."), now);
            // The condition is replaced each time the rollout makes progress, because the progress deadline is counted from the last update of the
            // condition.
            if let Some(known) = known.filter(|known| known.status == "True") {
                better.last_transition_time = known.last_transition_time;
            }
            conditions.retain(|condition| condition.type_ != PROGRESSING);
            conditions.push(better);
        } else if known.is_some_and(|known| is_overdue(&known, deadline, now)) {
            let message = format!("{what} has timed out progressing.");
            set(conditions, condition(PROGRESSING, "False", TIMED_OUT, message, now));
        }
    }

    /// If a set could not create or delete pods, returns this failure as a condition of the deployment. A failure of the new set takes precedence
    /// over failures of old sets.
    fn failure(&self) -> Option<DeploymentCondition> {
        let failures = |set: &Arc<ReplicaSet>| {
            set.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default()
        };
        let mut all = self.new.iter().chain(&self.old).flat_map(failures);
        let failure = all.find(|condition| condition.type_ == REPLICA_FAILURE)?;
        Some(DeploymentCondition {
            type_: failure.type_,
            status: failure.status,
            reason: failure.reason,
            message: failure.message,
            last_update_time: failure.last_transition_time.clone(),
            last_transition_time: failure.last_transition_time,
        })
    }
}

fn is_overdue(known: &DeploymentCondition, deadline: SignedDuration, now: Timestamp) -> bool {
    match known.reason.as_deref() {
        Some(DONE) => false,
        Some(TIMED_OUT) => true,
        _ => known.last_update_time.as_ref().is_some_and(|at| at.0 + deadline < now),
    }
}

/// Returns the number of terminating pods of all sets; `None` if the status of a set does not contain this number, although the ReplicaSet controller
/// has observed the set.
fn terminating<'a>(mut sets: impl Iterator<Item = &'a Arc<ReplicaSet>>) -> Option<i32> {
    sets.try_fold(0, |sum, set| {
        let Some(status) = &set.status else { return Some(sum) };
        match status.terminating_replicas {
            None if status.observed_generation.unwrap_or(0) == 0 => Some(sum),
            count => Some(sum + count?),
        }
    })
}

/// Returns the time until the rollout exceeds its progress deadline; `None` if there is no deadline, or if the rollout is complete or has already
/// exceeded it. When this time has passed, the deployment must be reconciled, even if nothing has changed.
pub(super) fn overdue_in(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let deadline = deadline(deployment)?;
    let known = find(status.conditions.as_deref().unwrap_or_default(), PROGRESSING)?;
    if is_complete(deployment, status) || matches!(known.reason.as_deref(), Some(DONE | TIMED_OUT)) {
        return None;
    }
    // One second is added, because the time in the condition is rounded down to whole seconds.
    let at = known.last_update_time.as_ref()?.0 + deadline + SignedDuration::from_secs(1);
    Some(at.duration_since(now).max(SignedDuration::from_secs(1)).unsigned_abs())
}

/// Returns true if two statuses are equal. An absent number of pods equals zero, except for terminating pods.
pub(super) fn same(a: &DeploymentStatus, b: &DeploymentStatus) -> bool {
    let plain = |status: &DeploymentStatus| {
        let counts = [
            status.replicas,
            status.updated_replicas,
            status.ready_replicas,
            status.available_replicas,
            status.unavailable_replicas,
        ];
        let conditions = status.conditions.clone().unwrap_or_default();
        (
            counts.map(|count| count.unwrap_or(0)),
            status.terminating_replicas,
            status.collision_count,
            conditions,
        )
    };
    plain(a) == plain(b) && a.observed_generation == b.observed_generation
}
