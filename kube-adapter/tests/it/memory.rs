//! The memory that a controller keeps per owned object. All tests of this binary run on an allocator that counts the live bytes of each thread.

use std::sync::Arc;
use std::time::Duration;

use flyball_kube::Controller;
use flyball_kube_testing::ApiServer;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use serde_json::{from_value, json};
use testkit::allocator::{CountingAllocator, live_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const OWNED: usize = 6_000;

/// Returns a pod of about 2 KiB, of which about 1 KiB is metadata.
fn pod(number: usize) -> Pod {
    let text = "x".repeat(800);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("owner-{}", number % 10), "uid": "u", "controller": true});
    from_value(json!({
        "metadata": {"name": format!("pod-{number:06}"), "namespace": "default", "annotations": {"text": text}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": text}]},
    }))
    .expect("a pod")
}

#[tokio::test(start_paused = true)]
async fn an_owned_object_costs_its_names_and_not_the_object() {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Pod>();
    (0..OWNED).for_each(|number| drop(server.put(&pod(number))));
    let before = live_bytes();
    let config = watcher::Config::default;
    let mut reconciles = Controller::new(Api::<ConfigMap>::all(server.client()), config())
        .owns(Api::<Pod>::all(server.client()), config())
        .run(
            async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, std::convert::Infallible>(Action::await_change()),
            |_, error, _| match *error {},
            Arc::new(()),
        );
    let end = tokio::time::sleep(Duration::from_secs(60));
    tokio::pin!(end);
    while tokio::select! { biased; result = reconciles.next() => result.is_some(), () = &mut end => false } {}
    let kept = (live_bytes() - before) as usize;
    println!("{} bytes of each of {OWNED}", kept / OWNED);
    assert!(kept / OWNED < 700, "{} bytes per object", kept / OWNED);
}
