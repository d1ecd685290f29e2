//! EDGE. The controller of ReplicaSets: counts the pods that each ReplicaSet controls.
//!
//! Cancel safety: a reconcile has no await, so it is either complete or not started.

use std::sync::Arc;

use flyball_informer_cache::{Change, Index, Informer};

use crate::faults::Injector;
use crate::ledger::{Injected, Ledger};
use crate::objects::{Key, Pod, ReplicaSet};

/// The pods by the uid of the owner that controls them.
pub(crate) static BY_OWNER: Index<Arc<Pod>, Arc<str>> =
    Index::many("owner", |pod| pod.owner.iter().map(|owner| owner.uid.clone()).collect());

/// The result of the reconcile of a ReplicaSet: the number of its pods, and the number of its ready pods.
pub(crate) type Counts = (u32, u32);

pub(crate) struct Replicas {
    pub(crate) pods: Informer<Arc<str>, Arc<Pod>>,
    pub(crate) replicasets: Informer<Arc<str>, Arc<ReplicaSet>>,
    pub(crate) ledger: Ledger<Counts>,
}

impl Replicas {
    pub(crate) fn reconcile(&self, key: Key, faults: &Injector) -> Result<(), Injected> {
        self.ledger.begin(&key, faults)?;
        let counts = self.replicasets.store().get(key.name()).map(|replicaset| self.count(&replicaset));
        self.ledger.store(&key, counts);
        Ok(())
    }

    fn count(&self, replicaset: &ReplicaSet) -> Counts {
        let pods = self.pods.store().by_index(&BY_OWNER, &replicaset.meta.uid);
        let pods = pods.expect("the pods are indexed by owner");
        let staying = pods.iter().filter(|pod| !pod.leaving);
        staying.fold((0, 0), |(all, ready), pod| (all + 1, ready + u32::from(pod.ready)))
    }
}

/// Returns the ReplicaSets that a change of a pod affects: the one that controls the pod now, and the one that controlled it before.
pub(crate) fn owners(change: &Change<Arc<str>, Arc<Pod>>) -> impl Iterator<Item = Key> + use<> {
    let owner = |pod: &Arc<Arc<Pod>>| pod.owner.as_ref()?.replicaset.clone();
    let (old, new) = (change.old().and_then(owner), change.new().and_then(owner));
    let old = old.filter(|old| new.as_ref() != Some(old));
    new.into_iter().chain(old)
}
