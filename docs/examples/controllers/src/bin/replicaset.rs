//! Runs ReplicaSets in the cluster of the current context, in place of kube-controller-manager's controller.

use example_controllers::program::{drive, pods, replica_sets, wall_clock};
use example_controllers::replicaset;
use flyball_kube::Controller;

#[tokio::main]
async fn main() -> kube::Result<()> {
    let client = kube::Client::try_default().await?;
    let (pods, sets) = (pods(&client), replica_sets(&client));
    let controller = Controller::over(&sets).shutdown_on_signal();
    drive(replicaset::run(controller, client, wall_clock(), &pods, &sets)).await;
    Ok(())
}
