//! EDGE. The life of a controller: the order in which its tasks start and end.
//!
//! Cancel safety: the workers are aborted and the observers dropped with the future; see `Controller::run` for what that
//! leaves behind.

pub(crate) mod attempt;
pub(crate) mod batch;
pub(crate) mod batch_config;
pub(crate) mod mapper_retry;
pub(crate) mod phase;
pub(crate) mod pool;
pub(crate) mod retry;
pub(crate) mod run_config;
pub(crate) mod runtime;
pub(crate) mod span;
pub(crate) mod watched_informer;
pub(crate) mod worker;

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use flyball_workqueue::{Key, Order, Queue, QueueLimiter, SupportsAsync, SupportsDelays};
use tokio::sync::watch;

use crate::cache_status::{Probe, all};
use crate::health::{Lifecycle, has_ended};
use crate::reconcile::context::ShutdownStage;
use crate::report::ReportCounters;
use crate::run::mapper_retry::{RetryMapping, retry_mapping};
use crate::run::phase::RunPhase;
use crate::run::runtime::{Runtime, Tasks};
use crate::run::watched_informer::{ActiveWatch, AddInitial, BoxFuture, KeyFilter, WatchedInformer};
use crate::run::worker::WorkerContext;
use crate::{CacheStatus, Context, Controller, RunError, RunReport, StartCondition};

/// `worker` is the life of one of the workers; `release` gives back what none of them has begun.
pub(crate) async fn run<X, K, O, L, T, F, W>(
    runtime: X,
    controller: Controller<K, O, L, T>,
    reconcile: F,
    worker: impl Fn(Arc<WorkerContext<X, K, O, L, T, F>>) -> W,
    release: impl Fn(&WorkerContext<X, K, O, L, T, F>),
) -> Result<RunReport<K>, RunError>
where
    X: Runtime,
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: SupportsAsync + SupportsDelays,
    F: Send + Sync + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let Controller { queue, config, events, initial, after, standby, stop, health: alive } = controller;
    let health = &alive.0;
    let (settings, stop_when_idle) = (config.settings.clone(), config.stop_when_idle);
    let (only, waits) = (config.filter_key.clone(), !config.start_before_sync);
    let (measures, most) = (config.metrics.is_some(), settings.max_workers.unwrap_or(settings.workers));
    let (counters, context) = (Arc::new(ReportCounters::default()), Context::new());
    let (tasks, shared_counters) = (runtime.clone(), counters.clone());
    let workers = Arc::new(WorkerContext::new(
        tasks,
        queue.clone(),
        reconcile,
        config,
        context.clone(),
        shared_counters,
    ));

    // No bound is no number, which would be summed up with others.
    if most < usize::MAX {
        workers.report(|metrics| metrics.max_workers(most));
    }
    if measures {
        // For how long a key has been held is how long its reconcile took.
        queue.track_ages();
    }

    // Before its caches have synced, so that no change is missed; one that stands by looks at all objects when it begins: until then, keys of objects that
    // come and go would pile up in its queue.
    let mut heard = hear(events, &queue, &initial, &only, &counters, waits);
    let (mut observers, mut observing) = (std::mem::take(&mut heard.observers), Vec::new());
    if standby.is_none() {
        observing.extend(observers.drain(..).map(|observe| observe()));
    }
    let mappers = watch::Sender::new(remaps(&observing));
    health.listens(heard.caches.clone(), stop_when_idle);
    health.moved(Lifecycle::Syncing);
    let ready = heard.ready(after, &runtime, settings.cache_sync_timeout);
    let ended = heard.ended(stop_when_idle);

    let mut working = runtime.tasks();
    let live = async {
        all(ready).await?;
        if let Some(begins) = standby {
            health.moved(Lifecycle::Standby);
            begins.await;
            observing.extend(observers.into_iter().map(|observe| observe()));
            mappers.send_replace(remaps(&observing));
        }
        workers.open();
        health.moved(Lifecycle::Running);
        // They end when the queue is closed: because it has settled, or by somebody else.
        workers.run_workers(&mut working, &worker).await;
        Ok(())
    };
    let caches = async {
        all(ended).await?;
        if stop_when_idle {
            workers.phase.reached(RunPhase::Working).await;
            // The last retry of changes whose mapper panicked; the report counts those that fail again.
            mappers.borrow().clone().iter().for_each(|mapper| mapper.remap_all(runtime.now()));
            workers.phase.raise(RunPhase::Draining);
            queue.wait_empty().await;
            queue.shut_down();
        }
        pending().await
    };
    let lived: Result<(), RunError> = tokio::select! {
        // In a fixed order, so that a simulated run replays. A signal that is there already lets nothing start.
        biased;
        () = stop => Ok(()),
        lived = live => lived,
        ended = caches => ended,
        () = retry_mapping(mappers.subscribe(), &runtime) => unreachable!("it has no end"),
    };
    if let Err(RunError::CacheEnded(cache)) = &lived {
        health.failed(cache.clone());
    }

    health.moved(Lifecycle::ShuttingDown);
    context.enter(ShutdownStage::ShuttingDown);
    // Stops the events. A change that is being mapped on another thread may still add its keys; they are left over, or
    // refused.
    drop(observing);

    if settings.drain_on_shutdown && lived.is_ok() {
        workers.phase.raise(RunPhase::Draining);
        queue.shut_down();
        queue.resume();
    } else {
        workers.phase.raise(RunPhase::Stopping);
    }
    if !ends_within(&workers, &mut working, &worker, settings.shutdown_grace).await {
        workers.phase.raise(RunPhase::Stopping);
        context.enter(ShutdownStage::Cancelled);
        // What still runs after that is dropped below; whether it is there is seen then.
        ends_within(&workers, &mut working, &worker, settings.abort_after).await;
    }
    release(&workers);
    // Shuts down, and looks at what there is. Before the abort, which makes failures of leases. After an error the queue is
    // somebody else's to go on with.
    let ended = lived.map(|()| queue.blocking_drain_timeout(Duration::ZERO));
    working.abort_all();
    while working.join_next().await {}
    let mapper_failures = mappers.borrow().iter().map(|mapper| mapper.pending(runtime.now()) as u64).sum();
    ended.map(|leftovers| counters.report(leftovers, mapper_failures))
}

/// What a controller hears of its informers.
struct Heard {
    observers: Vec<Box<dyn FnOnce() -> ActiveWatch + Send>>,
    caches: Vec<Probe>,
    syncing: Vec<(Probe, BoxFuture<Result<(), RunError>>)>,
    stopped: Vec<(Probe, BoxFuture<()>)>,
}

/// What the mappers of these could not map.
fn remaps(observing: &[ActiveWatch]) -> Vec<Arc<dyn RetryMapping>> {
    observing.iter().map(|one| one.remap.clone()).collect()
}

/// Makes of each informer what the run needs of it; `waits` says whether workers wait for those that are required.
fn hear<K, O, L, T>(
    events: Vec<WatchedInformer<K, O, L, T>>,
    queue: &Queue<K, O, L, T>,
    initial: &AddInitial<K, O, L, T>,
    only: &Arc<KeyFilter<K>>,
    counters: &Arc<ReportCounters>,
    waits: bool,
) -> Heard
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: SupportsAsync + SupportsDelays,
{
    let mut heard =
        Heard { observers: Vec::new(), caches: Vec::new(), syncing: Vec::new(), stopped: Vec::new() };
    for (index, WatchedInformer { object_type, required, observe, synced, stopped, status }) in
        events.into_iter().enumerate()
    {
        let (queue, initial, only, counters) =
            (queue.clone(), initial.clone(), only.clone(), counters.clone());
        heard.observers.push(Box::new(move || observe(queue, initial, only, counters)));
        let probe: Probe = Arc::new(move || CacheStatus { index, required, ..status() });
        if required && waits {
            let never = RunError::SyncFailed(StartCondition::Cache { index, object_type });
            heard.syncing.push((probe.clone(), Box::pin(async move { synced().await.map_err(|_| never) })));
        }
        heard.stopped.push((probe.clone(), stopped));
        heard.caches.push(probe);
    }
    heard
}

impl Heard {
    /// What workers wait for.
    fn ready<X: Runtime>(
        &mut self,
        after: Vec<BoxFuture<Result<(), ()>>>,
        runtime: &X,
        limit: Duration,
    ) -> Vec<BoxFuture<Result<(), RunError>>> {
        let mut ready: Vec<BoxFuture<Result<(), RunError>>> = Vec::new();
        for (index, ready_one) in after.into_iter().enumerate() {
            let never = RunError::SyncFailed(StartCondition::Future { index });
            ready.push(Box::pin(async move { ready_one.await.map_err(|()| never) }));
        }
        let (probes, waits): (Vec<Probe>, Vec<_>) = std::mem::take(&mut self.syncing).into_iter().unzip();
        let runtime = runtime.clone();
        ready.push(Box::pin(async move {
            let synced = runtime.timeout(limit, all(waits)).await;
            synced.unwrap_or_else(|| {
                let missing = probes.iter().map(|probe| probe()).filter(|cache| !cache.synced).collect();
                Err(RunError::SyncTimeout { limit, missing })
            })
        }));
        ready
    }

    /// The ends of all caches: an error where one is needed.
    fn ended(&mut self, stop_when_idle: bool) -> Vec<BoxFuture<Result<(), RunError>>> {
        let ended = |(probe, stopped): (Probe, BoxFuture<()>)| -> BoxFuture<Result<(), RunError>> {
            Box::pin(async move {
                stopped.await;
                let cache = probe();
                if has_ended(&cache, stop_when_idle) { Err(RunError::CacheEnded(cache)) } else { Ok(()) }
            })
        };
        std::mem::take(&mut self.stopped).into_iter().map(ended).collect()
    }
}

/// Whether all workers end within this time.
async fn ends_within<X, K, O, L, T, F, W>(
    workers: &Arc<WorkerContext<X, K, O, L, T, F>>,
    working: &mut X::Tasks,
    worker: &impl Fn(Arc<WorkerContext<X, K, O, L, T, F>>) -> W,
    limit: Duration,
) -> bool
where
    X: Runtime,
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: SupportsAsync + SupportsDelays,
    W: Future<Output = ()> + Send + 'static,
{
    tokio::select! {
        // In a fixed order, so that a simulated run replays. A drain is worked off by as many as before.
        biased;
        () = workers.run_workers(working, worker) => true,
        _ = workers.runtime.timeout(limit, pending::<()>()) => false,
    }
}
