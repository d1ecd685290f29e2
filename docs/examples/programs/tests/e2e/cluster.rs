//! The cluster that all tests of this program share.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use e2e::Cluster;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::time::{sleep, timeout};

use crate::life::World;

/// Gives each program a namespace of the cluster.
pub(crate) struct Real;

impl World for Real {
    /// This is longer than a debounce and the requests of the reconcile that follows it take together.
    const SETTLED: Duration = Duration::from_secs(4);

    async fn client(&self) -> Client {
        client_of_fresh_namespace(cluster().kubeconfig()).await
    }
}

/// Returns the cluster, with a garbage collector. The first call starts the cluster; it stops when the test process ends.
pub(crate) fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let mut cluster = Cluster::start().expect("a cluster starts");
        cluster.start_controller_manager(&["garbage-collector-controller"]).expect("its controllers start");
        cluster
    })
}

/// Creates a namespace, and returns a client for which it is the default namespace.
pub(crate) async fn client_of_fresh_namespace(kubeconfig: &Path) -> Client {
    let mut config = config_of(kubeconfig, "admin").await;
    let client = Client::try_from(config.clone()).expect("a client");
    let mut namespace = Namespace::default();
    namespace.metadata.generate_name = Some("programs-".to_owned());
    let made = Api::all(client).create(&PostParams::default(), &namespace).await.expect("it is new");
    config.default_namespace = made.metadata.name.expect("the server has generated the name");
    Client::try_from(config).expect("a client")
}

/// Returns a client that sends its requests as `user` and has the default namespace `namespace`. It never retries a request: it also returns the
/// responses after which kube's client retries by default.
pub(crate) async fn client_without_retries(kubeconfig: &Path, user: &str, namespace: &str) -> Client {
    let mut config = config_of(kubeconfig, user).await;
    config.default_retry = false;
    namespace.clone_into(&mut config.default_namespace);
    Client::try_from(config).expect("a client")
}

async fn config_of(kubeconfig: &Path, user: &str) -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("it is readable");
    let options = KubeConfigOptions { context: Some(user.to_owned()), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("it is complete")
}

/// Polls `is_so` until it returns true, for at most a minute. It polls, because nothing notifies a test of the states of servers and processes.
#[track_caller]
pub(crate) fn until(is_so: impl AsyncFn() -> bool) -> impl Future<Output = ()> {
    const LIMIT: Duration = Duration::from_secs(60);
    let place = std::panic::Location::caller();
    async move {
        let polling = async {
            while !is_so().await {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, polling).await.unwrap_or_else(|_| panic!("{place}: not within {LIMIT:?}"));
    }
}
