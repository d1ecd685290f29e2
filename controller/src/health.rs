//! EDGE. The readiness and liveness of a controller.
//!
//! Each call reads the set of watches, the caches and the queue, so there is no second copy of their state.
//!
//! Cancel safety: nothing here waits.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::WatchStatus;
use crate::run::watch_set::{Lifecycle, WatchSet};

/// The readiness and liveness of a controller, for probes. See [`Controller::health`](crate::Controller::health). A clone costs
/// a reference count.
///
/// # Examples
/// A function that answers the readiness and liveness probes of a kubelet:
/// ```
/// use flyball_controller::Health;
/// use std::time::Duration;
///
/// fn answer(health: &Health, path: &str) -> (u16, String) {
///     let answer = match path {
///         "/readyz" => health.ready().map_err(|why| why.to_string()),
///         "/healthz" => health.live(Duration::from_secs(300)).map_err(|why| why.to_string()),
///         _ => return (404, String::new()),
///     };
///     answer.map_or_else(|why| (503, why), |()| (200, "ok".into()))
/// }
/// ```
#[derive(Clone)]
pub struct Health {
    watches: WatchSet,
    /// Returns the age of the oldest lease.
    oldest: Arc<dyn Fn() -> Option<Duration> + Send + Sync>,
}

impl Health {
    pub(crate) fn new(
        watches: WatchSet,
        oldest: impl Fn() -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        Self { watches, oldest: Arc::new(oldest) }
    }

    /// Returns `Ok` if the workers have started, or if the controller is [in standby](crate::Controller::standby_until) and all
    /// [start conditions](crate::Controller::start_when) are met. A controller that is shutting down, or one of whose caches has ended, is not ready. A watch that is added to a running controller does
    /// not change the readiness, because the workers continue while the new cache syncs.
    ///
    /// # Errors
    /// Returns the reason why the controller is not ready.
    pub fn ready(&self) -> Result<(), NotReady> {
        if let Some(WatchStatus { index, object_type, .. }) = self.watches.ended_cache() {
            return Err(NotReady::CacheEnded { index, object_type });
        }
        match self.watches.lifecycle() {
            Lifecycle::NotStarted => Err(NotReady::NotStarted),
            Lifecycle::Syncing => Err(NotReady::Syncing),
            Lifecycle::Standby if self.watches.is_syncing() => Err(NotReady::Syncing),
            Lifecycle::Standby | Lifecycle::Running => Ok(()),
            Lifecycle::ShuttingDown => Err(NotReady::ShuttingDown),
            Lifecycle::Ended => Err(NotReady::Ended),
        }
    }

    /// Returns `Ok` if the controller can still make progress: no key has been leased for longer than `longest`, none of
    /// the caches it watches has ended, and the run is not over. A controller that has not started, or waits for its
    /// caches, is alive.
    ///
    /// Choose `longest` well above the [`reconcile_timeout`](crate::ControllerConfig::reconcile_timeout); with batches, above its sum with
    /// [`max_wait`](crate::BatchConfig::max_wait), because keys in open batches are leased. The timeout drops a reconcile only at an
    /// await point; this check also detects reconciles that block their thread.
    ///
    /// # Errors
    /// Returns the reason why the controller is not alive.
    pub fn live(&self, longest: Duration) -> Result<(), NotLive> {
        if self.watches.ended_cache().is_some() {
            return Err(NotLive::CacheEnded);
        }
        if self.watches.lifecycle() == Lifecycle::Ended {
            return Err(NotLive::Ended);
        }
        match (self.oldest)() {
            Some(held) if held > longest => Err(NotLive::Stuck(held)),
            _ => Ok(()),
        }
    }

    /// Returns the status of each watch and of its cache, in the order in which the watches were added. The list is empty after the controller has
    /// ended.
    #[must_use]
    pub fn watches(&self) -> Vec<WatchStatus> {
        self.watches.statuses()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("lifecycle", &self.watches.lifecycle()).finish_non_exhaustive()
    }
}

/// The reason why a controller is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotReady {
    /// The controller has not started.
    NotStarted,
    /// A [start condition](crate::Controller::start_when) is not met: most often, a cache has not synced.
    Syncing,
    /// A cache has ended, so it never changes again. The run ends with
    /// [`RunError::CacheEnded`](crate::RunError::CacheEnded), which holds the status of that cache.
    CacheEnded {
        /// The number of the watch, in the order in which the watches were added to the controller, from 0.
        index: usize,
        /// The name of the object type, for display; its format is not stable.
        object_type: &'static str,
    },
    /// The controller is shutting down.
    ShuttingDown,
    /// The controller has ended, or was dropped.
    Ended,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CacheEnded { index, object_type } => {
                return write!(f, "the cache of `{object_type}`, number {index}, has ended");
            }
            Self::NotStarted => "the controller does not run yet",
            Self::Syncing => "the controller waits for its caches",
            Self::ShuttingDown => "the controller shuts down",
            Self::Ended => "the controller has ended",
        })
    }
}

impl Error for NotReady {}

/// The reason why a controller is not alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLive {
    /// A key has been leased for longer than the limit; contains the age of its lease.
    Stuck(Duration),
    /// A cache of the controller has ended and never changes again. If the controller [stops when
    /// idle](crate::ControllerConfig::stop_when_idle), a cache that was shut down normally is not reported.
    CacheEnded,
    /// The controller has ended, or was dropped.
    Ended,
}

impl fmt::Display for NotLive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck(held) => write!(f, "a key has been worked on for {held:?}"),
            Self::CacheEnded => f.write_str("a cache of the controller has ended"),
            Self::Ended => f.write_str("the controller has ended"),
        }
    }
}

impl Error for NotLive {}
