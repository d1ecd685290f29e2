//! EDGE. The controller, as it is put together.
//!
//! Cancel safety: nothing runs until [`Controller::run`] is polled; its docs say what dropping that does.

mod failures;
mod shutdown;
mod watches;
mod workers;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use flyball_ratelimit::Exponential;
use flyball_workqueue::{Fifo, Key, NoLimiter, Order, Queue, QueueLimiter, SupportsAsync, SupportsDelays};

use crate::run::RunSetup;
use crate::run::batch::Batching;
use crate::run::retry::QueueClock;
use crate::run::run_config::RunConfig;
use crate::run::runtime::{Runtime, Tokio};
use crate::run::watch_set::{RunGuard, WatchSet};
use crate::{
    Action, BatchConfig, Context, ControllerConfig, ControllerMetrics, Health, InvalidControllerConfig,
    RunError, RunReport,
};

/// The reconcile loop: changes become keys, keys become reconciles.
///
/// Workers take keys from the queue, each at most one, and never two the same key. They start when every informer has
/// synced. A reconcile that returns an error, panics or takes too long is a failure of its key alone: the key is
/// retried when the queue's limiter says.
///
/// # Examples
/// A controller that ends by itself, once a closed cache has been worked off:
/// ```
/// # use flyball_controller::{Action, Controller};
/// # use flyball_ratelimit::Exponential;
/// # use flyball_controller::TokioTimer;
/// # use flyball_workqueue::Queue;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
/// let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
/// queue.add("a key from elsewhere")?;
/// queue.shut_down();
///
/// let report = Controller::new(queue)
///     .workers(4)
///     .run(|key, _| async move {
///         println!("{key}");
///         Ok::<_, std::io::Error>(Action::await_change())
///     })
///     .await?;
/// assert_eq!(report.reconciles, 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "a controller does nothing until it is run"]
pub struct Controller<K, O: Order<K> = Fifo, L = NoLimiter, T = flyball_workqueue::NoDelays> {
    setup: RunSetup<K, O, L, T>,
}

impl<K, O, L, T> Controller<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: SupportsAsync + SupportsDelays,
{
    /// A controller of one worker over this queue, with no informer yet.
    ///
    /// The queue may be fed from elsewhere, too; one with a capacity refuses what is one too many, and a change whose key is
    /// refused is lost: give it none. Its limiter decides when a failed key is retried. Give it
    /// [metrics](flyball_workqueue::QueueBuilder::metrics) to see the controller at work: a reconcile that succeeded, asked to
    /// come back, or failed is a lease that ended so; one that was dropped with its worker is a lease that was.
    ///
    /// # Examples
    /// A queue for a controller has a timer, so this does not compile:
    /// ```compile_fail,E0277
    /// use flyball_controller::Controller;
    /// use flyball_workqueue::Queue;
    ///
    /// let controller = Controller::new(Queue::<u32>::builder().build()); // `.timer(TokioTimer::current())` is missing
    /// ```
    pub fn new(queue: Queue<K, O, L, T>) -> Self {
        let watches = WatchSet::default();
        let setup = RunSetup {
            config: RunConfig::new(QueueClock(queue.clone())),
            queue,
            sink: Arc::default(),
            initial_priority: 0,
            conditions: Vec::new(),
            standby: None,
            stop: Box::pin(std::future::pending()),
            guard: RunGuard(watches.clone()),
            watches,
        };
        Self { setup }
    }

    /// Takes on all of these settings; what is called later has the last word.
    ///
    /// # Errors
    /// When a controller cannot run so.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{InvalidControllerConfig, Controller, ControllerConfig, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::<u32>::builder().timer(TokioTimer::current()).build();
    /// let file = r#"{ "workers": 4, "reconcile_timeout": "30s", "shutdown_grace": "1m" }"#;
    /// # #[cfg(feature = "serde")]
    /// let settings: ControllerConfig = serde_json::from_str(file)?;
    /// # #[cfg(not(feature = "serde"))]
    /// # let settings = ControllerConfig::default();
    /// let controller = Controller::new(queue).with_config(&settings)?;
    /// # let _ = (controller, file);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_config(mut self, settings: &ControllerConfig) -> Result<Self, InvalidControllerConfig> {
        settings.validate()?;
        self.setup.config.settings = settings.clone();
        Ok(self.conflict_backoff(Exponential::new(settings.conflict_backoff())))
    }

    /// Reports every reconcile to this sink as it begins and ends, and for how long it ran. That costs reading the queue's clock at
    /// each add and each end; without metrics nothing is measured.
    pub fn metrics(mut self, metrics: impl ControllerMetrics) -> Self {
        self.setup.config.metrics = Some(Box::new(metrics));
        self
    }

    /// What says whether it is ready, and whether it is alive. From now on the queue [keeps ages](Queue::track_ages), which
    /// costs reading its clock at each add and get; keys that others hold count, too.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, NotLive, NotReady, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().timer(TokioTimer::current()).build();
    /// # queue.add("a")?;
    /// # queue.shut_down();
    /// let controller = Controller::new(queue);
    /// let health = controller.health();
    /// assert_eq!(health.ready(), Err(NotReady::NotStarted)); // "not ready" to a probe
    /// let longest = Duration::from_secs(60);
    /// assert_eq!(health.live(longest), Ok(()));
    ///
    /// let seen = health.clone();
    /// controller
    ///     .run(move |_, _| {
    ///         assert_eq!((seen.ready(), seen.live(longest)), (Ok(()), Ok(())));
    ///         async { Ok::<_, String>(Action::await_change()) }
    ///     })
    ///     .await?;
    /// assert_eq!(health.live(longest), Err(NotLive::Ended));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        self.setup.queue.track_ages();
        let queue = self.setup.queue.clone();
        Health::new(self.setup.watches.clone(), move || queue.stats().oldest_lease)
    }

    /// Stands by until `begins` is done: the caches sync and stay current, but no change becomes a key and no worker starts. For leader election:
    /// a replica with warm caches takes over at once.
    ///
    /// A controller that stands by, with all caches synced, is [ready](Health::ready); otherwise a rolling update that waits for the new replica
    /// never stops the old one. When `begins` is done, all objects become keys, as at any start. To keep reconciles from starting once the
    /// leadership is over, add [`filter_keys`](Self::filter_keys) with a function that says whether it still lasts.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().timer(TokioTimer::current()).build();
    /// # queue.add("a")?;
    /// # queue.shut_down();
    /// let (elect, elected) = tokio::sync::oneshot::channel::<()>();
    /// let controller = Controller::new(queue).standby_until(async { drop(elected.await) });
    /// let health = controller.health();
    /// let running = tokio::spawn(controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }));
    /// # while health.ready().is_err() { tokio::task::yield_now().await; }
    /// assert_eq!(health.ready(), Ok(())); // the caches have synced; no key was reconciled
    /// elect.send(()).unwrap();
    /// assert_eq!(running.await??.reconciles, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn standby_until(mut self, begins: impl Future<Output = ()> + Send + 'static) -> Self {
        self.setup.standby = Some(Box::pin(begins));
        self
    }

    /// Runs until it is shut down, until it has settled, or until the queue is shut down from elsewhere, which hands out the
    /// backlog first; then reports. Must be polled within a tokio runtime, whose timer it uses.
    ///
    /// In this order:
    /// 1. All informers are observed: what they have becomes keys here, and from now on every change does.
    /// 2. Workers start when **every** informer that is not [optional](crate::WatchOptions::optional) has synced. An informer that ends before the
    ///    controller does ends the run. One that
    ///    [stands by](Self::standby_until) observes them only once it begins.
    /// 3. At [shutdown](Self::graceful_shutdown_on) the events are stopped first: no change is mapped any more.
    /// 4. Running reconciles end, and no other key is started, unless it [drains](Self::drain_on_shutdown). After the
    ///    [grace](Self::shutdown_grace) they are [cancelled](Context::cancelled), and dropped [some time later](Self::abort_after).
    /// 5. The workers are joined and the queue is shut down. What it still holds is in the [report](RunReport::leftovers).
    ///
    /// Shut down before the informers have synced, it reconciles nothing, and all keys are leftovers.
    ///
    /// # Errors
    /// - [`RunError::Config`] when the controller makes no sense as configured.
    /// - [`RunError::SyncFailed`] when an informer ended before it had synced, and [`RunError::SyncTimeout`] when one took
    ///   [too long](Self::cache_sync_timeout). No key was reconciled then.
    /// - [`RunError::CacheEnded`] when an informer ended later: its cache would never change again. Running reconciles have ended.
    ///
    /// The queue is not shut down, and keeps its keys.
    ///
    /// # Panics
    /// When `Clone` of a key, the queue's clock or its timer panics inside the queue.
    ///
    /// # Cancel safety
    /// Dropping the future stops workers and events without finishing anything: running reconciles are dropped where
    /// they next await something, which the runtime does soon, not at once. Nothing queued is lost: the queue is not
    /// shut down, keys that were being worked on count as failed and come back after their backoff, and all stay in
    /// the queue for the next controller. Every change published until then has become keys; another controller over
    /// the same informers starts with all objects there are.
    pub async fn run<F, R, E>(self, reconcile: F) -> Result<RunReport<K>, RunError>
    where
        F: Fn(K, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        self.run_on(Tokio::new(), reconcile).await
    }

    pub(crate) async fn run_on<X, F, R, E>(self, runtime: X, reconcile: F) -> Result<RunReport<K>, RunError>
    where
        X: Runtime,
        F: Fn(K, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        self.setup.config.check::<L>(self.setup.watches.len())?;
        crate::run::run(runtime, self.setup, reconcile, |workers| workers.work(), |_| {}).await
    }

    /// As [`run`](Self::run), but a reconcile is of several keys at once, for what is cheaper together: one request for a
    /// hundred objects, one transaction.
    ///
    /// It gets the keys of one [batch](BatchConfig), each of them once, and returns a result for each, in the same order. Each
    /// key keeps an outcome of its own: it is retried, given up or asks to come back by itself. When the whole fails, by an error, a
    /// panic, or as it takes too long, or says more or less than it was asked, that is a failure of every key in it.
    ///
    /// One worker at a time collects a batch, and only while it is not busy, so what no worker is free for stays in the
    /// queue. Keys that wait in a batch for others are held, and as old as if they were worked on; not more than eight batches' worth
    /// of them. Everything else, [`finally`](Self::finally) too, is by key.
    ///
    /// # Errors
    /// As `run`.
    ///
    /// # Panics
    /// As `run`.
    ///
    /// # Cancel safety
    /// As `run`; keys that wait in a batch are keys that are worked on.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, BatchConfig, Controller};
    /// # use flyball_ratelimit::Exponential;
    /// # use flyball_controller::TokioTimer;
    /// # use flyball_workqueue::Queue;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    /// # let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
    /// # queue.add_many(0..100);
    /// # queue.shut_down();
    /// let report = Controller::new(queue)
    ///     .run_batches(BatchConfig::new(50), |keys, _context| async move {
    ///         // One request, and an answer for each of them.
    ///         let answers = keys.iter().map(|key| {
    ///             if *key == 7 { Err("no luck") } else { Ok(Action::await_change()) }
    ///         });
    ///         Ok(answers.collect())
    ///     })
    ///     .await?;
    /// assert_eq!((report.batches, report.reconciles, report.errors), (2, 100, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_batches<G, F, R, E>(
        self,
        batches: BatchConfig<K, G>,
        reconcile: F,
    ) -> Result<RunReport<K>, RunError>
    where
        G: Key,
        F: Fn(Vec<K>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<Result<Action, E>>, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
    {
        self.run_batches_on(Tokio::new(), batches, reconcile).await
    }

    pub(crate) async fn run_batches_on<X, G, F, R, E>(
        self,
        runtime: X,
        batches: BatchConfig<K, G>,
        reconcile: F,
    ) -> Result<RunReport<K>, RunError>
    where
        X: Runtime,
        G: Key,
        F: Fn(Vec<K>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<Result<Action, E>>, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
    {
        self.setup.config.check::<L>(self.setup.watches.len())?;
        if batches.max_size == 0 {
            return Err(InvalidControllerConfig::ZeroBatchSize.into());
        }
        let batching = Batching::new(batches, reconcile);
        crate::run::run(
            runtime,
            self.setup,
            batching,
            |workers| workers.work_batches(),
            |workers| workers.release(),
        )
        .await
    }
}

impl<K, O: Order<K>, L, T> fmt::Debug for Controller<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("config", &self.setup.config)
            .field("informers", &self.setup.watches.len())
            .finish_non_exhaustive()
    }
}
