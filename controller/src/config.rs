//! PURE. The configuration of a controller, as a struct.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::InvalidControllerConfig;

/// The settings of a controller that are plain values. Functions, futures and informers are passed to the methods of
/// [`Controller`](crate::Controller) instead.
///
/// Pass it to [`Controller::with_config`](crate::Controller::with_config). A run with an invalid setting returns
/// [`RunError::Config`](crate::RunError::Config), and starts nothing.
///
/// With the feature `serde`, this struct can be read from a section of a configuration file. Missing settings have their defaults; unknown settings
/// are errors. Durations are strings: `"250ms"`, `"5s"`, `"2m"`.
///
/// # Examples
/// ```
/// use flyball_controller::ControllerConfig;
/// use std::time::Duration;
///
/// let config = ControllerConfig {
///     workers: 4.into(),
///     reconcile_timeout: Some(Duration::from_secs(30)),
///     max_attempts: Some(10),
///     ..ControllerConfig::default()
/// };
/// # #[cfg(feature = "serde")]
/// assert_eq!(config, serde_json::from_str(r#"{ "workers": 4, "reconcile_timeout": "30s", "max_attempts": 10 }"#)?);
/// # let _ = config;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct ControllerConfig {
    /// How many keys (with [`run_batches`](crate::Controller::run_batches), how many batches) are reconciled at once: a number, or a range from a minimum
    /// to a maximum. The default is 1.
    ///
    /// With a range, one more worker is started whenever all running workers are busy, up to the maximum. A worker that was idle
    /// [for some time](Self::worker_idle_timeout) stops, unless no other worker is idle or only the minimum is running.
    ///
    /// A key waits for a worker only while the maximum number of workers is busy. Each worker is a task, which is cheap to start; the maximum limits the
    /// resources that reconciles use. [`ControllerMetrics`](crate::ControllerMetrics) reports when a worker starts or stops.
    pub workers: Workers,
    /// How long a worker stays idle before it stops, if there are more workers than the minimum. The default is 10 s.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub worker_idle_timeout: Duration,
    /// A reconcile that has not completed after this time is dropped, and counts as a failure. By default there is no limit.
    ///
    /// The reconcile is dropped at an await point, so a reconcile that blocks its thread is not interrupted.
    #[cfg_attr(
        feature = "serde",
        serde(with = "flyball_sync::duration_serde::option", skip_serializing_if = "Option::is_none")
    )]
    pub reconcile_timeout: Option<Duration>,
    /// After this number of consecutive failures, a key is given up instead of being retried: [`on_give_up`](crate::Controller::on_give_up) is called, and
    /// the failure count is reset. The next change adds the key again. By default keys are retried without limit.
    ///
    /// A failure counts only if the queue's limiter also counts it. If a key is added and reconciled during its backoff, a failure of that reconcile
    /// does not count, so a burst of changes does not make the controller give up a key.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub max_attempts: Option<u32>,
    /// How many keys that have failed since their last success are reconciled at once. By default there is no limit.
    ///
    /// Reconciles that fail are often slow, for example until a timeout, and such keys would take all workers. With a limit below the number of workers,
    /// other workers stay free for healthy keys. A failing key beyond the limit is put back to the queue for 1 s, or up to a minute if there are
    /// thousands of them; its failures stay as they are, and a [raise](flyball_workqueue::Priority) of its priority ends. At its first attempt a key
    /// counts as healthy. While the queue is [drained](Self::drain_on_shutdown), the limit does not apply. In
    /// [batches](crate::Controller::run_batches), it limits the failing keys of all batches together.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub max_failing_in_flight: Option<usize>,
    /// The first wait after a [conflict](crate::FailureClass::Conflict). Each further wait is twice as long as the previous one, up to the
    /// [maximum](Self::conflict_backoff_max). The default is 10 ms.
    ///
    /// The consecutive conflicts of each key are counted. The count is reset when the key succeeds, when the controller or the
    /// [queue](flyball_workqueue::QueueBuilder::give_up_after) gives the key up, and when the key has not conflicted for twice the maximum wait, for
    /// example because it was [cancelled](flyball_workqueue::Queue::cancel). If the queue gives up a key that was added again while it was
    /// leased, the count is not reset. A key has at most one pending wait. If the key is added again and reconciled during that wait, a conflict of
    /// that reconcile changes neither the count nor the end of the wait.
    ///
    /// # Examples
    /// ```
    /// use flyball_controller::testing::Simulation;
    /// use flyball_controller::{Action, Controller, ControllerConfig, FailureClass};
    /// use flyball_workqueue::Queue;
    /// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
    /// use std::time::Duration;
    ///
    /// let mut sim = Simulation::new(1);
    /// let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(sim.timer()).build();
    /// queue.add("a")?;
    /// let config = ControllerConfig {
    ///     conflict_backoff_initial: Duration::from_millis(50),
    ///     conflict_backoff_max: Duration::from_secs(5),
    ///     ..ControllerConfig::default()
    /// };
    /// let controller = Controller::new(queue).with_config(config).classify(|_| FailureClass::Conflict);
    /// let tries = Arc::new(AtomicU32::new(0));
    /// let count = tries.clone();
    /// sim.run(controller, move |_, _| {
    ///     count.fetch_add(1, Ordering::Relaxed);
    ///     async { Err::<Action, _>("another writer was faster") }
    /// });
    /// sim.advance(Duration::from_millis(49));
    /// assert_eq!(tries.load(Ordering::Relaxed), 1);
    /// sim.advance(Duration::from_millis(101)); // after 50 ms, and 100 ms after that
    /// assert_eq!(tries.load(Ordering::Relaxed), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub conflict_backoff_initial: Duration,
    /// The longest wait after a conflict. The default is 1 s.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub conflict_backoff_max: Duration,
    /// By how many percent a [requeue](crate::Action::requeue_after) may be later than its delay. The default is 0.
    ///
    /// Objects that were listed together are reconciled together, and if each of them is requeued after the same delay, they are reconciled together in
    /// every period. With 10 percent, a requeue after an hour comes after 60 to 66 minutes. The extension depends on a hash of the key, so it is always
    /// the same for a key.
    pub requeue_spread_percent: u32,
    /// Whether workers start without waiting until the watched informers have synced. They still wait for the other
    /// [start conditions](crate::Controller::start_when). Off by default.
    ///
    /// When an informer syncs later, the keys of its objects are added at that time. So reconciles may run while a cache is still empty or incomplete.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, ControllerConfig, TokioTimer};
    /// # use flyball_informer_cache::testing::TestServer;
    /// # use flyball_informer_cache::{Informer, Schema, Version};
    /// # use flyball_workqueue::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let schema = Schema::new(|number: &u32| *number, |_| Version::ZERO);
    /// # let server = TestServer::new(schema, |_, _, _| {});
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// server.set_faults(|faults| faults.unresponsive = true); // it never syncs
    /// let numbers = Informer::builder(schema, server).start()?;
    /// queue.add(7)?;
    /// queue.shut_down();
    /// let report = Controller::new(queue)
    ///     .watches(&numbers, |change| *change.key())
    ///     .with_config(ControllerConfig { start_before_sync: true, ..ControllerConfig::default() })
    ///     .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
    ///     .await?;
    /// assert_eq!(report.reconciles, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub start_before_sync: bool,
    /// How long it may take until all [start conditions](crate::Controller::start_when) are met, from the start of the run. After this time the run ends
    /// with [`RunError::StartTimeout`](crate::RunError::StartTimeout), which lists the caches that have not synced, with their last errors. The default
    /// is 2 minutes, as in controller-runtime; `Duration::MAX` means no limit.
    ///
    /// A [standby](crate::Controller::standby_until) may take longer. If watches are added during a standby, their caches may take this time from its end
    /// on.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, ControllerConfig, RunError, TokioTimer};
    /// # use flyball_informer_cache::testing::TestServer;
    /// # use flyball_informer_cache::{Informer, Schema, Version};
    /// # use flyball_workqueue::Queue;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let schema = Schema::new(|number: &u32| *number, |_| Version::ZERO);
    /// # let server = TestServer::new(schema, |_, _, _| {});
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// server.set_faults(|faults| faults.unresponsive = true);
    /// let numbers = Informer::builder(schema, server).start()?;
    /// let ended = Controller::new(queue)
    ///     .watches(&numbers, |change| *change.key())
    ///     .with_config(ControllerConfig { start_timeout: Duration::from_secs(30), ..ControllerConfig::default() })
    ///     .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
    ///     .await;
    /// let Err(RunError::StartTimeout(missing)) = ended else { panic!("{ended:?}") };
    /// assert_eq!(missing[0].to_string(), "the cache of `u32`, number 0");
    /// # Ok(())
    /// # }
    /// ```
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub start_timeout: Duration,
    /// How long running reconciles, and a [drain](Self::drain_on_shutdown), may take at
    /// [shutdown](crate::Controller::graceful_shutdown_on). After this time, reconciles that still run are [cancelled](crate::Context::cancelled), and no
    /// further reconcile starts. The default is 20 s; `Duration::MAX` means no limit.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub shutdown_grace: Duration,
    /// How long a reconcile that was [cancelled](crate::Context::cancelled) at shutdown may still run. After this time the reconcile is dropped at an
    /// await point, and its key is a [leftover](crate::RunReport::leftovers); a panic during the drop is caught. The default is 5 s.
    ///
    /// With the default [grace](Self::shutdown_grace) the shutdown takes at most 25 s, unless a reconcile blocks its thread. Kubernetes by default kills
    /// a pod 30 s after the signal, so 5 s are left to release a lease and to exit.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub abort_after: Duration,
    /// Whether the keys that are Ready at shutdown, and once more the leased keys that are dirty, are also reconciled, within the
    /// [grace](Self::shutdown_grace). By default these keys are left in the queue, because the next controller lists all objects anyway.
    ///
    /// Retries and delayed keys are not reconciled. From the signal on, the queue rejects new keys. Open
    /// [batches](crate::Controller::run_batches) are closed immediately.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, ControllerConfig, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// use std::time::Duration;
    /// use tokio::time::sleep;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// queue.add_many(["a", "b", "c"]);
    /// let report = Controller::new(queue)
    ///     .with_config(ControllerConfig { drain_on_shutdown: true, ..ControllerConfig::default() })
    ///     .graceful_shutdown_on(sleep(Duration::from_secs(1))) // while the first key is reconciled
    ///     .run(|_, _| async {
    ///         sleep(Duration::from_secs(5)).await;
    ///         Ok::<_, String>(Action::await_change())
    ///     })
    ///     .await?;
    /// assert_eq!((report.reconciles, report.leftovers.ready.len()), (3, 0)); // without it: 1 and 2
    /// # Ok(())
    /// # }
    /// ```
    pub drain_on_shutdown: bool,
    /// Whether the run ends without a signal once no work is left: every informer has stopped, the keys of all changes have been added, and the queue is
    /// idle (no retry and no delayed key is left). Off by default. Use this for jobs and tests.
    ///
    /// The run also waits for watches that are [added](crate::ControllerHandle::add_watch) while it runs. After the last watch is removed, the run
    /// has no informer to wait for. So to replace a watch, add the new watch before you remove the old one. If the reconciles of a key always request a
    /// requeue, the run never ends.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, ControllerConfig, TokioTimer};
    /// # use flyball_informer_cache::testing::TestServer;
    /// # use flyball_informer_cache::{Informer, Schema, Version};
    /// # use flyball_workqueue::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let schema = Schema::new(|number: &u32| *number, |_| Version::ZERO);
    /// # let server = TestServer::new(schema, |_, _, _| {});
    /// # server.put(7);
    /// # server.put(8);
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// let numbers = Informer::builder(schema, server).start()?;
    /// numbers.synced().await?;
    /// numbers.shut_down(); // this job reconciles only the existing objects
    /// let report = Controller::new(queue)
    ///     .watches(&numbers, |change| *change.key())
    ///     .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
    ///     .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
    ///     .await?;
    /// assert_eq!(report.reconciles, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub stop_when_idle: bool,
}

impl ControllerConfig {
    /// Returns the first invalid setting as an error.
    pub(crate) fn validate(&self) -> Result<(), InvalidControllerConfig> {
        let Workers { min, max } = self.workers;
        let rules = [
            (min > 0, "workers", "a controller needs at least one worker"),
            (min <= max, "workers", "the maximum number of workers must not be below the minimum"),
            (
                !self.worker_idle_timeout.is_zero(),
                "worker_idle_timeout",
                "the idle timeout of workers must be positive",
            ),
            (
                self.reconcile_timeout != Some(Duration::ZERO),
                "reconcile_timeout",
                "the reconcile timeout must be positive",
            ),
            (self.max_attempts != Some(0), "max_attempts", "the number of attempts must be positive"),
            (
                self.max_failing_in_flight != Some(0),
                "max_failing_in_flight",
                "the number of failing keys in flight must be positive",
            ),
            (!self.start_timeout.is_zero(), "start_timeout", "the start timeout must be positive"),
            (
                !self.conflict_backoff_initial.is_zero(),
                "conflict_backoff_initial",
                "the wait after a conflict must be positive",
            ),
            (
                self.conflict_backoff_initial <= self.conflict_backoff_max,
                "conflict_backoff_max",
                "the first wait after a conflict must not be longer than the maximum wait",
            ),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some((_, setting, problem)) => Err(InvalidControllerConfig::new(setting, problem)),
        }
    }

    /// Returns the first and the longest wait after a conflict.
    pub(crate) fn conflict_backoff(&self) -> RangeInclusive<Duration> {
        self.conflict_backoff_initial..=self.conflict_backoff_max
    }
}

impl Default for ControllerConfig {
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
            start_before_sync: false,
            start_timeout: Duration::from_secs(120),
            shutdown_grace: Duration::from_secs(20),
            abort_after: Duration::from_secs(5),
            drain_on_shutdown: false,
            stop_when_idle: false,
        }
    }
}

/// The number of workers: a fixed number, or a minimum and a maximum. See [`ControllerConfig::workers`].
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
