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
use crate::health::{Phase, has_ended};
use crate::reconcile::context::Stage;
use crate::report::Tally;
use crate::run::mapper_retry::{Remap, keep_remapping};
use crate::run::phase::Pace;
use crate::run::runtime::{Runtime, Tasks};
use crate::run::watched_informer::{AddInitial, BoxFuture, Events, Observing, Only};
use crate::run::worker::Shop;
use crate::{Awaited, CacheStatus, Context, Controller, Report, RunError};

/// `worker` is the life of one of the workers; `release` gives back what none of them has begun.
pub(crate) async fn run<X, K, O, L, T, F, W>(
    runtime: X,
    controller: Controller<K, O, L, T>,
    reconcile: F,
    worker: impl Fn(Arc<Shop<X, K, O, L, T, F>>) -> W,
    release: impl Fn(&Shop<X, K, O, L, T, F>),
) -> Result<Report<K>, RunError>
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
    let (shutdown, settles, sync_timeout) = (config.shutdown, config.settles, config.sync_timeout);
    let (only, waits) = (config.only.clone(), !config.starts_unsynced);
    let (measures, most) = (config.metrics.is_some(), *config.workers.end());
    let (tally, context) = (Arc::new(Tally::default()), Context::new());
    let (tasks, tallied) = (runtime.clone(), tally.clone());
    let shop = Arc::new(Shop::new(tasks, queue.clone(), reconcile, config, context.clone(), tallied));

    // No bound is no number, which would be summed up with others.
    if most < usize::MAX {
        shop.tell(|metrics| metrics.most_workers(most));
    }
    if measures {
        // For how long a key has been held is how long its reconcile took.
        queue.track_ages();
    }

    // Before its caches have synced, so that no change is missed; one that stands by looks at all objects when it begins: until then, keys of objects that
    // come and go would pile up in its queue.
    let mut heard = hear(events, &queue, &initial, &only, &tally, waits);
    let (mut observers, mut observing) = (std::mem::take(&mut heard.observers), Vec::new());
    if standby.is_none() {
        observing.extend(observers.drain(..).map(|observe| observe()));
    }
    let mappers = watch::Sender::new(remaps(&observing));
    health.listens(heard.caches.clone(), settles);
    health.moved(Phase::Syncing);
    let ready = heard.ready(after, &runtime, sync_timeout);
    let ended = heard.ended(settles);

    let mut working = runtime.tasks();
    let live = async {
        all(ready).await?;
        if let Some(begins) = standby {
            health.moved(Phase::Standby);
            begins.await;
            observing.extend(observers.into_iter().map(|observe| observe()));
            mappers.send_replace(remaps(&observing));
        }
        shop.open();
        health.moved(Phase::Working);
        // They end when the queue is closed: because it has settled, or by somebody else.
        shop.keep_staffed(&mut working, &worker).await;
        Ok(())
    };
    let caches = async {
        all(ended).await?;
        if settles {
            shop.pace.reached(Pace::Working).await;
            // The last retry of changes whose mapper panicked; the report counts those that fail again.
            mappers.borrow().clone().iter().for_each(|mapper| mapper.remap_all(runtime.now()));
            shop.pace.raise(Pace::Hurrying);
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
        () = keep_remapping(mappers.subscribe(), &runtime) => unreachable!("it has no end"),
    };
    if let Err(RunError::CacheEnded(cache)) = &lived {
        health.failed(cache.clone());
    }

    health.moved(Phase::Stopping);
    context.enter(Stage::ShuttingDown);
    // Stops the events. A change that is being mapped on another thread may still add its keys; they are left over, or
    // refused.
    drop(observing);

    if shutdown.drains && lived.is_ok() {
        shop.pace.raise(Pace::Hurrying);
        queue.shut_down();
        queue.resume();
    } else {
        shop.pace.raise(Pace::Closing);
    }
    if !ends_within(&shop, &mut working, &worker, shutdown.grace).await {
        shop.pace.raise(Pace::Closing);
        context.enter(Stage::Cancelled);
        // What still runs after that is dropped below; whether it is there is seen then.
        ends_within(&shop, &mut working, &worker, shutdown.abort_after).await;
    }
    release(&shop);
    // Shuts down, and looks at what there is. Before the abort, which makes failures of leases. After an error the queue is
    // somebody else's to go on with.
    let ended = lived.map(|()| queue.blocking_drain_timeout(Duration::ZERO));
    working.abort_all();
    while working.join_next().await {}
    let unmapped = mappers.borrow().iter().map(|mapper| mapper.pending(runtime.now()) as u64).sum();
    ended.map(|leftovers| tally.report(leftovers, unmapped))
}

/// What a controller hears of its informers.
struct Heard {
    observers: Vec<Box<dyn FnOnce() -> Observing + Send>>,
    caches: Vec<Probe>,
    syncing: Vec<(Probe, BoxFuture<Result<(), RunError>>)>,
    stopped: Vec<(Probe, BoxFuture<()>)>,
}

/// What the mappers of these could not map.
fn remaps(observing: &[Observing]) -> Vec<Arc<dyn Remap>> {
    observing.iter().map(|one| one.remap.clone()).collect()
}

/// Makes of each informer what the run needs of it; `waits` says whether workers wait for those that are required.
fn hear<K, O, L, T>(
    events: Vec<Events<K, O, L, T>>,
    queue: &Queue<K, O, L, T>,
    initial: &AddInitial<K, O, L, T>,
    only: &Arc<Only<K>>,
    tally: &Arc<Tally>,
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
    for (index, Events { objects, required, observe, synced, stopped, status }) in
        events.into_iter().enumerate()
    {
        let (queue, initial, only, tally) = (queue.clone(), initial.clone(), only.clone(), tally.clone());
        heard.observers.push(Box::new(move || observe(queue, initial, only, tally)));
        let probe: Probe = Arc::new(move || CacheStatus { index, required, ..status() });
        if required && waits {
            let never = RunError::NeverSynced(Awaited::Cache { index, objects });
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
            let never = RunError::NeverSynced(Awaited::After { index });
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
    fn ended(&mut self, settles: bool) -> Vec<BoxFuture<Result<(), RunError>>> {
        let ended = |(probe, stopped): (Probe, BoxFuture<()>)| -> BoxFuture<Result<(), RunError>> {
            Box::pin(async move {
                stopped.await;
                let cache = probe();
                if has_ended(&cache, settles) { Err(RunError::CacheEnded(cache)) } else { Ok(()) }
            })
        };
        std::mem::take(&mut self.stopped).into_iter().map(ended).collect()
    }
}

/// Whether all workers end within this time.
async fn ends_within<X, K, O, L, T, F, W>(
    shop: &Arc<Shop<X, K, O, L, T, F>>,
    working: &mut X::Tasks,
    worker: &impl Fn(Arc<Shop<X, K, O, L, T, F>>) -> W,
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
        () = shop.keep_staffed(working, worker) => true,
        _ = shop.runtime.timeout(limit, pending::<()>()) => false,
    }
}
