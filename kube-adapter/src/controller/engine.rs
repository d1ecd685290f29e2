//! EDGE. A running controller. The user's types are erased, so this code is compiled once for each queue order, even if the program has several
//! controllers.
//!
//! Cancel safety: dropping the future of [`Engine::run`] stops its own informers, its workers and its streams of keys.

use std::error::Error;
use std::fmt;
use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::{Action, Context, ControllerConfig, FailureClass, ReconcileError};
use flyball_informer_cache::{NamespacedName, Stopped};
use flyball_ratelimit::{Exponential, Limiter, OncePerBackoff};
use flyball_sync::TokioTimer;
use flyball_workqueue::{Fair, Fifo, Priority, Queue};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;
use tokio::time::sleep;
use tracing::{Instrument, Span};

use super::deleted_keys::DeletedKeys;
use super::in_flight::InFlight;
use super::key_streams::{MayExist, StreamTrigger, feed};
use super::own_informers::OwnInformer;
use super::reconcile_reasons::{Reason, Reasons};
use super::shutdown::{ShutdownSignals, any};
use super::trigger::{Keys, Loop, OrderedLoop, Origin, Trigger, TriggerOptions};
use super::trigger_backoff::TriggerBackoff;
use crate::config::BACKOFF;
use crate::config::boxed_policy::BoxedPolicy;
use crate::controller::reconcile_failed::ReconcileFailed;
use crate::{Config, Monitor, QueueOrder};
use flyball_kube_lease::Leadership;

/// The function that the controller loop calls for each key. This function then calls the user's functions.
pub(crate) type Reconcile = Arc<
    dyn Fn(NamespacedName, Context) -> BoxFuture<'static, Result<Reconciled, ReconcileError>> + Send + Sync,
>;

/// The outcome of a call of [`Reconcile`] that did not fail.
pub(crate) enum Reconciled {
    Done(Action),
    /// The reconcile did not start, because the term of this leader is over.
    NotLeader,
    /// The object has a different key from the one that was added: the added key has a namespace, but the object is cluster-scoped. The key was added
    /// before the object was in the cache.
    HasKey(NamespacedName, Reason),
}

/// All parts of a controller.
pub(crate) struct Engine {
    pub(crate) kind: String,
    pub(crate) config: Config,
    pub(crate) triggers: Vec<Box<dyn Trigger>>,
    pub(crate) required: Vec<BoxFuture<'static, Result<(), Stopped>>>,
    pub(crate) streams: Vec<StreamTrigger>,
    /// A future that waits until the controller's own objects are listed, and returns the keys of all of them; `None` if the objects come from an
    /// informer.
    pub(crate) all_keys: Option<BoxFuture<'static, Vec<NamespacedName>>>,
    /// Whether an object of the controller may exist.
    pub(crate) may_exist: MayExist,
    pub(crate) reasons: Arc<Reasons>,
    pub(crate) deleted: Arc<DeletedKeys>,
    pub(crate) informers: Vec<OwnInformer>,
    pub(crate) backoff: Option<TriggerBackoff>,
    pub(crate) shutdown: ShutdownSignals,
    pub(crate) leadership: Option<Leadership>,
    pub(crate) monitor: Monitor,
    pub(crate) reconcile: Reconcile,
}

impl Engine {
    /// Runs until the controller has shut down or cannot continue.
    pub(crate) async fn run(self) {
        match self.config.queue_order {
            QueueOrder::Fifo => self.run_in(Fifo, 0).await,
            QueueOrder::Priority { initial_priority } => {
                self.run_in(Priority::default(), initial_priority).await
            }
            QueueOrder::FairByNamespace { max_in_flight } => {
                let fair =
                    Fair::by_group(|key: &NamespacedName| Arc::from(key.namespace().unwrap_or_default()));
                match max_in_flight {
                    // With a limit of zero, no object of any namespace would be reconciled.
                    Some(most) => self.run_in(fair.max_leased(move |_| most.max(1)), 0).await,
                    None => self.run_in(fair, 0).await,
                }
            }
        }
    }

    async fn run_in<O: OrderedLoop>(self, order: O, initial_priority: i8) {
        let Self {
            kind,
            config,
            triggers,
            required,
            streams,
            all_keys,
            may_exist,
            reasons,
            deleted,
            informers,
            backoff,
            mut shutdown,
            leadership,
            monitor,
            reconcile,
        } = self;
        let options = TriggerOptions {
            debounce: config.debounce,
            initial_priority,
            strict_backoff: config.strict_backoff,
            reasons,
            deleted,
        };
        let queue = queue(order, &config);
        let crash_backoff = Arc::new(CrashBackoff::new());
        // If all triggers are streams, the controller ends when the streams have ended.
        let ends = triggers.is_empty() && informers.is_empty();
        let controller = flyball_controller::Controller::new(queue.clone());
        let mut controller = configured(controller, &config, &crash_backoff);
        if let Some(leadership) = leadership.clone() {
            shutdown.graceful.push(leadership.lost().boxed());
            // The filter checks the leadership immediately before each reconcile. A shutdown on the signal of `lost` is not enough: the signal may
            // arrive slightly late, and a drain dequeues keys even after the signal.
            controller =
                controller.standby_until(leadership.elected()).filter_keys(move |_| leadership.is_leader());
        }
        if let Some(backoff) = &backoff {
            shutdown.graceful.push(backoff.gave_up().boxed());
        }
        for condition in required {
            controller = controller.start_when(condition);
        }
        for trigger in triggers {
            controller = O::attach(trigger, controller, options.clone());
        }
        // As in kube-runtime, streams are not polled after the shutdown signal. Otherwise, their items would not be
        // reconciled, and a panic in a stream would abort the reconciles in flight.
        let (graceful, (stopping, stopped)) = (any(shutdown.graceful), oneshot::channel());
        // Workers are separate tasks outside the current span, so the span is passed to them.
        let (of, within) = (kind.clone(), Span::current());
        let (giving_up, given_up, reporting) =
            (options.reasons.clone(), (kind.clone(), within.clone()), within.clone());
        let controller = controller
            .on_give_up(move |key, failure| {
                giving_up.forget_retry(key);
                let (kind, within) = &given_up;
                within.in_scope(|| report_given_up(kind, key, failure));
            })
            .finally(move |key, ended, _| {
                if ended.is_ok() {
                    crash_backoff.0.forget(&key);
                }
                reporting.in_scope(|| report(&of, &key, ended.err().as_deref()));
                async { Ok::<_, ReconcileFailed>(()) }
            })
            .graceful_shutdown_on(async move {
                graceful.await;
                let _ = stopping.send(());
            });
        monitor.watch(&queue, controller.health());

        let mut running = JoinSet::new();
        for informer in informers {
            running.spawn(informer(&config, backoff.as_ref()).in_current_span());
        }
        let mut feeding = JoinSet::new();
        for stream in streams {
            let (queue, options, leadership) = (queue.clone(), options.clone(), leadership.clone());
            let feed = feed(stream(backoff.as_ref()), queue, options, leadership, may_exist.clone());
            feeding.spawn(feed.in_current_span());
        }
        let (in_flight, held, noted) = (InFlight::new(kind.clone()), queue.clone(), options.reasons.clone());
        let term = leadership.clone();
        let reconcile = move |key: NamespacedName, context: Context| {
            let running = in_flight.begin(|| held.stats().oldest_lease);
            let reconcile = during(term.clone(), reconcile(key, context)).instrument(within.clone());
            let (queue, noted) = (held.clone(), noted.clone());
            async move {
                let _running = running;
                match reconcile.await? {
                    Reconciled::Done(next) => Ok::<_, ReconcileError>(next),
                    // The controller is shutting down, and the next leader reconciles all objects.
                    Reconciled::NotLeader => Ok(Action::await_change()),
                    Reconciled::HasKey(key, reason) => {
                        // The object is not reconciled here, because it may be in flight under its own key.
                        noted.note(&key, || reason);
                        // `add` fails only if the queue is shut down.
                        let _ = queue.add(key);
                        Ok(Action::await_change())
                    }
                }
            }
        };
        let has_begun = || monitor.ready().is_ok() && leadership.as_ref().is_none_or(Leadership::is_leader);
        // When one of these futures completes, the others are dropped, which also drops all running reconciles.
        tokio::select! {
            ended = controller.run(reconcile) => match ended {
                Ok(report) => {
                    tracing::debug!(target: super::TARGET, kind, reconciles = report.reconciles, left = ?report.leftovers, "ended");
                }
                Err(error) => tracing::error!(target: super::TARGET, kind, %error, "the controller cannot run"),
            },
            () = any(shutdown.forceful) => {}
            never = async {
                let feed = async {
                    let elected = async {
                        if let Some((leadership, all_keys)) = leadership.as_ref().zip(all_keys) {
                            leadership.elected().await;
                            add_all(all_keys.await, &queue, &options).await;
                        }
                    };
                    tokio::join!(elected, watched(&mut feeding));
                    if ends {
                        // After this sleep, all debounced keys are due. The controller ends once all queued keys are reconciled.
                        sleep(config.debounce.map_or(Duration::ZERO, |debounce| debounce.quiet)).await;
                        queue.shut_down();
                    }
                    pending().await
                };
                tokio::select! {
                    biased;
                    Ok(()) = stopped => {}
                    never = feed => never,
                }
                feeding.abort_all();
                pending().await
            } => never,
            () = monitor.own_caches().log_status(&kind, has_begun) => {}
            never = async { watched(&mut running).await; pending().await } => never,
        }
        // If an informer panicked before its first list, the controller cannot run, and the panic is propagated here.
        running.abort_all();
        watched(&mut running).await;
    }
}

/// Runs a reconcile. With a leadership, the reconcile fails once the term and its stop grace are over: then it is dropped, and not polled again.
async fn during(
    leadership: Option<Leadership>,
    reconcile: BoxFuture<'static, Result<Reconciled, ReconcileError>>,
) -> Result<Reconciled, ReconcileError> {
    match leadership {
        None => reconcile.await,
        Some(leadership) => {
            let guarded = leadership.guard(reconcile).await;
            guarded.unwrap_or_else(|| Err(ReconcileError::Error(TermOver.into())))
        }
    }
}

/// The failure of a reconcile that was dropped because the leadership was over.
#[derive(Debug)]
struct TermOver;

impl fmt::Display for TermOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the leadership was over, and the reconcile was dropped")
    }
}

impl Error for TermOver {}

/// Adds the keys of all objects, as at the start of a controller. Other tasks run in between.
async fn add_all<O: OrderedLoop>(keys: Vec<NamespacedName>, queue: &Keys<O>, options: &TriggerOptions) {
    for key in keys {
        // `add` fails only if the queue is shut down.
        let _ = options.add(queue, key, Origin::InitialList, || Reason::ObjectUpdated);
        consume_budget().await;
    }
}

/// Waits until all of these tasks have ended, and propagates their panics. If the panic of an informer were ignored, its cache would silently never
/// change again.
async fn watched(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            resume_unwind(panic);
        }
    }
}

/// The backoff after panics and timeouts if the configuration sets no backoff. It is needed because the error policy is not called for these
/// failures.
struct CrashBackoff(
    Limiter<NamespacedName, OncePerBackoff<NamespacedName, Exponential<NamespacedName>>, TokioTimer>,
);

impl CrashBackoff {
    fn new() -> Self {
        let policy = OncePerBackoff::new(Exponential::new(BACKOFF[0]..=BACKOFF[1]));
        Self(Limiter::with_clock(policy, TokioTimer::current()))
    }
}

fn queue<O: OrderedLoop>(order: O, config: &Config) -> Keys<O> {
    const AT_ONCE: Duration = Duration::from_nanos(1);
    let policy = match &config.backoff {
        Some(make) => make(),
        // This policy only counts failures; its wait of 1 ns leaves the delay to the error policy.
        None => BoxedPolicy::new(Exponential::new(AT_ONCE..=AT_ONCE)),
    };
    let mut queue = Queue::builder().order(order).limiter(policy).timer(TokioTimer::current());
    if config.strict_backoff {
        queue = queue.strict_backoff();
    }
    match &config.queue_metrics {
        None => queue.build(),
        Some(metrics) => queue.metrics(metrics.clone()).build(),
    }
}

fn configured<O: OrderedLoop>(
    controller: Loop<O>,
    config: &Config,
    crash_backoff: &Arc<CrashBackoff>,
) -> Loop<O> {
    let crash_backoff = config.backoff.is_none().then(|| crash_backoff.clone());
    let most = match config.concurrency {
        0 => usize::MAX,
        most => most.into(),
    };
    let settings = ControllerConfig {
        workers: (1..=most).into(),
        max_attempts: (config.max_attempts > 0).then_some(config.max_attempts),
        max_failing_in_flight: (config.max_failing > 0).then_some(config.max_failing.into()),
        conflict_backoff_initial: *config.conflicts.start(),
        conflict_backoff_max: *config.conflicts.end(),
        // As in kube-runtime, there is no timeout for a cache to sync. Caches that have not synced are logged.
        start_timeout: Duration::MAX,
        start_before_sync: !config.waits_for_all_caches,
        shutdown_grace: config.grace.unwrap_or(Duration::MAX),
        abort_after: config.abort_after,
        drain_on_shutdown: config.drains,
        ..ControllerConfig::default()
    };
    let controller = controller
        .with_config(settings)
        .classify(ReconcileFailed::class_of)
        .retry_after_at_least(move |key, failure| {
            ReconcileFailed::delay_of(failure).or_else(|| Some(crash_backoff.as_ref()?.0.record_failure(key)))
        });
    match &config.controller_metrics {
        None => controller,
        Some(metrics) => controller.metrics(metrics.clone()),
    }
}

/// Logs that an object has used up its attempts. A permanent failure is not logged, because the program has decided not to retry it.
fn report_given_up(kind: &str, key: &NamespacedName, failure: &ReconcileError) {
    if ReconcileFailed::class_of(failure) != FailureClass::Permanent {
        tracing::warn!(target: super::TARGET, kind, object = %key, "the object is given up after its last attempt; it is not retried until it changes");
    }
}

/// Logs failures for which the stream of results has no variant.
fn report(kind: &str, key: &NamespacedName, failure: Option<&ReconcileError>) {
    match failure {
        Some(ReconcileError::Panic(message)) => {
            tracing::error!(target: super::TARGET, kind, object = %key, panic = message.as_str(), "reconciler panicked");
        }
        Some(ReconcileError::Timeout(limit)) => {
            tracing::error!(target: super::TARGET, kind, object = %key, ?limit, "reconciler was not done in time");
        }
        Some(failure) if failure.downcast_ref::<TermOver>().is_some() => {
            tracing::debug!(target: super::TARGET, kind, object = %key, "the reconcile was dropped, because the leadership was over");
        }
        _ => {}
    }
}
