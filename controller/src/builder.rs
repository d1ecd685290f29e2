//! EDGE. The builder of a controller.
//!
//! Cancel safety: nothing runs until [`Controller::run`] is polled. The documentation of `run` describes the effect of dropping the future.

mod failures;
mod shutdown;
mod watches;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use flyball_ratelimit::Exponential;
use flyball_workqueue::{Fifo, Key, Order, Queue, QueueLimiter, Timer};

use crate::run::RunSetup;
use crate::run::batch::{Batching, batch_results};
use crate::run::reconciler::WorkerReconciler;
use crate::run::run_config::RunConfig;
use crate::run::runtime::{Runtime, Tokio};
use crate::run::watch_set::{RunGuard, WatchSet};
use crate::run::worker::WorkerContext;
use crate::{
    Action, BatchConfig, Context, ControllerConfig, ControllerMetrics, Health, InvalidControllerConfig,
    ReconcileError, RunError, RunReport,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};

/// A controller loop: it maps changes of objects to keys, and calls a reconcile function for each key.
///
/// Each worker takes one key at a time from the queue, and no two workers have the same key at the same time. Workers start when every
/// informer has synced. If a reconcile returns an error, panics or times out, only its key is affected: the key is retried after the delay of the
/// queue's limiter.
///
/// Watches, start conditions, standbys, key filters and shutdown signals of several calls apply together. Any other function, and the metrics, replace those
/// of an earlier call.
///
/// # Examples
/// In this example the queue is already shut down, so the run ends by itself when all queued keys are reconciled:
/// ```
/// # use flyball_controller::{Action, Controller, ControllerConfig, TokioTimer};
/// # use flyball_ratelimit::Exponential;
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
///     .with_config(ControllerConfig { workers: 4.into(), ..ControllerConfig::default() })
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
pub struct Controller<K, O: Order<K> = Fifo, L = Exponential<K>, T = flyball_workqueue::ThreadTimer> {
    setup: RunSetup<K, O, L, T>,
}

impl<K, O, L, T> Controller<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    /// Creates a controller over this queue, with one worker and no informer.
    ///
    /// Other code may also add keys to the queue. Do not give the queue, or a group of [`Fair`](flyball_workqueue::Fair), a capacity, because a full queue refuses
    /// keys, and a change whose key is refused is lost. The queue's limiter decides when a failed key is retried; a queue without a limiter is refused at compile time. To observe the
    /// controller, give the queue [metrics](flyball_workqueue::QueueBuilder::metrics). These metrics report for each lease
    /// the outcome of its reconcile (succeeded, requeued or failed). If a reconcile is dropped with its worker, its lease
    /// is reported as dropped.
    ///
    /// # Examples
    /// On tokio, give the queue a `TokioTimer`: its deadlines then need no thread, and follow a paused clock.
    /// ```no_run
    /// use flyball_controller::{Controller, TokioTimer};
    /// use flyball_ratelimit::Exponential;
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    /// let controller = Controller::new(Queue::<u32>::builder().limiter(backoff).timer(TokioTimer::current()).build());
    /// # let _ = controller;
    /// ```
    ///
    /// Without a limiter, a key that keeps failing would be retried some hundred thousand times in a second. So this does not compile:
    /// ```compile_fail,E0080
    /// use flyball_controller::Controller;
    /// use flyball_workqueue::Queue;
    ///
    /// let controller = Controller::new(Queue::<u32>::new()); // no limiter
    /// ```
    pub fn new(queue: Queue<K, O, L, T>) -> Self {
        const {
            assert!(
                L::LIMITS,
                "the queue of a controller needs a limiter, which delays the retries: `Queue::builder().limiter(policy)`"
            );
        };
        let watches = WatchSet::default();
        let setup = RunSetup {
            config: RunConfig::default(),
            queue,
            sink: Arc::default(),
            conditions: Vec::new(),
            standby: None,
            stop: Box::pin(std::future::pending()),
            guard: RunGuard(watches.clone()),
            watches,
        };
        Self { setup }
    }

    /// Sets all settings that are plain values; a second call replaces those of the first. [`ControllerConfig::default`] applies without a call.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Controller, ControllerConfig, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::<u32>::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// let file = r#"{ "workers": 4, "reconcile_timeout": "30s", "shutdown_grace": "1m" }"#;
    /// # #[cfg(feature = "serde")]
    /// let config: ControllerConfig = serde_json::from_str(file)?;
    /// # #[cfg(not(feature = "serde"))]
    /// # let config = ControllerConfig::default();
    /// let controller = Controller::new(queue).with_config(config);
    /// # let _ = (controller, file);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_config(mut self, config: ControllerConfig) -> Self {
        self.setup.config.settings = config;
        self
    }

    /// Reports the start, the end and the duration of every reconcile to `metrics`. To measure durations, the queue
    /// [tracks ages](Queue::track_ages), which costs a clock read at each add and each get, and one more at the end of
    /// each reconcile. Without metrics nothing is measured.
    pub fn metrics(mut self, metrics: impl ControllerMetrics) -> Self {
        self.setup.config.metrics = Some(Box::new(metrics));
        self
    }

    /// Returns a [`Health`], which reports the readiness and the liveness of the controller. From now on the queue [tracks ages](Queue::track_ages),
    /// which costs one clock read at each add and each get. A key that other code has leased from the queue for too long also makes the controller
    /// count as not alive.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, NotLive, NotReady, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
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

    /// Keeps the controller in standby until `begins` completes: the caches sync and stay current, but changes add no keys and no worker starts.
    /// Use this for leader election: a standby replica that is elected has filled caches, so it need not list the objects first. Of several such futures,
    /// all must complete.
    ///
    /// `begins` is polled from the start of the run, also while the caches sync, so an election may begin at its first poll. If it completes before
    /// the caches have synced, the changes add their keys from then on, and the workers start when the caches have synced.
    ///
    /// A controller in standby is [ready](Health::ready) when all start conditions are met. If it were not ready, a rolling update would wait for
    /// the new replica forever, and never stop the old replica. When `begins` completes, the keys of all objects are added, as at the start of any
    /// controller. To keep reconciles from starting after the leadership has ended, add [`filter_keys`](Self::filter_keys) with a function that
    /// returns whether this replica still leads.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
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
        self.setup.standby = Some(match self.setup.standby {
            None => Box::pin(begins),
            Some(earlier) => Box::pin(join(earlier, begins).map(drop)),
        });
        self
    }

    /// Runs the controller. Returns a report when the run has ended. The run ends when the controller is shut down or [idle](ControllerConfig::stop_when_idle),
    /// or when other code has shut down the queue and all Ready keys are reconciled. The future must be polled within a tokio runtime, because it
    /// uses the runtime's timer.
    ///
    /// The run has these steps:
    /// 1. The controller observes all informers: it adds the keys of every later change, and maps the existing objects in pieces, so that other tasks run
    ///    in between.
    /// 2. Workers start when **every** informer has synced, the keys of the existing objects are added, and all other
    ///    [start conditions](Self::start_when) are met. If an
    ///    informer ends before the controller, the run ends, unless the informer was shut down and
    ///    [`stop_when_idle`](ControllerConfig::stop_when_idle) is set. A controller [in standby](Self::standby_until) observes its
    ///    informers only after the standby.
    /// 3. At [shutdown](Self::graceful_shutdown_on) the controller first stops mapping changes to keys.
    /// 4. Running reconciles finish, and no further reconcile starts, unless the controller
    ///    [drains](ControllerConfig::drain_on_shutdown) its queue. After the [grace](ControllerConfig::shutdown_grace), reconciles that still
    ///    run are [cancelled](Context::cancelled), and those that still run after a [further time](ControllerConfig::abort_after) are dropped.
    /// 5. The workers are joined and the queue is shut down. The keys that are still in the queue are in the
    ///    [report](RunReport::leftovers).
    ///
    /// A controller that is shut down before its workers have started reconciles nothing, and all its keys are leftovers.
    ///
    /// # Errors
    /// - [`RunError::Config`] if the configuration of the controller is invalid.
    /// - [`RunError::StartFailed`] if a [start condition](Self::start_when) failed, and [`RunError::StartTimeout`] if the start conditions were not met
    ///   [in time](ControllerConfig::start_timeout). No key was reconciled in either case.
    /// - [`RunError::CacheEnded`] if an informer ended, at any time, because the cache of that informer no longer changes. The error is returned
    ///   after the running reconciles have ended, as at a shutdown.
    ///
    /// After an error the queue is not shut down, and keeps its keys.
    ///
    /// # Panics
    /// Panics if the queue's clock, the queue's timer or `Clone` of a key panics inside the queue, or if a future panics that was passed to
    /// [`start_when`](Self::start_when), [`standby_until`](Self::standby_until) or [`graceful_shutdown_on`](Self::graceful_shutdown_on).
    ///
    /// # Cancel safety
    /// Dropping the future stops the workers and the mapping of changes, and does not wait for running reconciles: the runtime drops each of them at
    /// its next await point, which may be after the drop of the future has returned. No queued key is lost, because the queue is not shut down. Keys
    /// whose reconciles were dropped count as failed and are retried after their backoff, and all keys stay in the queue for the next controller. Each
    /// [`Context`] is [cancelled](Context::cancelled), so that tasks that a reconcile has spawned can end. The
    /// keys of every change that was published between the start of the observation and the drop have been added. A later controller over the same informers starts with the keys of
    /// all their objects.
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
        let reconcile = Arc::new(reconcile);
        let worker = move |context: Arc<WorkerContext<X, K, O, L, T>>| -> BoxFuture<'static, ()> {
            let convert =
                |result: Result<Action, E>| result.map_err(|error| ReconcileError::of(error.into()));
            Box::pin(context.work(Box::new(WorkerReconciler::new(reconcile.clone(), convert))))
        };
        crate::run::run(runtime, self.setup, &worker, &|_| Box::pin(std::future::ready(()))).await
    }

    /// Like [`run`](Self::run), but each call reconciles several keys, for work that is cheaper in bulk, for example one
    /// request or one transaction for a hundred objects.
    ///
    /// `reconcile` receives the keys of one [batch](BatchConfig), each key once, and returns one result per key, in the order of the keys. Each key
    /// has its own outcome: it is retried, given up or requeued independently of the other keys. If the whole call fails, every key in the batch
    /// fails. A call fails if it returns an error, panics, times out, or returns a number of results that differs from the number of keys.
    ///
    /// Only one worker at a time collects keys for batches, and a worker does not collect while it reconciles. So keys stay in the queue while all
    /// workers are busy. Keys in an open batch are leased, and the age of their leases includes the time in the batch. All open batches together hold
    /// fewer keys than eight full batches would. The [`reconcile_timeout`](ControllerConfig::reconcile_timeout) limits the whole call; the other settings,
    /// including [`finally`](Self::finally), apply to single keys.
    ///
    /// # Errors
    /// Like `run`.
    ///
    /// # Panics
    /// Like `run`.
    ///
    /// # Cancel safety
    /// Like `run`; keys in an open batch are treated like keys whose reconcile is running.
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
            return Err(
                InvalidControllerConfig::new("run_batches", "a batch must hold at least one key").into()
            );
        }
        let (batching, reconcile) = (Arc::new(Batching::new(batches)), Arc::new(reconcile));
        let collected = batching.clone();
        let worker = move |context: Arc<WorkerContext<X, K, O, L, T>>| -> BoxFuture<'static, ()> {
            let reconciler = WorkerReconciler::new(reconcile.clone(), batch_results);
            Box::pin(batching.clone().work(context, Box::new(reconciler)))
        };
        let release = move |context: Arc<WorkerContext<X, K, O, L, T>>| -> BoxFuture<'static, ()> {
            Box::pin(collected.clone().release(context))
        };
        crate::run::run(runtime, self.setup, &worker, &release).await
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
