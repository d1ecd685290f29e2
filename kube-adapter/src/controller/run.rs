//! EDGE. Adapts the user's functions to the controller loop, and the loop's results to a stream.
//!
//! Cancel safety: dropping the stream stops the controller immediately, as in kube-runtime: running reconciles are dropped at
//! their next await. The result of a reconcile is sent before the lease of its key ends. If 256 results are buffered, because the consumer does not
//! poll the stream, reconciles wait; no result is lost.

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
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

use super::action::{UnknownAction, requeue_delay};
use super::deleted_keys::DeletedKeys;
use super::engine::{Engine, Reconciled};
use super::key_streams::StreamTrigger;
use super::objects::{NeverReady, Objects};
use super::own_informers::OwnInformer;
use super::reconcile_reasons::{Reason, Reasons};
use super::reconcile_stream::{ReconcileResult, ReconcileStream};
use super::shutdown::ShutdownSignals;
use super::trigger::Trigger;
use super::trigger_backoff::TriggerBackoff;
use super::{Controller, Monitor, TARGET};
use crate::Config;
use crate::config::classify::Classifier;
use crate::controller::reconcile_failed::ReconcileFailed;
use crate::unreadable_reason;
use flyball_kube_lease::Leadership;

/// The maximum number of results that wait for the consumer. When this number is reached, reconciles wait. The docs of `Controller::run` state it.
const MAX_BUFFERED_RESULTS: usize = 256;

impl<K> Controller<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// Returns the stream of results. The first poll of this stream starts the controller. The stream ends when the controller has shut down.
    ///
    /// `reconcile` is called for each object that is new or has changed, or to which a changed object maps. It is never called concurrently for the
    /// same object; if the object changes during the call, `reconcile` is called once more. `error_policy` is called after each error; the object is
    /// retried after exactly the delay that it returns, but not before 2 ms, or earlier if it changes. [`Config::backoff`](crate::Config::backoff),
    /// [`conflict_backoff`](crate::Config::conflict_backoff), [`respect_retry_after`](crate::Config::respect_retry_after) and
    /// [`classify_status`](crate::Config::classify_status) change this delay. After [`Action::await_change`] the object is not retried until it
    /// changes.
    ///
    /// Reconciles start when the cache of the controller's own objects and the informers that are shared with the program have synced; with
    /// [`wait_for_all_caches`](crate::Config::wait_for_all_caches), they start when all caches have synced. A reconcile that panics, or
    /// [times out](crate::Config::reconcile_timeout), has no result in the stream: it is logged, counted, and retried. The same holds if `error_policy`
    /// panics, but the error is in the stream. If an object was deleted
    /// before its reconcile starts, the stream yields an [`ObjectNotFound`](Outcome::ObjectNotFound). The deletion of an object of an informer cancels its retries and requeues,
    /// which then yield nothing. If one of the controller's own watches fails,
    /// the stream yields a [`QueueError`](Outcome::QueueError). Neither ends the controller.
    ///
    /// An object that becomes unreadable, because its JSON no longer fits its type, is not reconciled. Each time it would be reconciled, the stream
    /// instead yields a `QueueError` with the name of the object. While such an object is being deleted, it is still reconciled, so that finalizers
    /// run: the reconcile receives the new metadata, and the rest of the state that was decoded last. [`unreadable_reason`](crate::unreadable_reason)
    /// returns why an object is unreadable. Once the object can be decoded again, it is reconciled, whatever [`filter_changes`](Self::filter_changes)
    /// returns.
    ///
    /// The controller runs in a task of its own, which does not wait for the consumer of the stream: up to 256 results are buffered, and only then do
    /// reconciles wait until the consumer takes a result. kube-runtime has no such buffer: it starts reconciles only while the stream is polled. So a
    /// consumer that delays each result, to reconcile more slowly, has no such effect here before 256 results are buffered. Limit
    /// [`Config::concurrency`](crate::Config::concurrency) instead, or wait in `reconcile`.
    ///
    /// Each reconcile has a `tracing` span `reconciling object`, with kube-runtime's target `kube_runtime::controller`. Its parent is the span in
    /// which the stream is first polled. Its fields are `object.ref`, `object.reason` and `object.reasons`. If several reasons were coalesced into
    /// one reconcile, `object.reason` is the first one, and `object.reasons` is their number.
    ///
    /// # Where kube-runtime accepts more
    /// Reconciles run in tasks of their own, so all arguments must be `Send + 'static`, and `error_policy` must be `Sync`. Replace a reference to a
    /// local variable by an `Arc` in the context or in the closure, an `Rc` by an `Arc`, and a `RefCell` by a lock. `reconcile` may be `FnMut`: it is
    /// called under a lock, which is released before its future runs, so it should do little before it returns the future. An `error_policy` that
    /// changes state, such as a counter, must keep it in an atomic or behind a lock.
    ///
    /// A generic function that calls `run` needs the bounds of the [crate's documentation](crate#frameworks-around-controller).
    ///
    /// # Panics
    /// The stream panics if it is polled for the first time outside a tokio runtime, or if a stream of [`reconcile_on`](Self::reconcile_on),
    /// [`reconcile_all_on`](Self::reconcile_all_on) or of [objects](Self::for_stream) panics. The stream also panics if one of the controller's own
    /// informers panics, for example when it decodes an object. If the stream continued instead, later changes of this informer's objects would
    /// silently cause no reconciles.
    ///
    /// # Cancel safety
    /// Dropping the stream stops the controller immediately. The drop does not wait: a reconcile that is being polled on another thread is dropped when
    /// its poll returns. To wait for it, use [`forceful_shutdown_on`](Self::forceful_shutdown_on), and poll the stream to its end.
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
            watch_errors: self.watch_errors.receiver,
            unreadable: Some,
        };
        setup.run(reconcile, error_policy, context)
    }
}

/// All parts of a running controller, except the user's functions. `Q` is the error type of the triggers.
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
    /// Converts the error for an unreadable object to `Q`. Returns `None` if the objects of this controller are never unreadable.
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
        let (results, buffered) = mpsc::channel(MAX_BUFFERED_RESULTS);
        let (reasons, deleted) = (self.monitor.reasons().clone(), Arc::<DeletedKeys>::default());
        let (ready, listed, main) = (self.main.clone(), self.main.clone(), self.main.clone());
        let failed = results.clone();
        let own = async move {
            match ready.ready().await {
                Ok(()) => Ok(()),
                Err(NeverReady::Informer(stopped)) => Err(stopped),
                Err(NeverReady::Kube(dropped)) => {
                    let error = Outcome::RunnerError(RunnerError::Readiness(dropped));
                    // `send` fails only if the receiver was dropped.
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
        let may_exist = Arc::new(move |key: &NamespacedName| main.may_exist(key));
        let user = Arc::new(Callbacks {
            reconcile: Mutex::new(reconcile),
            error_policy,
            context,
            main: self.main,
            classifier: self.config.classifier.clone(),
            limit: self.config.timeout,
            leadership: self.leadership.clone(),
            reasons: reasons.clone(),
            deleted: deleted.clone(),
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
            may_exist,
            reasons,
            deleted,
            informers: self.informers,
            backoff: self.backoff,
            shutdown: self.shutdown,
            leadership: self.leadership,
            monitor: self.monitor,
            reconcile: Arc::new(move |key, _| user.clone().reconcile(key).boxed()),
        };
        ReconcileStream::new(engine.run().boxed(), buffered, self.watch_errors)
    }
}

/// The user functions of a controller.
struct Callbacks<K, C, F, P, E, Q>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
    E: 'static,
    Q: 'static,
{
    /// The user's `reconcile`, an `FnMut` as in kube-runtime. The function is called under the lock; the future that it returns runs without the
    /// lock.
    reconcile: Mutex<F>,
    error_policy: P,
    context: Arc<C>,
    main: Objects<K>,
    classifier: Classifier,
    /// The timeout of the user's reconcile. After the reconcile, its result may have to wait for the consumer; this wait does not count.
    limit: Option<Duration>,
    leadership: Option<Leadership>,
    reasons: Arc<Reasons>,
    deleted: Arc<DeletedKeys>,
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
        let was_deleted = self.deleted.remove(&key);
        let mut reference = self.main.reference(&key);
        // The object is read only now, so that the reconcile receives its newest state.
        let Some(object) = self.main.get(&key) else {
            if was_deleted {
                return Ok(Reconciled::Done(Next::await_change()));
            }
            let known = self.main.resolve(key.clone());
            if known != key {
                return Ok(Reconciled::HasKey(known, reason));
            }
            self.send_result(Err(Outcome::ObjectNotFound(Box::new(reference.erase())))).await;
            return Ok(Reconciled::Done(Next::await_change()));
        };
        // The desired state of an unreadable object is unknown, so the object is not reconciled. An unreadable object that is being deleted is
        // reconciled, because its finalizers must run; they use the state that was decoded last.
        if object.meta().deletion_timestamp.is_none()
            && let Some(why) = unreadable_reason(&*object)
            && let Some(error) = (self.unreadable)(cannot_be_read(&reference, why))
        {
            self.send_result(Err(Outcome::QueueError(error))).await;
            return Ok(Reconciled::Done(Next::await_change()));
        }
        // `kubectl describe` uses these fields to find the Events whose object reference is made from this `ObjectRef`.
        reference.extra.uid = object.meta().uid.clone();
        reference.extra.resource_version = object.meta().resource_version.clone();
        let span = tracing::info_span!(
            target: TARGET,
            "reconciling object",
            "object.ref" = %reference,
            object.reason = %reason,
            object.reasons = reasons
        );
        // This lock is async, so a task that waits for it does not block its thread. The lock may be held for long, because the user's `reconcile`
        // may block until another task makes progress, before it returns its future.
        let mut reconcile = self.reconcile.lock().await;
        // The term may have ended during the wait for the lock.
        if self.leadership.as_ref().is_some_and(|leadership| !leadership.is_leader()) {
            return Ok(Reconciled::NotLeader);
        }
        let run = span.in_scope(|| reconcile(object.clone(), self.context.clone()));
        drop(reconcile);
        let run = TryFutureExt::into_future(run).instrument(span.clone());
        let done = match self.limit {
            None => run.await,
            Some(limit) => timeout(limit, run).await.map_err(|_| ReconcileError::Timeout(limit))?,
        };
        match done {
            Ok(action) => {
                let next = next(&key, requeue_delay(&action));
                if next.is_ok_and(|next| next.requeue_delay().is_some()) {
                    self.reasons.note_retry(&key, Reason::ReconcilerRequestedRetry);
                }
                self.send_result(Ok((reference, action))).await;
                next.map(Reconciled::Done).map_err(|failed| ReconcileError::Error(failed.into()))
            }
            Err(error) => {
                // As in kube-runtime, log lines of the error policy belong to the object whose reconcile failed.
                let policy = || span.in_scope(|| (self.error_policy)(object, &error, self.context.clone()));
                let action = catch_unwind(AssertUnwindSafe(policy));
                let failed = action.map(|action| self.failed(&error, &action));
                if !matches!(failed, Ok(ReconcileFailed { class: FailureClass::Permanent, .. })) {
                    self.reasons.note_retry(&key, Reason::ErrorPolicyRequestedRetry);
                }
                // Even if the policy panicked, because the panic does not say why the reconcile failed.
                self.send_result(Err(Outcome::ReconcilerFailed(error, Box::new(reference.erase())))).await;
                match failed {
                    Ok(failed) => Err(ReconcileError::Error(failed.into())),
                    Err(panic) => resume_unwind(panic),
                }
            }
        }
    }

    fn failed(&self, error: &R::Error, action: &Action) -> ReconcileFailed {
        ReconcileFailed::new(
            requeue_delay(action),
            self.classifier.of(error),
            self.classifier.retry_after(error),
        )
    }

    async fn send_result(&self, result: ReconcileResult<K, R::Error, Q>) {
        // `send` fails only if the receiver was dropped, because the controller is being dropped.
        let _ = self.results.send(result).await;
    }
}

/// Returns the watcher's error for an object that cannot be decoded.
fn cannot_be_read(object: &impl fmt::Display, why: &str) -> watcher::Error {
    let error = serde::de::Error::custom(format_args!("{object} cannot be read: {why}"));
    watcher::Error::WatchFailed(kube::Error::SerdeError(error))
}

/// Converts the delay of an action. A delay that cannot be parsed counts as a failure, because a retry that was not requested is better than a missed
/// one.
fn next(
    key: &NamespacedName,
    requested: Result<Option<Duration>, UnknownAction>,
) -> Result<Next, ReconcileFailed> {
    match requested {
        Ok(None) => Ok(Next::await_change()),
        Ok(Some(delay)) => Ok(Next::requeue_after(delay)),
        Err(error) => {
            tracing::error!(target: TARGET, object = %key, %error, "this version of kube is not known");
            Err(ReconcileFailed { class: FailureClass::Transient, delay: None })
        }
    }
}
