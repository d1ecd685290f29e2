//! EDGE. The controller of Services: collects the addresses of the ready pods that each Service selects.
//!
//! Cancel safety: a reconcile has no await, so it is either complete or not started.

use std::sync::Arc;

use flyball_informer_cache::{Change, Index, Informer};

use crate::faults::Injector;
use crate::ledger::{Injected, Ledger};
use crate::objects::{Key, Pod, Service};

/// The pods by namespace.
pub(crate) static PODS_IN: Index<Arc<Pod>, Arc<str>> =
    Index::new("namespace", |pod| pod.meta.namespace.clone());

/// The Services by namespace.
pub(crate) static SERVICES_IN: Index<Arc<Service>, Arc<str>> =
    Index::new("namespace", |service| service.meta.namespace.clone());

/// The result of the reconcile of a Service: the addresses of its ready pods.
pub(crate) type Addresses = Vec<Arc<str>>;

pub(crate) struct Endpoints {
    pub(crate) pods: Informer<Arc<str>, Arc<Pod>>,
    pub(crate) services: Informer<Arc<str>, Arc<Service>>,
    pub(crate) ledger: Ledger<Addresses>,
}

impl Endpoints {
    pub(crate) fn reconcile(&self, key: Key, faults: &Injector) -> Result<(), Injected> {
        self.ledger.begin(&key, faults)?;
        let service = self.services.store().get(key.name());
        let addresses =
            service.filter(|service| !service.selector.is_empty()).map(|service| self.collect(&service));
        self.ledger.store(&key, addresses);
        Ok(())
    }

    fn collect(&self, service: &Service) -> Addresses {
        let pods = self.pods.store().by_index(&PODS_IN, &service.meta.namespace);
        let pods = pods.expect("the pods are indexed by namespace");
        let ready = pods.iter().filter(|pod| pod.ready && !pod.leaving && service.selects(pod));
        ready.filter_map(|pod| pod.address.clone()).collect()
    }

    /// Returns the Services that select the pod now, or selected it before the change.
    ///
    /// A Service that is not in the cache yet is not returned. It does not have to be returned: when the Service arrives in the cache, its arrival
    /// causes a reconcile, which reads all pods that are stored by then.
    pub(crate) fn selecting(&self, change: &Change<Arc<str>, Arc<Pod>>) -> Vec<Key> {
        let (old, new) = (change.old(), change.new());
        // A pod never moves to a different namespace, because an object with a different namespace has a different key.
        let services = self.services.store().by_index(&SERVICES_IN, &change.object().meta.namespace);
        let services = services.expect("the services are indexed by namespace");
        let selects = |service: &Service| [old, new].into_iter().flatten().any(|pod| service.selects(pod));
        services.iter().filter(|service| selects(service)).map(|service| service.key.clone()).collect()
    }
}
