//! EDGE. The tasks of the run that call the mappers: for initial objects, for the changes at which a mapper panicked, and for resyncs.
//!
//! Cancel safety: the failed changes and the objects are in the mappers and the caches, so dropping a future here only ends the mapping.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::run::mapper::RetryMapping;
use crate::run::runtime::Runtime;
use crate::run::spread::SLICES;
use crate::run::watch_set::WatchSet;

/// Maps the initial objects of a watch. Then maps the failed changes of each object again after the object's own backoff. In each part of a resync
/// period, maps the objects of one slice again. Never completes.
async fn map_again<X: Runtime>(index: usize, mapper: Arc<dyn RetryMapping>, watches: WatchSet, runtime: X) {
    poll_in_pieces(mapper.clone().map_initial(), &runtime).await;
    watches.mapped(index);
    // At least a nanosecond, so that the time of the next part is later than that of the previous one.
    let part = mapper.resync_every().map(|period| (period / SLICES).max(Duration::from_nanos(1)));
    let mut resync_at = part.map(|part| runtime.now().saturating_add(part));
    let mut slice = 0;
    loop {
        let now = runtime.now();
        match mapper.next_due(now).into_iter().chain(resync_at).min() {
            None => mapper.failed().await,
            Some(due) if due > now => _ = runtime.timeout(due - now, mapper.failed()).await,
            Some(_) => {
                // Maps one object at a time, so that the run future can end and other tasks of this thread can run.
                while mapper.remap_due(now) {
                    runtime.yield_now().await;
                }
            }
        }
        let Some((part, due)) = part.zip(resync_at).filter(|(_, due)| *due <= now) else { continue };
        poll_in_pieces(mapper.clone().resync(slice), &runtime).await;
        // If the period is short, the next part is already due, and if there are no objects, nothing else in this loop waits.
        runtime.yield_now().await;
        // No slice is skipped. If a slice takes too long, or the clock jumps, the parts after it are late.
        slice = (slice + 1) % SLICES;
        let (next, now) = (due.saturating_add(part), runtime.now());
        resync_at = Some(if next > now { next } else { now.saturating_add(part) });
    }
}

/// Polls a future that maps objects until it is ready, and lets the run future and other tasks of this thread run in between.
async fn poll_in_pieces<X: Runtime>(mut objects: BoxFuture<'static, ()>, runtime: &X) {
    while poll_fn(|cx| Poll::Ready(objects.as_mut().poll(cx).is_pending())).await {
        runtime.yield_now().await;
    }
}

/// Runs `map_again` for every active watch. Never completes.
pub(crate) async fn map_all_again<X: Runtime>(watches: &WatchSet, runtime: &X) {
    let mut changes = watches.subscribe();
    let mut running: Vec<(usize, BoxFuture<'static, ()>)> = Vec::new();
    loop {
        let mut new: BTreeMap<_, _> = changes.borrow_and_update().mappers().into_iter().collect();
        running.retain(|(index, _)| new.remove(index).is_some());
        for (index, mapper) in new {
            running.push((index, Box::pin(map_again(index, mapper, watches.clone(), runtime.clone()))));
        }
        let run_all = poll_fn(|cx| {
            running.iter_mut().for_each(|(_, retry)| _ = retry.as_mut().poll(cx));
            // The future that is polled first can use most of the task's budget, so the order rotates.
            let first = usize::from(!running.is_empty());
            running.rotate_left(first);
            Poll::<()>::Pending
        });
        tokio::select! {
            biased;
            // The wait cannot fail, because the set holds the sender.
            _ = changes.changed() => {}
            () = run_all => {}
        }
    }
}
