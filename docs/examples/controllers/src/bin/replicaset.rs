//! Runs the ReplicaSet controller in the cluster of the current context, instead of kube-controller-manager's.

use std::process::ExitCode;

use clap::Parser;
use example_controllers::program::{Options, drive, pods, replica_sets, run, wall_clock};
use example_controllers::replicaset;
use flyball_kube::Controller;

#[tokio::main]
async fn main() -> ExitCode {
    run("replicaset", Options::parse(), async |client, term| {
        let (pods, sets) = (pods(&client), replica_sets(&client));
        let controller = term.bound(Controller::for_shared(&sets));
        drive(replicaset::run(controller, client, wall_clock(), &pods, &sets)).await;
    })
    .await
}
