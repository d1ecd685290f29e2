//! EDGE. The EndpointSlice controller: publishes the addresses of the pods of each Service.
//!
//! Nodes are not watched, so endpoints have no zones and no hints.
//!
//! Cancel safety: if a reconcile is dropped, it may not have written all slices. The next reconcile writes the remaining slices.

mod endpoint;
mod plan;

use std::sync::Arc;

use flyball_informer_cache::{Index, Informer, LabelIndex, NamespacedName, Selector};
use flyball_kube::{Config, Controller, ReconcileStream};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, ResourceExt};

pub use self::plan::{MOST, Plan, plan};
use crate::error::{Error, unless_gone};
use crate::own_writes::OwnWrites;
use crate::program::retry;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The manager name of the EndpointSlice controller in kube-controller-manager. This controller uses the same name, so that it takes over the
/// existing slices.
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// Pods by their labels, so that a query for the pods of a service does not visit all other pods.
pub static PODS_BY_LABEL: LabelIndex<Pod> =
    LabelIndex::new("labels", |pod, each| pod.labels().iter().for_each(|(key, value)| each(key, value)));

/// Objects by their namespace.
#[must_use]
pub fn by_namespace<K: kube::Resource>() -> Index<K, String> {
    Index::new("namespace", |object: &K| object.namespace().unwrap_or_default())
}

/// The slices that this controller manages, by namespace and service.
pub static SLICES_BY_SERVICE: Index<EndpointSlice, (String, String)> = Index::many("service", |slice| {
    let is_ours = slice.labels().get(MANAGED_BY).is_some_and(|manager| manager == MANAGER);
    let service = slice.labels().get(SERVICE_NAME).filter(|_| is_ours);
    service.map(|service| (slice.namespace().unwrap_or_default(), service.clone())).into_iter().collect()
});

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn of(address: &str) -> Self {
        if address.contains(':') { Self::V6 } else { Self::V4 }
    }

    fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Returns the address families of a service: those in its spec, where the API server sets them. If the spec has none, the family of the cluster
    /// IP; if there is no cluster IP, both families.
    fn all_of(service: &Service) -> Vec<Self> {
        let spec = service.spec.clone().unwrap_or_default();
        let named = [Self::V4, Self::V6].into_iter();
        let named: Vec<_> = named
            .filter(|family| spec.ip_families.iter().flatten().any(|name| name == family.name()))
            .collect();
        match spec.cluster_ip.as_deref() {
            _ if !named.is_empty() => named,
            None | Some("" | "None") => vec![Self::V4, Self::V6],
            Some(address) => vec![Self::of(address)],
        }
    }
}

/// The context that all reconciles share.
struct Context {
    client: Client,
    pods: Informer<NamespacedName, Pod>,
    slices: Informer<NamespacedName, EndpointSlice>,
    own_slices: OwnWrites<EndpointSlice>,
}

/// Runs a controller of Services. The informers need indexes of this module: `pods` needs [`by_namespace`] and [`PODS_BY_LABEL`], `services` needs
/// [`by_namespace`], and `slices` needs [`SLICES_BY_SERVICE`].
pub fn run(
    controller: Controller<Service>,
    client: Client,
    pods: &Informer<NamespacedName, Pod>,
    services: &Informer<NamespacedName, Service>,
    slices: &Informer<NamespacedName, EndpointSlice>,
) -> ReconcileStream<Service, Error> {
    let context =
        Context { client, pods: pods.clone(), slices: slices.clone(), own_slices: OwnWrites::new(slices) };
    let candidates = services.clone();
    controller
        .with_config(Config::recommended())
        .owns_shared(slices)
        // The service of a slice is also read from a label of the slice, because a client may have removed the owner reference.
        .watches_shared(slices, |slice| {
            let service = slice.labels().get(SERVICE_NAME)?;
            Some(ObjectRef::new(service).within(&slice.namespace()?))
        })
        .watches_shared(pods, move |pod| services_of(&candidates, pod))
        .run(reconcile, retry, Arc::new(context))
}

/// Returns the services that select a pod. The controller also calls this function with the previous state of a changed pod, so a service is
/// reconciled when it no longer selects the pod.
fn services_of(services: &Informer<NamespacedName, Service>, pod: &Pod) -> Vec<ObjectRef<Service>> {
    let view = services.snapshot();
    let here = view.by_index(&by_namespace(), &pod.namespace().unwrap_or_default());
    let selects = |service: &&Arc<Service>| {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|wanted| wanted.iter().all(|(key, value)| pod.labels().get(key) == Some(value)))
    };
    here.expect("the informer has this index")
        .filter(selects)
        .map(|service| ObjectRef::from_obj(&**service))
        .collect()
}

async fn reconcile(service: Arc<Service>, context: Arc<Context>) -> Result<Action, Error> {
    context.own_slices.wait_until_cached(&*service).await?;
    let spec = service.spec.as_ref().ok_or(Error::Invalid("no spec"))?;
    let selector = spec.selector.as_ref().filter(|_| spec.type_.as_deref() != Some("ExternalName"));
    // This controller does not write the slices of a service without a selector; they are left to other programs.
    let Some(selector) = selector else { return Ok(Action::await_change()) };
    if service.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let pods = context.pods_behind(&service, selector);
    let place = (service.namespace().unwrap_or_default(), service.name_any());
    let slices =
        context.slices.store().by_index(&SLICES_BY_SERVICE, &place).expect("the informer has this index");
    context.write(&service, plan(&service, &pods, &slices)?).await?;
    Ok(Action::await_change())
}

impl Context {
    fn pods_behind(
        &self,
        service: &Service,
        selector: &std::collections::BTreeMap<String, String>,
    ) -> Vec<Arc<Pod>> {
        let selector =
            selector.iter().fold(Selector::everything(), |all, (key, value)| all.equals(&**key, &**value));
        let view = self.pods.snapshot();
        let here = view.lister().by_index(&by_namespace(), &service.namespace().unwrap_or_default());
        let behind = here.and_then(|here| here.select(&PODS_BY_LABEL, &selector));
        behind.expect("the informer has these indexes").iter().cloned().collect()
    }

    async fn write(&self, service: &Service, plan: Plan) -> Result<(), Error> {
        let api =
            Api::<EndpointSlice>::namespaced(self.client.clone(), &service.namespace().unwrap_or_default());
        for slice in &plan.create {
            self.own_slices.wrote(service, &api.create(&PostParams::default(), slice).await?);
        }
        for slice in &plan.update {
            self.own_slices
                .wrote(service, &api.replace(&slice.name_any(), &PostParams::default(), slice).await?);
        }
        for slice in &plan.delete {
            unless_gone(api.delete(&slice.name_any(), &DeleteParams::default()).await)?;
        }
        Ok(())
    }
}
