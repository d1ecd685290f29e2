//! EDGE. A built informer that does not run yet. This module polls no future, so there is nothing to cancel.

use std::fmt;
use std::hash::Hash;

use flyball_sync::Timer;
use flyball_sync::panics::DropContained;

use super::on_exit::NotifyOnExit;
use super::retry_backoff::{ChosenBackoff, RetryBackoff};
use super::run::InformerTask;
use crate::{InvalidReflectorConfig, Reflector, ReflectorConfig, Source};

/// An informer that does not run yet. [`InformerBuilder::prepare`](crate::InformerBuilder::prepare) returns it; dropping it ends the informer.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Informer, ReflectorConfig, Schema, Version, testing::TestServer};
/// use flyball_sync::ManualClock;
/// use std::time::Duration;
///
/// const NUMBERS: Schema<u32, u32> = Schema::new(|number: &u32| *number, |_| Version::new(1));
/// let server = TestServer::new(NUMBERS, |_, _, _| {});
/// let (numbers, prepared) = Informer::builder(NUMBERS, server).timer(ManualClock::new().timer()).prepare()?;
/// let patient = ReflectorConfig { request_timeout: Duration::from_secs(600), ..prepared.reflector_config() };
/// let run = prepared.with_reflector_config(patient)?.run();
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
    pub(super) ending: NotifyOnExit<K, V>,
    pub(super) task: InformerTask<K, V, S, T>,
}

impl<K, V, S, T> PreparedInformer<K, V, S, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Source<Object = V>,
    T: Timer,
{
    /// Returns the configuration of the reflector.
    #[must_use]
    pub fn reflector_config(&self) -> ReflectorConfig {
        self.config
    }

    /// Replaces the configuration of the reflector.
    ///
    /// # Errors
    /// Returns an error if [`validate`](ReflectorConfig::validate) rejects the configuration.
    pub fn with_reflector_config(mut self, config: ReflectorConfig) -> Result<Self, InvalidReflectorConfig> {
        let reflector = Reflector::new(config, self.task.timer.now(), self.task.random.next())?;
        self.task.reflector = reflector.polling(self.task.source.is_polling());
        self.config = config;
        Ok(self)
    }

    /// Sets the backoff after failures, which replaces the [`backoff`](ReflectorConfig::backoff) of the configuration. If the source requests a
    /// longer wait, the informer waits for that time. A second call replaces the first.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Informer, RetryBackoff, Schema, Version, testing::TestServer};
    /// use flyball_sync::ManualClock;
    /// use std::time::Duration;
    ///
    /// /// One second more after each failure.
    /// struct Linear(u32);
    ///
    /// impl RetryBackoff for Linear {
    ///     fn failed(&mut self) -> Duration {
    ///         self.0 += 1;
    ///         Duration::from_secs(1) * self.0
    ///     }
    ///
    ///     fn succeeded(&mut self) {
    ///         self.0 = 0;
    ///     }
    /// }
    ///
    /// const NUMBERS: Schema<u32, u32> = Schema::new(|number: &u32| *number, |_| Version::new(1));
    /// let server = TestServer::new(NUMBERS, |_, _, _| {});
    /// let (numbers, prepared) = Informer::builder(NUMBERS, server).timer(ManualClock::new().timer()).prepare()?;
    /// let run = prepared.with_backoff(Linear(0)).run();
    /// # drop((numbers, run));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_backoff(mut self, backoff: impl RetryBackoff) -> Self {
        let backoff: Box<dyn RetryBackoff> = Box::new(backoff);
        self.task.backoff = ChosenBackoff(Some(DropContained::new(backoff)));
        self
    }

    /// Returns the future that runs the informer. Run it on any executor, so that it is polled until it completes.
    ///
    /// # Cancel safety
    /// Dropping the future ends the informer, as described for [`InformerBuilder::build`](crate::InformerBuilder::build).
    pub fn run(self) -> impl Future<Output = ()> + Send + 'static {
        self.ending.wrap(self.task.run())
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
