//! Runs the EndpointSlice controller in the cluster of the current context, instead of kube-controller-manager's.

use std::process::ExitCode;

use clap::Parser;
use example_controllers::endpointslice;
use example_controllers::program::{Options, drive, pods, run, services, slices};
use flyball_kube::Controller;

#[tokio::main]
async fn main() -> ExitCode {
    run("endpointslice", Options::parse(), async |client, term| {
        let (pods, services, slices) = (pods(&client), services(&client), slices(&client));
        let controller = term.bound(Controller::for_shared(&services));
        drive(endpointslice::run(controller, client, &pods, &services, &slices)).await;
    })
    .await
}
