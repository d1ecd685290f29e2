//! The helpers that all tests share: clients, namespaces, timeouts.

use std::future::Future;
use std::path::Path;
use std::thread;
use std::time::Duration;

pub(crate) use e2e::Cluster;
use e2e::Given;
use k8s_openapi::api::core::v1::Namespace as Object;
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

/// Returns a client of the cluster that the tests share.
pub(crate) async fn client() -> Client {
    client_of(e2e::shared_kubeconfig(), None).await
}

/// Returns a client for a kubeconfig, with the given context or the current one.
pub(crate) async fn client_of(kubeconfig: &Path, context: Option<&str>) -> Client {
    Client::try_from(config_of(kubeconfig, context).await).expect("a client")
}

/// Returns a client without retries: it returns every answer, including answers after which kube's client would retry.
pub(crate) async fn client_without_retries(kubeconfig: &Path) -> Client {
    let mut config = config_of(kubeconfig, None).await;
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

async fn config_of(kubeconfig: &Path, context: Option<&str>) -> Config {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a usable kubeconfig")
}

/// A separate namespace for one test, on the shared cluster. On the user's own cluster, dropping this value deletes the namespace; a failed deletion
/// is only printed. If the tests started the cluster, the whole cluster is removed instead.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    pub(crate) async fn fresh(client: &Client) -> Self {
        let mut object = Object::default();
        object.metadata.generate_name = Some("flyball-e2e-".to_owned());
        let created = Api::all(client.clone()).create(&PostParams::default(), &object).await;
        let created = created.expect("a namespace can be made");
        Self { name: created.metadata.name.expect("a made object has a name") }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if !matches!(Given::here(), Ok(Given::Existing(_))) {
            return;
        }
        let name = std::mem::take(&mut self.name);
        // The deletion uses a new thread, runtime and client, because those of the test may be shutting down.
        let delete = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let api: Api<Object> = Api::all(client().await);
                api.delete(&name, &DeleteParams::background()).await.map(drop)
            })
        };
        match thread::spawn(delete).join() {
            Ok(Ok(())) => {}
            end => eprintln!("a namespace may be left: {end:?}"),
        }
    }
}

/// Awaits a future that must complete soon, and panics with the caller's location if it does not.
#[track_caller]
pub(crate) fn within_limit<F: Future>(future: F) -> impl Future<Output = F::Output> {
    const LIMIT: Duration = Duration::from_secs(60);
    let place = std::panic::Location::caller();
    async move {
        tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{place}: not within {LIMIT:?}"))
    }
}
