//! A controller that creates a ResourceQuota in each namespace, with flyball-kube.

use std::{error::Error, sync::Arc, time::Duration};

use flyball_kube::Controller;
use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use kube::runtime::{controller::Action, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{from_value, json};
use tokio::{sync::oneshot, time::sleep};

async fn reconcile(namespace: Arc<Namespace>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let (name, pods) = (namespace.name_any(), &namespace.labels()["pods"]);
    let hard = [("pods".to_owned(), Quantity(pods.clone()))].into();
    let spec = ResourceQuotaSpec { hard: Some(hard), ..Default::default() };
    let mut quota = ResourceQuota { spec: Some(spec), ..Default::default() };
    quota.metadata.name = Some("pods".into());
    quota.metadata.owner_references = namespace.controller_owner_ref(&()).map(|owner| vec![owner]);

    let quotas = Api::<ResourceQuota>::namespaced(Client::clone(&client), &name);
    quotas.patch("pods", &PatchParams::apply("quotas"), &Patch::Apply(&quota)).await?;
    Ok(Action::requeue(Duration::from_secs(3_600)))
}

fn error_policy(_: Arc<Namespace>, error: &kube::Error, _: Arc<Client>) -> Action {
    if let kube::Error::Api(status) = error {
        println!("failed: {}", status.message);
    }
    Action::requeue(Duration::from_secs(5))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tokio::time::pause();
    let server = ApiServer::new();
    server.register::<Namespace>().register::<ResourceQuota>();
    let forbidden = Status::failure("quotas are forbidden", "Forbidden").with_code(403);
    server.fail_next(RequestMatcher::verb(Verb::Patch).resource::<ResourceQuota>(), 1, forbidden);
    let client = server.client();

    let (stop, stopped) = oneshot::channel::<()>();
    let controller = Controller::new(Api::<Namespace>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ResourceQuota>::all(client.clone()), watcher::Config::default())
        .graceful_shutdown_on(async { drop(stopped.await) })
        .run(reconcile, error_policy, Arc::new(client));
    let running = tokio::spawn(controller.for_each(async |_| {}));

    for pods in ["10", "20"] {
        server.put::<Namespace>(&from_value(json!({"metadata": {"name": "web", "labels": {"pods": pods}}}))?);
        sleep(Duration::from_secs(10)).await;
        let quota = server.get::<ResourceQuota>("web", "pods").and_then(|quota| quota.spec?.hard);
        println!("web may have {:?} pods", quota.map(|hard| hard["pods"].0.clone()));
    }
    let _ = stop.send(());
    Ok(running.await?)
}
