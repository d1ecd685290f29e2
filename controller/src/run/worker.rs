//! EDGE. A worker: takes a key, reconciles it, and ends its lease with the outcome, until the queue is closed.
//!
//! Cancel safety: dropping a worker during a reconcile drops the reconcile first and the lease after it. The queue counts a
//! lease that is dropped without an outcome as a failure, so the key is retried by another worker. A panic in the drop of the
//! reconcile does not change that.

use std::future::Future;
use std::num::NonZeroU32;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use flyball_workqueue::{Key, KeyState, Lease, LeaseOutcome, Order, Queue, QueueLimiter, Timer};

use crate::metrics::{ControllerMetrics, ReconcileMetricsGuard, WorkerMetricsGuard};
use crate::report::ReportCounters;
use crate::run::attempt::attempt;
use crate::run::failing_keys::{FailingKey, FailingKeys};
use crate::run::in_flight::{InFlight, Reconcile};
use crate::run::phase::{PhaseSignal, RunPhase};
use crate::run::pool::WorkerPool;
use crate::run::reconciler::{BoxedCall, Reconciler};
use crate::run::retry::Conflicts;
use crate::run::run_config::{Finally, RunConfig};
use crate::run::runtime::{Runtime, Tasks};
use crate::run::span::ReconcileSpan;
use crate::run::spread::extended;
use crate::{Action, Context, FailureClass, ReconcileError, ReconcileOutcome};
use flyball_sync::panics;
use futures_util::future::BoxFuture;

/// Clones the key, so that it can be passed to user code. `Clone` is user code, too: if it panics, this function catches the panic and returns its
/// message.
pub(crate) fn copied<K: Clone>(lease: &Lease<K>) -> Result<K, String> {
    panics::attempt(|| lease.key().clone())
}

/// Returns the key. If cloning the key panicked, panics with the same message, so that the guard around the call of user code catches the panic.
fn key_or_resume<K>(key: Result<K, String>) -> K {
    key.unwrap_or_else(|message| resume_unwind(Box::new(message)))
}

/// A reconcile function for single keys.
type KeyReconciler<K> = dyn Reconciler<K, Action>;

/// Returns the future of a new worker.
pub(crate) type StartWorker<C> = dyn Fn(Arc<C>) -> BoxFuture<'static, ()> + Send + Sync;

/// The state that all workers of a controller share.
pub(crate) struct WorkerContext<X, K, O: Order<K>, L, T> {
    pub(crate) runtime: X,
    pub(crate) queue: Queue<K, O, L, T>,
    pub(crate) config: RunConfig<K>,
    pub(crate) context: Context,
    pub(crate) counters: Arc<ReportCounters>,
    pub(crate) pool: WorkerPool,
    pub(crate) phase: PhaseSignal,
    failing: FailingKeys,
    conflicts: Conflicts<K, O, L, T>,
    pub(crate) in_flight: Arc<InFlight>,
}

impl<X, K, O, L, T> WorkerContext<X, K, O, L, T>
where
    X: Runtime,
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    pub(crate) fn new(
        runtime: X,
        queue: Queue<K, O, L, T>,
        config: RunConfig<K>,
        context: Context,
        counters: Arc<ReportCounters>,
        in_flight: Arc<InFlight>,
    ) -> Self {
        let pool = WorkerPool::new(&config.settings);
        let (phase, failing) = (PhaseSignal::default(), FailingKeys::default());
        let conflicts = Conflicts::new(config.settings.conflict_backoff(), queue.clone());
        Self { runtime, queue, config, context, counters, pool, phase, failing, conflicts, in_flight }
    }

    /// Opens the pool, so that workers are started and take keys.
    pub(crate) fn open(&self) {
        self.pool.begin();
        self.phase.raise(RunPhase::Working);
    }

    /// Starts workers whenever the pool requests them. Returns when all workers have ended.
    ///
    /// A worker can panic only in a `get` of the queue, the only call that is not guarded against panics. The drop of an aborted reconcile is
    /// guarded, too.
    pub(crate) async fn run_workers(self: &Arc<Self>, tasks: &mut X::Tasks, worker: &StartWorker<Self>) {
        let mut changes = self.pool.changes();
        loop {
            for _ in 0..self.pool.take_wanted() {
                tasks.spawn(worker(self.clone()));
            }
            tokio::select! {
                // Biased, so that a simulation with the same seed repeats the run.
                biased;
                joined = tasks.join_next() => if !joined { return },
                // The wait cannot fail, because `self` holds the sender.
                _ = changes.changed() => {}
            }
        }
    }

    /// Returns the next key for an idle worker; `None` if the worker must end.
    pub(crate) async fn next<A, W>(&self, may_expire: bool, take: impl FnMut() -> W + Send) -> Option<A>
    where
        A: Send,
        W: Future<Output = Option<A>> + Send,
    {
        tokio::select! {
            // Biased, so that every poll checks the phase before the queue: the queue may never become empty, and a key may arrive at the same time
            // as the shutdown signal.
            biased;
            () = self.phase.reached(RunPhase::Stopping) => None,
            taken = self.pool.next(&self.runtime, may_expire, take) => taken,
        }
    }

    /// Serves the queue until it is closed, or until the worker is idle for too long.
    pub(crate) async fn work(self: Arc<Self>, mut reconciler: Box<KeyReconciler<K>>) {
        self.report(|metrics| metrics.worker_started());
        let _metrics_guard = WorkerMetricsGuard(self.config.metrics.as_deref());
        let mut may_expire = self.pool.exceeds_min();
        let mut slot = Reconcile::new();
        while let Some(lease) = self.next(may_expire, || self.queue.get()).await {
            slot.next();
            self.serve(lease, &slot, &mut *reconciler).await;
            may_expire = self.pool.worker_idle();
        }
    }

    /// Reconciles a key, and ends its lease.
    async fn serve(&self, lease: Lease<K>, slot: &Reconcile, reconciler: &mut KeyReconciler<K>) {
        let key = copied(&lease);
        let admitted = self.filter_key(lease).and_then(|lease| self.admit(lease));
        let Some((lease, _failing)) = admitted else { return self.discard(key) };
        let metrics = self.config.metrics.as_deref();
        self.report(|metrics| metrics.reconcile_started());
        let metrics_guard = ReconcileMetricsGuard::new(metrics);
        let span = self.call(|| self.config.spans.of(lease.key())).unwrap_or_default();
        let context = self.context.of(slot);
        // If `Hash` panics, the reconcile is not notified of changes.
        let hash = self.call(|| self.in_flight.hash(lease.key()));
        let registered = hash.map(|hash| self.in_flight.begin(slot, [hash]));
        let start = |reconciler: &mut KeyReconciler<K>| {
            reconciler.start(key_or_resume(key), context.clone());
        };
        let limit = self.config.settings.reconcile_timeout;
        let result = attempt(&self.runtime, &span, reconciler, start, limit).await;
        let result = match &self.config.finally {
            None => result.map_err(Arc::new),
            Some(finally) => {
                let result = result.map_err(Arc::new);
                self.finish(copied(&lease), result, &**finally, &context, &span).await
            }
        };
        drop(registered);
        // Without this yield, a reconcile that never waits would block the other tasks of its thread. The worker yields before it counts the end
        // of the reconcile: if the worker is aborted at the yield, the reconcile counts as dropped.
        self.runtime.yield_now().await;
        metrics_guard.disarm();
        self.ended(lease, result, &span);
    }

    /// The owner test: returns the lease if this replica reconciles the key. Otherwise forgets the failures and the conflicts of the key, and completes
    /// the lease, which removes the key from the queue.
    ///
    /// Called immediately before each reconcile, because the ownership may end at any time: between this call and the first poll of the reconcile
    /// there is no await point, and no user code except the metrics and the span.
    pub(crate) fn filter_key(&self, lease: Lease<K>) -> Option<Lease<K>> {
        let mine = self.call(|| (self.config.filter_key)(lease.key()));
        if mine == Some(false) {
            self.counters.filtered_keys.count();
            // If the key comes back to this replica, its backoff and its attempts begin anew.
            self.call(|| self.forget_conflicts(lease.key()));
            self.call(|| self.queue.forget(lease.key()));
            self.call(|| lease.done());
            return None;
        }
        Some(lease)
    }

    /// Returns the lease if the key may be reconciled now. Otherwise the key has failed, and too many such keys are in flight: puts it back to the queue
    /// for some time.
    pub(crate) fn admit(&self, lease: Lease<K>) -> Option<(Lease<K>, Option<FailingKey<'_>>)> {
        // If the limiter panics, the key counts as healthy. A queue that is shut down hands out all Ready keys, and the run does not wait for a key that
        // is put back.
        let limited =
            || self.call(|| lease.num_requeues()).unwrap_or_default() > 0 && !self.queue.is_shutting_down();
        let most = self.config.settings.max_failing_in_flight.filter(|_| limited());
        let Some(most) = most else { return Some((lease, None)) };
        match self.failing.begin(most, self.runtime.now()) {
            Ok(failing) => Some((lease, Some(failing))),
            Err(wait) => {
                // The failures of the key stay as they are.
                self.call(|| lease.end(LeaseOutcome::DoneAndRequeueAfter(wait)));
                None
            }
        }
    }

    /// Returns whether a drain has begun or the queue is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        self.phase.has(RunPhase::Draining) || self.queue.is_shutting_down()
    }

    /// Runs `finally` after the reconcile, whether it succeeded or failed. If both the reconcile and `finally` fail, the failure of the reconcile is
    /// returned.
    pub(crate) async fn finish(
        &self,
        key: Result<K, String>,
        result: Result<Action, Arc<ReconcileError>>,
        finally: &Finally<K>,
        context: &Context,
        span: &ReconcileSpan,
    ) -> Result<Action, Arc<ReconcileError>> {
        let reconciled = result.clone();
        let start = |call: &mut BoxedCall<()>| {
            call.0 = Some(finally(key_or_resume(key), reconciled, context.clone()));
        };
        let limit = self.config.settings.reconcile_timeout;
        match attempt(&self.runtime, span, &mut BoxedCall(None), start, limit).await {
            Ok(()) => result,
            Err(failure) => {
                self.counters.finally_failures.count();
                match result {
                    Ok(_) => Err(Arc::new(failure)),
                    Err(first) => {
                        self.discard(failure);
                        Err(first)
                    }
                }
            }
        }
    }

    /// Records the outcome of a reconcile, and ends the lease.
    pub(crate) fn ended(
        &self,
        lease: Lease<K>,
        result: Result<Action, Arc<ReconcileError>>,
        span: &ReconcileSpan,
    ) {
        let classified = result.as_ref().map_err(|failure| (&**failure, self.class_of(failure)));
        let outcome = ReconcileOutcome::of(classified);
        // The calls below run the limiter and the clock, which are user code. If they panic, the worker continues, and the queue decides what happens
        // to the key.
        let took = match &self.config.metrics {
            None => Duration::ZERO,
            Some(_) => self.call(|| lease.age()).flatten().unwrap_or_default(),
        };
        self.counters.record(outcome);
        self.call(|| match &result {
            Ok(action) => {
                self.count_recovery(&lease);
                let action = self.spread(*action, lease.key());
                lease.end(action.lease_outcome());
            }
            Err(failure) => self.failed(lease, failure, outcome.class().unwrap_or_default()),
        });
        self.report(|metrics| metrics.reconcile_ended(outcome, took));
        self.call(|| span.ended(outcome));
        self.discard(result);
    }

    /// Makes the delay of a requeue longer, by a hash of the key.
    fn spread(&self, action: Action, key: &K) -> Action {
        let percent = self.config.settings.requeue_spread_percent;
        match action.requeue_delay() {
            Some(delay) if percent > 0 => {
                // If `Hash` panics, the delay stays as it is, because the reconcile has succeeded.
                Action::requeue_after(self.call(|| extended(delay, key, percent)).unwrap_or(delay))
            }
            _ => action,
        }
    }

    fn class_of(&self, failure: &ReconcileError) -> FailureClass {
        self.call(|| self.config.failure_policy.of(failure)).unwrap_or_default()
    }

    /// Forgets the conflicts of a key that succeeded or was given up, and returns how many there were.
    fn forget_conflicts(&self, key: &K) -> u32 {
        if self.config.failure_policy.counts() { self.conflicts.forget(key) } else { 0 }
    }

    fn count_recovery(&self, lease: &Lease<K>) {
        let failures = lease.num_requeues().saturating_add(self.forget_conflicts(lease.key()));
        if failures > 0 {
            self.counters.successful_retries.count();
            self.report(|metrics| metrics.retry_succeeded(failures));
        }
    }

    fn failed(&self, lease: Lease<K>, failure: &ReconcileError, class: FailureClass) {
        match class {
            FailureClass::Transient => {
                let minimum = self
                    .call(|| self.config.failure_policy.minimum_wait_of(lease.key(), failure))
                    .unwrap_or_default();
                let key = self.config.failure_policy.counts().then(|| lease.key().clone());
                // `retry_up_to` compares `most` with the limiter's count, which does not include failures that occur before the previous backoff is
                // over. It also returns the lease if the limiter gives the key up.
                let most =
                    self.config.settings.max_attempts.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
                if let Err(last) = lease.retry_up_to(most, minimum) {
                    return self.give_up(last, failure, class);
                }
                // If the queue gave up the key, or the key was cancelled, its conflicts are forgotten, too.
                if let Some(key) = key.filter(|key| self.queue.state(key) == KeyState::Absent) {
                    self.forget_conflicts(&key);
                }
            }
            FailureClass::Conflict => {
                let wait = self.conflicts.next(lease.key());
                lease.end(LeaseOutcome::DoneAndRequeueAfter(wait));
            }
            FailureClass::Permanent => self.give_up(lease, failure, class),
        }
    }

    fn give_up(&self, lease: Lease<K>, failure: &ReconcileError, class: FailureClass) {
        self.counters.given_up.count();
        if let Some(given_up) = &self.config.on_give_up {
            // The key is still leased during the call, so no other worker reconciles it.
            self.call(|| given_up(lease.key(), failure));
        }
        self.report(|metrics| metrics.gave_up(class));
        self.forget_conflicts(lease.key());
        lease.succeed();
    }

    pub(crate) fn report(&self, what: impl FnOnce(&dyn ControllerMetrics)) {
        if let Some(metrics) = &self.config.metrics {
            self.call(|| what(&**metrics));
        }
    }

    /// Drops a value of the user. If the drop panics, counts the panic.
    pub(crate) fn discard<A>(&self, value: A) {
        self.call(|| drop(value));
    }

    /// Calls user code. If it panics, counts the panic and returns `None`.
    pub(crate) fn call<A>(&self, user: impl FnOnce() -> A) -> Option<A> {
        let called = panics::caught(user);
        if called.is_none() {
            self.counters.callback_panics.count();
        }
        called
    }
}
