//! EDGE. The life of a controller: the order in which its tasks start and end.
//!
//! Cancel safety: the workers are aborted and the observers dropped with the future; see `Controller::run` for what that
//! leaves behind.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use flyball_ratelimit::Policy;
use flyball_workqueue::{AsyncGet, Delays, Key, Leftovers, Order, Queue};

use crate::caches::all;
use crate::events::{BoxFuture, Events};
use crate::health::Phase;
use crate::report::Tally;
use crate::runtime::{Runtime, Tasks};
use crate::worker::Shop;
use crate::{Awaited, Context, Controller, Report, RunError};

/// `worker` is the life of one of the workers.
pub(crate) async fn run<X, K, O, L, T, F, W>(
    runtime: X,
    controller: Controller<K, O, L, T>,
    reconcile: F,
    worker: impl Fn(Arc<Shop<X, K, O, L, T, F>>) -> W,
) -> Result<Report<K>, RunError>
where
    X: Runtime,
    K: Key,
    O: Order<K>,
    L: Policy<K> + Send + 'static,
    T: AsyncGet + Delays,
    F: Send + Sync + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let Controller { queue, config, events, initial, after, stop, health: alive } = controller;
    let health = &alive.0;
    let (grace, settles) = (config.grace, config.settles);
    let only = config.only.clone();
    let (measures, most) = (config.metrics.is_some(), *config.workers.end());
    let (tally, context) = (Arc::new(Tally::default()), Context::new());
    let (tasks, tallied) = (runtime.clone(), tally.clone());
    let shop = Arc::new(Shop::new(tasks, queue.clone(), reconcile, config, context.clone(), tallied));

    shop.tell(|metrics| metrics.most_workers(most));
    if measures {
        // For how long a key has been held is how long its reconcile took.
        queue.keep_ages();
    }

    let (mut observing, mut unstopped, mut caches) = (Vec::new(), Vec::new(), Vec::new());
    let mut unsynced: Vec<BoxFuture<Result<(), Awaited>>> = Vec::new();
    for (index, ready) in after.into_iter().enumerate() {
        unsynced.push(Box::pin(async move { ready.await.map_err(|()| Awaited::After { index }) }));
    }
    for (index, Events { objects, observe, synced, stopped, state }) in events.into_iter().enumerate() {
        observing.push(observe(queue.clone(), initial.clone(), only.clone(), tally.clone()));
        let awaited = Awaited::Cache { index, objects };
        unsynced.push(Box::pin(async move { synced().await.map_err(|_| awaited) }));
        unstopped.push(stopped);
        caches.push(state);
    }
    if !settles {
        health.listens(caches);
    }
    health.moved(Phase::Syncing);
    let settling = async {
        if settles {
            for stopped in unstopped {
                stopped.await;
            }
            shop.settle();
        }
        pending().await
    };

    let mut working = runtime.tasks();
    let live = async {
        all(unsynced).await.map_err(RunError::NeverSynced)?;
        shop.open();
        health.moved(Phase::Working);
        // They end when the queue is closed: because it has settled, or by somebody else.
        let worked = shop.keep_staffed(&mut working, &worker);
        tokio::select! {
            // In a fixed order, so that a simulated run replays.
            biased;
            () = worked => Ok(()),
            settled = settling => settled,
        }
    };
    let lived: Result<(), RunError> = tokio::select! {
        // A signal that is there already lets nothing start.
        biased;
        () = stop => Ok(()),
        lived = live => lived,
    };

    health.moved(Phase::Stopping);
    context.stop();
    // Stops the events. A change that is being mapped on another thread may still add its keys; they are worked off or
    // refused, as the queue is shut down below.
    drop(observing);
    lived?;
    let finished = finish(&runtime, &queue, grace, !working.is_empty());
    let leftovers = tokio::select! {
        biased;
        leftovers = finished => leftovers,
        // What is left is worked off by as many as before.
        never = async { shop.keep_staffed(&mut working, &worker).await; pending().await } => never,
    };
    if !leftovers.leased.is_empty() {
        working.abort_all();
    }
    while working.join_next().await {}
    Ok(tally.report(leftovers))
}

/// Finishes the queue, or gives up after the grace.
async fn finish<X, K, O, L, T>(
    runtime: &X,
    queue: &Queue<K, O, L, T>,
    grace: Option<Duration>,
    workers: bool,
) -> Leftovers<K>
where
    X: Runtime,
    K: Key,
    O: Order<K>,
    L: Policy<K> + Send + 'static,
    T: AsyncGet + Delays,
{
    if !workers {
        // Nobody is left to finish anything: shuts down, and looks at what there is.
        return queue.drain_timeout(Duration::ZERO);
    }
    let drain = queue.drain();
    match grace {
        None => drain.await,
        Some(grace) => runtime.timeout(grace, drain).await.unwrap_or_else(|| queue.stop_now()),
    }
}
