//! EDGE. The two controllers. Their informers watch either a recorded cluster or a live one.
//!
//! Cancel safety: each controller runs in its own task, and ends when its informers have stopped. After a stop request, a controller drains its queue
//! for at most [`GRACE`], and then ends.

use std::sync::Arc;
use std::time::Duration;

use flyball_controller::{Action, Controller, ControllerConfig, RunReport};
use flyball_ratelimit::Exponential;
use flyball_sync::{Clock, Monotonic, TokioTimer};
use flyball_workqueue::{Fifo, Queue};
use tokio::task::JoinHandle;

use crate::args::Args;
use crate::endpoints::Endpoints;
use crate::faults::Injector;
use crate::objects::{Key, Object};
use crate::replicas::{Replicas, owners};
use crate::stop::Stop;

/// The longest time for which the queues are drained after Ctrl-C.
pub(crate) const GRACE: Duration = Duration::from_millis(300);

/// The backoff of failed keys. The backoff is shorter than in production, because a trace is played in a fraction of a second. As in production, it
/// increases with each failure.
const BACKOFF: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(16);

pub(crate) type Running = JoinHandle<Result<RunReport<Key>, flyball_controller::RunError>>;

fn queue(args: &Args) -> Queue<Key, Fifo, Exponential<Key>, TokioTimer> {
    let backoff = Exponential::new(BACKOFF);
    Queue::builder().limiter(backoff).timer(TokioTimer::current()).seed(args.seed).build()
}

fn settings(args: &Args) -> ControllerConfig {
    ControllerConfig {
        workers: (args.workers as usize).into(),
        stop_when_idle: true,
        shutdown_grace: GRACE,
        ..ControllerConfig::default()
    }
}

/// Stores two times in `key`: the current time, as the time at which the key is added to the queue, and the time of the change that causes the add.
/// The caller adds the key immediately after this call.
fn queued(key: Key, because: &impl Object) -> Key {
    key.queued_at(Monotonic.now());
    key.changed_by(because);
    key
}

/// Starts the controller of ReplicaSets.
pub(crate) fn count(replicas: &Arc<Replicas>, faults: &Arc<Injector>, args: &Args, stop: &Stop) -> Running {
    let (faults, stop) = (faults.clone(), stop.clone());
    let controller = Controller::new(queue(args))
        .watches(&replicas.replicasets, |change| queued(change.object().key.clone(), &***change.object()))
        .watches(&replicas.pods, |change| {
            let pod = change.object().clone();
            owners(change).map(move |key| queued(key, &**pod))
        })
        .with_config(settings(args))
        .graceful_shutdown_on(async move { stop.requested().await });
    let replicas = replicas.clone();
    tokio::spawn(controller.run(move |key, _| {
        let (replicas, faults) = (replicas.clone(), faults.clone());
        async move { replicas.reconcile(key, &faults).map(|()| Action::await_change()) }
    }))
}

/// Starts the controller of Services.
pub(crate) fn collect(
    endpoints: &Arc<Endpoints>,
    faults: &Arc<Injector>,
    args: &Args,
    stop: &Stop,
) -> Running {
    let (faults, stop) = (faults.clone(), stop.clone());
    let mapper = endpoints.clone();
    let controller = Controller::new(queue(args))
        .watches(&endpoints.services, |change| queued(change.object().key.clone(), &***change.object()))
        .watches(&endpoints.pods, move |change| {
            let pod = change.object().clone();
            mapper.selecting(change).into_iter().map(move |key| queued(key, &**pod))
        })
        .with_config(settings(args))
        .graceful_shutdown_on(async move { stop.requested().await });
    let endpoints = endpoints.clone();
    tokio::spawn(controller.run(move |key, _| {
        let (endpoints, faults) = (endpoints.clone(), faults.clone());
        async move { endpoints.reconcile(key, &faults).map(|()| Action::await_change()) }
    }))
}
