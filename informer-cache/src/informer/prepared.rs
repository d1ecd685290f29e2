//! EDGE. An informer that is built and does not run yet. Nothing runs here, so there is nothing to cancel.

use std::fmt;
use std::hash::Hash;

use flyball_sync::Timer;

use super::ending::Ending;
use super::run::Drive;
use crate::{ConfigError, Reflector, ReflectorConfig, Source};

/// What will run an informer; see [`InformerBuilder::prepare`](crate::InformerBuilder::prepare). Dropping it ends the informer.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Informer, ReflectorConfig, Schema, Version, testing::Server};
/// use flyball_sync::ManualClock;
/// use std::time::Duration;
///
/// const NUMBERS: Schema<u32, u32> = Schema::new(|number: &u32| *number, |_| Version::new(1));
/// let server = Server::new(NUMBERS, |_, _, _| {});
/// let (numbers, prepared) = Informer::builder(NUMBERS, server).timer(ManualClock::new().timer()).prepare()?;
/// let patient = ReflectorConfig { request_timeout: Duration::from_secs(600), ..prepared.reflector() };
/// let run = prepared.with_reflector(patient)?.run();
/// # drop((numbers, run));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it ends the informer"]
pub struct PreparedInformer<K, V, S, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) config: ReflectorConfig,
    pub(super) ending: Ending<K, V>,
    pub(super) drive: Drive<K, V, S, T>,
}

impl<K, V, S, T> PreparedInformer<K, V, S, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Source<Object = V>,
    T: Timer,
{
    /// The configuration of its reflector.
    #[must_use]
    pub fn reflector(&self) -> ReflectorConfig {
        self.config
    }

    /// Replaces the configuration of its reflector.
    ///
    /// # Errors
    /// When [`validate`](ReflectorConfig::validate) refuses it.
    pub fn with_reflector(mut self, config: ReflectorConfig) -> Result<Self, ConfigError> {
        let reflector = Reflector::new(config, self.drive.timer.now(), self.drive.random.next())?;
        self.drive.reflector = reflector.polling(self.drive.source.polls());
        self.config = config;
        Ok(self)
    }

    /// The future that runs the informer: to be polled by any executor until it is over.
    pub fn run(self) -> impl Future<Output = ()> + Send + 'static {
        self.ending.after(self.drive.run())
    }
}

impl<K, V, S, T> fmt::Debug for PreparedInformer<K, V, S, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedInformer").field("config", &self.config).finish_non_exhaustive()
    }
}
