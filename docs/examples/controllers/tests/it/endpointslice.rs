//! Tests that the EndpointSlice controller keeps the slices of a service equal to its pods.

use example_controllers::{endpointslice, program};
use flyball_kube::Controller;
use flyball_kube_testing::Verb;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use serde_json::{Value, from_value, json};

use crate::cluster::Cluster;

fn service(name: &str, selector: Value) -> Service {
    let spec = json!({"selector": selector, "clusterIP": "10.1.0.1", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]});
    from_value(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})).unwrap()
}

fn pod(name: &str, app: &str) -> Pod {
    let metadata = json!({"name": name, "namespace": "default", "labels": {"app": app}});
    from_value(json!({"metadata": metadata, "spec": {"containers": [{"name": "main"}]}})).unwrap()
}

async fn start() -> Cluster {
    let mut cluster = Cluster::new().await;
    cluster.run_pods();
    let (services, slices) = (program::services(&cluster.client), program::slices(&cluster.client));
    let controller = Controller::for_shared(&services);
    let reconciles =
        endpointslice::run(controller, cluster.client.clone(), &cluster.pods, &services, &slices);
    cluster.tasks.spawn(reconciles.for_each(async |_| {}));
    cluster
}

/// Returns the pods in the slices of a service, and whether each pod is ready; `None` if the service has no slice.
fn behind(cluster: &Cluster, service: &str) -> Option<Vec<(String, bool)>> {
    let slices = cluster.server.list::<EndpointSlice>();
    let slices: Vec<_> =
        slices.iter().filter(|slice| slice.labels()["kubernetes.io/service-name"] == service).collect();
    let endpoint = |endpoint: &Endpoint| {
        let name = endpoint.target_ref.clone().unwrap().name.unwrap();
        (name, endpoint.conditions.clone().unwrap().ready.unwrap())
    };
    let mut all: Vec<_> =
        slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).map(endpoint).collect();
    all.sort();
    (!slices.is_empty()).then_some(all)
}

fn ready(names: &[&str]) -> Option<Vec<(String, bool)>> {
    Some(names.iter().map(|name| ((*name).to_owned(), true)).collect())
}

#[tokio::test(start_paused = true)]
async fn slices_follow_pods_and_their_labels() {
    let cluster = start().await;
    cluster.server.put(&service("web", json!({"app": "web"})));
    cluster.server.put(&service("db", json!({"app": "db"})));
    cluster.until(|_| behind(&cluster, "web") == ready(&[]) && behind(&cluster, "db") == ready(&[])).await;
    for name in ["a", "b"] {
        cluster.server.put(&pod(name, "web"));
    }
    cluster.until(|_| behind(&cluster, "web") == ready(&["a", "b"])).await;
    let mut moved = cluster.server.get::<Pod>("default", "a").unwrap();
    moved.labels_mut().insert("app".into(), "db".into());
    cluster.server.put(&moved);
    cluster
        .until(|_| behind(&cluster, "web") == ready(&["b"]) && behind(&cluster, "db") == ready(&["a"]))
        .await;
    cluster.server.delete::<Pod>("default", "b");
    cluster.until(|_| behind(&cluster, "web") == ready(&[])).await;
    assert_eq!(cluster.requests::<EndpointSlice>(Verb::Create), 2, "a service has got a second slice");

    let slice = cluster.server.list::<EndpointSlice>().remove(0);
    cluster.server.delete::<EndpointSlice>("default", &slice.name_any());
    cluster.until(|_| behind(&cluster, "db") == ready(&["a"]) && behind(&cluster, "web") == ready(&[])).await;
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_stays_in_its_slice_until_it_is_deleted() {
    let cluster = start().await;
    cluster.server.put(&service("web", json!({"app": "web"})));
    let mut held = pod("a", "web");
    held.finalizers_mut().push("test/hold".into());
    cluster.server.put(&held);
    cluster.until(|_| behind(&cluster, "web") == ready(&["a"])).await;
    let api = kube::Api::<Pod>::default_namespaced(cluster.client.clone());
    api.delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    cluster.until(|_| behind(&cluster, "web") == Some(vec![("a".to_owned(), false)])).await;
    let slice = cluster.server.list::<EndpointSlice>().remove(0);
    let conditions = slice.endpoints.unwrap()[0].conditions.clone().unwrap();
    assert_eq!(
        [conditions.ready, conditions.serving, conditions.terminating],
        [Some(false), Some(true), Some(true)]
    );
}

#[tokio::test(start_paused = true)]
async fn splits_many_pods_over_several_slices() {
    let cluster = start().await;
    cluster.server.put(&service("web", json!({"app": "web"})));
    for number in 0..250 {
        cluster.server.put(&pod(&format!("p{number:03}"), "web"));
    }
    cluster
        .until(|_| {
            behind(&cluster, "web").is_some_and(|all| all.len() == 250 && all.iter().all(|(_, ready)| *ready))
        })
        .await;
    let slices = cluster.server.list::<EndpointSlice>();
    assert!(slices.iter().all(|slice| slice.endpoints.as_ref().unwrap().len() <= 100));
}

#[tokio::test(start_paused = true)]
async fn ignores_a_service_without_a_selector() {
    let cluster = start().await;
    cluster.server.put(&service("by-hand", json!(null)));
    cluster.server.put(&service("web", json!({"app": "web"})));
    cluster.until(|_| behind(&cluster, "web").is_some()).await;
    cluster.rest().await;
    assert_eq!(behind(&cluster, "by-hand"), None);
}
