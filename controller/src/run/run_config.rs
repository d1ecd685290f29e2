//! PURE. How a controller runs, checked before anything is started.

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use flyball_ratelimit::Policy;
use flyball_sync::Clock;
use flyball_workqueue::Key;

use crate::run::retry::FailurePolicy;
use crate::run::span::ReconcileSpans;
use crate::run::watched_informer::{BoxFuture, KeyFilter};
use crate::{Action, Context, ControllerMetrics, InvalidControllerConfig, ReconcileError};

/// What becomes of a key that is given up.
pub(crate) type OnGiveUp<K> = dyn Fn(&K, &ReconcileError) + Send + Sync;

/// What comes after every reconcile.
pub(crate) type Finally<K> =
    dyn Fn(K, Result<Action, Arc<ReconcileError>>, Context) -> BoxFuture<Result<(), BoxError>> + Send + Sync;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// So long an idle worker stays, unless set otherwise.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// So long the caches may take to sync, as with controller-runtime.
pub(crate) const SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// What becomes of the queue and of running reconciles at shutdown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shutdown {
    /// Whether what is Ready is worked off, too.
    pub(crate) drains: bool,
    /// So long reconciles may run until they are cancelled.
    pub(crate) grace: Duration,
    /// So long a cancelled one may run until it is dropped.
    pub(crate) abort_after: Duration,
}

impl Default for Shutdown {
    /// Together less than the 30 s that Kubernetes gives a pod, with time left to release a lease and to exit.
    fn default() -> Self {
        Self { drains: false, grace: Duration::from_secs(20), abort_after: Duration::from_secs(5) }
    }
}

pub(crate) struct Config<K> {
    pub(crate) workers: RangeInclusive<usize>,
    /// So long an idle worker stays that is one too many.
    pub(crate) idle_timeout: Duration,
    pub(crate) filter_key: Arc<KeyFilter<K>>,
    pub(crate) timeout: Option<Duration>,
    /// So many failures in a row are one too many.
    pub(crate) attempts: Option<u32>,
    pub(crate) on_give_up: Option<Box<OnGiveUp<K>>>,
    pub(crate) classes: FailurePolicy<K>,
    pub(crate) finally: Option<Box<Finally<K>>>,
    pub(crate) metrics: Option<Box<dyn ControllerMetrics>>,
    pub(crate) spans: ReconcileSpans<K>,
    pub(crate) shutdown: Shutdown,
    /// So long the caches may take to sync.
    pub(crate) sync_timeout: Duration,
    /// An informer that is not there was said to be optional.
    pub(crate) nothing_optional: bool,
    pub(crate) stop_when_idle: bool,
    /// Workers do not wait for the informers that it listens to.
    pub(crate) start_before_sync: bool,
}

impl<K: Key> Config<K> {
    /// What is not set. The waits after conflicts are measured by this clock.
    pub(crate) fn new(clock: impl Clock) -> Self {
        Self {
            workers: 1..=1,
            idle_timeout: IDLE_TIMEOUT,
            filter_key: Arc::new(|_| true),
            timeout: None,
            attempts: None,
            on_give_up: None,
            classes: FailurePolicy::new(clock),
            finally: None,
            metrics: None,
            spans: ReconcileSpans::default(),
            shutdown: Shutdown::default(),
            sync_timeout: SYNC_TIMEOUT,
            nothing_optional: false,
            stop_when_idle: false,
            start_before_sync: false,
        }
    }
}

impl<K> Config<K> {
    /// Whether a controller with this many informers and a limiter of type `L` can run with it.
    pub(crate) fn check<L: Policy<K>>(&self, informers: usize) -> Result<(), InvalidControllerConfig> {
        match self {
            Self { workers, .. } if *workers.start() == 0 => Err(InvalidControllerConfig::ZeroWorkers),
            Self { workers, .. } if workers.end() < workers.start() => {
                Err(InvalidControllerConfig::MaxWorkersBelowMin)
            }
            Self { idle_timeout: Duration::ZERO, .. } => Err(InvalidControllerConfig::ZeroWorkerIdleTimeout),
            Self { timeout: Some(Duration::ZERO), .. } => Err(InvalidControllerConfig::ZeroReconcileTimeout),
            Self { attempts: Some(0), .. } => Err(InvalidControllerConfig::ZeroMaxAttempts),
            Self { attempts: Some(_), .. } if !L::COUNTS_FAILURES => {
                Err(InvalidControllerConfig::LimiterCountsNoFailures)
            }
            Self { sync_timeout: Duration::ZERO, .. } => Err(InvalidControllerConfig::ZeroCacheSyncTimeout),
            Self { nothing_optional: true, .. } => Err(InvalidControllerConfig::NothingOptional),
            Self { stop_when_idle: true, .. } if informers == 0 => Err(InvalidControllerConfig::NoInformers),
            _ => Ok(()),
        }
    }
}

impl<K> fmt::Debug for Config<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("workers", &self.workers)
            .field("idle_timeout", &self.idle_timeout)
            .field("timeout", &self.timeout)
            .field("attempts", &self.attempts)
            .field("on_give_up", &self.on_give_up.is_some())
            .field("classifies", &self.classes.of.is_some())
            .field("asks_for_least_waits", &self.classes.least.is_some())
            .field("finally", &self.finally.is_some())
            .field("measures", &self.metrics.is_some())
            .field("shutdown", &self.shutdown)
            .field("sync_timeout", &self.sync_timeout)
            .field("stop_when_idle", &self.stop_when_idle)
            .field("start_before_sync", &self.start_before_sync)
            .finish()
    }
}
