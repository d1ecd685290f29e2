//! PURE. How a controller runs, as data.

use std::time::Duration;

use crate::ConfigError;
use crate::run::retry::CONFLICTS;
use crate::run::run_config::{LINGER, SYNC_TIMEOUT, Shutdown};

/// How a controller runs, as data: with the feature `serde`, a section of a configuration file. See
/// [`Controller::configured`](crate::Controller::configured).
///
/// What is left out is as it is by default; what is unknown is an error. Spans of time are words: `"250ms"`, `"5s"`, `"2m"`.
///
/// # Examples
/// ```
/// use flyball_controller::{ConfigError, Settings};
/// use std::time::Duration;
///
/// let mut settings = Settings::default();
/// settings.workers = 4;
/// settings.reconcile_timeout = Some(Duration::from_secs(30));
/// assert_eq!(settings.check(), Ok(()));
/// settings.workers = 0;
/// assert_eq!(settings.check(), Err(ConfigError::NoWorkers));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct Settings {
    /// How many keys are worked on at once: [`workers`](crate::Controller::workers).
    pub workers: usize,
    /// How many it may become while all are busy: [`workers_between`](crate::Controller::workers_between). As many as `workers`, unless set.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub most_workers: Option<usize>,
    /// [`worker_linger`](crate::Controller::worker_linger).
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub worker_linger: Duration,
    /// [`reconcile_timeout`](crate::Controller::reconcile_timeout).
    #[cfg_attr(
        feature = "serde",
        serde(with = "flyball_sync::duration_serde::option", skip_serializing_if = "Option::is_none")
    )]
    pub reconcile_timeout: Option<Duration>,
    /// [`max_attempts`](crate::Controller::max_attempts); who is told is set by [`given_up`](crate::Controller::given_up).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub max_attempts: Option<u32>,
    /// The first wait after a conflict, for [`conflict_schedule`](crate::Controller::conflict_schedule); it doubles.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub conflict_wait: Duration,
    /// The longest wait after a conflict.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub longest_conflict_wait: Duration,
    /// [`cache_sync_timeout`](crate::Controller::cache_sync_timeout).
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub cache_sync_timeout: Duration,
    /// [`shutdown_grace`](crate::Controller::shutdown_grace).
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub shutdown_grace: Duration,
    /// [`abort_after`](crate::Controller::abort_after).
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub abort_after: Duration,
    /// [`drain_on_shutdown`](crate::Controller::drain_on_shutdown).
    pub drain_on_shutdown: bool,
}

impl Settings {
    /// Whether a controller can run so.
    ///
    /// # Errors
    /// The first thing that makes no sense; [`ConfigError::setting`] names it.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self { workers: 0, .. } => Err(ConfigError::NoWorkers),
            Self { workers, most_workers: Some(most), .. } if most < workers => {
                Err(ConfigError::FewerWorkers)
            }
            Self { worker_linger: Duration::ZERO, .. } => Err(ConfigError::NoLinger),
            Self { reconcile_timeout: Some(Duration::ZERO), .. } => Err(ConfigError::NoTime),
            Self { max_attempts: Some(0), .. } => Err(ConfigError::NoAttempts),
            Self { cache_sync_timeout: Duration::ZERO, .. } => Err(ConfigError::NoSyncTime),
            Self { conflict_wait: Duration::ZERO, .. } => Err(ConfigError::NoConflictWait),
            _ if self.conflict_wait > self.longest_conflict_wait => Err(ConfigError::ConflictWaits),
            _ => Ok(()),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        let [conflict_wait, longest_conflict_wait] = CONFLICTS;
        let Shutdown { drains, grace, abort_after } = Shutdown::default();
        Self {
            workers: 1,
            most_workers: None,
            worker_linger: LINGER,
            reconcile_timeout: None,
            max_attempts: None,
            conflict_wait,
            longest_conflict_wait,
            cache_sync_timeout: SYNC_TIMEOUT,
            shutdown_grace: grace,
            abort_after,
            drain_on_shutdown: drains,
        }
    }
}
