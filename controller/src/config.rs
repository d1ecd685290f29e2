//! PURE. The configuration of a controller, as a struct.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::InvalidControllerConfig;

/// The configuration of a controller. With the feature `serde`, this struct can be read from a section of a
/// configuration file. See [`Controller::with_config`](crate::Controller::with_config).
///
/// Missing settings have their defaults; unknown settings are errors. Durations are strings: `"250ms"`, `"5s"`, `"2m"`.
///
/// # Examples
/// ```
/// use flyball_controller::{InvalidControllerConfig, ControllerConfig};
/// use std::time::Duration;
///
/// let mut settings = ControllerConfig::default();
/// settings.workers = 4.into();
/// settings.reconcile_timeout = Some(Duration::from_secs(30));
/// assert_eq!(settings.validate(), Ok(()));
/// settings.workers = 0.into();
/// assert_eq!(settings.validate(), Err(InvalidControllerConfig::ZeroWorkers));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct ControllerConfig {
    /// How many keys are reconciled at once, a number or a range: [`workers`](crate::Controller::workers).
    pub workers: Workers,
    /// [`worker_idle_timeout`](crate::Controller::worker_idle_timeout).
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub worker_idle_timeout: Duration,
    /// [`reconcile_timeout`](crate::Controller::reconcile_timeout).
    #[cfg_attr(
        feature = "serde",
        serde(with = "flyball_sync::duration_serde::option", skip_serializing_if = "Option::is_none")
    )]
    pub reconcile_timeout: Option<Duration>,
    /// [`max_attempts`](crate::Controller::max_attempts); see [`on_give_up`](crate::Controller::on_give_up).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub max_attempts: Option<u32>,
    /// How many keys that have failed since their last success are reconciled at once. By default there is no limit.
    ///
    /// Reconciles that fail are often slow, for example until a timeout, and such keys would take all workers. With a limit below the number of workers,
    /// other workers stay free for healthy keys. A failing key beyond the limit is put back to the queue for 1 s, or up to a minute if there are
    /// thousands of them; its failures stay as they are. At its first attempt a key counts as healthy. While the queue is
    /// [drained](crate::Controller::drain_on_shutdown), the limit does not apply. In [batches](crate::Controller::run_batches), it limits the failing
    /// keys of all batches together.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub max_failing_in_flight: Option<usize>,
    /// The first wait after a conflict, see [`conflict_backoff`](crate::Controller::conflict_backoff). Each further wait is twice as long as the
    /// previous one, up to the maximum.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub conflict_backoff_initial: Duration,
    /// The longest wait after a conflict.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub conflict_backoff_max: Duration,
    /// By how many percent a [requeue](crate::Action::requeue_after) may be later than its delay. The default is 0.
    ///
    /// Objects that were listed together are reconciled together, and if each of them is requeued after the same delay, they are reconciled together in
    /// every period. With 10 percent, a requeue after an hour comes after 60 to 66 minutes. The extension depends on a hash of the key, so it is always
    /// the same for a key.
    pub requeue_spread_percent: u32,
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

impl ControllerConfig {
    /// Checks whether a controller can run with this configuration.
    ///
    /// # Errors
    /// Returns the first invalid setting; [`InvalidControllerConfig::setting`] names it.
    pub fn validate(&self) -> Result<(), InvalidControllerConfig> {
        match self {
            Self { workers: Workers { min: 0, .. }, .. } => Err(InvalidControllerConfig::ZeroWorkers),
            Self { workers: Workers { min, max }, .. } if max < min => {
                Err(InvalidControllerConfig::MaxWorkersBelowMin)
            }
            Self { worker_idle_timeout: Duration::ZERO, .. } => {
                Err(InvalidControllerConfig::ZeroWorkerIdleTimeout)
            }
            Self { reconcile_timeout: Some(Duration::ZERO), .. } => {
                Err(InvalidControllerConfig::ZeroReconcileTimeout)
            }
            Self { max_attempts: Some(0), .. } => Err(InvalidControllerConfig::ZeroMaxAttempts),
            Self { max_failing_in_flight: Some(0), .. } => {
                Err(InvalidControllerConfig::ZeroMaxFailingInFlight)
            }
            Self { cache_sync_timeout: Duration::ZERO, .. } => {
                Err(InvalidControllerConfig::ZeroCacheSyncTimeout)
            }
            Self { conflict_backoff_initial: Duration::ZERO, .. } => {
                Err(InvalidControllerConfig::ZeroConflictBackoff)
            }
            _ if self.conflict_backoff_initial > self.conflict_backoff_max => {
                Err(InvalidControllerConfig::ConflictBackoffMaxBelowInitial)
            }
            _ => Ok(()),
        }
    }
}

impl ControllerConfig {
    /// Returns the first and the longest wait after a conflict.
    pub(crate) fn conflict_backoff(&self) -> RangeInclusive<Duration> {
        self.conflict_backoff_initial..=self.conflict_backoff_max
    }
}

impl Default for ControllerConfig {
    /// The grace and the abort timeout add up to less than the 30 s that Kubernetes gives a pod by default, so there is time left to release a
    /// lease and to exit. The sync timeout is the same as in controller-runtime.
    fn default() -> Self {
        Self {
            workers: Workers::from(1),
            worker_idle_timeout: Duration::from_secs(10),
            reconcile_timeout: None,
            max_attempts: None,
            max_failing_in_flight: None,
            conflict_backoff_initial: Duration::from_millis(10),
            conflict_backoff_max: Duration::from_secs(1),
            requeue_spread_percent: 0,
            cache_sync_timeout: Duration::from_secs(120),
            shutdown_grace: Duration::from_secs(20),
            abort_after: Duration::from_secs(5),
            drain_on_shutdown: false,
        }
    }
}

/// The number of workers: a fixed number, or a minimum and a maximum. See [`Controller::workers`](crate::Controller::workers).
///
/// With the feature `serde`, it is a number, or a map with `min` and `max`.
///
/// # Examples
/// ```
/// use flyball_controller::{ControllerConfig, Workers};
///
/// let mut config = ControllerConfig::default();
/// assert_eq!(config.workers, Workers::from(1));
/// config.workers = (1..=16).into();
/// # #[cfg(feature = "serde")]
/// assert_eq!(config, serde_json::from_str(r#"{ "workers": { "min": 1, "max": 16 } }"#)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "Form", into = "Form"))]
pub struct Workers {
    pub(crate) min: usize,
    pub(crate) max: usize,
}

impl From<usize> for Workers {
    fn from(workers: usize) -> Self {
        Self { min: workers, max: workers }
    }
}

impl From<RangeInclusive<usize>> for Workers {
    fn from(workers: RangeInclusive<usize>) -> Self {
        Self { min: *workers.start(), max: *workers.end() }
    }
}

/// The serialised form.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "the number of workers must be a number, or a map with `min` and `max`"
)]
enum Form {
    Fixed(usize),
    Between { min: usize, max: usize },
}

#[cfg(feature = "serde")]
impl From<Form> for Workers {
    fn from(form: Form) -> Self {
        match form {
            Form::Fixed(workers) => workers.into(),
            Form::Between { min, max } => Self { min, max },
        }
    }
}

#[cfg(feature = "serde")]
impl From<Workers> for Form {
    fn from(Workers { min, max }: Workers) -> Self {
        if min == max { Self::Fixed(min) } else { Self::Between { min, max } }
    }
}
