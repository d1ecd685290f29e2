//! The same program on both engines, against an API server in memory and on virtual time: both leave the same behind.

mod life;

use std::collections::BTreeMap;
use std::time::Duration;

use example_programs::{config_map_generator, documents, secret_syncer};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;

use crate::life::{Life, on_both};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn config_map_generator() {
    let left = on_both(
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
            // Behind the controller's back.
            life.delete::<ConfigMap>("a").await;
            life.settle().await;
            life.merge::<Secret>("a", json!({"data": {"k": "Mg=="}})).await;
            life.create::<Secret>("b", json!({"metadata": {"labels": {"generate": "true"}}})).await;
            life.settle().await;
            life.delete::<Secret>("b").await;
        },
    )
    .await;
    let names: Vec<_> = left.keys().map(String::as_str).collect();
    assert_eq!(names, ["ConfigMap/a", "Secret/a", "Secret/plain"], "the map of `b` went with its owner");
    assert_eq!(left["ConfigMap/a"]["data"], json!({"k": "2"}));
}

#[tokio::test(start_paused = true)]
async fn secret_syncer() {
    let left = on_both(
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
    let names: Vec<_> = left.keys().map(String::as_str).collect();
    assert_eq!(names, ["ConfigMap/a", "Secret/a"], "the secret of `b` was cleaned up");
    assert_eq!(left["ConfigMap/a"]["metadata"]["finalizers"], json!(["example.com/secret-syncer"]));
}

#[tokio::test(start_paused = true)]
async fn documents() {
    let (ours, kubes) =
        (documents::flyball::Diagnostics::default(), documents::kube_runtime::Diagnostics::default());
    let (of_ours, of_kubes) = (ours.clone(), kubes.clone());
    let left: BTreeMap<String, serde_json::Value> = on_both(
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
            life.wait(600 * SECOND).await;
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
    assert!(
        ours.reconciles().abs_diff(kubes.reconciles()) <= 1,
        "{} and {}",
        ours.reconciles(),
        kubes.reconciles()
    );
}
