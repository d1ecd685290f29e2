//! The time from a change to the reconcile that sees it, through an informer, a queue and a number of workers.
//!
//! | file | |
//! |---|---|
//! | ours, kube | the controllers |
//! | changes | changes of objects, as fast as they are reconciled or at a fixed rate |
//! | overload | keys that are requeued after every reconcile, more of them than the workers can handle |
//!
//! In Rust, a task on the runtime of the informer, the queue and the workers sends the changes into the watch; in Go
//! all of them are goroutines. Neither program decodes objects from the wire. A reconcile looks its object up in the cache,
//! then sleeps for the configured time without using the CPU, like a call to an API server. No timer is exact, so the
//! figures include the time a reconcile actually slept.

pub(crate) mod changes;
pub(crate) mod kube;
pub(crate) mod ours;
mod overload;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::Receiver;

use crate::Figures;
use crate::clock::percentiles;
use crate::keys::Key;
use crate::options::{Options, Party, Run};
use crate::system;

/// An object: its number, and its version. The version is 1 at first, and each change sets a newer version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) number: u32,
    pub(crate) version: u32,
}

/// The body of a reconcile.
trait Work: Send + Sync + 'static {
    /// Reconciles an object in the given state. Returns the delay after which to reconcile it again, if any.
    fn reconcile(self: Arc<Self>, state: State) -> impl Future<Output = Option<Duration>> + Send + 'static;
}

/// Returns `None` if this run does not exist for `party`.
pub(crate) fn run(options: &Options, run: Run, party: Party) -> Option<Figures> {
    let figures = match (run, party) {
        (
            Run::ControllerThroughput | Run::ControllerPaced | Run::ControllerOverload,
            Party::Ours | Party::Kube,
        ) => {
            let runtime = runtime(options);
            let (options, begin) = (options.clone(), Instant::now());
            let ran = runtime.spawn(async move {
                match run {
                    Run::ControllerThroughput => changes::throughput(&options, party, begin).await,
                    Run::ControllerPaced => changes::paced(&options, party, begin).await,
                    _ => overload::overload(&options, party, begin).await,
                }
            });
            let figures = runtime.block_on(ran).expect("it ends");
            // Workers may still run: they are aborted with the runtime.
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

/// Starts a controller with `workers` workers (0: unlimited) over the initial objects and the changes from `events`.
fn start<W: Work>(party: Party, keys: Vec<Key>, events: Receiver<State>, workers: usize, work: Arc<W>) {
    match party {
        Party::Kube => kube::start(keys, events, workers, work),
        _ => ours::start(keys, events, workers, work),
    }
}

/// Percentiles of the waits, and CPU time per reconcile.
fn figures(mut waits: Vec<Duration>, cpu: Duration, reconciles: usize) -> Figures {
    assert!(!waits.is_empty(), "no wait was recorded");
    waits.sort_unstable();
    let mut figures = percentiles(waits);
    figures.insert("cpu", cpu.as_nanos() as f64 / reconciles as f64);
    figures
}
