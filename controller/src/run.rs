//! EDGE. Runs a controller: determines the order in which its tasks start and end.
//!
//! Cancel safety: dropping the future aborts the workers and drops the watches; `Controller::run` documents the state that is
//! left.

pub(crate) mod attempt;
pub(crate) mod batch;
pub(crate) mod batch_config;
mod caches;
pub(crate) mod controller_handle;
mod failed_changes;
pub(crate) mod failing_keys;
pub(crate) mod in_flight;
pub(crate) mod into_keys;
mod mapper;
pub(crate) mod phase;
pub(crate) mod pool;
pub(crate) mod reconciler;
mod remap;
pub(crate) mod retry;
pub(crate) mod run_config;
pub(crate) mod runtime;
pub(crate) mod span;
mod spread;
pub(crate) mod watch_options;
pub(crate) mod watch_set;
pub(crate) mod watched_informer;
pub(crate) mod worker;

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flyball_workqueue::{DrainOptions, Key, Order, Queue, QueueLimiter, Timer};

use crate::reconcile::context::ShutdownStage;
use crate::report::ReportCounters;
use crate::run::caches::{all, ended, in_time, synced};
use crate::run::in_flight::InFlight;
use crate::run::phase::RunPhase;
use crate::run::remap::map_all_again;
use crate::run::run_config::{BoxError, RunConfig};
use crate::run::runtime::{Runtime, Tasks};
use crate::run::watch_set::{Lifecycle, RunGuard, WatchSet};
use crate::run::watched_informer::KeySink;
use crate::run::worker::{StartWorker, WorkerContext};
use crate::{Context, RunError, RunReport};
use futures_util::future::BoxFuture;

/// All parts of a run except the reconcile function.
pub(crate) struct RunSetup<K, O: Order<K>, L, T> {
    pub(crate) queue: Queue<K, O, L, T>,
    pub(crate) config: RunConfig<K>,
    pub(crate) watches: WatchSet,
    pub(crate) sink: Arc<OnceLock<KeySink<K, O, L, T>>>,
    /// The start conditions of the user.
    pub(crate) conditions: Vec<BoxFuture<'static, Result<(), BoxError>>>,
    /// Completes when the standby ends. In standby the caches sync, but changes add no keys.
    pub(crate) standby: Option<BoxFuture<'static, ()>>,
    pub(crate) stop: BoxFuture<'static, ()>,
    /// Marks the controller as ended when the guard is dropped, even if the controller never runs.
    pub(crate) guard: RunGuard,
}

/// Requeues leased keys whose reconcile has not started.
pub(crate) type Release<C> = dyn Fn(Arc<C>) -> BoxFuture<'static, ()> + Send + Sync;

/// Runs the controller.
pub(crate) async fn run<X, K, O, L, T>(
    runtime: X,
    setup: RunSetup<K, O, L, T>,
    worker: &StartWorker<WorkerContext<X, K, O, L, T>>,
    release: &Release<WorkerContext<X, K, O, L, T>>,
) -> Result<RunReport<K>, RunError>
where
    X: Runtime,
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    let RunSetup { queue, config, watches, sink, conditions, standby, stop, guard: _guard } = setup;
    let settings = config.settings.clone();
    let (stop_when_idle, waits) = (settings.stop_when_idle, !settings.start_before_sync);
    let (measures, max_workers) = (config.metrics.is_some(), settings.workers.max);
    let (counters, context) = (Arc::new(ReportCounters::default()), Context::new());
    let in_flight = Arc::<InFlight>::default();
    let _cancel_on_drop = context.cancel_on_drop();
    let keys = KeySink {
        queue: queue.clone(),
        filter_key: config.filter_key.clone(),
        counters: counters.clone(),
        in_flight: in_flight.clone(),
    };
    // `set` cannot fail, because a controller runs only once.
    let _ = sink.set(keys);
    let workers = WorkerContext::new(
        runtime.clone(),
        queue.clone(),
        config,
        context.clone(),
        counters.clone(),
        in_flight,
    );
    let workers = Arc::new(workers);

    workers.report(|metrics| metrics.max_workers(max_workers));
    if measures {
        // The duration of a reconcile is measured as the age of its lease.
        queue.track_ages();
    }

    watches.begin(stop_when_idle, waits);
    // The watches start before the caches have synced, so that no change is missed. A controller in standby starts them only when the standby ends.
    // Otherwise the keys of objects that are created and deleted during the standby would accumulate in its queue.
    if standby.is_none() {
        watches.start_all();
    }
    let all_synced = || async {
        match waits {
            true => synced(&watches).await,
            false => Ok(watches.added()),
        }
    };
    let conditions_met = async {
        let conditions = conditions.into_iter().map(condition);
        let (conditions, synced) = (all(conditions), all_synced());
        tokio::try_join!(biased; conditions, synced).map(drop)
    };
    // More watches may have been added in the meantime. Another thread may add one until the controller is running.
    let enter_running = async {
        loop {
            let added = all_synced().await?;
            watches.all_started().await;
            if watches.enter_running(added) {
                return Ok(());
            }
        }
    };
    let limit = settings.start_timeout;

    let mut tasks = runtime.tasks();
    let main_future = async {
        match standby {
            None => {
                let start = async {
                    conditions_met.await?;
                    enter_running.await
                };
                in_time(&watches, &runtime, limit, start).await?;
            }
            Some(mut begins) => {
                let mut conditions_met = pin!(in_time(&watches, &runtime, limit, conditions_met));
                tokio::select! {
                    biased;
                    met = &mut conditions_met => {
                        met?;
                        watches.enter(Lifecycle::Standby);
                        begins.await;
                        watches.start_all();
                    }
                    // The end of the standby is awaited from the start, because its future may be lazy: an election begins when it is polled.
                    () = &mut begins => {
                        watches.start_all();
                        conditions_met.await?;
                    }
                }
                in_time(&watches, &runtime, limit, enter_running).await?;
            }
        }
        workers.open();
        // The workers end when the queue is closed, because the queue is idle or because other code has shut it down.
        workers.run_workers(&mut tasks, worker).await;
        Ok(())
    };
    let caches = async {
        loop {
            let added = ended(&watches, stop_when_idle).await?;
            let idle = async {
                workers.phase.reached(RunPhase::Working).await;
                watches.all_started().await;
                // For all changes whose mapper panicked, calls the mapper one last time. The report counts the changes whose mapper panics again.
                let mappers = watches.subscribe().borrow().mappers();
                for (_, mapper) in mappers {
                    for retry_key in mapper.retry_keys(runtime.now()) {
                        mapper.remap_object(retry_key, runtime.now());
                        runtime.yield_now().await;
                    }
                }
                workers.phase.raise(RunPhase::Draining);
                queue.wait_empty().await;
            };
            tokio::select! {
                biased;
                // A further watch was added, whose cache must also be awaited.
                () = watches.more_than(added) => {
                    workers.phase.resume();
                    continue;
                }
                () = idle => {}
            }
            if watches.shut_down_after(added) {
                queue.shut_down();
                return pending().await;
            }
            // A watch was added just before the shutdown, so the run continues.
            workers.phase.resume();
        }
    };
    let outcome: Result<(), RunError> = tokio::select! {
        // Biased, so that a simulation with the same seed repeats the run. The signal is polled first, so that no worker is started if it has already
        // completed.
        biased;
        () = stop => Ok(()),
        outcome = main_future => outcome,
        ended = caches => ended,
        () = map_all_again(&watches, &runtime) => unreachable!("the loop that maps again never completes"),
    };
    let ended = match &outcome {
        Err(RunError::CacheEnded(cache)) => Some(cache.clone()),
        _ => None,
    };
    let active = watches.shut_down(ended);
    let drains = settings.drain_on_shutdown && outcome.is_ok();
    if drains {
        // Before the phase: until the queue is shut down, a worker may put a failing key back, and the drain would not wait for that key.
        queue.shut_down();
        queue.resume();
    }
    workers.phase.raise(if drains { RunPhase::Draining } else { RunPhase::Stopping });
    context.enter(ShutdownStage::ShuttingDown);
    // Drops the observers, so later changes are not mapped. A change that is being mapped on another thread may still add its keys; these keys become
    // leftovers, or the queue rejects them.
    let mappers: Vec<_> = active.into_iter().map(|active| active.mapper).collect();

    // During a drain the worker pool can still grow.
    let finish = workers.run_workers(&mut tasks, worker);
    if runtime.timeout(settings.shutdown_grace, finish).await.is_none() {
        workers.phase.raise(RunPhase::Stopping);
        context.enter(ShutdownStage::Cancelled);
        // Reconciles that still run after this timeout are dropped below, and their keys are leftovers.
        runtime.timeout(settings.abort_after, workers.run_workers(&mut tasks, worker)).await;
    }
    release(workers.clone()).await;
    // Shuts the queue down and collects the leftovers before the workers are aborted, because the abort ends their leases as failures, and the
    // leftovers must still list those keys as leased. After an error the queue stays open for another controller.
    let ended = outcome.map(|()| queue.blocking_drain(DrainOptions::within(Duration::ZERO)));
    tasks.abort_all();
    while tasks.join_next().await {}
    let mapper_failures = mappers.iter().map(|mapper| mapper.pending(runtime.now()) as u64).sum();
    ended.map(|leftovers| counters.report(leftovers, mapper_failures))
}

/// Awaits a start condition of the user.
fn condition(
    condition: BoxFuture<'static, Result<(), BoxError>>,
) -> BoxFuture<'static, Result<(), RunError>> {
    Box::pin(async move { condition.await.map_err(|error| RunError::StartFailed(error.into())) })
}
