//! PURE. The reasons why a controller could not run, why its run ended early, or why it refused a watch.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

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
/// use flyball_controller::RunError;
///
/// fn advice(error: &RunError) -> String {
///     match error {
///         RunError::Config(invalid) => format!("correct `{}`", invalid.setting()),
///         RunError::StartTimeout(missing) => format!("{} caches cannot be listed: permissions?", missing.len()),
///         RunError::CacheEnded(cache) if !cache.synced => format!("see why `{}` ended", cache.object_type),
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
    /// A [start condition](crate::Controller::start_when) returned this error, so the workers never started. The queue stays open, and holds the keys that
    /// have been added so far.
    StartFailed(Arc<dyn Error + Send + Sync>),
    /// Not all [start conditions](crate::Controller::start_when) were met within the [timeout](crate::ControllerConfig::start_timeout), so the workers
    /// never started. Contains the watched caches that had not synced. The queue stays open, and holds the keys that have been added so far.
    StartTimeout(Vec<WatchStatus>),
    /// The informer of a cache failed, or was shut down, so the cache no longer changes. If it had not [synced](WatchStatus::synced) and the workers
    /// had to wait for it, no key was reconciled. With [`stop_when_idle`](crate::ControllerConfig::stop_when_idle), an informer that was shut down after it
    /// had synced is not an error. Before the run returned this error, it ended the running reconciles in the same way as at a
    /// [shutdown](crate::Controller::graceful_shutdown_on). The queue is not shut down, and keeps the keys that were not reconciled, for a later controller
    /// with new caches.
    CacheEnded(WatchStatus),
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
            Self::StartFailed(error) => write!(f, "a start condition failed: {error}"),
            Self::StartTimeout(missing) => {
                f.write_str("the start conditions were not met in time")?;
                for (number, cache) in missing.iter().enumerate() {
                    write!(f, "{}{cache}", if number == 0 { "; not synced: " } else { ", " })?;
                }
                Ok(())
            }
            Self::CacheEnded(cache) => match cache.state {
                InformerState::Failed => write!(f, "the informer of {cache} panicked"),
                _ => write!(f, "the informer of {cache} was stopped"),
            },
        }
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // `Display` prints the message of `error` itself, so the source is the next error in the chain.
            Self::StartFailed(error) => error.source(),
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
