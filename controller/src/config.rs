//! PURE. How a controller runs, checked before anything is started.

use std::any::TypeId;
use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use flyball_workqueue::{Key, NoLimit};

use crate::classes::Classes;
use crate::events::{BoxFuture, Only};
use crate::spans::Spans;
use crate::{Action, ConfigError, Context, Failure, Metrics};

/// What becomes of a key that is given up.
pub(crate) type DeadLetter<K> = dyn Fn(&K, &Failure) + Send + Sync;

/// What comes after every reconcile.
pub(crate) type Finally<K> =
    dyn Fn(K, Result<Action, Arc<Failure>>, Context) -> BoxFuture<Result<(), BoxError>> + Send + Sync;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// So long an idle worker stays, unless set otherwise.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

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
    pub(crate) grace: Option<Duration>,
    pub(crate) settles: bool,
}

impl<K: Key> Default for Config<K> {
    fn default() -> Self {
        Self {
            workers: 1..=1,
            linger: LINGER,
            only: Arc::new(|_| true),
            timeout: None,
            attempts: None,
            given_up: None,
            classes: Classes::default(),
            finally: None,
            metrics: None,
            spans: Spans::default(),
            grace: None,
            settles: false,
        }
    }
}

impl<K> Config<K> {
    /// Whether a controller with this many informers and a limiter of type `L` can run with it.
    pub(crate) fn check<L: 'static>(&self, informers: usize) -> Result<(), ConfigError> {
        let counted = TypeId::of::<L>() != TypeId::of::<NoLimit>();
        match self {
            Self { workers, .. } if *workers.start() == 0 => Err(ConfigError::NoWorkers),
            Self { workers, .. } if workers.end() < workers.start() => Err(ConfigError::FewerWorkers),
            Self { linger: Duration::ZERO, .. } => Err(ConfigError::NoLinger),
            Self { timeout: Some(Duration::ZERO), .. } => Err(ConfigError::NoTime),
            Self { attempts: Some(0), .. } => Err(ConfigError::NoAttempts),
            Self { attempts: Some(_), .. } if !counted => Err(ConfigError::NothingCountsAttempts),
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
            .field("grace", &self.grace)
            .field("settles", &self.settles)
            .finish()
    }
}
