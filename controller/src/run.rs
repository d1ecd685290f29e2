//! EDGE. The life of a controller: the order in which its tasks start and end.
//!
//! Cancel safety: the workers are aborted and the observers dropped with the future; see `Controller::run` for what that
//! leaves behind.

use std::error::Error;
use std::future::{Future, pending};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use flyball_ratelimit::Policy;
use flyball_workqueue::{AsyncGet, Delays, Key, Leftovers, Order, Queue};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::events::Events;
use crate::report::Tally;
use crate::worker::Shop;
use crate::{Action, Context, Controller, Report, RunError};

pub(crate) async fn run<K, O, L, T, F, R, E>(
    controller: Controller<K, O, L, T>,
    reconcile: F,
) -> Result<Report<K>, RunError>
where
    K: Key,
    O: Order<K>,
    L: Policy<K> + Send + 'static,
    T: AsyncGet + Delays,
    F: Fn(K, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    let Controller { queue, config, events, initial, stop } = controller;
    let (workers, grace, settles) = (config.workers, config.grace, config.settles);
    let (tally, context) = (Arc::new(Tally::default()), Context::new());
    let shop = Arc::new(Shop::new(queue.clone(), reconcile, config, context.clone(), tally.clone()));

    let (mut observing, mut unsynced, mut unstopped) = (Vec::new(), Vec::new(), Vec::new());
    for Events { observe, synced, stopped } in events {
        observing.push(observe(queue.clone(), initial.clone(), tally.clone()));
        unsynced.push(synced);
        unstopped.push(stopped);
    }
    let settling = async {
        if settles {
            for stopped in unstopped {
                stopped.await;
            }
            shop.settle();
        }
        pending().await
    };

    let mut working = JoinSet::new();
    let live = async {
        for synced in unsynced {
            if synced.await.is_err() {
                return Err(RunError::NeverSynced);
            }
        }
        for _ in 0..workers {
            working.spawn(shop.clone().work());
        }
        // They end when the queue is closed: because it has settled, or by somebody else.
        let worked = async {
            while let Some(worker) = working.join_next().await {
                ended(worker);
            }
        };
        tokio::select! {
            () = worked => Ok(()),
            settled = settling => settled,
        }
    };
    let lived = tokio::select! {
        // A signal that is there already lets nothing start.
        biased;
        () = stop => Ok(()),
        lived = live => lived,
    };

    context.stop();
    // Stops the events. A change that is being mapped on another thread may still add its keys; they are worked off or
    // refused, as the queue is shut down below.
    drop(observing);
    lived?;
    let leftovers = finish(&queue, grace, !working.is_empty()).await;
    if !leftovers.leased.is_empty() {
        working.abort_all();
    }
    while let Some(worker) = working.join_next().await {
        ended(worker);
    }
    Ok(tally.report(leftovers))
}

/// Finishes the queue, or gives up after the grace.
async fn finish<K, O, L, T>(queue: &Queue<K, O, L, T>, grace: Option<Duration>, workers: bool) -> Leftovers<K>
where
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
        Some(grace) => timeout(grace, drain).await.unwrap_or_else(|_| queue.stop_now()),
    }
}

/// A task has ended, or was aborted. It panics only where no guard can be, inside the queue: a reconcile that is aborted
/// is dropped under a guard, too.
fn ended(task: Result<(), JoinError>) {
    if let Some(Ok(panic)) = task.err().map(JoinError::try_into_panic) {
        resume_unwind(panic);
    }
}
