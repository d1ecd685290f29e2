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
/// use flyball_controller::{Action, Controller, ControllerConfig, InvalidControllerConfig, RunError, TokioTimer};
/// # use flyball_workqueue::Queue;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let queue = Queue::<u32>::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
/// let config = ControllerConfig { workers: 0.into(), ..ControllerConfig::default() };
/// let ended = Controller::new(queue)
///     .with_config(config)
///     .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
///     .await;
/// let Err(RunError::Config(invalid)) = ended else { panic!("{ended:?}") };
/// let invalid: InvalidControllerConfig = invalid;
/// assert_eq!(invalid.setting(), "workers"); // what to correct in the file
/// assert_eq!(invalid.to_string(), "a controller needs at least one worker");
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidControllerConfig {
    setting: &'static str,
    problem: &'static str,
}

impl InvalidControllerConfig {
    pub(crate) const fn new(setting: &'static str, problem: &'static str) -> Self {
        Self { setting, problem }
    }

    /// Returns the name of the setting to change: the field of [`ControllerConfig`](crate::ControllerConfig), or the method
    /// of the controller, the watch or the queue if there is no such field.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        self.setting
    }
}

impl fmt::Display for InvalidControllerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.problem)
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
    /// Not all required caches had synced within the [sync timeout](crate::ControllerConfig::cache_sync_timeout), so the workers never started. The queue
    /// stays open, and holds the keys that have been added so far.
    SyncTimeout {
        /// The timeout.
        limit: Duration,
        /// The required caches that had not synced.
        missing: Vec<WatchStatus>,
    },
    /// The informer of a cache failed, or was shut down, while the controller ran, so the cache no longer changes. With
    /// [`stop_when_idle`](crate::ControllerConfig::stop_when_idle), an informer that was shut down is not an error. Before the run returned this error, it
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
    /// [`RunError::CacheEnded`]. If the controller [stops when idle](crate::ControllerConfig::stop_when_idle), an informer that was shut down normally can
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
