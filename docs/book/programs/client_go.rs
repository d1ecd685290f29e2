//! An informer with an index of pods by node, and a queue with a worker that fails once.

use std::error::Error;
use std::time::Duration;

use flyball_informer_cache::{Index, NamespacedName};
use flyball_kube::{TokioTimer, informer};
use flyball_kube_testing::ApiServer;
use flyball_ratelimit::Exponential;
use flyball_workqueue::Queue;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, runtime::watcher};
use serde_json::{from_value, json};

static BY_NODE: Index<Pod, String> = Index::new("node", |pod: &Pod| {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
});

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::new();
    server.register::<Pod>();
    let pod = |name| from_value::<Pod>(json!({"metadata": {"name": name}, "spec": {"nodeName": "node-1"}}));
    server.put(&pod("web-0")?);

    let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1_000));
    let queue = Queue::builder().timer(TokioTimer::current()).limiter(backoff).build();
    let pods =
        informer(Api::<Pod>::all(server.client()), watcher::Config::default()).index(&BY_NODE).start()?;
    let adder = queue.clone();
    let _observer = pods.observe(move |change| drop(adder.add(change.key().clone())));
    pods.synced().await?;

    for step in 1..=4 {
        let Some(lease) = queue.get().await else { break };
        let key: &NamespacedName = &lease;
        if step == 1 {
            println!("{key}: failed");
            lease.retry(); // retried after 5 ms
        } else if pods.store().get(key).is_none() {
            println!("{key}: deleted");
            lease.succeed();
        } else {
            println!("{key}: pods on node-1: {}", pods.store().by_index(&BY_NODE, "node-1")?.len());
            lease.succeed(); // resets the failure count
        }
        match step {
            2 => drop(server.put(&pod("web-1")?)),
            3 => drop(server.delete::<Pod>("default", "web-0")),
            _ => {}
        }
    }
    queue.shut_down();
    println!("a key after the shutdown: {}", queue.get().await.is_some());
    Ok(())
}
