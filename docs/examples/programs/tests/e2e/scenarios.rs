//! For each program, the changes that are made while it runs, and the objects that must exist at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use example_programs::{
    accounts, config_map_generator, documents, environments, restarter, secret_syncer, shared_streams,
    truststores,
};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use serde_json::{Value, json};

use super::life::{Left, Life, World, on_both};

fn names(left: &Left) -> Vec<&str> {
    left.keys().map(String::as_str).collect()
}

fn of_kind(kind: &str) -> Value {
    json!({"metadata": {"labels": {"kind": kind}}})
}

pub(crate) async fn config_map_generator(world: &impl World) {
    let left = on_both(
        world,
        |client| Box::pin(config_map_generator::kube_runtime::run(client)),
        |client| Box::pin(config_map_generator::flyball::run(client)),
        async |life: &Life| {
            life.create::<Secret>("plain", json!({})).await;
            life.create::<Secret>(
                "a",
                json!({"metadata": {"labels": {"generate": "true"}}, "data": {"k": "MQ=="}}),
            )
            .await;
            life.settle().await;
            // The test deletes the generated object, so the controller must create it again.
            life.delete::<ConfigMap>("a").await;
            life.settle().await;
            life.merge::<Secret>("a", json!({"data": {"k": "Mg=="}})).await;
            life.create::<Secret>("b", json!({"metadata": {"labels": {"generate": "true"}}})).await;
            life.settle().await;
            life.delete::<Secret>("b").await;
        },
    )
    .await;
    assert_eq!(
        names(&left),
        ["ConfigMap/a", "Secret/a", "Secret/plain"],
        "the map of `b` must be deleted with its owner"
    );
    assert_eq!(left["ConfigMap/a"]["data"], json!({"k": "2"}));
}

pub(crate) async fn secret_syncer(world: &impl World) {
    let left = on_both(
        world,
        |client| Box::pin(secret_syncer::kube_runtime::run(client)),
        |client| Box::pin(secret_syncer::flyball::run(client)),
        async |life: &Life| {
            life.create::<ConfigMap>("a", json!({"data": {"k": "1"}})).await;
            life.create::<ConfigMap>("b", json!({"data": {"k": "1"}})).await;
            life.settle().await;
            life.delete::<ConfigMap>("b").await;
            life.merge::<ConfigMap>("a", json!({"data": {"k": "2"}})).await;
        },
    )
    .await;
    assert_eq!(names(&left), ["ConfigMap/a", "Secret/a"], "the secret of `b` was cleaned up");
    assert_eq!(left["ConfigMap/a"]["metadata"]["finalizers"], json!(["example.com/secret-syncer"]));
}

pub(crate) async fn documents(world: &impl World) {
    let (ours, kubes) =
        (documents::flyball::Diagnostics::default(), documents::kube_runtime::Diagnostics::default());
    let (of_ours, of_kubes) = (ours.clone(), kubes.clone());
    let left = on_both(
        world,
        move |client| {
            Box::pin(async move { documents::kube_runtime::run(client, of_kubes.clone()).await.unwrap() })
        },
        move |client| {
            Box::pin(async move { documents::flyball::run(client, of_ours.clone()).await.unwrap() })
        },
        async |life: &Life| {
            life.create::<ConfigMap>("shown", json!({})).await;
            life.create::<ConfigMap>("hidden", json!({"data": {"hide": "true"}})).await;
            life.create::<ConfigMap>("illegal", json!({})).await;
            life.settle().await;
            life.delete::<ConfigMap>("shown").await;
            life.settle().await;
        },
    )
    .await;
    assert_eq!(left["ConfigMap/hidden"]["metadata"]["annotations"], json!({"hidden": "true"}));
    let events: Vec<_> = left
        .iter()
        .filter(|(name, _)| name.starts_with("Event/"))
        .map(|(_, event)| &event["reason"])
        .collect();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(!left.contains_key("ConfigMap/shown"));
    let (ours, kubes) = (ours.reconciles(), kubes.reconciles());
    assert!(ours.abs_diff(kubes) <= 1, "{ours} and {kubes}");
}

pub(crate) async fn shared_streams(world: &impl World) {
    let left = on_both(
        world,
        |client| Box::pin(shared_streams::kube_runtime::run(client)),
        |client| Box::pin(shared_streams::flyball::run(client)),
        async |life: &Life| {
            life.create::<ConfigMap>("owner", json!({})).await;
            life.settle().await;
            let pod = json!({"spec": {"containers": [{"name": "main", "image": "example"}]}});
            life.create::<Pod>("alone", pod.clone()).await;
            life.create_owned::<Pod, ConfigMap>("one", "owner", pod.clone()).await;
            life.create_owned::<Pod, ConfigMap>("two", "owner", pod).await;
            life.settle().await;
            life.delete::<Pod>("two").await;
            life.settle().await;
            // A handle delivers no deletion. On a real server the pod is modified before it is deleted, and the modification causes a reconcile;
            // whether this reconcile still counts the pod depends on timing. The change of the owner causes a reconcile that no longer counts it.
            life.merge::<ConfigMap>("owner", json!({"data": {"touched": "yes"}})).await;
        },
    )
    .await;
    assert_eq!(left["ConfigMap/owner"]["data"], json!({"pods": "1", "touched": "yes"}));
    assert!(!left.contains_key("Pod/two"));
    for pod in ["Pod/alone", "Pod/one"] {
        assert_eq!(left[pod]["metadata"]["annotations"]["marked"], json!("yes"));
    }
}

pub(crate) async fn accounts(world: &impl World) {
    let left = on_both(
        world,
        |client| Box::pin(accounts::kube_runtime::run(client)),
        |client| Box::pin(accounts::flyball::run(client)),
        async |life: &Life| {
            let mut account = of_kind("account");
            account["data"] = json!({"server": "main"});
            // The server that these accounts name does not exist yet.
            life.create::<ConfigMap>("a", account.clone()).await;
            life.create::<ConfigMap>("b", account).await;
            life.settle().await;
            let mut server = of_kind("server");
            server["data"] = json!({"token": "MQ=="});
            life.create::<Secret>("main", server).await;
            life.settle().await;
            life.delete::<Secret>("a-credentials").await;
            life.delete::<ConfigMap>("b").await;
            life.settle().await;
            life.merge::<Secret>("main", json!({"data": {"token": "Mg=="}})).await;
        },
    )
    .await;
    assert_eq!(names(&left), ["ConfigMap/a", "Secret/a-credentials", "Secret/main"]);
    assert_eq!(left["Secret/a-credentials"]["data"], json!({"token": "Mg=="}));
}

pub(crate) async fn environments(world: &impl World) {
    let left = on_both(
        world,
        |client| Box::pin(environments::kube_runtime::run(client)),
        |client| Box::pin(environments::flyball::run(client)),
        async |life: &Life| {
            life.create::<ConfigMap>("a", of_kind("environment")).await;
            life.create::<ConfigMap>("b", of_kind("environment")).await;
            life.settle().await;
            // A change of the status does not change the generation, so the environment is not reconciled.
            life.merge_status::<Deployment>("a", json!({"replicas": 1, "readyReplicas": 1})).await;
            life.settle().await;
            let at = &life.get::<ConfigMap>("a").await.metadata.annotations.unwrap_or_default()["ready"];
            assert_eq!(at, "0");
            // A change of the spec changes the generation.
            life.merge::<Deployment>("a", json!({"spec": {"replicas": 5}})).await;
            life.merge::<Secret>("a", json!({"metadata": {"labels": {"app": "other"}}})).await;
            life.delete::<Service>("a").await;
            life.settle().await;
            // The predicate on the Secrets compares labels and annotations. A deletion changes neither, so the deletion is lost on both engines.
            life.delete::<Secret>("b").await;
        },
    )
    .await;
    let parts =
        ["ConfigMap/a", "ConfigMap/b", "Deployment/a", "Deployment/b", "Secret/a", "Service/a", "Service/b"];
    assert_eq!(names(&left), parts);
    assert_eq!(left["ConfigMap/a"]["metadata"]["annotations"]["ready"], json!("1"));
    assert_eq!(left["Deployment/a"]["spec"]["replicas"], json!(1));
    assert_eq!(left["Secret/a"]["metadata"]["labels"]["app"], json!("a"));
}

pub(crate) async fn restarter(world: &impl World) {
    let left = on_both(
        world,
        |client| Box::pin(restarter::kube_runtime::run(client)),
        |client| Box::pin(restarter::flyball::run(client)),
        async |life: &Life| {
            life.create::<ConfigMap>("settings", json!({"data": {"k": "1"}})).await;
            life.create::<Secret>("keys", json!({})).await;
            for (name, restarter) in [("a", "enabled"), ("b", "disabled")] {
                let app = json!({ "app": name });
                let volumes = json!([
                    {"name": "settings", "configMap": {"name": "settings"}},
                    {"name": "keys", "secret": {"secretName": "keys"}}
                ]);
                let pod = json!({"containers": [{"name": "main", "image": "example"}], "volumes": volumes});
                let template = json!({"metadata": {"labels": app}, "spec": pod});
                let spec =
                    json!({"serviceName": name, "selector": {"matchLabels": app}, "template": template});
                let metadata = json!({"labels": {"restarter": restarter}});
                life.create::<StatefulSet>(name, json!({"metadata": metadata, "spec": spec})).await;
            }
            life.settle().await;
            life.merge::<ConfigMap>("settings", json!({"data": {"k": "2"}})).await;
            life.merge::<Secret>("keys", json!({"stringData": {"k": "2"}})).await;
            life.create::<Pod>("p", json!({"spec": {"containers": [{"name": "main", "image": "example"}]}}))
                .await;
        },
    )
    .await;
    let annotations = &left["StatefulSet/a"]["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(
        *annotations,
        json!({"restarter/configmap.settings": "current", "restarter/secret.keys": "current"})
    );
    assert_eq!(left["StatefulSet/b"]["spec"]["template"]["metadata"]["annotations"], Value::Null);
}

pub(crate) async fn truststores(world: &impl World) {
    let ready = Arc::new(AtomicUsize::new(0));
    let was_ready = [(); 2].map(|()| {
        let ready = ready.clone();
        move |_| _ = ready.fetch_add(1, Ordering::Relaxed)
    });
    let [of_kube, of_ours] = was_ready;
    let left = on_both(
        world,
        |client| Box::pin(truststores::kube_runtime::run(client, of_kube, std::future::pending())),
        |client| Box::pin(truststores::flyball::run(client, of_ours, std::future::pending())),
        async |life: &Life| {
            life.create::<ConfigMap>("all", of_kind("truststore")).await;
            life.settle().await;
            for name in ["a", "b", "c"] {
                let mut certificate = of_kind("certificate");
                certificate["data"] = json!({"certificate": "b2xk"});
                if name == "c" {
                    certificate["metadata"]["labels"] = json!({});
                }
                life.create::<Secret>(name, certificate).await;
            }
            life.settle().await;
            life.delete::<Secret>("b").await;
            life.merge::<Secret>("a", json!({"data": {"certificate": "bmV3"}})).await;
        },
    )
    .await;
    assert_eq!(left["ConfigMap/all"]["data"], json!({"a": "new"}));
    assert_eq!(ready.load(Ordering::Relaxed), 2, "each program must report that it is ready once");
}
