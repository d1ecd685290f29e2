//! PURE. The configuration of a run, checked before anything is started.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use flyball_ratelimit::Policy;

use crate::run::retry::FailurePolicy;
use crate::run::span::ReconcileSpans;
use crate::run::watched_informer::KeyFilter;
use crate::{Action, Context, ControllerConfig, ControllerMetrics, InvalidControllerConfig, ReconcileError};
use futures_util::future::BoxFuture;

/// The function that is called with each key that is given up.
pub(crate) type OnGiveUp<K> = dyn Fn(&K, &ReconcileError) + Send + Sync;

/// The function that runs after every reconcile.
pub(crate) type Finally<K> = dyn Fn(K, Result<Action, Arc<ReconcileError>>, Context) -> BoxFuture<'static, Result<(), BoxError>>
    + Send
    + Sync;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The configuration of a run: its settings, and the functions that were passed to it.
pub(crate) struct RunConfig<K> {
    pub(crate) settings: ControllerConfig,
    pub(crate) filter_key: Arc<KeyFilter<K>>,
    pub(crate) on_give_up: Option<Box<OnGiveUp<K>>>,
    pub(crate) failure_policy: FailurePolicy<K>,
    pub(crate) finally: Option<Box<Finally<K>>>,
    pub(crate) metrics: Option<Box<dyn ControllerMetrics>>,
    pub(crate) spans: ReconcileSpans<K>,
    /// Whether a watch has a resync period of zero.
    pub(crate) zero_resync_period: bool,
}

impl<K> Default for RunConfig<K> {
    fn default() -> Self {
        Self {
            settings: ControllerConfig::default(),
            failure_policy: FailurePolicy::default(),
            filter_key: Arc::new(|_| true),
            on_give_up: None,
            finally: None,
            metrics: None,
            spans: ReconcileSpans::default(),
            zero_resync_period: false,
        }
    }
}

impl<K> RunConfig<K> {
    /// Checks whether a controller with this many informers and a limiter of type `L` can run with this configuration.
    pub(crate) fn check<L: Policy<K>>(&self, informers: usize) -> Result<(), InvalidControllerConfig> {
        let settings = &self.settings;
        settings.validate()?;
        let limits_failures = settings.max_attempts.is_some() || settings.max_failing_in_flight.is_some();
        if limits_failures && !L::COUNTS_FAILURES {
            let problem =
                "a limit of attempts or of failing keys needs a queue with a limiter that counts failures";
            return Err(InvalidControllerConfig::new("limiter", problem));
        }
        if self.zero_resync_period {
            return Err(InvalidControllerConfig::new(
                "resync_every",
                "the period of a resync must be positive",
            ));
        }
        // Such a controller only reconciles keys that other code adds, so it cannot determine when no work is left.
        if settings.stop_when_idle && informers == 0 {
            let problem = "a controller without an informer can never be idle";
            return Err(InvalidControllerConfig::new("stop_when_idle", problem));
        }
        Ok(())
    }
}

impl<K> fmt::Debug for RunConfig<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunConfig")
            .field("settings", &self.settings)
            .field("on_give_up", &self.on_give_up.is_some())
            .field("finally", &self.finally.is_some())
            .field("metrics", &self.metrics.is_some())
            .finish_non_exhaustive()
    }
}
