//! From a change to the reconcile that sees it: an informer, a queue, and so many workers.
//!
//! | file | |
//! |---|---|
//! | ours, kube | the controllers |
//! | changes | changes of objects: as fast as they are reconciled, or at a rate |
//! | turns | keys that ask to be reconciled again after a while, more of them than there is capacity for |
//!
//! On each side a task of the informer's, queue's and workers' runtime sends the changes into the watch; in Go all of them are goroutines. No side decodes objects
//! from the wire. A reconcile looks its object up in the cache, and sleeps for the configured time, without CPU, as if it waited for an
//! API server. The figures include the time it slept, as no timer is exact.

pub(crate) mod changes;
pub(crate) mod kube;
pub(crate) mod ours;
mod turns;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::Receiver;

use crate::Figures;
use crate::clock::percentiles;
use crate::keys::Key;
use crate::options::{Options, Run, Who};
use crate::system;

/// An object: its number among all, and its version, which is that of the change that made it; 1 at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) number: u32,
    pub(crate) version: u32,
}

/// What reconciles do.
trait Work: Send + Sync + 'static {
    /// Reconciles the object, which is in this state. It may ask to be reconciled again.
    fn reconcile(self: Arc<Self>, state: State) -> impl Future<Output = Option<Duration>> + Send + 'static;
}

/// `None`: these do not go together.
pub(crate) fn run(options: &Options, run: Run, who: Who) -> Option<Figures> {
    let figures = match (run, who) {
        (
            Run::ControllerThroughput | Run::ControllerPaced | Run::ControllerOverload,
            Who::Ours | Who::Kube,
        ) => {
            let runtime = runtime(options);
            let (options, begin) = (options.clone(), Instant::now());
            let ran = runtime.spawn(async move {
                match run {
                    Run::ControllerThroughput => changes::throughput(&options, who, begin).await,
                    Run::ControllerPaced => changes::paced(&options, who, begin).await,
                    _ => turns::overload(&options, who, begin).await,
                }
            });
            let figures = runtime.block_on(ran).expect("it ends");
            // Workers are left where they are.
            runtime.shutdown_background();
            figures
        }
        _ => return None,
    };
    Some(figures)
}

pub(crate) fn runtime(options: &Options) -> Runtime {
    match options.threads {
        0 => Builder::new_multi_thread().enable_time().build(),
        1 => Builder::new_current_thread().enable_time().build(),
        threads => Builder::new_multi_thread().worker_threads(threads).enable_time().build(),
    }
    .expect("a runtime")
}

/// Starts a controller of `workers`, 0 for as many as it likes, over objects that are there and what comes of `events`.
fn start<W: Work>(who: Who, keys: Vec<Key>, events: Receiver<State>, workers: usize, work: Arc<W>) {
    match who {
        Who::Kube => kube::start(keys, events, workers, work),
        _ => ours::start(keys, events, workers, work),
    }
}

/// Of waits and of CPU.
fn figures(mut waits: Vec<Duration>, cpu: Duration, reconciles: usize) -> Figures {
    assert!(!waits.is_empty(), "somebody has waited");
    waits.sort_unstable();
    let mut figures = percentiles(waits);
    figures.insert("cpu", cpu.as_nanos() as f64 / reconciles as f64);
    figures
}
