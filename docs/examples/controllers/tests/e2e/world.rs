//! The cluster that all tests of this program share.

use std::sync::OnceLock;
use std::time::Duration;

use e2e::Cluster;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::time::{sleep, timeout};

use crate::definition;

/// Returns the cluster, with the controllers that websites need. The first call starts the cluster; it stops when the test process ends.
pub(crate) fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let mut cluster = Cluster::start().unwrap();
        definition::install(&cluster);
        // The controllers are started after the definition is installed, so that the garbage collector knows the kind Website from the start. It
        // looks for new kinds only twice a minute.
        let names = ["deployment-controller", "replicaset-controller", "garbage-collector-controller"];
        cluster.start_controller_manager(&names).unwrap();
        cluster
    })
}

/// Returns a client of the cluster.
pub(crate) async fn client() -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster().kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Returns a client, and a new namespace.
pub(crate) async fn namespace() -> (Client, String) {
    let client = client().await;
    let mut namespace = Namespace::default();
    namespace.metadata.generate_name = Some("example-".to_owned());
    let made = Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    (client, made.metadata.name.unwrap())
}

/// Waits until `is_so` returns true, for at most a minute.
#[track_caller]
pub(crate) fn until(is_so: impl AsyncFn() -> bool) -> impl Future<Output = ()> {
    const LIMIT: Duration = Duration::from_secs(60);
    let place = std::panic::Location::caller();
    async move {
        let asking = async {
            while !is_so().await {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, asking).await.unwrap_or_else(|_| panic!("{place}: not within {LIMIT:?}"));
    }
}
