//! EDGE. A controller at work, the user's types out of sight: so it is compiled once for each order, and not once more for each
//! controller of a program.
//!
//! Cancel safety: dropping [`Engine::run`] stops everything it has: informers of its own, workers, streams of requests.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;

use flyball_controller::{Action, Context, Failure};
use flyball_informer_cache::NamespacedName;
use flyball_ratelimit::{Exponential, Limiter, TokioTimer};
use flyball_workqueue::{Fair, Fifo, Priority, Queue};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use super::requests::pump;
use super::stopping::{Stopping, any};
use super::trigger::Trigger;
use super::turning::{Adding, Keys, Loop, Turning};
use crate::failed::Failed;
use crate::{Config, Monitor, Turns};

/// The user's functions, as the loop calls them.
pub(crate) type Reconcile =
    Arc<dyn Fn(NamespacedName, Context) -> BoxFuture<'static, Result<Action, Failure>> + Send + Sync>;

/// Everything a controller consists of.
pub(crate) struct Engine {
    pub(crate) kind: String,
    pub(crate) config: Config,
    pub(crate) triggers: Vec<Box<dyn Trigger>>,
    pub(crate) requests: Vec<BoxStream<'static, Vec<NamespacedName>>>,
    pub(crate) informers: Vec<BoxFuture<'static, ()>>,
    pub(crate) stopping: Stopping,
    pub(crate) monitor: Monitor,
    pub(crate) reconcile: Reconcile,
}

impl Engine {
    /// Runs until it is told to end.
    pub(crate) async fn run(self) {
        match self.config.turns {
            Turns::Fifo => self.run_in(Fifo, 0).await,
            Turns::Priority { initial } => self.run_in(Priority::default(), initial).await,
            Turns::FairByNamespace { cap } => {
                let fair = Fair::by(|key: &NamespacedName| Arc::from(key.namespace().unwrap_or_default()));
                match cap {
                    Some(cap) => self.run_in(fair.cap(cap), 0).await,
                    None => self.run_in(fair, 0).await,
                }
            }
        }
    }

    async fn run_in<O: Turning>(self, order: O, initial: i8) {
        let Self { kind, config, triggers, requests, informers, stopping, monitor, reconcile } = self;
        let adding = Adding { debounce: config.debounce, initial };
        let queue = queue(order, &config);
        let mut controller = configured(flyball_controller::Controller::new(queue.clone()), &config);
        for trigger in triggers {
            controller = O::attach(trigger, controller, adding);
        }
        // Workers are tasks of their own, and in no span.
        let (of, within) = (kind.clone(), Span::current());
        let reporting = within.clone();
        let controller = controller
            .finally(move |key, ended, _| {
                reporting.in_scope(|| report(&of, &key, ended.err().as_deref()));
                async { Ok::<_, Failed>(()) }
            })
            .shutdown_on(any(stopping.in_order));
        monitor.watch(&queue, controller.health());

        let mut running = JoinSet::new();
        for informer in informers {
            running.spawn(informer);
        }
        // Whatever ends first, the others are dropped with it, running reconciles among them.
        tokio::select! {
            ended = controller.run(move |key, context| reconcile(key, context).instrument(within.clone())) => match ended {
                Ok(report) => {
                    tracing::debug!(kind, reconciles = report.reconciles, left = ?report.leftovers, "ended");
                }
                Err(error) => tracing::error!(kind, %error, "the controller cannot run"),
            },
            () = any(stopping.at_once) => {}
            () = pump(requests, &queue, adding) => {}
            never = async { watched(&mut running).await; pending().await } => never,
        }
        // One that panicked before its first list is why the controller cannot run.
        running.abort_all();
        watched(&mut running).await;
    }
}

/// Until none of these informers runs. They do not end by themselves, so one that has panicked is a cache that stays as it is, for
/// ever and unseen: its panic is the controller's.
async fn watched(informers: &mut JoinSet<()>) {
    while let Some(ended) = informers.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            resume_unwind(panic);
        }
    }
}

fn queue<O: Turning>(order: O, config: &Config) -> Keys<O> {
    let queue = Queue::builder().order(order).limiter((config.limit)()).timer(TokioTimer::current());
    match &config.queue_metrics {
        None => queue.build(),
        Some(metrics) => queue.metrics(metrics.clone()).build(),
    }
}

fn configured<O: Turning>(mut controller: Loop<O>, config: &Config) -> Loop<O> {
    let most = match config.concurrency {
        0 => usize::MAX,
        most => most.into(),
    };
    controller = controller
        .workers_between(1..=most)
        .classify(Failed::class_of)
        .retry_no_sooner(Failed::least_of)
        .conflict_schedule(Limiter::new(Exponential::new(config.conflicts.clone())));
    if let Some(limit) = config.grace {
        controller = controller.shutdown_grace(limit);
    }
    match &config.metrics {
        None => controller,
        Some(metrics) => controller.metrics(metrics.clone()),
    }
}

/// What the stream of results has no word for.
fn report(kind: &str, key: &NamespacedName, failure: Option<&Failure>) {
    match failure {
        Some(Failure::Panic(message)) => {
            tracing::error!(kind, object = %key, panic = message.as_str(), "reconciler panicked");
        }
        Some(Failure::Timeout(limit)) => {
            tracing::error!(kind, object = %key, ?limit, "reconciler was not done in time");
        }
        _ => {}
    }
}
