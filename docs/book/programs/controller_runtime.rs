//! A controller with a leader election, a second watch and a filter. It reconciles only while its process leads.

use std::{convert::Infallible, error::Error, sync::Arc, time::Duration};

use flyball_controller::predicate;
use flyball_kube::{Config, Controller, NamespacedName, Store, informer};
use flyball_kube_lease::{Election, ElectionOutcome};
use flyball_kube_testing::ApiServer;
use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::runtime::{controller::Action, reflector::ObjectRef, watcher};
use kube::{Api, ResourceExt};
use serde_json::{from_value, json};
use tokio::{sync::oneshot, time::sleep};

type Limits = Store<NamespacedName, ConfigMap>;

async fn reconcile(node: Arc<Node>, limits: Arc<Limits>) -> Result<Action, Infallible> {
    let limits = limits.get(format!("default/{}", node.name_any()).as_str());
    let pods = limits.and_then(|map| map.data.as_ref()?.get("pods").cloned());
    println!("{}: at most {} pods", node.name_any(), pods.as_deref().unwrap_or("110"));
    Ok(Action::requeue(Duration::from_secs(3_600))) // Result{RequeueAfter: time.Hour}
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tokio::time::pause(); // tokio's clock jumps ahead when all tasks wait, so sleeps end immediately
    let server = ApiServer::new(); // replaces the fakes
    server.register::<Node>().register::<ConfigMap>().register::<Lease>();
    server.put::<Node>(&from_value(json!({"metadata": {"name": "node-1"}}))?);

    let client = server.client();
    let limits = informer(Api::<ConfigMap>::all(client.clone()), watcher::Config::default()).start()?;
    let mut election = Election::builder(client.clone(), "default", "nodes", "replica-1").standby(true).build()?;
    let controller = Controller::new(Api::<Node>::all(client), watcher::Config::default())
        .with_config(Config::recommended().concurrency(4)) // MaxConcurrentReconciles: 4
        .filter_changes(predicate::changed(|node: &Node| node.labels().clone()))
        .watches_shared(&limits, |map| Some(ObjectRef::new(&map.name_any())));
    let (store, (stop, stopped)) = (Arc::new(limits.store().clone()), oneshot::channel::<()>());
    let running = tokio::spawn(async move {
        let work = async |leadership| {
            let controller = controller.with_leadership(&leadership);
            let results = controller.run(reconcile, |_, error, _| match *error {}, store);
            results.for_each(async |_| {}).await;
        };
        election.run(async { drop(stopped.await) }, work).await
    });

    sleep(Duration::from_secs(1)).await;
    let limit = json!({"metadata": {"name": "node-1"}, "data": {"pods": "50"}});
    server.put::<ConfigMap>(&from_value(limit)?);
    sleep(Duration::from_secs(1)).await;
    let _ = stop.send(());
    println!("ended without an error: {}", matches!(running.await?, ElectionOutcome::Done(())));
    let lease = server.get::<Lease>("default", "nodes").and_then(|lease| lease.spec?.holder_identity);
    println!("the lease is released: {}", lease.as_deref() == Some(""));
    Ok(())
}
