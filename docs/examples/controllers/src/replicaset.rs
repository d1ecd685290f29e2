//! EDGE. The ReplicaSet controller: keeps the wanted number of pods with a template running.
//!
//! Cancel safety: if a reconcile is dropped, the pods that it has created arrive in the cache later, and the next reconcile counts them.

mod deletion_order;
mod plan;
mod slow_start;
mod status;

use std::sync::Arc;

use flyball_informer_cache::{Informer, NamespacedName};
use flyball_kube::{Config, Controller, ReconcileStream, SelectorExt, object_key};
use futures::future::join_all;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, Resource, ResourceExt};

use self::plan::Step;
pub use self::plan::{min_ready_seconds, replicas};
use crate::error::{Error, unless_gone};
use crate::own_writes::OwnWrites;
use crate::owner::{Claim, Owner, adoption, by_owner, claim, controller_of, release, selector_of, uid_of};
use crate::pods::{is_active, is_over, is_terminating};
use crate::program::{Clock, retry};

/// The context that all reconciles share.
struct Context {
    client: Client,
    clock: Clock,
    pods: Informer<NamespacedName, Pod>,
    sets: Informer<NamespacedName, ReplicaSet>,
    own_pods: OwnWrites<Pod>,
    own_sets: OwnWrites<ReplicaSet>,
}

/// Runs a controller of ReplicaSets. Both informers need the index [`by_owner`].
pub fn run(
    controller: Controller<ReplicaSet>,
    client: Client,
    clock: Clock,
    pods: &Informer<NamespacedName, Pod>,
    sets: &Informer<NamespacedName, ReplicaSet>,
) -> ReconcileStream<ReplicaSet, Error> {
    let context = Context {
        client,
        clock,
        pods: pods.clone(),
        sets: sets.clone(),
        own_pods: OwnWrites::new(pods),
        own_sets: OwnWrites::new(sets),
    };
    let candidates = sets.clone();
    controller
        .with_config(Config::recommended())
        .owns_shared(pods)
        .watches_shared(pods, move |pod| adopters_of(&candidates, pod))
        .run(reconcile, retry, Arc::new(context))
}

/// Returns the sets that may adopt `pod`: their selectors match the pod, and the pod has no controller.
fn adopters_of(sets: &Informer<NamespacedName, ReplicaSet>, pod: &Pod) -> Vec<ObjectRef<ReplicaSet>> {
    if controller_of(pod).is_some() {
        return Vec::new();
    }
    let selects = |set: &&Arc<ReplicaSet>| {
        set.namespace() == pod.namespace()
            && set
                .spec
                .as_ref()
                .is_some_and(|spec| selector_of(&spec.selector).is_ok_and(|selector| selector.selects(pod)))
    };
    sets.snapshot().objects().filter(selects).map(|set| ObjectRef::from_obj(&**set)).collect()
}

async fn reconcile(set: Arc<ReplicaSet>, context: Arc<Context>) -> Result<Action, Error> {
    context.own_pods.wait_until_cached(&*set).await?;
    context.own_sets.wait_until_cached(&*set).await?;
    // The cache may have received a newer state of the set during these waits, so the set is read from the cache again.
    let newest = object_key(&*set).ok().and_then(|key| context.sets.store().get(&key));
    let Some(set) = newest.filter(|newest| uid_of(&**newest) == uid_of(&*set)) else {
        return Ok(Action::await_change());
    };

    let owned = context.claim_pods(&set).await?;
    let terminating = owned.iter().filter(|pod| is_terminating(pod)).count();
    let exists = |pod: &Arc<Pod>| is_active(pod) && !context.own_pods.is_deleted(pod);
    let active: Vec<_> = owned.into_iter().filter(exists).collect();
    let managed = match set.metadata.deletion_timestamp {
        None => context.manage_pods(&set, &active).await,
        Some(_) => Ok(()),
    };
    let now = (context.clock)();
    let failure = managed.as_ref().err().map(Error::to_string);
    context.write_status(&set, status::status(&set, &active, terminating, failure, now)).await?;
    managed?;
    Ok(status::changes_in(&set, &active, now).map_or_else(Action::await_change, Action::requeue))
}

impl Context {
    fn pods_of(&self, set: &ReplicaSet) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &set.namespace().unwrap_or_default())
    }

    fn sets_of(&self, set: &ReplicaSet) -> Api<ReplicaSet> {
        Api::namespaced(self.client.clone(), &set.namespace().unwrap_or_default())
    }

    /// Adopts orphans that match, releases pods that no longer match, and returns the pods that this set then controls.
    async fn claim_pods(&self, set: &ReplicaSet) -> Result<Vec<Arc<Pod>>, Error> {
        let selector = selector_of(&set.spec.as_ref().ok_or(Error::Invalid("no spec"))?.selector)?;
        let view = self.pods.snapshot();
        let index = by_owner();
        let controlled = view.by_index(&index, &Owner::of_uid(set)).expect("the informer has this index");
        let orphans = view.by_index(&index, &Owner::Orphan(set.namespace().unwrap_or_default()));
        let orphans = orphans.expect("the informer has this index");
        let mut owned = Vec::new();
        let mut may_adopt = false;
        for pod in controlled.chain(orphans).filter(|pod| !is_over(pod)) {
            match claim(set, &selector, &**pod) {
                Claim::Ignore => {}
                Claim::Owned => owned.push(pod.clone()),
                Claim::Release => {
                    self.patch(set, pod, release(set, &**pod)).await?;
                }
                Claim::Adopt => {
                    // If the set is being deleted, its pods are made orphans and must not be adopted again. The cache may not contain the deletion
                    // yet, so the set is read from the API server.
                    may_adopt = may_adopt || self.exists_on_server(set).await?;
                    if may_adopt {
                        owned.extend(self.patch(set, pod, adoption(set, &**pod)?).await?.map(Arc::new));
                    }
                }
            }
        }
        Ok(owned)
    }

    async fn patch(
        &self,
        set: &ReplicaSet,
        pod: &Pod,
        patch: serde_json::Value,
    ) -> Result<Option<Pod>, Error> {
        let patched =
            self.pods_of(set).patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        let patched = unless_gone(patched)?;
        if let Some(pod) = &patched {
            self.own_pods.wrote(set, pod);
        }
        Ok(patched)
    }

    /// Reads the set from the API server. Returns true if the set exists and is not being deleted.
    async fn exists_on_server(&self, set: &ReplicaSet) -> Result<bool, Error> {
        let fresh = self.sets_of(set).get_opt(&set.name_any()).await?;
        Ok(fresh
            .is_some_and(|fresh| uid_of(&fresh) == uid_of(set) && fresh.meta().deletion_timestamp.is_none()))
    }

    /// Creates missing pods, or deletes surplus pods.
    async fn manage_pods(&self, set: &ReplicaSet, active: &[Arc<Pod>]) -> Result<(), Error> {
        let api = self.pods_of(set);
        match plan::step(set, active.len()) {
            Step::Nothing => Ok(()),
            Step::Create(count) => {
                let pod = plan::pod(set)?;
                let params = PostParams::default();
                slow_start::slow_start(count, || async {
                    match api.create(&params, &pod).await {
                        Ok(pod) => self.own_pods.wrote(set, &pod),
                        // A namespace that is being deleted refuses new objects. It needs no pods, so this refusal is not an error.
                        Err(error) if is_namespace_terminating(&error) => {}
                        Err(error) => return Err(error.into()),
                    }
                    Ok(())
                })
                .await
            }
            Step::Delete(count) => {
                let surplus = deletion_order::pods_to_delete(
                    active.to_vec(),
                    &self.related(set),
                    count,
                    (self.clock)(),
                );
                let deleted = join_all(surplus.iter().map(|pod| self.delete(&api, set, pod))).await;
                deleted.into_iter().collect()
            }
        }
    }

    async fn delete(&self, api: &Api<Pod>, set: &ReplicaSet, pod: &Pod) -> Result<(), Error> {
        let this_one = Preconditions { uid: pod.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(this_one), ..DeleteParams::default() };
        if let Some(pod) =
            unless_gone(api.delete(&pod.name_any(), &params).await)?.and_then(|answer| answer.left())
        {
            self.own_pods.wrote(set, &pod);
        }
        self.own_pods.deleted(pod);
        Ok(())
    }

    /// Returns the pods of all sets that have the same owner as `set`. If `set` has no owner, returns only its own pods.
    fn related(&self, set: &ReplicaSet) -> Vec<Arc<Pod>> {
        let (sets, pods) = (self.sets.snapshot(), self.pods.snapshot());
        let siblings: Vec<&ReplicaSet> = match controller_of(set) {
            None => vec![set],
            Some(owner) => {
                let siblings = sets.by_index(&by_owner(), &Owner::Uid(owner.uid.clone()));
                siblings.expect("the informer has this index").map(|set| &**set).collect()
            }
        };
        let pods_of = |set: &ReplicaSet| {
            let owned = pods.by_index(&by_owner(), &Owner::of_uid(set)).expect("the informer has this index");
            owned.cloned().collect::<Vec<_>>()
        };
        siblings.into_iter().flat_map(pods_of).collect()
    }

    async fn write_status(&self, set: &ReplicaSet, status: ReplicaSetStatus) -> Result<(), Error> {
        if set.status.as_ref().is_some_and(|old| status::same(old, &status)) {
            return Ok(());
        }
        let updated = ReplicaSet { status: Some(status), ..set.clone() };
        let answer =
            self.sets_of(set).replace_status(&set.name_any(), &PostParams::default(), &updated).await;
        if let Some(set) = unless_gone(answer)? {
            self.own_sets.wrote(&set, &set);
        }
        Ok(())
    }
}

fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
