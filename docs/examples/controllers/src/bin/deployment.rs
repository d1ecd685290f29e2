//! Runs Deployments and their ReplicaSets in the cluster of the current context, in place of kube-controller-manager's controllers: both in one
//! program, on the same caches.

use example_controllers::program::{deployments, drive, pods, replica_sets, wall_clock};
use example_controllers::{deployment, replicaset};
use flyball_kube::Controller;
use futures::join;

#[tokio::main]
async fn main() -> kube::Result<()> {
    let client = kube::Client::try_default().await?;
    let (pods, sets, deployments) = (pods(&client), replica_sets(&client), deployments(&client));
    let of_sets = Controller::over(&sets).shutdown_on_signal();
    let of_deployments = Controller::over(&deployments).shutdown_on_signal();
    join!(
        drive(replicaset::run(of_sets, client.clone(), wall_clock(), &pods, &sets)),
        drive(deployment::run(of_deployments, client, wall_clock(), &pods, &sets, &deployments)),
    );
    Ok(())
}
