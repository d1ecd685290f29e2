//! A controller with a leader election, a second watch and a filter. It reconciles only while its process leads.

use std::{error::Error, sync::Arc, time::Duration};

use flyball_controller::predicate;
use flyball_kube::{Config, Controller};
use flyball_kube_lease::Election;
use flyball_kube_testing::ApiServer;
use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::runtime::{controller::Action, reflector::ObjectRef, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{from_value, json};
use tokio::{sync::oneshot, time::sleep};

async fn reconcile(node: Arc<Node>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let limits =
        Api::<ConfigMap>::default_namespaced(Client::clone(&client)).get_opt(&node.name_any()).await?;
    let pods = limits.and_then(|map| map.data).map_or("110".to_owned(), |data| data["pods"].clone());
    println!("{}: at most {pods} pods", node.name_any());
    Ok(Action::requeue(Duration::from_secs(3_600))) // Result{RequeueAfter: time.Hour}
}

fn error_policy(_: Arc<Node>, _: &kube::Error, _: Arc<Client>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tokio::time::pause();
    let server = ApiServer::new(); // replaces envtest
    server.register::<Node>().register::<ConfigMap>().register::<Lease>();
    server.put::<Node>(&from_value(json!({"metadata": {"name": "node-1"}}))?);

    let client = server.client();
    let mut election = Election::builder(client.clone(), "default", "nodes", "replica-1").build()?;
    let controller = Controller::new(Api::<Node>::all(client.clone()), watcher::Config::default())
        .with_config(Config::recommended().concurrency(4)) // MaxConcurrentReconciles: 4
        .filter_changes(predicate::changed(|node: &Node| node.labels().clone()))
        .watches(Api::<ConfigMap>::all(client.clone()), watcher::Config::default(), |map| {
            Some(ObjectRef::new(&map.name_any()))
        });
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        let work = async |leadership| {
            let results =
                controller.with_leadership(&leadership).run(reconcile, error_policy, Arc::new(client));
            results.for_each(async |_| {}).await;
        };
        election.run_as_standby(async { drop(stopped.await) }, work).await
    });

    sleep(Duration::from_secs(1)).await;
    let limit = json!({"metadata": {"name": "node-1"}, "data": {"pods": "50"}});
    server.put::<ConfigMap>(&from_value(limit)?);
    sleep(Duration::from_secs(1)).await;
    let _ = stop.send(());
    println!("{:?}", running.await?);
    let lease = server.get::<Lease>("default", "nodes").and_then(|lease| lease.spec?.holder_identity);
    println!("the lease is released: {}", lease.as_deref() == Some(""));
    Ok(())
}
