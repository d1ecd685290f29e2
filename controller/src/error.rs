//! PURE. Why a controller did not run.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use flyball_informer_cache::InformerState;

use crate::CacheStatus;

/// A controller that makes no sense as it is configured. Nothing was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No worker would ever take a key.
    NoWorkers,
    /// There may be fewer workers at most than at least.
    FewerWorkers,
    /// Workers would come and go at once.
    NoLinger,
    /// A batch of no keys would never be full, and never be anything else.
    EmptyBatches,
    /// Every reconcile would time out before it began.
    NoTime,
    /// Every key would be given up before it was tried.
    NoAttempts,
    /// A conflict would be tried again at once, and again.
    NoConflictWait,
    /// The first wait after a conflict is longer than the longest.
    ConflictWaits,
    /// The queue has no limiter that counts the failures of a key.
    NothingCountsAttempts,
    /// Nothing settles without an informer: a controller without one waits for keys from elsewhere.
    NothingSettles,
    /// No informer was given before [`optional`](crate::Controller::optional).
    NothingOptional,
    /// No cache would ever sync in no time.
    NoSyncTime,
}

impl ConfigError {
    /// The setting to change, as it is called in [`Settings`](crate::Settings) or, for what is none, as a method.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            Self::NoWorkers => "workers",
            Self::FewerWorkers => "most_workers",
            Self::NoLinger => "worker_linger",
            Self::EmptyBatches => "run_batches",
            Self::NoTime => "reconcile_timeout",
            Self::NoAttempts | Self::NothingCountsAttempts => "max_attempts",
            Self::NoConflictWait => "conflict_wait",
            Self::ConflictWaits => "longest_conflict_wait",
            Self::NothingSettles => "until_settled",
            Self::NothingOptional => "optional",
            Self::NoSyncTime => "cache_sync_timeout",
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoWorkers => "a controller needs at least one worker",
            Self::FewerWorkers => "there must not be fewer workers at most than at least",
            Self::NoLinger => "the time that an idle worker stays must be positive",
            Self::EmptyBatches => "a batch must be of at least one key",
            Self::NoTime => "the reconcile timeout must be positive",
            Self::NoAttempts => "the number of attempts must be positive",
            Self::NoConflictWait => "the wait after a conflict must be positive",
            Self::ConflictWaits => "the first wait after a conflict must not be longer than the longest",
            Self::NothingCountsAttempts => {
                "a limit of attempts needs a queue with a limiter that counts failures"
            }
            Self::NothingSettles => "a controller without an informer never settles",
            Self::NothingOptional => "there is no informer that could be optional",
            Self::NoSyncTime => "the cache sync timeout must be positive",
        })
    }
}

impl Error for ConfigError {}

/// Why a controller did not run, or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// It makes no sense as it is configured. Nothing was started.
    Config(ConfigError),
    /// An informer ended before it had synced, or something else that workers had to wait for will not be, so the workers never started. The queue is as it was, with the keys of
    /// the changes so far.
    NeverSynced(Awaited),
    /// Not all caches had synced within the [time for it](crate::Controller::cache_sync_timeout), so the workers never started. The queue is
    /// as it was, with the keys of the changes so far.
    SyncTimeout {
        /// The time.
        limit: Duration,
        /// The caches that workers wait for and that had not synced.
        missing: Vec<CacheStatus>,
    },
    /// The informer of a cache failed, or was shut down, while the controller ran: its changes do not come any more. Running reconciles have
    /// ended as at a [shutdown](crate::Controller::shutdown_on); the queue goes on, with all other keys, for a controller over new caches.
    CacheEnded(CacheStatus),
}

/// What workers wait for before they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// The cache of an informer that the controller listens to.
    Cache {
        /// Which one, in the order in which they were given to it, from 0.
        index: usize,
        /// The type of its objects, for people: how it is written is not promised.
        objects: &'static str,
    },
    /// What was given to [`after`](crate::Controller::after).
    After {
        /// Which one, in the order in which they were given to it, from 0.
        index: usize,
    },
}

impl From<ConfigError> for RunError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::NeverSynced(Awaited::Cache { index, objects }) => {
                write!(f, "the informer of `{objects}`, number {index}, ended before it had synced")
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
            Self::NeverSynced(Awaited::After { index }) => {
                write!(f, "what the workers come after, number {index}, will never be")
            }
        }
    }
}

impl Error for RunError {}
