//! EDGE. Whether caches have synced, theirs and others'.
//!
//! Cancel safety: dropping a wait only stops waiting.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use flyball_informer_cache::Stopped;

use crate::events::BoxFuture;

/// A wait for one cache, its types out of sight.
pub(crate) type Syncing = Arc<dyn Fn() -> BoxFuture<Result<(), Stopped>> + Send + Sync>;

/// The caches of a controller, for somebody else to wait for; see [`Controller::after`](crate::Controller::after).
#[derive(Clone)]
pub struct Caches(pub(crate) Vec<Syncing>);

impl Caches {
    /// Waits until every one of them has synced.
    ///
    /// # Errors
    /// When one of them ended before it had.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    pub async fn synced(&self) -> Result<(), Stopped> {
        all(self.0.iter().map(|synced| synced()).collect()).await
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches").field("count", &self.0.len()).finish()
    }
}

/// Waits for all of them at once, so that one that never will is noticed while others are still awaited.
pub(crate) async fn all<E>(mut waits: Vec<BoxFuture<Result<(), E>>>) -> Result<(), E> {
    poll_fn(|cx| {
        let mut failed = None;
        waits.retain_mut(|wait| {
            if failed.is_some() {
                return true;
            }
            let Poll::Ready(outcome) = wait.as_mut().poll(cx) else { return true };
            failed = outcome.err();
            false
        });
        match failed {
            Some(error) => Poll::Ready(Err(error)),
            None if waits.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}
