//! EDGE. The Deployment controller: replaces the pods of an old template with pods of a new template, within the bounds of the strategy.
//!
//! Cancel safety: if a reconcile is dropped, some of its writes may be missing. The next reconcile performs these writes.

mod annotations;
mod bounds;
mod rollout;
mod status;
mod template;

use std::sync::Arc;

use flyball_informer_cache::{Informer, NamespacedName};
use flyball_kube::{Config, Controller, ReconcileStream, SelectorExt, object_key};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;

pub use self::bounds::RolloutBounds;
pub use self::rollout::{Plan, plan};
use crate::error::{Error, is_status, unless_gone};
use crate::own_writes::OwnWrites;
use crate::owner::{Claim, Owner, adoption, by_owner, claim, controller_of, release, selector_of, uid_of};
use crate::pods::is_over;
use crate::program::{Clock, retry};

/// The context that all reconciles share.
struct Context {
    client: Client,
    clock: Clock,
    pods: Informer<NamespacedName, Pod>,
    sets: Informer<NamespacedName, ReplicaSet>,
    deployments: Informer<NamespacedName, Deployment>,
    own_sets: OwnWrites<ReplicaSet>,
    own_deployments: OwnWrites<Deployment>,
}

/// Runs a controller of Deployments. The informers of pods and sets need the index [`by_owner`].
pub fn run(
    controller: Controller<Deployment>,
    client: Client,
    clock: Clock,
    pods: &Informer<NamespacedName, Pod>,
    sets: &Informer<NamespacedName, ReplicaSet>,
    deployments: &Informer<NamespacedName, Deployment>,
) -> ReconcileStream<Deployment, Error> {
    let context = Context {
        client,
        clock,
        pods: pods.clone(),
        sets: sets.clone(),
        deployments: deployments.clone(),
        own_sets: OwnWrites::new(sets),
        own_deployments: OwnWrites::new(deployments),
    };
    let (candidates, owned) = (deployments.clone(), sets.clone());
    controller
        .with_config(Config::recommended())
        .owns_shared(sets)
        .watches_shared(sets, move |set| adopters_of(&candidates, set))
        // Pods are watched for the strategy Recreate: the first new pod may be created only after the last old pod has ended.
        .watches_shared(pods, move |pod| owner_of_owner(&owned, pod))
        .run(reconcile, retry, Arc::new(context))
}

/// Returns the deployments that may adopt `set`: their selectors match the set, and the set has no controller.
fn adopters_of(
    deployments: &Informer<NamespacedName, Deployment>,
    set: &ReplicaSet,
) -> Vec<ObjectRef<Deployment>> {
    if controller_of(set).is_some() {
        return Vec::new();
    }
    let selects = |deployment: &&Arc<Deployment>| {
        let selector = deployment.spec.as_ref().and_then(|spec| selector_of(&spec.selector).ok());
        deployment.namespace() == set.namespace() && selector.is_some_and(|selector| selector.selects(set))
    };
    deployments
        .snapshot()
        .objects()
        .filter(selects)
        .map(|deployment| ObjectRef::from_obj(&**deployment))
        .collect()
}

/// Returns the deployment that controls the ReplicaSet that controls `pod`.
fn owner_of_owner(sets: &Informer<NamespacedName, ReplicaSet>, pod: &Pod) -> Option<ObjectRef<Deployment>> {
    let namespace = pod.namespace()?;
    let owner = controller_of(pod).filter(|owner| owner.kind == "ReplicaSet")?;
    let set = sets.store().get(&*format!("{namespace}/{}", owner.name))?;
    ObjectRef::from_owner_ref(Some(&namespace), controller_of(&*set)?, ())
}

async fn reconcile(deployment: Arc<Deployment>, context: Arc<Context>) -> Result<Action, Error> {
    context.own_sets.wait_until_cached(&*deployment).await?;
    context.own_deployments.wait_until_cached(&*deployment).await?;
    // While this reconcile waited for the caches, a newer state of the deployment may have arrived.
    let newest = object_key(&*deployment).ok().and_then(|key| context.deployments.store().get(&key));
    let Some(deployment) = newest.filter(|newest| uid_of(&**newest) == uid_of(&*deployment)) else {
        return Ok(Action::await_change());
    };

    let sets = context.claim_sets(&deployment).await?;
    let now = (context.clock)();
    let plan = plan(&deployment, &sets, |set| context.has_pods(set), now)?;
    let overdue_in = status::overdue_in(&deployment, &plan.status, now);
    context.write(&deployment, plan).await?;
    Ok(overdue_in.map_or_else(Action::await_change, Action::requeue))
}

impl Context {
    fn sets_of(&self, deployment: &Deployment) -> Api<ReplicaSet> {
        Api::namespaced(self.client.clone(), &deployment.namespace().unwrap_or_default())
    }

    fn deployments_of(&self, deployment: &Deployment) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &deployment.namespace().unwrap_or_default())
    }

    /// Returns true if a pod of the set may still run.
    fn has_pods(&self, set: &ReplicaSet) -> bool {
        let view = self.pods.snapshot();
        let mut pods = view.by_index(&by_owner(), &Owner::of_uid(set)).expect("the informer has this index");
        pods.any(|pod| !is_over(pod))
    }

    /// Adopts orphans that match, releases sets that no longer match, and returns the sets that this deployment then controls.
    async fn claim_sets(&self, deployment: &Deployment) -> Result<Vec<Arc<ReplicaSet>>, Error> {
        let selector = selector_of(&deployment.spec.as_ref().ok_or(Error::Invalid("no spec"))?.selector)?;
        let view = self.sets.snapshot();
        let index = by_owner();
        let controlled =
            view.by_index(&index, &Owner::of_uid(deployment)).expect("the informer has this index");
        let orphans = view.by_index(&index, &Owner::Orphan(deployment.namespace().unwrap_or_default()));
        let orphans = orphans.expect("the informer has this index");
        let mut owned = Vec::new();
        let mut may_adopt = false;
        for set in controlled.chain(orphans) {
            match claim(deployment, &selector, &**set) {
                Claim::Ignore => {}
                Claim::Owned => owned.push(set.clone()),
                Claim::Release => {
                    self.patch(deployment, set, release(deployment, &**set)).await?;
                }
                Claim::Adopt => {
                    // If the deployment is being deleted, its sets are made orphans and must not be adopted again. The cache may not contain the
                    // deletion yet, so the deployment is read from the API server.
                    may_adopt = may_adopt || self.exists_on_server(deployment).await?;
                    if may_adopt {
                        let adopted = self.patch(deployment, set, adoption(deployment, &**set)?).await?;
                        owned.extend(adopted.map(Arc::new));
                    }
                }
            }
        }
        Ok(owned)
    }

    async fn patch(
        &self,
        deployment: &Deployment,
        set: &ReplicaSet,
        patch: serde_json::Value,
    ) -> Result<Option<ReplicaSet>, Error> {
        let api = self.sets_of(deployment);
        let patched =
            unless_gone(api.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await)?;
        if let Some(set) = &patched {
            self.own_sets.wrote(deployment, set);
        }
        Ok(patched)
    }

    /// Reads the deployment from the API server. Returns true if the deployment exists and is not being deleted.
    async fn exists_on_server(&self, deployment: &Deployment) -> Result<bool, Error> {
        let fresh = self.deployments_of(deployment).get_opt(&deployment.name_any()).await?;
        Ok(fresh.is_some_and(|fresh| {
            uid_of(&fresh) == uid_of(deployment) && fresh.meta().deletion_timestamp.is_none()
        }))
    }

    async fn write(&self, deployment: &Deployment, plan: Plan) -> Result<(), Error> {
        let api = self.sets_of(deployment);
        if let Some(set) = &plan.create {
            match api.create(&PostParams::default(), set).await {
                Ok(set) => self.own_sets.wrote(deployment, &set),
                Err(error) if is_status(&error, 409) => return self.collided(deployment, set, error).await,
                Err(error) => return Err(error.into()),
            }
        }
        for set in &plan.update {
            let updated = api.replace(&set.name_any(), &PostParams::default(), set).await?;
            self.own_sets.wrote(deployment, &updated);
        }
        for set in &plan.delete {
            let this_one = Preconditions { uid: set.uid(), resource_version: None };
            let params = DeleteParams { preconditions: Some(this_one), ..DeleteParams::background() };
            unless_gone(api.delete(&set.name_any(), &params).await)?;
        }
        self.write_status(deployment, plan.revision, plan.status).await
    }

    /// Handles a creation that failed because a set with that name already exists. If the existing set is the one to create, the cache was out of
    /// date, and nothing has to be done. Otherwise the collision count is incremented, so that the next attempt uses a different name.
    async fn collided(
        &self,
        deployment: &Deployment,
        set: &ReplicaSet,
        error: kube::Error,
    ) -> Result<(), Error> {
        let there = self.sets_of(deployment).get(&set.name_any()).await?;
        let is_mine = controller_of(&there).is_some_and(|owner| owner.uid == uid_of(deployment));
        if is_mine && template::is_new(deployment, &there) {
            self.own_sets.wrote(deployment, &there);
        } else {
            let mut status = deployment.status.clone().unwrap_or_default();
            status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
            self.write_status(deployment, None, status).await?;
        }
        Err(error.into())
    }

    async fn write_status(
        &self,
        deployment: &Deployment,
        revision: Option<String>,
        status: DeploymentStatus,
    ) -> Result<(), Error> {
        let (api, name) = (self.deployments_of(deployment), deployment.name_any());
        let mut updated = deployment.clone();
        if revision.is_some() && revision.as_ref() != deployment.annotations().get(annotations::REVISION) {
            let patch = json!({"metadata": {"uid": deployment.uid(), "annotations": {annotations::REVISION: revision}}});
            updated = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            self.own_deployments.wrote(deployment, &updated);
        }
        if updated.metadata.generation == deployment.metadata.generation
            && !updated.status.as_ref().is_some_and(|known| status::same(known, &status))
        {
            updated.status = Some(status);
            if let Some(updated) =
                unless_gone(api.replace_status(&name, &PostParams::default(), &updated).await)?
            {
                self.own_deployments.wrote(deployment, &updated);
            }
        }
        Ok(())
    }
}
