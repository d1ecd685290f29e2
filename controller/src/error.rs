//! PURE. The reasons why a controller could not run, why its run ended early, or why it refused a watch.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::InformerState;

use crate::WatchStatus;

/// An invalid configuration of a controller. Nothing was started.
///
/// # Examples
/// ```
/// use flyball_controller::{ControllerConfig, InvalidControllerConfig};
///
/// let mut config = ControllerConfig::default();
/// config.workers = 0.into();
/// let invalid: InvalidControllerConfig = config.validate().unwrap_err();
/// assert_eq!(invalid.setting(), "workers"); // what to correct in the file
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidControllerConfig {
    /// The number of workers is 0, so no key would be reconciled.
    ZeroWorkers,
    /// The maximum number of workers is below the minimum.
    MaxWorkersBelowMin,
    /// The idle timeout of workers is 0, so idle workers would stop immediately.
    ZeroWorkerIdleTimeout,
    /// The maximum size of a batch is 0, so a batch could never hold a key.
    ZeroBatchSize,
    /// The reconcile timeout is 0, so every reconcile that waits would time out immediately.
    ZeroReconcileTimeout,
    /// The maximum number of attempts is 0, so a key would have no attempt.
    ZeroMaxAttempts,
    /// The maximum number of failing keys in flight is 0, so a key that has failed would never be retried.
    ZeroMaxFailingInFlight,
    /// The initial wait after a conflict is 0, so a key would be retried immediately after each conflict.
    ZeroConflictBackoff,
    /// The initial wait after a conflict is longer than the maximum wait.
    ConflictBackoffMaxBelowInitial,
    /// A maximum number of attempts, or of failing keys in flight, is set, but the queue has no limiter that counts the failures of a key.
    LimiterCountsNoFailures,
    /// [`stop_when_idle`](crate::Controller::stop_when_idle) is set, but the controller has no informer. Such a controller only reconciles keys that
    /// other code adds, so it cannot determine when no work is left.
    NoInformers,
    /// A [resync period](crate::WatchOptions::resync_every) is 0, so all objects would be resynced continuously.
    ZeroResyncPeriod,
    /// The cache sync timeout is 0, but no cache can sync in zero time.
    ZeroCacheSyncTimeout,
}

impl InvalidControllerConfig {
    /// Returns the name of the setting to change: the field of [`ControllerConfig`](crate::ControllerConfig), or the method
    /// of the controller or the queue if there is no such field.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            Self::ZeroWorkers | Self::MaxWorkersBelowMin => "workers",
            Self::ZeroWorkerIdleTimeout => "worker_idle_timeout",
            Self::ZeroBatchSize => "run_batches",
            Self::ZeroReconcileTimeout => "reconcile_timeout",
            Self::ZeroMaxAttempts => "max_attempts",
            Self::LimiterCountsNoFailures => "limiter",
            Self::ZeroMaxFailingInFlight => "max_failing_in_flight",
            Self::ZeroConflictBackoff => "conflict_backoff_initial",
            Self::ConflictBackoffMaxBelowInitial => "conflict_backoff_max",
            Self::NoInformers => "stop_when_idle",
            Self::ZeroResyncPeriod => "resync_every",
            Self::ZeroCacheSyncTimeout => "cache_sync_timeout",
        }
    }
}

impl fmt::Display for InvalidControllerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroWorkers => "a controller needs at least one worker",
            Self::MaxWorkersBelowMin => "the maximum number of workers must not be below the minimum",
            Self::ZeroWorkerIdleTimeout => "the idle timeout of workers must be positive",
            Self::ZeroBatchSize => "a batch must hold at least one key",
            Self::ZeroReconcileTimeout => "the reconcile timeout must be positive",
            Self::ZeroMaxAttempts => "the number of attempts must be positive",
            Self::ZeroMaxFailingInFlight => "the number of failing keys in flight must be positive",
            Self::ZeroConflictBackoff => "the wait after a conflict must be positive",
            Self::ConflictBackoffMaxBelowInitial => {
                "the first wait after a conflict must not be longer than the maximum wait"
            }
            Self::LimiterCountsNoFailures => {
                "a limit of attempts or of failing keys needs a queue with a limiter that counts failures"
            }
            Self::NoInformers => "a controller without an informer can never be idle",
            Self::ZeroResyncPeriod => "the period of a resync must be positive",
            Self::ZeroCacheSyncTimeout => "the cache sync timeout must be positive",
        })
    }
}

impl Error for InvalidControllerConfig {}

/// The reason why a controller did not start, or ended early.
///
/// # Examples
/// How a program may react to each error:
/// ```
/// use flyball_controller::{RunError, StartCondition};
///
/// fn advice(error: &RunError) -> String {
///     match error {
///         RunError::Config(invalid) => format!("correct `{}`", invalid.setting()),
///         RunError::SyncFailed(StartCondition::Cache { object_type, .. }) => format!("see why `{object_type}` ended"),
///         RunError::SyncTimeout { missing, .. } => format!("{} caches cannot be listed: permissions?", missing.len()),
///         RunError::CacheEnded(_) => "start again, with new informers".into(),
///         other => other.to_string(),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration is invalid. Nothing was started.
    Config(InvalidControllerConfig),
    /// A required informer ended before it had synced, or another start condition of the workers failed, so the workers never started. The queue
    /// stays open, and holds the keys that have been added so far.
    SyncFailed(StartCondition),
    /// Not all required caches had synced within the [sync timeout](crate::Controller::cache_sync_timeout), so the workers never started. The queue
    /// stays open, and holds the keys that have been added so far.
    SyncTimeout {
        /// The timeout.
        limit: Duration,
        /// The required caches that had not synced.
        missing: Vec<WatchStatus>,
    },
    /// The informer of a cache failed, or was shut down, while the controller ran, so the cache no longer changes. With
    /// [`stop_when_idle`](crate::Controller::stop_when_idle), an informer that was shut down is not an error. Before the run returned this error, it
    /// ended the running reconciles in the same way as at a [shutdown](crate::Controller::graceful_shutdown_on). The queue is not shut down, and
    /// keeps the keys that were not reconciled, for a later controller with new caches.
    CacheEnded(WatchStatus),
}

/// A condition that must be met before workers start.
///
/// # Examples
/// ```
/// # use flyball_controller::{Action, Controller, RunError, StartCondition, TokioTimer};
/// # use flyball_workqueue::Queue;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let queue = Queue::<u32>::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
/// let ended = Controller::new(queue)
///     .wait_for_cache(async { Err("no permission to list nodes") })
///     .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
///     .await;
/// let Err(RunError::SyncFailed(StartCondition::Future { index, error })) = ended else { panic!("{ended:?}") };
/// assert_eq!((index, error.to_string().as_str()), (0, "no permission to list nodes"));
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StartCondition {
    /// The cache of an informer that the controller watches.
    Cache {
        /// The number of the watch, in the order in which the watches were added to the controller, from 0.
        index: usize,
        /// The name of the object type, for display; its format is not stable.
        object_type: &'static str,
    },
    /// A future that was passed to [`wait_for_cache`](crate::Controller::wait_for_cache).
    Future {
        /// The number of the future, in the order of the calls, from 0.
        index: usize,
        /// The error that the future returned.
        error: Arc<dyn Error + Send + Sync>,
    },
}

impl From<InvalidControllerConfig> for RunError {
    fn from(error: InvalidControllerConfig) -> Self {
        Self::Config(error)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::SyncFailed(StartCondition::Cache { index, object_type }) => {
                write!(f, "the informer of `{object_type}`, number {index}, ended before it had synced")
            }
            Self::SyncTimeout { limit, missing } => {
                write!(f, "not synced after {limit:?}: ")?;
                for (number, cache) in missing.iter().enumerate() {
                    write!(f, "{}{cache}", if number == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::CacheEnded(cache) => match cache.state {
                InformerState::Failed => write!(f, "the informer of {cache} panicked"),
                _ => write!(f, "the informer of {cache} was stopped"),
            },
            Self::SyncFailed(StartCondition::Future { index, error }) => {
                write!(f, "start condition {index} failed: {error}")
            }
        }
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // `Display` prints the message of `error` itself, so the source is the next error in the chain.
            Self::SyncFailed(StartCondition::Future { error, .. }) => error.source(),
            _ => None,
        }
    }
}

/// The reason why a watch was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddWatchError {
    /// The controller shuts down, or has ended.
    Ended,
    /// The informer has ended, so its cache never changes again, and the watch would end the run with
    /// [`RunError::CacheEnded`]. If the controller [stops when idle](crate::Controller::stop_when_idle), an informer that was shut down normally can
    /// be watched.
    InformerEnded,
    /// The [resync period](crate::WatchOptions::resync_every) is 0, so all objects would be resynced continuously.
    ZeroResyncPeriod,
}

impl fmt::Display for AddWatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the controller has ended",
            Self::InformerEnded => "the informer has ended",
            Self::ZeroResyncPeriod => "the period of a resync must be positive",
        })
    }
}

impl Error for AddWatchError {}
