//! Tests of websites together with the controllers of Deployments, ReplicaSets and Services.

use example_controllers::website::{Website, run};
use example_controllers::{deployment, endpointslice, program, replicaset};
use flyball_kube::Controller;
use flyball_kube_testing::Verb;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::{from_value, json};

use crate::cluster::Cluster;

async fn start() -> Cluster {
    let mut cluster = Cluster::new().await;
    cluster.server.register::<Website>().register::<ConfigMap>().register::<Event>();
    cluster.run_pods();
    let (client, clock) = (cluster.client.clone(), cluster.clock.clone());
    let (pods, sets) = (&cluster.pods, &cluster.sets);
    let deployments = program::deployments(&client);
    let (services, slices) = (program::services(&client), program::slices(&client));
    let of_sets = replicaset::run(Controller::for_shared(sets), client.clone(), clock.clone(), pods, sets);
    let of_deployments = deployment::run(
        Controller::for_shared(&deployments),
        client.clone(),
        clock.clone(),
        pods,
        sets,
        &deployments,
    );
    let of_services =
        endpointslice::run(Controller::for_shared(&services), client.clone(), pods, &services, &slices);
    let controller = Controller::new(Api::all(client.clone()), watcher::Config::default());
    let of_sites = run(controller, client, clock);
    cluster.tasks.spawn(of_sets.for_each(async |_| {}));
    cluster.tasks.spawn(of_deployments.for_each(async |_| {}));
    cluster.tasks.spawn(of_services.for_each(async |_| {}));
    cluster.tasks.spawn(of_sites.for_each(async |_| {}));
    cluster
}

fn said(cluster: &Cluster) -> Vec<String> {
    let mut reasons: Vec<_> =
        cluster.server.list::<Event>().into_iter().map(|event| event.reason.unwrap()).collect();
    reasons.sort();
    reasons
}

fn is_ready(cluster: &Cluster, generation: i64) -> bool {
    let Some(site) = cluster.server.get::<Website>("default", "home") else { return false };
    let status = site.status.unwrap_or_default();
    status.observed_generation == Some(generation)
        && status.available_replicas == site.spec.replicas
        && status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[tokio::test(start_paused = true)]
async fn creates_updates_and_deletes_a_site() {
    let cluster = start().await;
    let sites = Api::<Website>::default_namespaced(cluster.client.clone());
    let site = json!({"apiVersion": "examples.flyball.rs/v1", "kind": "Website", "metadata": {"name": "home"},
        "spec": {"html": "hello", "replicas": 3}});
    sites.create(&PostParams::default(), &from_value(site).unwrap()).await.unwrap();
    cluster.until(|_| is_ready(&cluster, 1)).await;
    assert_eq!(cluster.server.list::<Pod>().len(), 3);
    cluster
        .until(|server| {
            let slices = server.list::<EndpointSlice>();
            slices.iter().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).sum::<usize>() == 3
        })
        .await;
    assert_eq!(said(&cluster), ["Serving"]);

    let change = Patch::Merge(json!({"spec": {"html": "goodbye", "replicas": 2}}));
    sites.patch("home", &PatchParams::default(), &change).await.unwrap();
    cluster.until(|server| is_ready(&cluster, 2) && server.list::<Pod>().len() == 2).await;
    let page = cluster.server.get::<ConfigMap>("default", "home").unwrap();
    assert_eq!(page.data.unwrap()["index.html"], "goodbye");

    // A deleted part is created again.
    cluster.server.delete::<Service>("default", "home");
    cluster.until(|server| server.get::<Service>("default", "home").is_some()).await;
    cluster.rest().await;
    cluster.server.clear_requests();
    cluster.rest().await;
    assert_eq!(cluster.requests::<Website>(Verb::Patch) + cluster.requests::<Deployment>(Verb::Patch), 0);

    sites.delete("home", &DeleteParams::default()).await.unwrap();
    cluster.until(|server| server.get::<Website>("default", "home").is_none()).await;
    assert!(said(&cluster).contains(&"Deleted".to_owned()), "there is no event for the deletion");
    // The garbage collector deletes the parts.
    cluster.until(|server| server.get::<Deployment>("default", "home").is_none()).await;
}
