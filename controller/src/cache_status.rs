//! EDGE. How caches fare, and whether they have synced, theirs and others'.
//!
//! Cancel safety: dropping a wait only stops waiting.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use flyball_informer_cache::{InformerState, Stopped};

use crate::run::watched_informer::BoxFuture;

/// A wait for one cache, its types out of sight.
pub(crate) type Syncing = Arc<dyn Fn() -> BoxFuture<Result<(), Stopped>> + Send + Sync>;

/// How one cache fares, its types out of sight.
pub(crate) type Probe = Arc<dyn Fn() -> CacheStatus + Send + Sync>;

/// How a cache of a controller fares.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStatus {
    /// Which one, in the order in which their informers were given to the controller, from 0.
    pub index: usize,
    /// The type of its objects, for people: how it is written is not promised.
    pub object_type: &'static str,
    /// Whether workers wait for it; see [`Controller::optional`](crate::Controller::optional).
    pub required: bool,
    /// Whether its first list is published.
    pub synced: bool,
    /// What its informer is doing.
    pub state: InformerState,
    /// What went wrong last, in the words of the source, unless it has answered since.
    pub last_error: Option<Arc<str>>,
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cache of `{}`, number {}", self.object_type, self.index)?;
        match &self.last_error {
            Some(error) => write!(f, " (last error: {error})"),
            None => Ok(()),
        }
    }
}

/// The caches of a controller, for somebody else to wait for; see [`Controller::wait_for_cache`](crate::Controller::wait_for_cache).
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
