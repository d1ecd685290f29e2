//! EDGE. Waits for the caches of a controller, while watches are added and removed.
//!
//! Cancel safety: dropping one of these futures only ends its wait.

use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;

use crate::run::runtime::Runtime;
use crate::run::watch_set::{WatchSet, has_ended};
use crate::{RunError, StartCondition};
use futures_util::future::BoxFuture;

/// Waits until every required cache has synced. Returns the number of watches that had been added by then.
pub(crate) async fn synced<X: Runtime>(
    watches: &WatchSet,
    runtime: &X,
    limit: Duration,
) -> Result<usize, RunError> {
    let all_synced = async {
        let mut changes = watches.subscribe();
        loop {
            let (added, informers) = {
                let state = changes.borrow_and_update();
                (state.added(), state.informers())
            };
            let waits =
                informers.into_iter().filter(|(_, informer)| informer.required).map(|(index, informer)| {
                    let object_type = informer.object_type;
                    let failed = RunError::SyncFailed(StartCondition::Cache { index, object_type });
                    let wait: BoxFuture<'static, _> =
                        Box::pin(async move { informer.synced().await.map_err(|_| (index, failed)) });
                    wait
                });
            tokio::select! {
                // Biased, so that a simulation with the same seed repeats the run.
                biased;
                // `changed` cannot fail, because the `WatchSet` holds the sender.
                _ = changes.changed() => {}
                synced = all(waits) => match synced {
                    Err((index, error)) if watches.contains(index) => return Err(error),
                    // The watch of the informer that ended was removed in the meantime.
                    Err(_) => {}
                    Ok(()) => return Ok(added),
                }
            }
        }
    };
    runtime.timeout(limit, all_synced).await.unwrap_or_else(|| {
        let missing =
            watches.statuses().into_iter().filter(|cache| cache.required && !cache.synced).collect();
        Err(RunError::SyncTimeout { limit, missing })
    })
}

/// Waits until a cache ends, and returns [`RunError::CacheEnded`]. If `stop_when_idle` is set, a cache that was stopped normally is no error: this
/// function then waits until every cache has been stopped, and returns the number of watches that had been added by then.
pub(crate) async fn ended(watches: &WatchSet, stop_when_idle: bool) -> Result<usize, RunError> {
    let mut changes = watches.subscribe();
    loop {
        let (added, informers) = {
            let state = changes.borrow_and_update();
            (state.added(), state.informers())
        };
        let waits = informers.into_iter().map(|(index, informer)| -> BoxFuture<'static, _> {
            Box::pin(async move {
                informer.stopped().await;
                let cache = informer.status(index);
                if has_ended(&cache, stop_when_idle) { Err(cache) } else { Ok(()) }
            })
        });
        tokio::select! {
            biased;
            _ = changes.changed() => {}
            ended = all(waits) => match ended {
                Err(cache) if watches.contains(cache.index) => return Err(RunError::CacheEnded(cache)),
                Err(_) => {}
                Ok(()) if stop_when_idle => return Ok(added),
                Ok(()) => _ = changes.changed().await,
            }
        }
    }
}

/// Waits for all futures concurrently, so that the failure of one future is returned even while other futures are pending. Polls only the futures that
/// were woken.
pub(crate) async fn all<E>(
    waits: impl IntoIterator<Item = BoxFuture<'static, Result<(), E>>>,
) -> Result<(), E> {
    let mut waits: FuturesUnordered<_> = waits.into_iter().collect();
    while waits.try_next().await?.is_some() {}
    Ok(())
}
