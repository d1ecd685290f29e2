//! The cluster that all tests of this program share.

use std::sync::OnceLock;
use std::time::Duration;

use e2e::Cluster;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use crate::life::World;

/// A namespace of the cluster for each program.
pub(crate) struct Real;

impl World for Real {
    /// More than a debounce and the requests of a reconcile.
    const SETTLED: Duration = Duration::from_secs(4);

    async fn client(&self) -> Client {
        client_of_fresh_namespace().await
    }
}

/// Started by who asks first, with the collector of garbage; it ends with the process.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let mut cluster = Cluster::start().expect("a cluster starts");
        cluster.start_controller_manager(&["garbage-collector-controller"]).expect("its controllers start");
        cluster
    })
}

/// A client whose default namespace nobody else uses.
async fn client_of_fresh_namespace() -> Client {
    let mut config = config_of("admin").await;
    let client = Client::try_from(config.clone()).expect("a client");
    let mut namespace = Namespace::default();
    namespace.metadata.generate_name = Some("programs-".to_owned());
    let made = Api::all(client).create(&PostParams::default(), &namespace).await.expect("it is new");
    config.default_namespace = made.metadata.name.expect("the server gave it one");
    Client::try_from(config).expect("a client")
}

/// The same namespace by one who may do nothing there.
pub(crate) async fn as_nobody(client: &Client) -> Client {
    let mut config = config_of("nobody").await;
    client.default_namespace().clone_into(&mut config.default_namespace);
    Client::try_from(config).expect("a client")
}

async fn config_of(context: &str) -> Config {
    let kubeconfig = Kubeconfig::read_from(cluster().kubeconfig()).expect("it is readable");
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("it is complete")
}
