//! A controller of config maps, implemented by kube-runtime and by flyball. The programs are generic over the implementation.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt, future};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, controller, watcher};
use kube::{Api, Client};
use tokio::task::JoinHandle;

use crate::world::SECOND;

pub(crate) type Reconciled = Result<Action, std::io::Error>;
pub(crate) type Reconcile = Arc<dyn Fn(Arc<ConfigMap>) -> BoxFuture<'static, Reconciled> + Send + Sync>;

/// The options of a controller.
pub(crate) struct Plan {
    pub(crate) client: Client,
    pub(crate) main: watcher::Config,
    /// Whether the controller owns pods.
    pub(crate) owns: bool,
    /// The largest number of concurrent reconciles; 0 means unlimited.
    pub(crate) concurrency: u16,
    /// The debounce time; zero means no debounce.
    pub(crate) debounce: Duration,
}

impl Plan {
    pub(crate) fn new(client: Client) -> Self {
        let main = watcher::Config::default();
        Self { client, main, owns: false, concurrency: 0, debounce: Duration::ZERO }
    }

    fn main(&self) -> Api<ConfigMap> {
        Api::all(self.client.clone())
    }

    fn owned(&self) -> Api<Pod> {
        Api::all(self.client.clone())
    }
}

/// The implementation of the controller.
pub(crate) trait Engine {
    /// Starts a controller in its own task.
    fn start(plan: Plan, reconcile: Reconcile) -> JoinHandle<()>;
}

pub(crate) struct KubeRuntime;

impl Engine for KubeRuntime {
    fn start(plan: Plan, reconcile: Reconcile) -> JoinHandle<()> {
        let config = controller::Config::default().concurrency(plan.concurrency).debounce(plan.debounce);
        let mut controller = Controller::new(plan.main(), plan.main.clone()).with_config(config);
        if plan.owns {
            controller = controller.owns(plan.owned(), watcher::Config::default());
        }
        let outcomes = controller.run(move |object, _| reconcile(object), error_policy, Arc::new(()));
        tokio::spawn(outcomes.for_each(|_| future::ready(())))
    }
}

pub(crate) struct Flyball;

impl Engine for Flyball {
    fn start(plan: Plan, reconcile: Reconcile) -> JoinHandle<()> {
        let mut config = flyball_kube::Config::default().concurrency(plan.concurrency);
        if !plan.debounce.is_zero() {
            config = config.debounce(plan.debounce);
        }
        let mut controller =
            flyball_kube::Controller::new(plan.main(), plan.main.clone()).with_config(config);
        if plan.owns {
            controller = controller.owns(plan.owned(), watcher::Config::default());
        }
        let outcomes = controller.run(move |object, _| reconcile(object), error_policy, Arc::new(()));
        tokio::spawn(outcomes.for_each(|_| future::ready(())))
    }
}

fn error_policy<E: Debug>(_: Arc<ConfigMap>, _: &E, _: Arc<()>) -> Action {
    Action::requeue(SECOND)
}

/// Builds a [`Reconcile`] from an async closure.
pub(crate) fn reconcile<F>(work: impl Fn(Arc<ConfigMap>) -> F + Send + Sync + 'static) -> Reconcile
where
    F: Future<Output = Reconciled> + Send + 'static,
{
    Arc::new(move |object| Box::pin(work(object)))
}
