//! PURE. Distributes the endpoints of a service over slices.
//!
//! Every write of a slice is sent to every node, so a small number of writes is more important than a small number of slices. Hence an endpoint stays
//! in its slice, a slice that must be written anyway is filled up, and new slices are created only for the remaining endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::endpoint::{endpoint, ports};
use super::{Family, MANAGED_BY, MANAGER, SERVICE_NAME};
use crate::error::Error;
use crate::owner::{controller_of, controller_ref, uid_of};
use crate::pods::is_over;

/// The maximum number of endpoints in one slice.
pub const MOST: usize = 100;
const HEADLESS: &str = "service.kubernetes.io/headless";

/// The required writes. The creations must be executed first, so that no endpoint is missing while the plan is executed.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// New slices.
    pub create: Vec<EndpointSlice>,
    /// Slices with changed endpoints, ports or labels.
    pub update: Vec<EndpointSlice>,
    /// Slices that are no longer needed.
    pub delete: Vec<Arc<EndpointSlice>>,
}

/// Computes the writes after which `slices`, the slices of a service, contain exactly the pods in `pods` that have not ended. `pods` must be the pods
/// that the service selects.
///
/// # Errors
/// Returns an error if the service has no uid.
pub fn plan(service: &Service, pods: &[Arc<Pod>], slices: &[Arc<EndpointSlice>]) -> Result<Plan, Error> {
    let mut plan = Plan::default();
    let families = Family::all_of(service);
    for family in [Family::V4, Family::V6] {
        let known = slices.iter().filter(|slice| slice.address_type == family.name()).cloned();
        let known = if families.contains(&family) {
            known.collect()
        } else {
            plan.delete.extend(known);
            continue;
        };
        one_family(service, pods, family, known, &mut plan)?;
    }
    Ok(plan)
}

/// The wanted endpoints that have the same list of ports, by [`identity`].
type Wanted = BTreeMap<String, Endpoint>;

fn one_family(
    service: &Service,
    pods: &[Arc<Pod>],
    family: Family,
    known: Vec<Arc<EndpointSlice>>,
    plan: &mut Plan,
) -> Result<(), Error> {
    // A slice has one list of ports for all its endpoints, so pods with different ports are in different slices.
    let mut groups = BTreeMap::<String, (Vec<EndpointPort>, Wanted, Vec<Arc<EndpointSlice>>)>::new();
    for pod in pods.iter().filter(|pod| !is_over(pod)) {
        let Some(endpoint) = endpoint(service, pod, family) else { continue };
        let ports = ports(service, pod);
        let group = groups.entry(text(&ports)).or_insert_with(|| (ports, Wanted::new(), Vec::new()));
        group.1.insert(identity(&endpoint), endpoint);
    }
    let mut useless = Vec::new();
    for slice in known {
        let is_mine = controller_of(&*slice).is_some_and(|owner| owner.uid == uid_of(service));
        let ports = slice.ports.clone().unwrap_or_default();
        match groups.get_mut(&text(&ports)).filter(|_| is_mine) {
            Some(group) => group.2.push(slice),
            None => useless.push(slice),
        }
    }
    let (mut create, mut kept) = (Vec::new(), 0);
    for (ports, wanted, slices) in groups.into_values() {
        let laid_out = lay_out(service, wanted, slices);
        useless.extend(laid_out.empty);
        kept += laid_out.same + laid_out.other.len();
        plan.update.extend(laid_out.other);
        for rest in laid_out.rest.chunks(MOST) {
            create.push(new_slice(service, family, ports.clone(), rest.to_vec())?);
        }
    }
    // A service without endpoints gets an empty slice, which distinguishes it from a service that has not been reconciled yet.
    if kept == 0 && create.is_empty() {
        create.push(new_slice(service, family, Vec::new(), Vec::new())?);
    }
    reuse(service, &mut create, &mut useless, &mut plan.update);
    plan.create.extend(create);
    plan.delete.extend(useless);
    Ok(())
}

/// Reuses slices that are no longer needed: an update of such a slice replaces the creation of a new slice and the deletion of the old one.
fn reuse(
    service: &Service,
    create: &mut Vec<EndpointSlice>,
    useless: &mut Vec<Arc<EndpointSlice>>,
    update: &mut Vec<EndpointSlice>,
) {
    let is_mine = |slice: &Arc<EndpointSlice>| {
        controller_of(&**slice).is_some_and(|owner| owner.uid == uid_of(service))
    };
    while let (Some(at), false) = (useless.iter().position(is_mine), create.is_empty()) {
        let (old, new) = (useless.remove(at), create.remove(0));
        let reused = EndpointSlice {
            metadata: ObjectMeta { labels: new.metadata.labels, ..old.metadata.clone() },
            ..new
        };
        if reused != *old {
            update.push(reused);
        }
    }
}

/// The planned slices for one list of ports.
struct LaidOut {
    same: usize,
    other: Vec<EndpointSlice>,
    empty: Vec<Arc<EndpointSlice>>,
    /// Endpoints that fit into none of the existing slices.
    rest: Vec<Endpoint>,
}

fn lay_out(service: &Service, mut wanted: Wanted, slices: Vec<Arc<EndpointSlice>>) -> LaidOut {
    let (mut same, mut other, mut empty) = (Vec::new(), Vec::new(), Vec::new());
    for slice in slices {
        let before = slice.endpoints.clone().unwrap_or_default();
        let after: Vec<_> = before.iter().filter_map(|endpoint| wanted.remove(&identity(endpoint))).collect();
        if after.is_empty() {
            empty.push(slice);
        } else if before == after && *slice.labels() == labels(service) {
            same.push(slice);
        } else {
            let mut slice = EndpointSlice { endpoints: Some(after), ..EndpointSlice::clone(&slice) };
            *slice.labels_mut() = labels(service);
            other.push(slice);
        }
    }
    let mut rest: Vec<_> = wanted.into_values().collect();
    other.sort_by_key(|slice| std::cmp::Reverse(len(slice)));
    for slice in &mut other {
        fill(slice, &mut rest);
    }
    // The remaining endpoints may fit into an unchanged slice. If they fit into several, the fullest one is used, to keep the number of slices small.
    if !rest.is_empty() && rest.len() < MOST {
        let fits = same.iter().enumerate().filter(|(_, slice)| len(slice) + rest.len() <= MOST);
        if let Some((at, _)) = fits.max_by_key(|(_, slice)| len(slice)) {
            let mut slice = Arc::unwrap_or_clone(same.remove(at));
            fill(&mut slice, &mut rest);
            other.push(slice);
        }
    }
    LaidOut { same: same.len(), other, empty, rest }
}

fn fill(slice: &mut EndpointSlice, rest: &mut Vec<Endpoint>) {
    let room = MOST.saturating_sub(len(slice)).min(rest.len());
    slice.endpoints.get_or_insert_default().extend(rest.drain(..room));
}

fn len(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}

fn new_slice(
    service: &Service,
    family: Family,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
) -> Result<EndpointSlice, Error> {
    let metadata = ObjectMeta {
        generate_name: Some(format!("{}-", service.name_any())),
        namespace: service.metadata.namespace.clone(),
        labels: Some(labels(service)),
        owner_references: Some(vec![controller_ref(service)?]),
        ..ObjectMeta::default()
    };
    Ok(EndpointSlice {
        metadata,
        address_type: family.name().to_owned(),
        endpoints: Some(endpoints),
        ports: Some(ports),
    })
}

/// Returns the labels of a slice: the labels of the service, and labels with the name of the service, the name of the manager and, if there is no
/// cluster IP, the mark `headless`.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.labels().clone();
    labels.remove(HEADLESS);
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    if address.is_empty() || address == "None" {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), service.name_any());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn identity(endpoint: &Endpoint) -> String {
    let pod = endpoint.target_ref.as_ref().map(|pod| (&pod.namespace, &pod.name));
    text(&(&endpoint.addresses, &endpoint.hostname, pod))
}

fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("the value can be serialised")
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn service() -> Service {
        let spec = json!({"clusterIP": "10.1.0.1", "ipFamilies": ["IPv4"], "ports": [{"name": "http", "port": 80, "targetPort": "http"}]});
        from_value(json!({"metadata": {"name": "web", "namespace": "n", "uid": "s", "labels": {"team": "a"}}, "spec": spec})).unwrap()
    }

    fn pod(number: usize, port: u16) -> Arc<Pod> {
        let ip = format!("10.0.{:03}.{:03}", number / 250, number % 250);
        Arc::new(
            from_value(json!({"metadata": {"name": format!("p{number:04}"), "namespace": "n", "uid": number.to_string()},
                "spec": {"containers": [{"name": "main", "ports": [{"name": "http", "containerPort": port}]}]},
                "status": {"podIP": ip}}))
            .unwrap(),
        )
    }

    fn pods(numbers: std::ops::Range<usize>) -> Vec<Arc<Pod>> {
        numbers.map(|number| pod(number, 8080)).collect()
    }

    /// Applies a plan, and gives each new slice a name, as the API server does.
    fn carry_out(slices: &mut Vec<Arc<EndpointSlice>>, plan: Plan) {
        slices.retain(|slice| !plan.delete.contains(slice));
        for slice in plan.update {
            let at = slices.iter().position(|known| known.metadata.name == slice.metadata.name);
            slices[at.expect("a plan updates existing slices")] = Arc::new(slice);
        }
        for mut slice in plan.create {
            let number = slices
                .iter()
                .map(|slice| slice.name_any()[4..].parse::<u32>().unwrap() + 1)
                .max()
                .unwrap_or(0);
            slice.metadata.name = Some(format!("web-{number}"));
            slices.push(Arc::new(slice));
        }
    }

    fn sizes(slices: &[Arc<EndpointSlice>]) -> Vec<usize> {
        slices.iter().map(|slice| len(slice)).collect()
    }

    fn writes(plan: &Plan) -> [usize; 3] {
        [plan.create.len(), plan.update.len(), plan.delete.len()]
    }

    #[test]
    fn a_service_without_pods_has_an_empty_slice() {
        let mut slices = Vec::new();
        carry_out(&mut slices, plan(&service(), &[], &[]).unwrap());
        assert_eq!(sizes(&slices), [0]);
        assert_eq!(plan(&service(), &[], &slices).unwrap(), Plan::default());
        let first = plan(&service(), &pods(0..3), &slices).unwrap();
        assert_eq!(writes(&first), [0, 1, 0], "the empty slice is not reused");
        carry_out(&mut slices, first);
        let last = plan(&service(), &[], &slices).unwrap();
        assert_eq!(writes(&last), [0, 1, 0], "the last slice is not kept");
    }

    #[test]
    fn a_slice_names_its_service() {
        let made = plan(&service(), &pods(0..1), &[]).unwrap().create.remove(0);
        let labels = json!({"team": "a", SERVICE_NAME: "web", MANAGED_BY: MANAGER});
        assert_eq!(json!(made.metadata.labels), labels);
        assert_eq!(controller_of(&made).map(|owner| (&*owner.kind, &*owner.uid)), Some(("Service", "s")));
        assert_eq!((&*made.address_type, made.ports.unwrap()[0].port), ("IPv4", Some(8080)));
    }

    #[test]
    fn fills_slices_with_few_writes() {
        let mut slices = Vec::new();
        for (numbers, expected_writes, expected_sizes) in [
            (0..250, [3, 0, 0], vec![100, 100, 50]),
            (0..251, [0, 1, 0], vec![100, 100, 51]),
            (0..300, [0, 1, 0], vec![100, 100, 100]),
            (0..301, [1, 0, 0], vec![100, 100, 100, 1]),
            (50..301, [0, 1, 0], vec![50, 100, 100, 1]),
            (50..351, [0, 1, 0], vec![100, 100, 100, 1]),
            (0..1, [0, 1, 3], vec![1]),
        ] {
            let plan = plan(&service(), &pods(numbers.clone()), &slices).unwrap();
            assert_eq!(writes(&plan), expected_writes, "{numbers:?}");
            carry_out(&mut slices, plan);
            assert_eq!(sizes(&slices), expected_sizes, "{numbers:?}");
        }
    }

    #[test]
    fn pods_with_other_ports_are_in_other_slices() {
        let mixed = [pod(1, 80), pod(2, 81), pod(3, 80)];
        let mut slices = Vec::new();
        carry_out(&mut slices, plan(&service(), &mixed, &[]).unwrap());
        let mut ports: Vec<_> =
            slices.iter().map(|slice| (slice.ports.clone().unwrap()[0].port.unwrap(), len(slice))).collect();
        ports.sort_unstable();
        assert_eq!(ports, [(80, 2), (81, 1)]);
    }

    #[test]
    fn ignores_foreign_slices_and_deletes_other_families() {
        let mut made = plan(&service(), &pods(0..1), &[]).unwrap().create.remove(0);
        made.metadata.name = Some("web-0".into());
        let six = Arc::new(EndpointSlice { address_type: "IPv6".into(), ..made.clone() });
        let mut of_another = made.clone();
        of_another.owner_references_mut()[0].uid = "before".into();
        let slices = [Arc::new(made), six.clone(), Arc::new(of_another)];
        let plan = plan(&service(), &pods(0..1), &slices).unwrap();
        assert_eq!((writes(&plan), plan.delete[1].clone()), ([0, 0, 2], six));
    }

    /// Adds and deletes pods at random. After each step every pod is in exactly one slice, no slice is too large, and the next plan is empty.
    #[test]
    fn every_pod_is_in_one_slice() {
        let mut random = testkit::random::Random::new(7);
        let (mut slices, mut there) = (Vec::new(), BTreeMap::new());
        for _ in 0..200 {
            for _ in 0..random.below(120) {
                let number = random.below(400) as usize;
                match there.remove(&number) {
                    Some(_) => {}
                    None => drop(there.insert(number, pod(number, if random.below(9) == 0 { 1 } else { 2 }))),
                }
            }
            let pods: Vec<_> = there.values().cloned().collect();
            let next = plan(&service(), &pods, &slices).unwrap();
            carry_out(&mut slices, next);
            assert_eq!(plan(&service(), &pods, &slices).unwrap(), Plan::default());
            let endpoints = slices.iter().flat_map(|slice| slice.endpoints.clone().unwrap());
            let mut names: Vec<_> =
                endpoints.map(|endpoint| endpoint.target_ref.unwrap().name.unwrap()).collect();
            names.sort_unstable();
            assert_eq!(names, pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>());
            assert!(sizes(&slices).into_iter().all(|size| size <= MOST));
        }
    }
}
