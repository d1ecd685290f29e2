//! PURE. What a deployment does next with its ReplicaSets.
//!
//! Numbers are changed on copies; what differs from the originals afterwards is what there is to write. So the status is that of the sets
//! as they will be.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetSpec,
};
use kube::ResourceExt;

use super::fence::{Fence, is_recreate};
use super::notes;
use super::status;
use super::template::{is_new, new_set};
use crate::error::Error;
use crate::holder::uid_of;
use crate::replicaset::replicas;

/// The writes that bring a deployment forward, and its new status.
#[derive(Debug, Default)]
pub struct Plan {
    /// A set to create, for a template without one.
    pub create: Option<ReplicaSet>,
    /// Sets to update, with new sizes or annotations.
    pub update: Vec<ReplicaSet>,
    /// Sets to delete: revisions past the history limit.
    pub delete: Vec<Arc<ReplicaSet>>,
    /// The revision the deployment is at.
    pub revision: Option<String>,
    /// The deployment's status after that.
    pub status: DeploymentStatus,
}

/// What a deployment does next, with these sets of its own. `has_pods` says of a set whether any of its pods may run still, as those do that are
/// terminating.
///
/// # Errors
/// When the deployment makes no sense.
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
    // There should be one; of several it is the oldest, every time.
    let new = sets.iter().position(|set| is_new(deployment, set)).map(|at| sets.remove(at));
    let mut rollout = Rollout {
        deployment,
        fence: Fence::of(deployment),
        new,
        old: sets,
        delete: Vec::new(),
        conditions: status::conditions_of(deployment),
        now,
    };
    let status = if deployment.metadata.deletion_timestamp.is_some() {
        rollout.settled()
    } else {
        status::note_pause(deployment, &mut rollout.conditions, now);
        rollout.note_new();
        if spec.paused == Some(true) {
            rollout.scale();
            rollout.forget();
            rollout.settled()
        } else if rollout.is_scaled() {
            rollout.scale();
            rollout.settled()
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

/// A deployment and its sets, as they are about to be.
pub(super) struct Rollout<'a> {
    pub(super) deployment: &'a Deployment,
    pub(super) fence: Fence,
    /// The one with the template of the deployment.
    pub(super) new: Option<Arc<ReplicaSet>>,
    /// All others, oldest first.
    pub(super) old: Vec<Arc<ReplicaSet>>,
    delete: Vec<Arc<ReplicaSet>>,
    /// What the deployment says already.
    pub(super) conditions: Vec<DeploymentCondition>,
    pub(super) now: Timestamp,
}

impl Rollout<'_> {
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> + Clone {
        self.old.iter().chain(&self.new)
    }

    /// How many more pods there may be. Those that a set is about to delete are there still.
    fn room(&self) -> i32 {
        let there = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
        let existing: i32 = self.all().map(|set| replicas(set).max(there(set))).sum();
        (self.fence.most() - existing).max(0)
    }

    /// Keeps annotations of the new set, and for how long its pods have to serve, as the deployment has them.
    fn note_new(&mut self) {
        let Some(new) = &mut self.new else { return };
        let newest_old = self.old.iter().map(|set| notes::revision(set)).max().unwrap_or(0);
        let annotations = notes::of_new(self.deployment, new, newest_old);
        let min_ready = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        if annotations != *new.annotations() {
            *Arc::make_mut(new).annotations_mut() = annotations;
        }
        if min_ready.unwrap_or(0) != crate::replicaset::min_ready_seconds(new) {
            spec_mut(new).min_ready_seconds = min_ready;
        }
        status::note_found(self.deployment, &mut self.conditions, new, self.now);
    }

    /// Makes the set of a template that has none, with as many pods as there may be.
    fn make_new(&mut self) -> Result<(), Error> {
        if self.new.is_some() {
            return Ok(());
        }
        let mut new = Arc::new(new_set(self.deployment)?);
        let newest_old = self.old.iter().map(|set| notes::revision(set)).max().unwrap_or(0);
        *Arc::make_mut(&mut new).annotations_mut() = notes::of_new(self.deployment, &new, newest_old);
        *Arc::make_mut(&mut new).annotations_mut() = notes::with_size(&new, self.fence);
        status::note_made(self.deployment, &mut self.conditions, &new, self.now);
        spec_mut(&mut new).replicas = Some(self.room().min(self.fence.wanted));
        self.new = Some(new);
        Ok(())
    }

    /// All old pods go, and when the last is gone the new ones come.
    fn recreate(&mut self, has_pods: impl Fn(&ReplicaSet) -> bool) -> Result<(), Error> {
        let fence = self.fence;
        let scaled = self.old.iter_mut().map(|set| scale(set, 0, fence)).filter(|scaled| *scaled).count();
        let runs =
            |set: &ReplicaSet| set.status.as_ref().is_some_and(|status| status.replicas > 0) || has_pods(set);
        if scaled > 0 || self.old.iter().any(|set| runs(set)) {
            return Ok(());
        }
        self.make_new()?;
        if let Some(new) = &mut self.new {
            scale(new, fence.wanted, fence);
        }
        self.forget_if_complete();
        Ok(())
    }

    /// New pods come as far as there may be more, and old ones go as far as there may be less; one of the two at a time, so that each is decided on
    /// what has become of the other. And only on news of sets that have seen their sizes: kube-controller-manager does not wait for that, and
    /// where sizes change quickly, as on the way back to an old template, it takes pods for available that are gone.
    fn roll(&mut self) -> Result<(), Error> {
        // One that has said nothing yet has had one size, if this is its first generation.
        let seen =
            |set: &ReplicaSet| set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(1);
        let is_seen = |set: &ReplicaSet| seen(set) >= set.metadata.generation.unwrap_or(1);
        if !self.all().all(|set| is_seen(set)) {
            return Ok(());
        }
        self.make_new()?;
        if !self.scale_new() && !self.scale_old() {
            self.forget_if_complete();
        }
        Ok(())
    }

    fn scale_new(&mut self) -> bool {
        let (fence, room) = (self.fence, self.room());
        let Some(new) = &mut self.new else { return false };
        let size = replicas(new);
        scale(new, if size > fence.wanted { fence.wanted } else { fence.wanted.min(size + room) }, fence)
    }

    fn scale_old(&mut self) -> bool {
        let fence = self.fence;
        let before: i32 = self.old.iter().map(|set| replicas(set)).sum();
        // New ones that are not available do not make room, or a template that never works would be the end of all that do.
        let mut spare = before + self.new.as_ref().map_or(0, |new| serving(new)) - fence.least();
        if spare <= 0 {
            return false;
        }
        // Those that are not available are not missed.
        for set in &mut self.old {
            let useless = (replicas(set) - serving(set)).clamp(0, spare.max(0));
            scale(set, replicas(set) - useless, fence);
            spare -= useless;
        }
        let mut spare = self.all().map(|set| serving(set)).sum::<i32>() - fence.least();
        for set in &mut self.old {
            let gone = replicas(set).min(spare.max(0));
            scale(set, replicas(set) - gone, fence);
            spare -= gone;
        }
        self.old.iter().map(|set| replicas(set)).sum::<i32>() < before
    }

    /// Whether somebody has changed how many pods there should be.
    fn is_scaled(&self) -> bool {
        let active = self.all().filter(|set| replicas(set) > 0);
        active.into_iter().any(|set| notes::desired(set).is_some_and(|desired| desired != self.fence.wanted))
    }

    /// Another number of pods, in the middle of a rollout, too: then each set gets its share, so that the rollout is as far as before.
    fn scale(&mut self) {
        let fence = self.fence;
        let mut active: Vec<_> =
            self.old.iter_mut().chain(&mut self.new).filter(|set| replicas(set) > 0).collect();
        match &mut *active {
            [] => {
                if let Some(latest) = self.new.as_mut().or(self.old.last_mut()) {
                    scale(latest, fence.wanted, fence);
                }
                return;
            }
            [only] => {
                scale(only, fence.wanted, fence);
                return;
            }
            _ => {}
        }
        if self.new.as_ref().is_some_and(|new| is_saturated(new, fence)) {
            for set in &mut self.old {
                scale(set, 0, fence);
            }
            return;
        }
        if self.deployment.spec.as_ref().is_some_and(is_recreate) {
            return;
        }
        let known = self.deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
        let mut active: Vec<_> =
            self.old.iter_mut().chain(&mut self.new).filter(|set| replicas(set) > 0).collect();
        share_out(&mut active, fence, known);
    }

    fn forget_if_complete(&mut self) {
        let status = self.deployment.status.clone().unwrap_or_default();
        if status::is_complete(self.deployment, &status) {
            self.forget();
        }
    }

    /// Sets beyond the limit of the history go, the oldest revision first.
    fn forget(&mut self) {
        let limit = self.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else { return };
        let mut there: Vec<_> =
            self.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).cloned().collect();
        there.sort_by_key(|set| (notes::revision(set), oldest_first(set)));
        there.truncate(there.len().saturating_sub(usize::try_from(limit).unwrap_or(0)));
        let idle = |set: &Arc<ReplicaSet>| {
            let status = set.status.clone().unwrap_or_default();
            replicas(set) == 0
                && status.replicas == 0
                && set.metadata.generation.unwrap_or(0) <= status.observed_generation.unwrap_or(0)
        };
        self.delete = there.into_iter().filter(idle).collect();
    }

    fn written(self, originals: &[Arc<ReplicaSet>], status: DeploymentStatus) -> Plan {
        let is_as_before =
            |set: &Arc<ReplicaSet>| originals.iter().any(|original| Arc::ptr_eq(original, set));
        let revision = self.new.as_ref().and_then(|new| new.annotations().get(notes::REVISION).cloned());
        let changed =
            self.old.iter().chain(&self.new).filter(|set| !is_as_before(set) && !uid_of(&***set).is_empty());
        let update = changed.map(|set| ReplicaSet::clone(set)).collect();
        let create = self.new.filter(|new| uid_of(&**new).is_empty()).map(Arc::unwrap_or_clone);
        Plan { create, update, delete: self.delete, revision, status }
    }
}

/// Gives each set its share of another total, the largest what is left over.
fn share_out(active: &mut [&mut Arc<ReplicaSet>], fence: Fence, known: i32) {
    let total: i32 = active.iter().map(|set| replicas(set)).sum();
    let allowed = if fence.wanted > 0 { fence.most() } else { 0 };
    let to_add = allowed - total;
    // Of equal ones the newer grow first, and the older shrink first.
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
            1.. => share_of(set, fence, known).min(left),
            _ => share_of(set, fence, known).max(left),
        };
        left -= share;
        sizes.push(replicas(set) + share);
    }
    sizes[0] = (sizes[0] + left).max(0);
    for (set, size) in active.iter_mut().zip(sizes) {
        if size != replicas(set) || notes::with_size(set, fence) != *set.annotations() {
            resize(set, size, fence);
        }
    }
}

/// What a set of a rollout gains, or loses, by another total.
fn share_of(set: &ReplicaSet, fence: Fence, known: i32) -> i32 {
    let size = replicas(set);
    if fence.wanted == 0 {
        return -size;
    }
    let before = notes::most(set).filter(|most| *most > 0).unwrap_or(known);
    if before == 0 {
        return 0;
    }
    // To the nearest, and a half away from zero.
    let (product, before) = (i64::from(size) * i64::from(fence.most()), i64::from(before));
    i32::try_from((2 * product + before) / (2 * before)).unwrap_or(i32::MAX) - size
}

/// Scales a set, if that is another size. Whether it is.
fn scale(set: &mut Arc<ReplicaSet>, size: i32, fence: Fence) -> bool {
    let other = replicas(set) != size;
    if other {
        resize(set, size, fence);
    }
    other
}

fn resize(set: &mut Arc<ReplicaSet>, size: i32, fence: Fence) {
    *Arc::make_mut(set).annotations_mut() = notes::with_size(set, fence);
    spec_mut(set).replicas = Some(size);
}

fn spec_mut(set: &mut Arc<ReplicaSet>) -> &mut ReplicaSetSpec {
    Arc::make_mut(set).spec.get_or_insert_default()
}

pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

/// Available pods, at most the requested replicas: the set's status may still count pods it was scaled down by.
fn serving(set: &ReplicaSet) -> i32 {
    available(set).min(replicas(set))
}

fn is_saturated(new: &ReplicaSet, fence: Fence) -> bool {
    replicas(new) == fence.wanted
        && notes::desired(new) == Some(fence.wanted)
        && available(new) == fence.wanted
}

fn oldest_first(set: &ReplicaSet) -> (Option<Timestamp>, String) {
    (set.metadata.creation_timestamp.as_ref().map(|at| at.0), set.name_any())
}
