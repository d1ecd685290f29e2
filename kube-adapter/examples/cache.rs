//! A cache of the pods of an API server, with an index by node: `cargo run -p flyball-kube --example cache`.
//!
//! The API server runs in memory, so no cluster is needed. For a real cluster, replace `server.client()` with `Client::try_default().await?`.

use flyball_informer_cache::{ChangeKind, Index, Version};
use flyball_kube_testing::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher::Config;
use serde_json::{from_value, json};

static BY_NODE: Index<Pod, String> =
    Index::many("node", |pod| pod.spec.iter().flat_map(|spec| spec.node_name.clone()).collect());

fn pod(name: &str, node: &str) -> anyhow::Result<Pod> {
    let containers = json!([{"name": "main", "image": "web"}]);
    Ok(from_value(json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": containers},
    }))?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let server = ApiServer::new();
    server.register::<Pod>();
    for (name, node) in [("a", "node-1"), ("b", "node-1"), ("c", "node-2")] {
        server.put(&pod(name, node)?);
    }

    let pods = flyball_kube::informer(Api::<Pod>::all(server.client()), Config::default().labels("app=web"))
        .index(&BY_NODE)
        .transform(|mut pod| {
            // This program does not read the managed fields, so it removes them before the cache stores the pod.
            pod.metadata.managed_fields = None;
            pod
        })
        .on_error(|failure| eprintln!("pods: {failure}"))
        .start()?;
    pods.synced().await?;
    println!(
        "{} pods, of them {} on node-1",
        pods.snapshot().len(),
        pods.store().by_index(&BY_NODE, "node-1")?.len()
    );

    let mut changes = pods.subscribe();
    while let Some(change) = changes.try_next() {
        println!("{} is there", change.key());
    }

    // Changes on the server arrive through the watch.
    server.put(&pod("c", "node-1")?);
    server.delete::<Pod>("default", "a");
    pods.store().wait_for_version(Version::new(server.resource_version())).await?;
    while let Some(change) = changes.try_next() {
        let key = change.key();
        match change.kind() {
            ChangeKind::Initial | ChangeKind::Added => println!("{key} is new"),
            ChangeKind::Updated | ChangeKind::Replaced => println!("{key} has changed"),
            ChangeKind::Deleted | ChangeKind::Missed => println!("{key} is gone"),
        }
    }
    let on_node_1 = pods.store().by_index(&BY_NODE, "node-1")?;
    let names: Vec<_> = on_node_1.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
    println!("on node-1 now: {names:?}");
    assert_eq!(names.len(), 2);

    pods.shut_down();
    pods.stopped().await;
    Ok(())
}
