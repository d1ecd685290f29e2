//! Regression tests for defects of kube-runtime 5.0.0, numbered as in `docs/comparison.md`. Each test runs the whole adapter: API server, client,
//! source, cache, queue, controller and the stream of results. The programs in `benches/peers/rust/src/bin/defects` reproduce the defects with
//! kube-runtime.

mod caches;
mod controllers;
mod leak_counter;

use std::sync::Arc;
use std::time::Duration;

use flyball_kube::{Config, Controller};
use flyball_kube_testing::ApiServer;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::{from_value, json};
use tokio::time::{Instant, sleep};

use crate::world::{Refused, outcomes};

const SECOND: Duration = Duration::from_secs(1);

fn server() -> ApiServer {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Pod>();
    server
}

fn map(name: &str, value: &str) -> ConfigMap {
    from_value(json!({"metadata": {"name": name, "namespace": "default"}, "data": {"value": value}})).unwrap()
}

fn value(map: &ConfigMap) -> String {
    map.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default()
}

fn maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::all(server.client())
}

fn controller(server: &ApiServer, config: watcher::Config) -> Controller<ConfigMap> {
    Controller::new(maps(server), config).with_config(Config::default().concurrency(10))
}

/// A reconcile: the name of its object, the object's value, and the time of the reconcile.
type Run = (String, String, Instant);

/// The log of a controller: its reconciles, and the items of its stream of results.
#[derive(Clone, Default)]
struct Log {
    runs: Arc<Mutex<Vec<Run>>>,
    results: Arc<Mutex<Vec<String>>>,
}

impl Log {
    fn runs(&self) -> Vec<Run> {
        std::mem::take(&mut self.runs.lock())
    }

    /// Returns the names and values of the reconciled objects, and clears the log of reconciles.
    fn seen(&self) -> Vec<(String, String)> {
        self.runs().into_iter().map(|(name, value, _)| (name, value)).collect()
    }

    fn names(&self) -> Vec<String> {
        self.runs().into_iter().map(|(name, ..)| name).collect()
    }

    /// Returns the items of the stream, and clears the log of items.
    fn results(&self) -> Vec<String> {
        std::mem::take(&mut self.results.lock())
    }
}

/// Runs a controller. Each reconcile is logged, and then runs `work`.
fn run<F>(
    controller: Controller<ConfigMap>,
    work: impl Fn(Arc<ConfigMap>) -> F + Send + Sync + 'static,
) -> Log
where
    F: Future<Output = Action> + Send + 'static,
{
    let log = Log::default();
    let own_log = log.clone();
    let reconcile = move |map: Arc<ConfigMap>, log: Arc<Log>| {
        log.runs.lock().push((map.name_any(), value(&map), Instant::now()));
        let work = work(map);
        async { Ok::<_, Refused>(work.await) }
    };
    let policy = |_, _: &Refused, _| Action::requeue(SECOND);
    let results = controller.run(reconcile, policy, Arc::new(log.clone()));
    tokio::spawn(results.for_each(move |result| {
        own_log.results.lock().extend(outcomes(&[result]));
        std::future::ready(())
    }));
    log
}

fn idle(_: Arc<ConfigMap>) -> impl Future<Output = Action> + Send {
    std::future::ready(Action::await_change())
}

async fn pass(time: Duration) {
    sleep(time).await;
}
