//! EDGE. Adapts the user's functions to the controller loop, and the loop's results to a stream.
//!
//! Cancel safety: dropping the stream ends the controller at once, as it does in kube-runtime: running reconciles are dropped
//! at their next await. A result is sent before its object is released. A consumer that does not poll the stream
//! holds up the reconciles; no result is lost.

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::{Action as Next, FailureClass, ReconcileError};
use flyball_informer_cache::{NamespacedName, Stopped};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFuture, TryFutureExt};
use kube::Resource;
use kube::runtime::controller::{Action, Error as Outcome, RunnerError};
use kube::runtime::watcher;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use tracing::Instrument;

use super::action::{UnknownAction, action_delay};
use super::engine::{Engine, Reconciled};
use super::key_streams::StreamTrigger;
use super::objects::{NeverReady, Objects};
use super::reconcile_reasons::{Reason, Reasons};
use super::reconcile_stream::{ReconcileResult, ReconcileStream};
use super::shutdown::ShutdownSignals;
use super::trigger::Trigger;
use super::trigger_backoff::TriggerBackoff;
use super::{Controller, Monitor, OwnInformer, TARGET};
use crate::Config;
use crate::config::classify::Classifier;
use crate::controller::reconcile_failed::ReconcileFailed;
use crate::unreadable_reason;
use flyball_kube_lease::Leadership;

/// Results that nobody has taken yet; then reconciles wait.
const UNTAKEN: usize = 256;

impl<K> Controller<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: fmt::Debug + Eq + Hash + Clone + Send + Sync + Unpin,
{
    /// What comes of each reconcile, from when it is polled first; it ends when the controller is shut down.
    ///
    /// `reconcile` is called for each object that is new, changed, or concerned by another one: never twice at once for one object, and
    /// once more after a change while it ran. `error_policy` is called after each error; the object is retried after exactly the delay
    /// that it returns, or sooner if it changes. [`Config::backoff`](crate::Config::backoff),
    /// [`conflict_backoff`](crate::Config::conflict_backoff), [`respect_retry_after`](crate::Config::respect_retry_after) and
    /// [`status`](crate::Config::classify_status) change that. After [`Action::await_change`] the object is not retried until it changes.
    ///
    /// It begins when the cache of its own objects is filled, and those that are shared with the program are; with
    /// [`wait_for_all_caches`](crate::Config::wait_for_all_caches), when all of them are. A reconcile that panics, or takes [too long](crate::Config::reconcile_timeout), has no result here:
    /// it is logged, counted, and tried again. An object that is gone when its turn comes is an
    /// [`ObjectNotFound`](Outcome::ObjectNotFound), and what goes wrong with a watch that is the controller's own a [`QueueError`](Outcome::QueueError).
    /// Neither ends anything.
    ///
    /// An object that becomes unreadable, as its JSON does not fit its type any more, is not reconciled: it is a `QueueError` that names it, each time that its
    /// turn comes. While it is being deleted, it is reconciled all the same, so that finalizers run: with its new metadata, and everything else as it was
    /// read last. [`unreadable_reason`](crate::unreadable_reason) reports them. When it can be read again it is reconciled, whatever
    /// [`filter_changes`](Self::filter_changes) says.
    ///
    /// Each reconcile is a span of `tracing`, within the one in which the stream is polled first: `reconciling object`, under kube-runtime's
    /// own target `kube_runtime::controller`, with `object.ref`, `object.reason` (of several reasons that became one reconcile, the
    /// first) and `object.reasons` (how many there were).
    ///
    /// # Where kube-runtime accepts more
    /// Reconciles run in tasks of their own, so all that is given here is `Send + 'static`, and `error_policy` is `Sync`. A reference to a local variable becomes an `Arc` in the context or in the
    /// closure; an `Rc` or a `RefCell` an `Arc` or a lock. `reconcile` may be `FnMut`: it is called under a lock, which is released before its future runs, so what it does before it returns
    /// the future should be little. An `error_policy` that counts uses an atomic.
    ///
    /// # Panics
    /// The stream, when it is polled for the first time outside a tokio runtime, when a stream of
    /// [`reconcile_on`](Self::reconcile_on), [`reconcile_all_on`](Self::reconcile_all_on) or of [objects](Self::for_stream) panics, and when an informer of the controller's
    /// own does, as it reads an object, say: nothing would come of changes any more.
    ///
    /// # Cancel safety
    /// Dropping the stream ends the controller at once.
    pub fn run<F, R, C>(
        self,
        reconcile: F,
        error_policy: impl Fn(Arc<K>, &R::Error, Arc<C>) -> Action + Send + Sync + 'static,
        context: Arc<C>,
    ) -> ReconcileStream<K, R::Error>
    where
        F: FnMut(Arc<K>, Arc<C>) -> R + Send + 'static,
        R: TryFuture<Ok = Action> + Send + 'static,
        R::Error: Error + Send + 'static,
        C: Send + Sync + 'static,
    {
        let setup = RunSetup {
            kind: K::kind(&self.dyntype).into_owned(),
            main: self.main,
            config: self.config,
            triggers: self.own.into_iter().chain(self.triggers).collect(),
            required: self.required,
            streams: self.streams,
            informers: self.informers,
            backoff: self.backoff,
            shutdown: self.shutdown,
            leadership: self.leadership,
            monitor: self.monitor,
            watch_errors: self.watch_errors.told,
            unreadable: Some,
        };
        setup.run(reconcile, error_policy, context)
    }
}

/// What runs, beside the user's functions. `Q` is an error of what brings keys.
pub(super) struct RunSetup<K, Q>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    pub(super) kind: String,
    pub(super) main: Objects<K>,
    pub(super) config: Config,
    pub(super) triggers: Vec<Box<dyn Trigger>>,
    pub(super) required: Vec<BoxFuture<'static, Result<(), Stopped>>>,
    pub(super) streams: Vec<StreamTrigger>,
    pub(super) informers: Vec<OwnInformer>,
    pub(super) backoff: Option<TriggerBackoff>,
    pub(super) shutdown: ShutdownSignals,
    pub(super) leadership: Option<Leadership>,
    pub(super) monitor: Monitor,
    pub(super) watch_errors: mpsc::Receiver<Q>,
    /// What an object that cannot be read is; nothing, where there can be none.
    pub(super) unreadable: fn(watcher::Error) -> Option<Q>,
}

impl<K, Q> RunSetup<K, Q>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
    Q: Send + 'static,
{
    pub(super) fn run<F, R, C>(
        self,
        reconcile: F,
        error_policy: impl Fn(Arc<K>, &R::Error, Arc<C>) -> Action + Send + Sync + 'static,
        context: Arc<C>,
    ) -> ReconcileStream<K, R::Error, Q>
    where
        F: FnMut(Arc<K>, Arc<C>) -> R + Send + 'static,
        R: TryFuture<Ok = Action> + Send + 'static,
        R::Error: Error + Send + 'static,
        C: Send + Sync + 'static,
    {
        let (results, untaken) = mpsc::channel(UNTAKEN);
        let reasons = self.monitor.reasons().clone();
        let (ready, listed) = (self.main.clone(), self.main.clone());
        let failed = results.clone();
        let own = async move {
            match ready.ready().await {
                Ok(()) => Ok(()),
                Err(NeverReady::Informer(stopped)) => Err(stopped),
                Err(NeverReady::Kube(dropped)) => {
                    let error = Outcome::RunnerError(RunnerError::Readiness(dropped));
                    // Refused when nobody listens any more.
                    let _ = failed.send(Err(error)).await;
                    Err(Stopped)
                }
            }
        };
        let all_keys = self.main.informer().is_none().then(|| {
            let all_keys = async move {
                match listed.ready().await {
                    Ok(()) => listed.keys(),
                    Err(_) => Vec::new(),
                }
            };
            all_keys.boxed()
        });
        let user = Arc::new(Callbacks {
            reconcile: Mutex::new(reconcile),
            error_policy,
            context,
            main: self.main,
            classifier: self.config.classifier.clone(),
            limit: self.config.timeout,
            reasons: reasons.clone(),
            unreadable: self.unreadable,
            results,
        });
        let mut required = self.required;
        required.push(own.boxed());
        let engine = Engine {
            kind: self.kind,
            config: self.config,
            triggers: self.triggers,
            required,
            streams: self.streams,
            all_keys,
            reasons,
            informers: self.informers,
            backoff: self.backoff,
            shutdown: self.shutdown,
            leadership: self.leadership,
            monitor: self.monitor,
            reconcile: Arc::new(move |key, _| user.clone().reconcile(key).boxed()),
        };
        ReconcileStream::new(engine.run().boxed(), untaken, self.watch_errors)
    }
}

/// The user's side of a controller.
struct Callbacks<K, C, F, P, E, Q>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
    E: 'static,
    Q: 'static,
{
    /// `FnMut`, as in kube-runtime. It is called under the lock, and its future runs without.
    reconcile: Mutex<F>,
    error_policy: P,
    context: Arc<C>,
    main: Objects<K>,
    classifier: Classifier,
    /// Of the user's reconcile alone: it is not to blame if nobody takes its result.
    limit: Option<Duration>,
    reasons: Arc<Reasons>,
    unreadable: fn(watcher::Error) -> Option<Q>,
    results: mpsc::Sender<ReconcileResult<K, E, Q>>,
}

impl<K, C, F, P, R, Q> Callbacks<K, C, F, P, R::Error, Q>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
    F: FnMut(Arc<K>, Arc<C>) -> R + Send,
    Q: Send,
    P: Fn(Arc<K>, &R::Error, Arc<C>) -> Action + Send + Sync,
    R: TryFuture<Ok = Action> + Send,
    R::Error: Error + Send + 'static,
    C: Send + Sync,
{
    async fn reconcile(self: Arc<Self>, key: NamespacedName) -> Result<Reconciled, ReconcileError> {
        let (reason, reasons, _in_flight) = self.reasons.begin(&key);
        let mut reference = self.main.reference(&key);
        // Read when its turn has come: the newest state there is.
        let Some(object) = self.main.get(&key) else {
            let known = self.main.resolve(key.clone());
            if known != key {
                return Ok(Reconciled::HasKey(known, reason));
            }
            self.tell(Err(Outcome::ObjectNotFound(Box::new(reference.erase())))).await;
            return Ok(Reconciled::Done(Next::await_change()));
        };
        // What it asks for is not known, so there is nothing to enforce; but what is to be cleaned up does not change any more.
        if object.meta().deletion_timestamp.is_none()
            && let Some(why) = unreadable_reason(&*object)
            && let Some(error) = (self.unreadable)(cannot_be_read(&reference, why))
        {
            self.tell(Err(Outcome::QueueError(error))).await;
            return Ok(Reconciled::Done(Next::await_change()));
        }
        // An Event about the object, made from its reference, is found by these.
        reference.extra.uid = object.meta().uid.clone();
        reference.extra.resource_version = object.meta().resource_version.clone();
        let span = tracing::info_span!(
            target: TARGET,
            "reconciling object",
            "object.ref" = %reference,
            object.reason = %reason,
            object.reasons = reasons
        );
        // Waited for without holding a thread: a function that blocks before it returns its future may wait for what another task does.
        let mut reconcile = self.reconcile.lock().await;
        let run = span.in_scope(|| reconcile(object.clone(), self.context.clone()));
        drop(reconcile);
        let run = TryFutureExt::into_future(run).instrument(span);
        let done = match self.limit {
            None => run.await,
            Some(limit) => timeout(limit, run).await.map_err(|_| ReconcileError::Timeout(limit))?,
        };
        match done {
            Ok(action) => {
                let next = next(&key, action_delay(&action));
                if next.is_ok_and(|next| next.requeue_delay().is_some()) {
                    self.reasons.note_retry(&key, Reason::ReconcilerRequestedRetry);
                }
                self.tell(Ok((reference, action))).await;
                next.map(Reconciled::Done).map_err(|failed| ReconcileError::Error(failed.into()))
            }
            Err(error) => {
                let action = (self.error_policy)(object, &error, self.context.clone());
                let failed = self.failed(&error, &action);
                if failed.class != FailureClass::Permanent {
                    self.reasons.note_retry(&key, Reason::ErrorPolicyRequestedRetry);
                }
                self.tell(Err(Outcome::ReconcilerFailed(error, Box::new(reference.erase())))).await;
                Err(ReconcileError::Error(failed.into()))
            }
        }
    }

    fn failed(&self, error: &R::Error, action: &Action) -> ReconcileFailed {
        ReconcileFailed::new(
            action_delay(action),
            self.classifier.of(error),
            self.classifier.retry_after(error),
        )
    }

    async fn tell(&self, result: ReconcileResult<K, R::Error, Q>) {
        // Refused when nobody listens any more: then all of this is being dropped.
        let _ = self.results.send(result).await;
    }
}

/// In the words of a watcher that meets such an object.
fn cannot_be_read(object: &impl fmt::Display, why: &str) -> watcher::Error {
    let error = serde::de::Error::custom(format_args!("{object} cannot be read: {why}"));
    watcher::Error::WatchFailed(kube::Error::SerdeError(error))
}

/// Reconciled too often is better than never again: what cannot be read is a failure.
fn next(
    key: &NamespacedName,
    asked: Result<Option<Duration>, UnknownAction>,
) -> Result<Next, ReconcileFailed> {
    match asked {
        Ok(None) => Ok(Next::await_change()),
        Ok(Some(delay)) => Ok(Next::requeue_after(delay)),
        Err(error) => {
            tracing::error!(target: TARGET, object = %key, %error, "this version of kube is not known");
            Err(ReconcileFailed { class: FailureClass::Transient, delay: None })
        }
    }
}
