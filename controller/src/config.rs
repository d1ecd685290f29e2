//! PURE. How a controller runs, checked before anything is started.

use std::any::TypeId;
use std::fmt;
use std::time::Duration;

use flyball_workqueue::NoLimit;

use crate::{ConfigError, Failure};

/// What becomes of a key that is given up.
pub(crate) type DeadLetter<K> = dyn Fn(&K, Failure) + Send + Sync;

pub(crate) struct Config<K> {
    pub(crate) workers: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) attempts: Option<Attempts<K>>,
    pub(crate) grace: Option<Duration>,
    pub(crate) settles: bool,
}

pub(crate) struct Attempts<K> {
    pub(crate) most: u32,
    pub(crate) given_up: Box<DeadLetter<K>>,
}

impl<K> Default for Config<K> {
    fn default() -> Self {
        Self { workers: 1, timeout: None, attempts: None, grace: None, settles: false }
    }
}

impl<K> Config<K> {
    /// Whether a controller with this many informers and a limiter of type `L` can run with it.
    pub(crate) fn check<L: 'static>(&self, informers: usize) -> Result<(), ConfigError> {
        let counted = TypeId::of::<L>() != TypeId::of::<NoLimit>();
        match self {
            Self { workers: 0, .. } => Err(ConfigError::NoWorkers),
            Self { timeout: Some(Duration::ZERO), .. } => Err(ConfigError::NoTime),
            Self { attempts: Some(Attempts { most: 0, .. }), .. } => Err(ConfigError::NoAttempts),
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
            .field("timeout", &self.timeout)
            .field("attempts", &self.attempts.as_ref().map(|attempts| attempts.most))
            .field("grace", &self.grace)
            .field("settles", &self.settles)
            .finish()
    }
}
