//! EDGE. The controller, as it is put together.
//!
//! Cancel safety: nothing runs until [`Controller::run`] is polled; what dropping that does is told there.

mod failing;
mod listening;
mod staffing;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use flyball_ratelimit::{Exponential, Limiter, Policy};
use flyball_workqueue::{AsyncGet, Delays, Fifo, Key, NoLimit, Order, Queue};

use crate::batch_worker::Batching;
use crate::config::Config;
use crate::events::{AddInitial, BoxFuture, Events};
use crate::health::Alive;
use crate::runtime::{Runtime, Tokio};
use crate::{Action, Batches, ConfigError, Context, Health, Metrics, Report, RunError, Settings};

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
/// # use flyball_ratelimit::{Exponential, TokioTimer};
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
pub struct Controller<K, O: Order<K> = Fifo, L = NoLimit, T = flyball_workqueue::NoDelay> {
    pub(crate) queue: Queue<K, O, L, T>,
    pub(crate) config: Config<K>,
    pub(crate) events: Vec<Events<K, O, L, T>>,
    pub(crate) initial: AddInitial<K, O, L, T>,
    /// What else is waited for before workers start.
    pub(crate) after: Vec<BoxFuture<Result<(), ()>>>,
    pub(crate) stop: BoxFuture<()>,
    /// It is over wherever this is dropped, also before it runs.
    pub(crate) health: Alive,
}

impl<K, O, L, T> Controller<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: Policy<K> + Send + 'static,
    T: AsyncGet + Delays,
{
    /// A controller of one worker over this queue, with no informer yet.
    ///
    /// The queue may be fed from elsewhere, too; one with a capacity refuses what is one too many, and a change whose key is
    /// refused is lost: give it none. Its limiter decides when a failed key is retried. Give it
    /// [metrics](flyball_workqueue::Builder::metrics) to see the controller at work: a reconcile that succeeded, asked to
    /// come back, or failed is a lease that ended so; one that was dropped with its worker is a lease that was.
    pub fn new(queue: Queue<K, O, L, T>) -> Self {
        let held = queue.clone();
        Self {
            queue,
            config: Config::default(),
            events: Vec::new(),
            initial: Arc::new(Queue::add),
            after: Vec::new(),
            stop: Box::pin(std::future::pending()),
            health: Alive(Health::new(move || held.ages()?.leased)),
        }
    }

    /// Takes on all of these settings; what is called later has the last word.
    ///
    /// # Errors
    /// When a controller cannot run so.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{ConfigError, Controller, Settings};
    /// # use flyball_ratelimit::TokioTimer;
    /// # use flyball_workqueue::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::<u32>::builder().timer(TokioTimer::current()).build();
    /// let file = r#"{ "workers": 4, "reconcile_timeout": "30s", "shutdown_grace": "1m" }"#;
    /// # #[cfg(feature = "serde")]
    /// let settings: Settings = serde_json::from_str(file)?;
    /// # #[cfg(not(feature = "serde"))]
    /// # let settings = Settings::default();
    /// let controller = Controller::new(queue).configured(&settings)?;
    /// # let _ = (controller, file);
    /// # Ok(())
    /// # }
    /// ```
    pub fn configured(mut self, settings: &Settings) -> Result<Self, ConfigError> {
        settings.check()?;
        let waits = settings.conflict_wait..=settings.longest_conflict_wait;
        self.config.workers = settings.workers..=settings.most_workers.unwrap_or(settings.workers);
        self.config.linger = settings.worker_linger;
        self.config.timeout = settings.reconcile_timeout;
        self.config.attempts = settings.max_attempts;
        self.config.grace = settings.shutdown_grace;
        Ok(self.conflict_schedule(Limiter::new(Exponential::new(waits))))
    }

    /// Is told of every reconcile as it begins and ends, and for how long it ran. That costs reading the queue's clock at
    /// each add and each end; without metrics nothing is measured.
    pub fn metrics(mut self, metrics: impl Metrics) -> Self {
        self.config.metrics = Some(Box::new(metrics));
        self
    }

    /// What says whether it is ready, and whether it is alive. From now on the queue [keeps ages](Queue::keep_ages), which
    /// costs reading its clock at each add and get; keys that others hold count, too.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, NotReady, NotLive};
    /// # use flyball_ratelimit::TokioTimer;
    /// # use flyball_workqueue::Queue;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().timer(TokioTimer::current()).build();
    /// # queue.add("a")?;
    /// # queue.shut_down();
    /// let controller = Controller::new(queue);
    /// let health = controller.health();
    /// assert_eq!(health.ready(), Err(NotReady::Idle)); // "not ready" to a probe
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
    /// assert_eq!(health.live(longest), Err(NotLive::Over));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        self.queue.keep_ages();
        self.health.0.clone()
    }

    /// Shuts down, in order, when `signal` is done: the events are stopped, the queue is finished, the workers are
    /// joined.
    pub fn shutdown_on(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop = Box::pin(signal);
        self
    }

    /// How long finishing the queue may take at shutdown. Then running reconciles are dropped, where they await
    /// something, and their keys are leftovers; a panic while one is dropped is caught. No limit by default.
    pub fn shutdown_grace(mut self, limit: Duration) -> Self {
        self.config.grace = Some(limit);
        self
    }

    /// Ends by itself, in order, once all is done that can ever come: every informer has stopped, and with it every
    /// change has become a key, and the queue is idle (retries and delayed keys included).
    ///
    /// For jobs and tests. A key that always asks to be requeued keeps it running.
    pub fn until_settled(mut self) -> Self {
        self.config.settles = true;
        self
    }

    /// Runs until it is shut down, until it has settled, or until the queue is shut down from elsewhere; then
    /// reports. Must be polled within a tokio runtime, whose timer it uses.
    ///
    /// In this order:
    /// 1. All informers are observed: what they have becomes keys here, and from now on every change does.
    /// 2. Workers start when **every** informer has synced.
    /// 3. At shutdown the events are stopped first: no change is mapped any more.
    /// 4. The queue is shut down and finished: what is Ready is worked off. Retries and delayed keys are leftovers. The
    ///    keys of a change that was being mapped just then are refused.
    /// 5. The workers are joined.
    ///
    /// Shut down before the informers have synced, it reconciles nothing, and all keys are leftovers.
    ///
    /// # Errors
    /// [`RunError::Config`] when the controller makes no sense as configured, and [`RunError::NeverSynced`] when an
    /// informer ended too early. No key was reconciled then, and the queue is not shut down.
    ///
    /// # Panics
    /// When `Clone` of a key, the queue's clock or its timer panics inside the queue.
    ///
    /// # Cancel safety
    /// Dropping the future stops workers and events without finishing anything: running reconciles are dropped where
    /// they next await something, which the runtime does soon, not at once. Nothing queued is lost: the queue is not
    /// shut down, keys that were being worked on count as failed and come back after their backoff, and all stay in
    /// the queue for whoever serves it next. Every change published until then has become keys; another controller over
    /// the same informers starts with all objects there are.
    pub async fn run<F, R, E>(self, reconcile: F) -> Result<Report<K>, RunError>
    where
        F: Fn(K, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        self.run_on(Tokio::new(), reconcile).await
    }

    pub(crate) async fn run_on<X, F, R, E>(self, runtime: X, reconcile: F) -> Result<Report<K>, RunError>
    where
        X: Runtime,
        F: Fn(K, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Action, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        self.config.check::<L>(self.events.len())?;
        crate::run::run(runtime, self, reconcile, |shop| shop.work()).await
    }

    /// As [`run`](Self::run), but a reconcile is of several keys at once, for what is cheaper together: one request for a
    /// hundred objects, one transaction.
    ///
    /// It is told the keys of one [batch](Batches), each of them once, and returns what came of each, in the same order. Each
    /// key keeps an outcome of its own: it is retried, given up or asks to come back by itself. When the whole fails, by an error, a
    /// panic, or as it takes too long, or says more or less than it was asked, that is a failure of every key in it.
    ///
    /// One worker at a time collects a batch, and only while it is not busy, so what nobody can work on stays in the
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
    /// # use flyball_controller::{Action, Batches, Controller};
    /// # use flyball_ratelimit::{Exponential, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    /// # let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
    /// # queue.add_many(0..100);
    /// # queue.shut_down();
    /// let report = Controller::new(queue)
    ///     .run_batches(Batches::of(50), |keys, _context| async move {
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
        batches: Batches<K, G>,
        reconcile: F,
    ) -> Result<Report<K>, RunError>
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
        batches: Batches<K, G>,
        reconcile: F,
    ) -> Result<Report<K>, RunError>
    where
        X: Runtime,
        G: Key,
        F: Fn(Vec<K>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<Result<Action, E>>, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
    {
        self.config.check::<L>(self.events.len())?;
        if batches.size == 0 {
            return Err(ConfigError::EmptyBatches.into());
        }
        let batching = Batching::new(batches, reconcile);
        crate::run::run(runtime, self, batching, |shop| shop.work_batches()).await
    }
}

impl<K, O: Order<K>, L, T> fmt::Debug for Controller<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("config", &self.config)
            .field("informers", &self.events.len())
            .finish_non_exhaustive()
    }
}
