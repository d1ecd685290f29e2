//! Runs websites in the cluster of the current context. `website crd` prints the definition of the resource, for `kubectl apply -f -`.

use std::process::ExitCode;

use example_controllers::program::{self, drive, wall_clock};
use example_controllers::website::{Website, run};
use flyball_kube::Controller;
use kube::runtime::watcher;
use kube::{Api, CustomResourceExt};

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        println!("{:#}", serde_json::json!(Website::crd()));
        return ExitCode::SUCCESS;
    }
    program::run("website", async |client, term| {
        let controller = Controller::new(Api::all(client.clone()), watcher::Config::default());
        drive(run(term.bound(controller), client, wall_clock())).await;
    })
    .await
}
