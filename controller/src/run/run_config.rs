//! PURE. How a controller runs, checked before anything is started.

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use flyball_ratelimit::Policy;
use flyball_sync::Clock;
use flyball_workqueue::Key;

use crate::run::retry::Classes;
use crate::run::span::Spans;
use crate::run::watched_informer::{BoxFuture, Only};
use crate::{Action, ConfigError, Context, Failure, Metrics};

/// What becomes of a key that is given up.
pub(crate) type DeadLetter<K> = dyn Fn(&K, &Failure) + Send + Sync;

/// What comes after every reconcile.
pub(crate) type Finally<K> =
    dyn Fn(K, Result<Action, Arc<Failure>>, Context) -> BoxFuture<Result<(), BoxError>> + Send + Sync;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// So long an idle worker stays, unless set otherwise.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

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
    pub(crate) linger: Duration,
    pub(crate) only: Arc<Only<K>>,
    pub(crate) timeout: Option<Duration>,
    /// So many failures in a row are one too many.
    pub(crate) attempts: Option<u32>,
    pub(crate) given_up: Option<Box<DeadLetter<K>>>,
    pub(crate) classes: Classes<K>,
    pub(crate) finally: Option<Box<Finally<K>>>,
    pub(crate) metrics: Option<Box<dyn Metrics>>,
    pub(crate) spans: Spans<K>,
    pub(crate) shutdown: Shutdown,
    /// So long the caches may take to sync.
    pub(crate) sync_timeout: Duration,
    /// An informer that is not there was said to be optional.
    pub(crate) nothing_optional: bool,
    pub(crate) settles: bool,
    /// Workers do not wait for the informers that it listens to.
    pub(crate) starts_unsynced: bool,
}

impl<K: Key> Config<K> {
    /// What is not set. The waits after conflicts are measured by this clock.
    pub(crate) fn new(clock: impl Clock) -> Self {
        Self {
            workers: 1..=1,
            linger: LINGER,
            only: Arc::new(|_| true),
            timeout: None,
            attempts: None,
            given_up: None,
            classes: Classes::new(clock),
            finally: None,
            metrics: None,
            spans: Spans::default(),
            shutdown: Shutdown::default(),
            sync_timeout: SYNC_TIMEOUT,
            nothing_optional: false,
            settles: false,
            starts_unsynced: false,
        }
    }
}

impl<K> Config<K> {
    /// Whether a controller with this many informers and a limiter of type `L` can run with it.
    pub(crate) fn check<L: Policy<K>>(&self, informers: usize) -> Result<(), ConfigError> {
        match self {
            Self { workers, .. } if *workers.start() == 0 => Err(ConfigError::NoWorkers),
            Self { workers, .. } if workers.end() < workers.start() => Err(ConfigError::FewerWorkers),
            Self { linger: Duration::ZERO, .. } => Err(ConfigError::NoLinger),
            Self { timeout: Some(Duration::ZERO), .. } => Err(ConfigError::NoTime),
            Self { attempts: Some(0), .. } => Err(ConfigError::NoAttempts),
            Self { attempts: Some(_), .. } if !L::COUNTS_FAILURES => Err(ConfigError::NothingCountsAttempts),
            Self { sync_timeout: Duration::ZERO, .. } => Err(ConfigError::NoSyncTime),
            Self { nothing_optional: true, .. } => Err(ConfigError::NothingOptional),
            Self { settles: true, .. } if informers == 0 => Err(ConfigError::NothingSettles),
            _ => Ok(()),
        }
    }
}

impl<K> fmt::Debug for Config<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("workers", &self.workers)
            .field("linger", &self.linger)
            .field("timeout", &self.timeout)
            .field("attempts", &self.attempts)
            .field("given_up", &self.given_up.is_some())
            .field("classifies", &self.classes.of.is_some())
            .field("asks_for_least_waits", &self.classes.least.is_some())
            .field("finally", &self.finally.is_some())
            .field("measures", &self.metrics.is_some())
            .field("shutdown", &self.shutdown)
            .field("sync_timeout", &self.sync_timeout)
            .field("settles", &self.settles)
            .field("starts_unsynced", &self.starts_unsynced)
            .finish()
    }
}
