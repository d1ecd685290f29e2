//! Runs the EndpointSlices of Services in the cluster of the current context, in place of kube-controller-manager's controller.

use example_controllers::endpointslice;
use example_controllers::program::{drive, pods, services, slices};
use flyball_kube::Controller;

#[tokio::main]
async fn main() -> kube::Result<()> {
    let client = kube::Client::try_default().await?;
    let (pods, services, slices) = (pods(&client), services(&client), slices(&client));
    let controller = Controller::over(&services).shutdown_on_signal();
    drive(endpointslice::run(controller, client, &pods, &services, &slices)).await;
    Ok(())
}
