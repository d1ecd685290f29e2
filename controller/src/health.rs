//! EDGE. Whether a controller is ready, and whether it is alive.
//!
//! Everything is read from the set of watches, the caches and the queue when it is asked for: there is no second truth.
//!
//! Cancel safety: nothing here waits.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::CacheStatus;
use crate::run::watch_set::{Lifecycle, WatchSet};

/// Whether a controller is ready and alive: for probes. See
/// [`Controller::health`](crate::Controller::health). A clone costs a reference count.
///
/// # Examples
/// The answers to the probes of a kubelet:
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
    /// For how long the oldest lease has been held.
    oldest: Arc<dyn Fn() -> Option<Duration> + Send + Sync>,
}

impl Health {
    pub(crate) fn new(
        watches: WatchSet,
        oldest: impl Fn() -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        Self { watches, oldest: Arc::new(oldest) }
    }

    /// Whether the controller runs, or [stands by](crate::Controller::standby_until) with all required caches synced; none has ended, and the controller
    /// is not shutting down. A watch that is added to a controller that runs does not change that: it goes on with what it has.
    ///
    /// # Errors
    /// Why not.
    pub fn ready(&self) -> Result<(), NotReady> {
        if let Some(CacheStatus { index, object_type, .. }) = self.watches.ended_cache() {
            return Err(NotReady::CacheEnded { index, object_type });
        }
        match self.watches.lifecycle() {
            Lifecycle::NotStarted => Err(NotReady::NotStarted),
            Lifecycle::Syncing => Err(NotReady::Syncing),
            Lifecycle::Standby if self.caches().iter().any(|cache| cache.required && !cache.synced) => {
                Err(NotReady::Syncing)
            }
            Lifecycle::Standby | Lifecycle::Running => Ok(()),
            Lifecycle::ShuttingDown => Err(NotReady::ShuttingDown),
            Lifecycle::Ended => Err(NotReady::Ended),
        }
    }

    /// Whether the controller can still make progress: no key has been held for longer than `longest`, none of the caches it watches has ended,
    /// and the run is not over. A controller that has not begun, or waits for its caches, is alive.
    ///
    /// Choose `longest` well above the [`reconcile_timeout`](crate::Controller::reconcile_timeout), which drops only what
    /// awaits something: this finds what blocks its thread, too.
    ///
    /// # Errors
    /// Why not.
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

    /// How the caches fare that the controller watches, in the order in which they were added. None after it has ended.
    #[must_use]
    pub fn caches(&self) -> Vec<CacheStatus> {
        self.watches.statuses()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("lifecycle", &self.watches.lifecycle()).finish_non_exhaustive()
    }
}

/// Why a controller is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotReady {
    /// It does not run yet.
    NotStarted,
    /// A cache has not synced, or something else that workers come [after](crate::Controller::wait_for_cache) is not there.
    Syncing,
    /// A cache has ended, so its changes do not come any more: the run ends as
    /// [`RunError::CacheEnded`](crate::RunError::CacheEnded), which says why.
    CacheEnded {
        /// Which one, in the order in which they were given to the controller, from 0.
        index: usize,
        /// The type of its objects, for people: how it is written is not promised.
        object_type: &'static str,
    },
    /// It shuts down.
    ShuttingDown,
    /// It has ended, or was dropped.
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

/// Why there is no hope for a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLive {
    /// A key has been held for this long.
    Stuck(Duration),
    /// A cache of the controller has ended and delivers no more changes. A cache that was stopped in order is not reported if the
    /// controller ends [once it has settled](crate::Controller::stop_when_idle).
    CacheEnded,
    /// It has ended, or was dropped.
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
