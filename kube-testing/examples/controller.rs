//! kube-runtime's Controller during an outage of five minutes. On virtual time the example takes milliseconds.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{from_value, json};
use tokio::time::sleep;

/// The reconciler under test.
async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    if !map.annotations().contains_key("seen") {
        let maps = Api::<ConfigMap>::default_namespaced(Client::clone(&client));
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"seen": "yes"}}}));
        maps.patch(&map.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(Action::await_change())
}

fn error_policy(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Client>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

fn map(name: &str) -> ConfigMap {
    from_value(json!({"metadata": {"name": name, "namespace": "default"}})).expect("it is a ConfigMap")
}

// In a test: `#[tokio::test(start_paused = true)]`.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::new();
    server.register::<ConfigMap>();
    let is_seen = |name: &str| {
        server.get::<ConfigMap>("default", name).is_some_and(|map| map.annotations().contains_key("seen"))
    };

    let client = server.client();
    let controller = Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .run(reconcile, error_policy, Arc::new(client))
        .for_each(|_| std::future::ready(()));
    tokio::spawn(controller);

    server.put(&map("a"));
    sleep(Duration::from_secs(1)).await;
    assert!(is_seen("a"));

    // Connections are broken and refused. Until connections are accepted again, the client does not receive changes that the test makes on the
    // server.
    server.refuse_connections();
    server.put(&map("b"));
    sleep(Duration::from_secs(300)).await;
    assert!(!is_seen("b"));

    server.accept_connections();
    sleep(Duration::from_secs(60)).await;
    assert!(is_seen("b"));
    let lists = server.requests_matching(&RequestMatcher::verb(Verb::List)).len();
    println!("seen after an outage of five minutes; {lists} lists");
    Ok(())
}
