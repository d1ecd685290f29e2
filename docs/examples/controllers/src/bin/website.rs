//! Runs websites in the cluster of the current context. `website crd` prints the definition of the resource, for `kubectl apply -f -`.

use example_controllers::program::{drive, wall_clock};
use example_controllers::website::{Website, run};
use flyball_kube::Controller;
use kube::runtime::watcher;
use kube::{Api, CustomResourceExt};

#[tokio::main]
async fn main() -> kube::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        println!("{:#}", serde_json::json!(Website::crd()));
        return Ok(());
    }
    let client = kube::Client::try_default().await?;
    let controller =
        Controller::new(Api::all(client.clone()), watcher::Config::default()).shutdown_on_signal();
    drive(run(controller, client, wall_clock())).await;
    Ok(())
}
