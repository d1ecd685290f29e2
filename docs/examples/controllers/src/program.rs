//! EDGE. The code that all example programs share.
//!
//! Cancel safety: a dropped future loses no state. An informer stops when its last handle is dropped.

mod election;
mod options;
mod probes;

use std::error::Error;
use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{Informer, InformerBuilder, NamespacedName};
use flyball_kube::{ApiSource, ReconcileStream, informer};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::controller::Action;
use kube::runtime::{controller, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

pub use self::election::{LeadershipLost, Term, as_leader, election};
pub use self::options::Options;
pub use self::probes::Probes;
use crate::endpointslice::{PODS_BY_LABEL, SLICES_BY_SERVICE, by_namespace};
use crate::owner::by_owner;

/// A function that returns the current time; tests use virtual time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Returns the clock of this machine.
#[must_use]
pub fn wall_clock() -> Clock {
    Arc::new(Timestamp::now)
}

/// The error policy of all controllers in this crate. It adds no delay, so only the backoff of
/// [`Config::recommended`](flyball_kube::Config::recommended) applies.
pub fn retry<K, E, C>(_: Arc<K>, _: &E, _: Arc<C>) -> Action {
    Action::requeue(Duration::ZERO)
}

/// Runs `work` in the cluster of the current context, until SIGTERM or Ctrl-C. If `options` enable leader election, several processes can run, and
/// only the leader reconciles.
///
/// Returns exit code 1 after an error, such as a lost leadership.
///
/// # Panics
/// Panics outside a tokio runtime.
pub async fn run(name: &str, options: Options, work: impl AsyncFnOnce(Client, Term)) -> ExitCode {
    match work_by(name, &options, work).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn work_by(
    name: &str,
    options: &Options,
    work: impl AsyncFnOnce(Client, Term),
) -> Result<(), Box<dyn Error>> {
    let client = Client::try_default().await?;
    let probes = Probes::default();
    if let Some(address) = options.probes {
        probes.serve(address).await?;
    }
    if !options.leader_elect {
        work(client, Term::new(None, probes)).await;
        return Ok(());
    }
    let election = election(&client, name, options)?;
    // The handler of SIGTERM is registered before the election, because the signal may arrive while the program waits for the leadership. Each
    // controller registers its own signal handlers.
    let mut terminate = signal(SignalKind::terminate())?;
    let shutdown_signal = async {
        tokio::select! {
            _ = terminate.recv() => {}
            // If no handler can be registered for Ctrl-C, this branch is disabled, and Ctrl-C ends the process immediately.
            Ok(()) = ctrl_c() => {}
        }
    };
    let work = |leadership| work(client, Term::new(Some(leadership), probes));
    Ok(as_leader(election, shutdown_signal, work).await?)
}

/// Starts an informer of all pods, indexed by controlling owner, by namespace and by labels.
///
/// # Panics
/// Panics outside a tokio runtime.
pub fn pods(client: &Client) -> Informer<NamespacedName, Pod> {
    let pods = all(client).index(&by_owner()).index(&by_namespace()).index(&PODS_BY_LABEL);
    pods.start().expect("each index has a different name")
}

/// Starts an informer of all ReplicaSets, indexed by controlling owner.
///
/// # Panics
/// Panics outside a tokio runtime.
pub fn replica_sets(client: &Client) -> Informer<NamespacedName, ReplicaSet> {
    all(client).index(&by_owner()).start().expect("there is only one index")
}

/// Starts an informer of all Deployments.
///
/// # Panics
/// Panics outside a tokio runtime.
pub fn deployments(client: &Client) -> Informer<NamespacedName, Deployment> {
    all(client).start().expect("there is no index")
}

/// Starts an informer of all Services, indexed by namespace.
///
/// # Panics
/// Panics outside a tokio runtime.
pub fn services(client: &Client) -> Informer<NamespacedName, Service> {
    all(client).index(&by_namespace()).start().expect("there is only one index")
}

/// Starts an informer of all EndpointSlices, indexed by service.
///
/// # Panics
/// Panics outside a tokio runtime.
pub fn slices(client: &Client) -> Informer<NamespacedName, EndpointSlice> {
    all(client).index(&SLICES_BY_SERVICE).start().expect("there is only one index")
}

fn all<K>(client: &Client) -> InformerBuilder<NamespacedName, K, ApiSource<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + Sync + 'static,
{
    informer(Api::all(client.clone()), watcher::Config::default())
}

/// Runs a controller until it ends, and prints its errors.
pub async fn drive<K, E>(reconciles: ReconcileStream<K, E>)
where
    E: Error + 'static,
    K: Resource<DynamicType: Debug + Clone + Eq + std::hash::Hash> + Send + Sync + 'static,
{
    reconciles
        .for_each(async |outcome| match outcome {
            Ok((object, action)) => tracing::debug!(%object, ?action, "reconciled"),
            Err(controller::Error::ObjectNotFound(object)) => tracing::debug!(%object, "gone"),
            Err(error) => eprintln!("{}", chain(&error)),
        })
        .await;
}

/// Returns the message of an error, followed by the messages of its causes.
fn chain(error: &dyn Error) -> String {
    std::iter::successors(Some(error), |&error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
