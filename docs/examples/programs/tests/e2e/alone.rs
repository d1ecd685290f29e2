//! Tests that cannot be scenarios of `life.rs`: the unit test of a mapper, a shutdown, a deletion that is not delivered, and data that is read
//! periodically.

use std::sync::Arc;
use std::time::Duration;

use example_programs::{accounts, restarter, shared_streams, truststores};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use serde_json::{from_value, json};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::life::{Life, World};
use crate::memory::Memory;

/// The test fills the store of a mapper itself, so the mapper can be tested without an API server.
#[test]
fn a_mapper_looks_up_in_a_store_that_is_filled_by_hand() {
    let (store, mut writer) = reflector::store();
    let named = |name: &str, server: &str| -> ConfigMap {
        let metadata = json!({"namespace": "default", "name": name});
        from_value(json!({"metadata": metadata, "data": {"server": server}})).unwrap()
    };
    for account in [named("a", "main"), named("b", "other"), named("c", "main")] {
        writer.apply_watcher_event(&Event::Apply(account));
    }
    let server: Secret = from_value(json!({"metadata": {"namespace": "default", "name": "main"}})).unwrap();
    let sorted = |mut names: Vec<ObjectRef<ConfigMap>>| {
        names.sort_by(|a, b| a.name.cmp(&b.name));
        names.into_iter().map(|reference| reference.name).collect::<Vec<_>>()
    };
    let of = |store: Store<ConfigMap>| {
        [
            accounts::kube_runtime::accounts_of(store.clone())(server.clone()),
            accounts::flyball::accounts_of(store)(server.clone()),
        ]
    };
    assert_eq!(of(store).map(sorted), [["a", "c"], ["a", "c"]]);
}

#[tokio::test(start_paused = true)]
async fn truststores_end_on_shutdown() {
    type Run = fn(Client, Arc<Notify>) -> BoxFuture<'static, ()>;
    let programs: [Run; 2] = [
        |client, end| {
            Box::pin(truststores::kube_runtime::run(client, |_| {}, async move { end.notified().await }))
        },
        |client, end| {
            Box::pin(truststores::flyball::run(client, |_| {}, async move { end.notified().await }))
        },
    ];
    for run in programs {
        let end = Arc::new(Notify::new());
        let mut running = tokio::spawn(run(Memory.client().await, end.clone()));
        assert!(timeout(Duration::from_secs(60), &mut running).await.is_err());
        end.notify_one();
        timeout(Duration::from_secs(5), running).await.expect("it ends").expect("without a panic");
    }
}

/// The handle of a shared store does not deliver deletions. After a pod was deleted, the count of pods is therefore out of date until a different
/// change causes a reconcile.
#[tokio::test(start_paused = true)]
async fn a_deletion_is_not_delivered_by_a_shared_stream() {
    let programs: [fn(Client) -> BoxFuture<'static, ()>; 2] = [
        |client| Box::pin(shared_streams::kube_runtime::run(client)),
        |client| Box::pin(shared_streams::flyball::run(client)),
    ];
    for run in programs {
        let client = Memory.client().await;
        let running = tokio::spawn(run(client.clone()));
        let life = Life::new(client, Memory::SETTLED);
        life.create::<ConfigMap>("owner", json!({})).await;
        for name in ["one", "two"] {
            life.create_owned::<Pod, ConfigMap>(name, "owner", json!({})).await;
        }
        let count = async || life.get::<ConfigMap>("owner").await.data.unwrap()["pods"].clone();
        life.settle().await;
        assert_eq!(count().await, "2");
        life.delete::<Pod>("two").await;
        life.settle().await;
        assert_eq!(count().await, "2");
        life.merge::<ConfigMap>("owner", json!({"data": {"touched": "yes"}})).await;
        life.settle().await;
        assert_eq!(count().await, "1");
        running.abort();
    }
}

/// The program does not watch the ConfigMap with the zones; `reconcile_all_on` requests a reconcile of all pods once a minute instead.
#[tokio::test(start_paused = true)]
async fn what_is_not_watched_is_looked_up_each_minute() {
    let programs: [fn(Client) -> BoxFuture<'static, ()>; 2] = [
        |client| Box::pin(restarter::kube_runtime::run(client)),
        |client| Box::pin(restarter::flyball::run(client)),
    ];
    for run in programs {
        let client = Memory.client().await;
        let running = tokio::spawn(run(client.clone()));
        let pods = Api::<Pod>::default_namespaced(client.clone());
        let zones = Api::<ConfigMap>::default_namespaced(client);
        let pod = from_value(json!({"metadata": {"name": "p"}})).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let zone = from_value(json!({"metadata": {"name": "zones"}, "data": {"zone": "north"}})).unwrap();
        zones.create(&PostParams::default(), &zone).await.unwrap();
        sleep(Duration::from_secs(62)).await;
        let zone_of = async || pods.get("p").await.unwrap().labels().get("zone").cloned();
        assert_eq!(zone_of().await.as_deref(), Some("north"));
        let south = Patch::Merge(json!({"data": {"zone": "south"}}));
        zones.patch("zones", &PatchParams::default(), &south).await.unwrap();
        sleep(Duration::from_secs(30)).await;
        assert_eq!(zone_of().await.as_deref(), Some("north"));
        sleep(Duration::from_secs(32)).await;
        assert_eq!(zone_of().await.as_deref(), Some("south"));
        running.abort();
    }
}
