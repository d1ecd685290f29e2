//! A program that can be run by either engine: kube-runtime's `Controller` or flyball's. The program does not depend on the engine.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube_testing::ApiServer;
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::controller::{Action, Error as Outcome};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use tokio::time::{Instant, sleep, timeout_at};

use crate::world::{Refused, Runs, outcomes};

pub(super) type Reconciled = Result<Action, Refused>;
type Reconcile = Arc<dyn Fn(Arc<ConfigMap>) -> BoxFuture<'static, Reconciled> + Send + Sync>;
type Policy = Arc<dyn Fn(&Refused) -> Action + Send + Sync>;
type Item = Result<(ObjectRef<ConfigMap>, Action), Outcome<Refused, watcher::Error>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    KubeRuntime,
    Flyball,
}

pub(super) const BOTH: [Engine; 2] = [Engine::KubeRuntime, Engine::Flyball];

/// The settings of a program. If a setting is `None`, the engine's default applies.
#[derive(Clone)]
pub(super) struct Program {
    reconcile: Reconcile,
    policy: Policy,
    pub(super) concurrency: Option<u16>,
    pub(super) owns_secrets: bool,
    pub(super) shutdown_after: Option<Duration>,
}

/// The results of a run.
#[derive(Debug)]
pub(super) struct Ran {
    /// The names of the reconciled objects, and the times in milliseconds since the start.
    pub(super) runs: Vec<(String, u64)>,
    /// The stream's items, as formatted by [`outcomes`].
    pub(super) results: Vec<String>,
    /// When the stream ended, in milliseconds since the start.
    pub(super) ended: Option<u64>,
}

impl Ran {
    pub(super) fn of(&self, name: &str) -> Vec<u64> {
        self.runs.iter().filter(|(other, _)| other == name).map(|(_, at)| *at).collect()
    }

    pub(super) fn successes(&self) -> usize {
        self.results.iter().filter(|result| !result.starts_with(['!', '?'])).count()
    }
}

impl Program {
    pub(super) fn new<F>(
        reconcile: impl Fn(Arc<ConfigMap>) -> F + Send + Sync + 'static,
        policy: impl Fn(&Refused) -> Action + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Reconciled> + Send + 'static,
    {
        Self {
            reconcile: Arc::new(move |map| Box::pin(reconcile(map))),
            policy: Arc::new(policy),
            concurrency: None,
            owns_secrets: false,
            shutdown_after: None,
        }
    }

    /// Runs the program for this time.
    pub(super) async fn run(&self, engine: Engine, server: &ApiServer, time: Duration) -> Ran {
        self.run_with(engine, server, time, flyball_kube::Config::default()).await
    }

    /// Runs the program for this time. `config` is the configuration of flyball's controller.
    pub(super) async fn run_with(
        &self,
        engine: Engine,
        server: &ApiServer,
        time: Duration,
        config: flyball_kube::Config,
    ) -> Ran {
        let begun = Instant::now();
        let runs = Runs::new();
        let mut stream = match engine {
            Engine::KubeRuntime => self.kube_runtime(server, runs.clone()),
            Engine::Flyball => self.flyball(server, runs.clone(), config),
        };
        let (mut items, mut ended) = (Vec::new(), None);
        while let Ok(item) = timeout_at(begun + time, stream.next()).await {
            match item {
                Some(item) => items.push(item),
                None => {
                    ended = Some(begun.elapsed().as_millis() as u64);
                    break;
                }
            }
        }
        drop(stream);
        Ran { runs: runs.all(), results: outcomes(&items), ended }
    }

    fn kube_runtime(&self, server: &ApiServer, runs: Arc<Runs>) -> Pin<Box<dyn Stream<Item = Item> + Send>> {
        let mut config = kube::runtime::controller::Config::default();
        if let Some(concurrency) = self.concurrency {
            config = config.concurrency(concurrency);
        }
        let maps = Api::<ConfigMap>::all(server.client());
        let mut controller =
            kube::runtime::Controller::new(maps, watcher::Config::default()).with_config(config);
        if self.owns_secrets {
            let secrets = Api::<Secret>::all(server.client());
            controller = controller.owns(secrets, watcher::Config::default());
        }
        if let Some(time) = self.shutdown_after {
            controller = controller.graceful_shutdown_on(sleep(time));
        }
        let Self { reconcile, policy, .. } = self.clone();
        let reconcile = move |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            runs.record(&*map);
            reconcile(map)
        };
        controller.run(reconcile, move |_, error, _| policy(error), runs).boxed()
    }

    fn flyball(
        &self,
        server: &ApiServer,
        runs: Arc<Runs>,
        mut config: flyball_kube::Config,
    ) -> Pin<Box<dyn Stream<Item = Item> + Send>> {
        if let Some(concurrency) = self.concurrency {
            config = config.concurrency(concurrency);
        }
        let maps = Api::<ConfigMap>::all(server.client());
        let mut controller =
            flyball_kube::Controller::new(maps, watcher::Config::default()).with_config(config);
        if self.owns_secrets {
            let secrets = Api::<Secret>::all(server.client());
            controller = controller.owns(secrets, watcher::Config::default());
        }
        if let Some(time) = self.shutdown_after {
            controller = controller.graceful_shutdown_on(sleep(time));
        }
        let Self { reconcile, policy, .. } = self.clone();
        let reconcile = move |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            runs.record(&*map);
            reconcile(map)
        };
        controller.run(reconcile, move |_, error, _| policy(error), runs).boxed()
    }
}

/// Returns a server with these ConfigMaps. The owned kind, Secret, is registered, too.
pub(super) fn server(names: impl IntoIterator<Item = String>) -> ApiServer {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Secret>();
    for name in names {
        server.put(&map(&name));
    }
    server
}

pub(super) fn map(name: &str) -> ConfigMap {
    crate::world::map(&format!("default/{name}"))
}

/// Returns a Secret that this ConfigMap owns.
pub(super) fn secret(name: &str, owner: &ConfigMap) -> Secret {
    let owner = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(), "controller": true,
    });
    let metadata = serde_json::json!({"name": name, "namespace": "default", "ownerReferences": [owner]});
    serde_json::from_value(serde_json::json!({ "metadata": metadata })).unwrap()
}
