//! EDGE. Waits for the caches of a controller, while watches are added and removed.
//!
//! Cancel safety: dropping one of these futures only ends its wait.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;

use crate::run::runtime::Runtime;
use crate::run::watch_set::{WatchSet, has_ended};
use crate::run::watched_informer::WatchedInformer;
use crate::{RunError, WatchStatus};
use futures_util::future::BoxFuture;

/// Waits until every cache has synced. Returns the number of watches that had been added by then.
pub(crate) async fn synced(watches: &WatchSet) -> Result<usize, RunError> {
    let wait = |index, informer: Arc<WatchedInformer>| async move {
        if informer.synced().await.is_ok() {
            return Ok(());
        }
        // The state of the informer says how it has ended only when it has stopped.
        informer.stopped().await;
        Err(informer.status(index))
    };
    every_cache(watches, wait).await
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
    let wait = move |index, informer: Arc<WatchedInformer>| async move {
        informer.stopped().await;
        let cache = informer.status(index);
        if has_ended(&cache, stop_when_idle) { Err(cache) } else { Ok(()) }
    };
    loop {
        let added = every_cache(watches, wait).await?;
        if stop_when_idle {
            return Ok(added);
        }
        // There is no watch.
        watches.more_than(added).await;
    }
}

/// Waits for every cache with `wait`, anew whenever a watch was added or removed. Returns the number of watches that had been added by then, or the
/// first error, which is the status of a cache that has ended.
async fn every_cache<F>(
    watches: &WatchSet,
    wait: impl Fn(usize, Arc<WatchedInformer>) -> F,
) -> Result<usize, RunError>
where
    F: Future<Output = Result<(), WatchStatus>> + Send + 'static,
{
    let mut changes = watches.subscribe();
    loop {
        let (added, informers) = {
            let state = changes.borrow_and_update();
            (state.added(), state.informers())
        };
        let waits = informers
            .into_iter()
            .map(|(index, informer)| -> BoxFuture<'static, _> { Box::pin(wait(index, informer)) });
        tokio::select! {
            // Biased, so that a simulation with the same seed repeats the run.
            biased;
            // `changed` cannot fail, because the `WatchSet` holds the sender.
            _ = changes.changed() => {}
            waited = all(waits) => match waited {
                Err(cache) if watches.contains(cache.index) => return Err(RunError::CacheEnded(cache)),
                // The watch of the informer that ended was removed in the meantime.
                Err(_) => {}
                Ok(()) => return Ok(added),
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
