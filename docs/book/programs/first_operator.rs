//! An operator that creates, in every namespace, a ConfigMap with the name of the namespace's team.

use std::{error::Error, sync::Arc, time::Duration};

use flyball_kube::Controller;
use flyball_kube_testing::ApiServer;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{controller::Action, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{from_value, json};
use tokio::{sync::oneshot, time::sleep};

/// Creates the ConfigMap of a namespace, or updates it if its data differs from the wanted data.
async fn reconcile(namespace: Arc<Namespace>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let (name, team) = (namespace.name_any(), &namespace.labels()["team"]);
    let mut wanted = ConfigMap { data: Some([("team".into(), team.clone())].into()), ..Default::default() };
    wanted.metadata.name = Some("team".into());
    wanted.metadata.owner_references = namespace.controller_owner_ref(&()).map(|owner| vec![owner]);

    let maps = Api::<ConfigMap>::namespaced(Client::clone(&client), &name);
    match maps.get_opt("team").await? {
        None => maps.create(&PostParams::default(), &wanted).await?,
        Some(map) if map.data == wanted.data => return Ok(Action::await_change()),
        Some(_) => maps.patch("team", &PatchParams::default(), &Patch::Merge(&wanted)).await?,
    };
    println!("{name}: the team is {team}");
    Ok(Action::await_change())
}

fn error_policy(_: Arc<Namespace>, error: &kube::Error, _: Arc<Client>) -> Action {
    println!("failed: {error}");
    Action::requeue(Duration::from_secs(5))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tokio::time::pause(); // tokio's clock jumps ahead when all tasks wait, so sleeps end immediately
    let server = ApiServer::new(); // a cluster in memory
    server.register::<Namespace>().register::<ConfigMap>();
    let client = server.client();

    let (stop, stopped) = oneshot::channel::<()>();
    let controller = Controller::new(Api::<Namespace>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .graceful_shutdown_on(async { drop(stopped.await) })
        .run(reconcile, error_policy, Arc::new(client));
    let running = tokio::spawn(controller.for_each(async |_| {}));

    for team in ["blue", "green"] {
        server.put::<Namespace>(&from_value(json!({"metadata": {"name": "web", "labels": {"team": team}}}))?);
        sleep(Duration::from_secs(1)).await;
    }
    println!("the ConfigMap is deleted");
    server.delete::<ConfigMap>("web", "team");
    sleep(Duration::from_secs(1)).await;
    let _ = stop.send(());
    Ok(running.await?)
}
