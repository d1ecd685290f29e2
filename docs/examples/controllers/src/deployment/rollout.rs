//! PURE. The next step of a rollout: the ReplicaSets to create, update and delete.
//!
//! The functions of this module change copies of the ReplicaSets. The plan contains the copies that differ from their originals, and a status that is
//! computed from the copies.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetSpec,
};
use kube::ResourceExt;

use super::annotations;
use super::bounds::{RolloutBounds, is_recreate};
use super::status;
use super::template::{is_new, new_set};
use crate::error::Error;
use crate::owner::uid_of;
use crate::replicaset::replicas;

/// The next writes of a rollout, and the new status of the deployment.
#[derive(Debug, Default)]
pub struct Plan {
    /// The set to create. `None` if a set already has the template of the deployment, or if the set must not be created yet.
    pub create: Option<ReplicaSet>,
    /// Sets to update, with new sizes or annotations.
    pub update: Vec<ReplicaSet>,
    /// Old sets to delete, because there are more old sets than the history limit allows.
    pub delete: Vec<Arc<ReplicaSet>>,
    /// The revision that the deployment must have: the revision of its new set.
    pub revision: Option<String>,
    /// The status of the deployment after these writes.
    pub status: DeploymentStatus,
}

/// Computes the next writes for a deployment with these sets. `has_pods` returns true if a pod of the set may still run, even if the pod is
/// terminating.
///
/// # Errors
/// Returns an error if the deployment is invalid.
pub fn plan(
    deployment: &Deployment,
    sets: &[Arc<ReplicaSet>],
    has_pods: impl Fn(&ReplicaSet) -> bool,
    now: Timestamp,
) -> Result<Plan, Error> {
    let spec = deployment.spec.as_ref().ok_or(Error::Invalid("no spec"))?;
    let mut sets: Vec<_> = sets.to_vec();
    sets.sort_by_key(|set| oldest_first(set));
    let originals = sets.clone();
    // If several sets have the template of the deployment, the oldest of them is the new set, so that each reconcile chooses the same set.
    let new = sets.iter().position(|set| is_new(deployment, set)).map(|at| sets.remove(at));
    let mut rollout = Rollout {
        deployment,
        bounds: RolloutBounds::of(deployment),
        new,
        old: sets,
        delete: Vec::new(),
        conditions: status::conditions_of(deployment),
        now,
    };
    let status = if deployment.metadata.deletion_timestamp.is_some() {
        rollout.status_without_progress()
    } else {
        status::note_pause(deployment, &mut rollout.conditions, now);
        rollout.copy_to_new();
        if spec.paused == Some(true) {
            rollout.scale();
            rollout.prune_history();
            rollout.status_without_progress()
        } else if rollout.is_scaled() {
            rollout.scale();
            rollout.status_without_progress()
        } else if is_recreate(spec) {
            rollout.recreate(has_pods)?;
            rollout.progress()
        } else {
            rollout.roll()?;
            rollout.progress()
        }
    };
    Ok(rollout.written(&originals, status))
}

/// A deployment and its sets, with the planned changes.
pub(super) struct Rollout<'a> {
    pub(super) deployment: &'a Deployment,
    pub(super) bounds: RolloutBounds,
    /// The set with the template of the deployment.
    pub(super) new: Option<Arc<ReplicaSet>>,
    /// All other sets, oldest first.
    pub(super) old: Vec<Arc<ReplicaSet>>,
    delete: Vec<Arc<ReplicaSet>>,
    /// The conditions of the deployment, with the planned changes.
    pub(super) conditions: Vec<DeploymentCondition>,
    pub(super) now: Timestamp,
}

impl Rollout<'_> {
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> + Clone {
        self.old.iter().chain(&self.new)
    }

    /// Returns how many pods may be created now. If a set has been scaled down, its surplus pods count until they no longer exist.
    fn surge_left(&self) -> i32 {
        let observed = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
        let existing: i32 = self.all().map(|set| replicas(set).max(observed(set))).sum();
        (self.bounds.max_existing() - existing).max(0)
    }

    /// Copies annotations and `minReadySeconds` of the deployment to the new set.
    fn copy_to_new(&mut self) {
        let Some(new) = &mut self.new else { return };
        let newest_old = self.old.iter().map(|set| annotations::revision(set)).max().unwrap_or(0);
        let annotations = annotations::of_new(self.deployment, new, newest_old);
        let min_ready = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        if annotations != *new.annotations() {
            *Arc::make_mut(new).annotations_mut() = annotations;
        }
        if min_ready.unwrap_or(0) != crate::replicaset::min_ready_seconds(new) {
            spec_mut(new).min_ready_seconds = min_ready;
        }
        status::record_found(self.deployment, &mut self.conditions, new, self.now);
    }

    /// If no set has the template of the deployment, plans a new set, with as many pods as the bounds allow.
    fn make_new(&mut self) -> Result<(), Error> {
        if self.new.is_some() {
            return Ok(());
        }
        let mut new = Arc::new(new_set(self.deployment)?);
        let newest_old = self.old.iter().map(|set| annotations::revision(set)).max().unwrap_or(0);
        *Arc::make_mut(&mut new).annotations_mut() = annotations::of_new(self.deployment, &new, newest_old);
        *Arc::make_mut(&mut new).annotations_mut() = annotations::with_size(&new, self.bounds);
        status::record_created(self.deployment, &mut self.conditions, &new, self.now);
        spec_mut(&mut new).replicas = Some(self.surge_left().min(self.bounds.wanted));
        self.new = Some(new);
        Ok(())
    }

    /// Plans a step of the strategy Recreate: first scales the old sets to zero and, when the last old pod has ended, scales the new set up.
    fn recreate(&mut self, has_pods: impl Fn(&ReplicaSet) -> bool) -> Result<(), Error> {
        let bounds = self.bounds;
        let scaled = self.old.iter_mut().map(|set| scale(set, 0, bounds)).filter(|scaled| *scaled).count();
        let runs =
            |set: &ReplicaSet| set.status.as_ref().is_some_and(|status| status.replicas > 0) || has_pods(set);
        if scaled > 0 || self.old.iter().any(|set| runs(set)) {
            return Ok(());
        }
        self.make_new()?;
        if let Some(new) = &mut self.new {
            scale(new, bounds.wanted, bounds);
        }
        self.prune_history_if_complete();
        Ok(())
    }

    /// Plans a step of the strategy RollingUpdate: scales the new set up or the old sets down, within the bounds. A plan either scales up or scales
    /// down, but not both, so that each step is computed from the result of the previous step.
    ///
    /// A step waits until the ReplicaSet controller has observed the size of each set. kube-controller-manager does not wait. Therefore, if sizes
    /// change quickly, as in a rollback, kube-controller-manager counts deleted pods as available.
    fn roll(&mut self) -> Result<(), Error> {
        // A set without a status counts as observed while it has its first generation, because its size has not changed since its creation.
        let observed =
            |set: &ReplicaSet| set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(1);
        let is_observed = |set: &ReplicaSet| observed(set) >= set.metadata.generation.unwrap_or(1);
        if !self.all().all(|set| is_observed(set)) {
            return Ok(());
        }
        self.make_new()?;
        if !self.scale_new() && !self.scale_old() {
            self.prune_history_if_complete();
        }
        Ok(())
    }

    fn scale_new(&mut self) -> bool {
        let (bounds, surge_left) = (self.bounds, self.surge_left());
        let Some(new) = &mut self.new else { return false };
        let size = replicas(new);
        scale(
            new,
            if size > bounds.wanted { bounds.wanted } else { bounds.wanted.min(size + surge_left) },
            bounds,
        )
    }

    fn scale_old(&mut self) -> bool {
        let bounds = self.bounds;
        let before: i32 = self.old.iter().map(|set| replicas(set)).sum();
        // Of the new pods, only the available ones are counted. Otherwise new pods that never become available would replace all working pods.
        let mut spare =
            before + self.new.as_ref().map_or(0, |new| available_capped(new)) - bounds.min_available();
        if spare <= 0 {
            return false;
        }
        // Old pods that are not available are removed first, because this does not reduce the number of available pods.
        for set in &mut self.old {
            let unavailable = (replicas(set) - available_capped(set)).clamp(0, spare.max(0));
            scale(set, replicas(set) - unavailable, bounds);
            spare -= unavailable;
        }
        let mut spare = self.all().map(|set| available_capped(set)).sum::<i32>() - bounds.min_available();
        for set in &mut self.old {
            let removed = replicas(set).min(spare.max(0));
            scale(set, replicas(set) - removed, bounds);
            spare -= removed;
        }
        self.old.iter().map(|set| replicas(set)).sum::<i32>() < before
    }

    /// Returns true if the wanted number of pods of the deployment has changed since its sets were last scaled.
    fn is_scaled(&self) -> bool {
        let active = self.all().filter(|set| replicas(set) > 0);
        active
            .into_iter()
            .any(|set| annotations::desired(set).is_some_and(|desired| desired != self.bounds.wanted))
    }

    /// Applies a new number of wanted pods. During a rollout the number is distributed in proportion to the sizes of the sets, so that the rollout
    /// neither advances nor goes back.
    fn scale(&mut self) {
        let bounds = self.bounds;
        let mut active: Vec<_> =
            self.old.iter_mut().chain(&mut self.new).filter(|set| replicas(set) > 0).collect();
        match &mut *active {
            [] => {
                if let Some(latest) = self.new.as_mut().or(self.old.last_mut()) {
                    scale(latest, bounds.wanted, bounds);
                }
                return;
            }
            [only] => {
                scale(only, bounds.wanted, bounds);
                return;
            }
            _ => {}
        }
        if self.new.as_ref().is_some_and(|new| is_saturated(new, bounds)) {
            for set in &mut self.old {
                scale(set, 0, bounds);
            }
            return;
        }
        if self.deployment.spec.as_ref().is_some_and(is_recreate) {
            return;
        }
        let known = self.deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
        let mut active: Vec<_> =
            self.old.iter_mut().chain(&mut self.new).filter(|set| replicas(set) > 0).collect();
        share_out(&mut active, bounds, known);
    }

    fn prune_history_if_complete(&mut self) {
        let status = self.deployment.status.clone().unwrap_or_default();
        if status::is_complete(self.deployment, &status) {
            self.prune_history();
        }
    }

    /// If there are more old sets than the history limit, plans the deletion of the surplus, lowest revisions first. A set that still has pods is not
    /// deleted.
    fn prune_history(&mut self) {
        let limit = self.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else { return };
        let mut existing: Vec<_> =
            self.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).cloned().collect();
        existing.sort_by_key(|set| (annotations::revision(set), oldest_first(set)));
        existing.truncate(existing.len().saturating_sub(usize::try_from(limit).unwrap_or(0)));
        let idle = |set: &Arc<ReplicaSet>| {
            let status = set.status.clone().unwrap_or_default();
            replicas(set) == 0
                && status.replicas == 0
                && set.metadata.generation.unwrap_or(0) <= status.observed_generation.unwrap_or(0)
        };
        self.delete = existing.into_iter().filter(idle).collect();
    }

    fn written(self, originals: &[Arc<ReplicaSet>], status: DeploymentStatus) -> Plan {
        let is_as_before =
            |set: &Arc<ReplicaSet>| originals.iter().any(|original| Arc::ptr_eq(original, set));
        let revision =
            self.new.as_ref().and_then(|new| new.annotations().get(annotations::REVISION).cloned());
        let changed =
            self.old.iter().chain(&self.new).filter(|set| !is_as_before(set) && !uid_of(&***set).is_empty());
        let update = changed.map(|set| ReplicaSet::clone(set)).collect();
        let create = self.new.filter(|new| uid_of(&**new).is_empty()).map(Arc::unwrap_or_clone);
        Plan { create, update, delete: self.delete, revision, status }
    }
}

/// Distributes the total number of pods that the deployment now allows over the sets, in proportion to their sizes. The largest set gets what remains
/// after rounding.
fn share_out(active: &mut [&mut Arc<ReplicaSet>], bounds: RolloutBounds, known: i32) {
    let total: i32 = active.iter().map(|set| replicas(set)).sum();
    let allowed = if bounds.wanted > 0 { bounds.max_existing() } else { 0 };
    let to_add = allowed - total;
    // The largest set is first. Of sets with equal sizes, the newest grows first, and the oldest shrinks first.
    active.sort_by_key(|set| oldest_first(set));
    if to_add > 0 {
        active.reverse();
    }
    active.sort_by_key(|set| Reverse(replicas(set)));
    let mut sizes = Vec::new();
    let mut left = to_add;
    for set in &*active {
        let share = match to_add {
            0 => 0,
            1.. => share_of(set, bounds, known).min(left),
            _ => share_of(set, bounds, known).max(left),
        };
        left -= share;
        sizes.push(replicas(set) + share);
    }
    sizes[0] = (sizes[0] + left).max(0);
    for (set, size) in active.iter_mut().zip(sizes) {
        if size != replicas(set) || annotations::with_size(set, bounds) != *set.annotations() {
            resize(set, size, bounds);
        }
    }
}

/// Returns the number of pods to add to a set (or, if negative, to remove), so that it keeps its share of the total.
fn share_of(set: &ReplicaSet, bounds: RolloutBounds, known: i32) -> i32 {
    let size = replicas(set);
    if bounds.wanted == 0 {
        return -size;
    }
    let before = annotations::max_replicas(set).filter(|max| *max > 0).unwrap_or(known);
    if before == 0 {
        return 0;
    }
    // Rounds to the nearest integer; a half is rounded up.
    let (product, before) = (i64::from(size) * i64::from(bounds.max_existing()), i64::from(before));
    i32::try_from((2 * product + before) / (2 * before)).unwrap_or(i32::MAX) - size
}

/// Scales a set to `size`, if it has a different size. Returns true if the set was scaled.
fn scale(set: &mut Arc<ReplicaSet>, size: i32, bounds: RolloutBounds) -> bool {
    let other = replicas(set) != size;
    if other {
        resize(set, size, bounds);
    }
    other
}

fn resize(set: &mut Arc<ReplicaSet>, size: i32, bounds: RolloutBounds) {
    *Arc::make_mut(set).annotations_mut() = annotations::with_size(set, bounds);
    spec_mut(set).replicas = Some(size);
}

fn spec_mut(set: &mut Arc<ReplicaSet>) -> &mut ReplicaSetSpec {
    Arc::make_mut(set).spec.get_or_insert_default()
}

pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

/// Returns the number of available pods, limited to the requested number of replicas: after a scale-down, the status may still count pods that are
/// about to be deleted.
fn available_capped(set: &ReplicaSet) -> i32 {
    available(set).min(replicas(set))
}

fn is_saturated(new: &ReplicaSet, bounds: RolloutBounds) -> bool {
    replicas(new) == bounds.wanted
        && annotations::desired(new) == Some(bounds.wanted)
        && available(new) == bounds.wanted
}

fn oldest_first(set: &ReplicaSet) -> (Option<Timestamp>, String) {
    (set.metadata.creation_timestamp.as_ref().map(|at| at.0), set.name_any())
}
