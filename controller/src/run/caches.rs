//! EDGE. Waits for the caches of a controller, while watches are added and removed.
//!
//! Cancel safety: dropping one of these futures only ends its wait.

use std::future::Future;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;

use crate::RunError;
use crate::run::runtime::Runtime;
use crate::run::watch_set::{WatchSet, has_ended};
use futures_util::future::BoxFuture;

/// Waits until every cache has synced. Returns the number of watches that had been added by then.
pub(crate) async fn synced(watches: &WatchSet) -> Result<usize, RunError> {
    let mut changes = watches.subscribe();
    loop {
        let (added, informers) = {
            let state = changes.borrow_and_update();
            (state.added(), state.informers())
        };
        let waits = informers.into_iter().map(|(index, informer)| -> BoxFuture<'static, _> {
            Box::pin(async move {
                if informer.synced().await.is_ok() {
                    return Ok(());
                }
                // The state of the informer says how it has ended only when it has stopped.
                informer.stopped().await;
                Err(informer.status(index))
            })
        });
        tokio::select! {
            // Biased, so that a simulation with the same seed repeats the run.
            biased;
            // `changed` cannot fail, because the `WatchSet` holds the sender.
            _ = changes.changed() => {}
            synced = all(waits) => match synced {
                Err(cache) if watches.contains(cache.index) => return Err(RunError::CacheEnded(cache)),
                // The watch of the informer that ended was removed in the meantime.
                Err(_) => {}
                Ok(()) => return Ok(added),
            }
        }
    }
}

/// Awaits `wait`, which waits for start conditions. After `limit`, returns [`RunError::StartTimeout`] with the caches that have not synced.
pub(crate) async fn in_time<X: Runtime, T: Send>(
    watches: &WatchSet,
    runtime: &X,
    limit: Duration,
    wait: impl Future<Output = Result<T, RunError>> + Send,
) -> Result<T, RunError> {
    runtime.timeout(limit, wait).await.unwrap_or_else(|| {
        let missing = watches.statuses().into_iter().filter(|cache| !cache.synced).collect();
        Err(RunError::StartTimeout(missing))
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
