//! Runs the Deployment and the ReplicaSet controller in the cluster of the current context, instead of kube-controller-manager's. The two
//! controllers share their caches.

use std::process::ExitCode;

use clap::Parser;
use example_controllers::program::{Options, deployments, drive, pods, replica_sets, run, wall_clock};
use example_controllers::{deployment, replicaset};
use flyball_kube::Controller;
use futures::join;

#[tokio::main]
async fn main() -> ExitCode {
    run("deployment", Options::parse(), async |client, term| {
        let (pods, sets, deployments) = (pods(&client), replica_sets(&client), deployments(&client));
        let of_sets = term.bound(Controller::for_shared(&sets));
        let of_deployments = term.bound(Controller::for_shared(&deployments));
        join!(
            drive(replicaset::run(of_sets, client.clone(), wall_clock(), &pods, &sets)),
            drive(deployment::run(of_deployments, client, wall_clock(), &pods, &sets, &deployments)),
        );
    })
    .await
}
