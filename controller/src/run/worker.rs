//! EDGE. One worker: takes a key, reconciles it, says how it went; until the queue is closed.
//!
//! Cancel safety: a worker dropped in the middle of a reconcile drops the reconcile first and its lease after it. The
//! lease without an outcome is a failure to the queue, so the key comes back, to another worker. A reconcile that panics
//! when it is dropped changes nothing about that.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::mem;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use flyball_workqueue::{
    EndAndGet, Key, KeyState, Lease, LeaseOutcome, Order, Queue, QueueLimiter, SupportsAsync, SupportsDelays,
};

use crate::metrics::{ControllerMetrics, ReconcileMetricsGuard, WorkerMetricsGuard};
use crate::report::ReportCounters;
use crate::run::attempt::attempt;
use crate::run::phase::{PhaseSignal, RunPhase};
use crate::run::pool::WorkerPool;
use crate::run::run_config::{Finally, RunConfig};
use crate::run::runtime::{Runtime, Tasks};
use crate::run::span::ReconcileSpan;
use crate::{Action, Context, FailureClass, ReconcileError, ReconcileOutcome};
use flyball_sync::panics;

/// The key for a call of the user's, or the panic of its `Clone`, which is user code, too.
pub(crate) fn copied<K: Clone, T>(lease: &Lease<K, T>) -> Result<K, String> {
    panics::attempt(|| lease.key().clone())
}

/// The key, or that panic, within the guard of the call.
fn given<K>(key: Result<K, String>) -> K {
    key.unwrap_or_else(|message| resume_unwind(Box::new(message)))
}

/// What all workers of a controller share.
pub(crate) struct WorkerContext<X, K, O: Order<K>, L, T, F> {
    pub(crate) runtime: X,
    pub(crate) queue: Queue<K, O, L, T>,
    pub(crate) reconcile: F,
    pub(crate) config: RunConfig<K>,
    pub(crate) context: Context,
    pub(crate) counters: Arc<ReportCounters>,
    pub(crate) pool: WorkerPool,
    pub(crate) phase: PhaseSignal,
}

impl<X, K, O, L, T, F> WorkerContext<X, K, O, L, T, F>
where
    X: Runtime,
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: SupportsAsync + SupportsDelays,
{
    pub(crate) fn new(
        runtime: X,
        queue: Queue<K, O, L, T>,
        reconcile: F,
        config: RunConfig<K>,
        context: Context,
        counters: Arc<ReportCounters>,
    ) -> Self {
        let pool = WorkerPool::new(&config.settings);
        Self { runtime, queue, reconcile, config, context, counters, pool, phase: PhaseSignal::default() }
    }

    /// From now on there are workers.
    pub(crate) fn open(&self) {
        self.pool.begin();
        self.phase.raise(RunPhase::Working);
    }

    /// Starts workers as they are wanted, until all have ended.
    ///
    /// One panics only where no guard is, inside a `get` of the queue: a reconcile that is aborted is dropped under a guard, too.
    pub(crate) async fn run_workers<W>(
        self: &Arc<Self>,
        working: &mut X::Tasks,
        worker: &(impl Fn(Arc<Self>) -> W + Sync),
    ) where
        W: Future<Output = ()> + Send + 'static,
    {
        let mut changes = self.pool.changes();
        loop {
            for _ in 0..self.pool.take_wanted() {
                working.spawn(worker(self.clone()));
            }
            tokio::select! {
                // In a fixed order, so that a simulated run replays.
                biased;
                joined = working.join_next() => if !joined { return },
                // It cannot fail: the sender is ours.
                _ = changes.changed() => {}
            }
        }
    }

    /// What a worker that is idle takes next; `None` when it is to end.
    pub(crate) async fn next<A, W>(&self, may_expire: bool, take: impl FnMut() -> W + Send) -> Option<A>
    where
        A: Send,
        W: Future<Output = Option<A>> + Send,
    {
        tokio::select! {
            // The pace first, at each poll: there may always be a key, and one may come with the signal.
            biased;
            () = self.phase.reached(RunPhase::Stopping) => None,
            taken = self.pool.next(&self.runtime, may_expire, take) => taken,
        }
    }

    /// Serves the queue until it is closed, or the worker is expired.
    pub(crate) async fn work<R, E>(self: Arc<Self>)
    where
        F: Fn(K, Context) -> R + Send + Sync,
        R: Future<Output = Result<Action, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.report(|metrics| metrics.worker_started());
        let _metrics_guard = WorkerMetricsGuard(self.config.metrics.as_deref());
        let mut may_expire = self.pool.exceeds_min();
        // Dropped, it ends its lease all the same.
        let mut ending = None;
        while let Some(lease) = self.next(may_expire, || self.end_and_get(ending.take())).await {
            // Nothing is awaited from here until the next key is.
            ending = self.serve(lease).await;
            may_expire = self.pool.worker_idle();
        }
        // The pace came first. The end of a lease calls user code.
        self.call(|| drop(ending));
    }

    /// The next key; the lease before it, if that is still to end, ends in the same step.
    ///
    /// What the end calls is user code, such as the limiter: a panic in the poll that ends the lease is counted, and the worker goes on
    /// with a `get`.
    fn end_and_get<'a>(
        &'a self,
        mut ending: Option<EndAndGet<'a, K, O, L, T>>,
    ) -> impl Future<Output = Option<Lease<K, T>>> {
        let mut get = self.queue.get();
        let mut ends = true;
        poll_fn(move |context| match &mut ending {
            None => Pin::new(&mut get).poll(context),
            Some(ending) => {
                let first = mem::take(&mut ends).then(|| self.call(|| Pin::new(&mut *ending).poll(context)));
                first.flatten().unwrap_or_else(|| Pin::new(ending).poll(context))
            }
        })
    }

    /// The lease has ended, or ends with what is given back.
    async fn serve<R, E>(&self, lease: Lease<K, T>) -> Option<EndAndGet<'_, K, O, L, T>>
    where
        F: Fn(K, Context) -> R,
        R: Future<Output = Result<Action, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let lease = self.filter_key(lease)?;
        let metrics = self.config.metrics.as_deref();
        self.report(|metrics| metrics.reconcile_started());
        let metrics_guard = ReconcileMetricsGuard::new(metrics);
        let span = self.call(|| self.config.spans.of(lease.key())).unwrap_or_default();
        let key = copied(&lease);
        let start = || span.start(|| (self.reconcile)(given(key), self.context.clone()));
        let result = attempt(&self.runtime, start, self.config.settings.reconcile_timeout).await;
        let result = match &self.config.finally {
            None => result.map_err(Arc::new),
            Some(finally) => {
                let result = result.map_err(Arc::new);
                self.finish(copied(&lease), result, &**finally, &span).await
            }
        };
        // A reconcile that never waits would keep others from the thread. Before its end is counted: aborted in here it has not ended.
        self.runtime.yield_now().await;
        metrics_guard.disarm();
        let (lease, outcome) = self.ended(lease, &result, &span)?;
        Some(self.queue.end_and_get(lease, outcome))
    }

    /// Takes out what is another replica's.
    pub(crate) fn filter_key(&self, lease: Lease<K, T>) -> Option<Lease<K, T>> {
        let mine = self.call(|| (self.config.filter_key)(lease.key()));
        if mine == Some(false) {
            self.counters.filtered_keys.count();
            self.call(|| lease.done());
            return None;
        }
        Some(lease)
    }

    /// What comes after the reconcile, whatever became of that. It hides no failure.
    pub(crate) async fn finish(
        &self,
        key: Result<K, String>,
        result: Result<Action, Arc<ReconcileError>>,
        finally: &Finally<K>,
        span: &ReconcileSpan,
    ) -> Result<Action, Arc<ReconcileError>> {
        let told = result.clone();
        let start = || span.start(|| finally(given(key), told, self.context.clone()));
        match attempt(&self.runtime, start, self.config.settings.reconcile_timeout).await {
            Ok(()) => result,
            Err(failure) => {
                self.counters.finally_failures.count();
                result.and(Err(Arc::new(failure)))
            }
        }
    }

    /// Says how a reconcile went. A lease that has not ended comes back, with how it is to end.
    pub(crate) fn ended(
        &self,
        lease: Lease<K, T>,
        result: &Result<Action, Arc<ReconcileError>>,
        span: &ReconcileSpan,
    ) -> Option<(Lease<K, T>, LeaseOutcome)> {
        let classified = result.as_ref().map_err(|failure| (&**failure, self.class_of(failure)));
        let outcome = ReconcileOutcome::of(classified);
        // What follows calls the limiter and the clock, which are user code: whatever they do, the worker lives on, and
        // the queue says what becomes of the key.
        let took = match &self.config.metrics {
            None => Duration::ZERO,
            Some(_) => self.call(|| lease.age()).flatten().unwrap_or_default(),
        };
        self.counters.record(outcome, took);
        let ending = self.call(|| match result {
            Ok(action) => {
                self.count_recovery(&lease);
                Some((lease, action.lease_outcome()))
            }
            Err(failure) => {
                self.failed(lease, failure, outcome.class().unwrap_or_default());
                None
            }
        });
        self.report(|metrics| metrics.reconcile_ended(outcome, took));
        self.call(|| span.ended(outcome));
        ending.flatten()
    }

    fn class_of(&self, failure: &ReconcileError) -> FailureClass {
        self.call(|| self.config.failure_policy.of(failure)).unwrap_or_default()
    }

    fn count_recovery(&self, lease: &Lease<K, T>) {
        let failures = lease.num_requeues().saturating_add(self.config.failure_policy.forget(lease.key()));
        if failures > 0 {
            self.counters.successful_retries.count();
            self.report(|metrics| metrics.retry_succeeded(failures));
        }
    }

    fn failed(&self, lease: Lease<K, T>, failure: &ReconcileError, class: FailureClass) {
        match class {
            FailureClass::Transient => {
                let least = self
                    .call(|| self.config.failure_policy.least_wait(lease.key(), failure))
                    .unwrap_or_default();
                let key = self.config.failure_policy.counts().then(|| lease.key().clone());
                let retried = match self.config.settings.max_attempts {
                    // By the limiter's count: a failure within an open backoff is none.
                    Some(most) => lease.retry_up_to(most, least),
                    None => {
                        lease.retry_after_at_least(least);
                        Ok(())
                    }
                };
                if let Err(last) = retried {
                    return self.give_up(last, failure, class);
                }
                // The queue may have given the key up, or it was cancelled: its conflicts are forgotten with it.
                if let Some(key) = key.filter(|key| self.queue.state(key) == KeyState::Absent) {
                    self.config.failure_policy.forget(&key);
                }
            }
            FailureClass::Conflict => {
                let wait = self.config.failure_policy.conflicts.next(lease.key());
                lease.done_and_requeue_after(wait);
            }
            FailureClass::Permanent => self.give_up(lease, failure, class),
        }
    }

    fn give_up(&self, lease: Lease<K, T>, failure: &ReconcileError, class: FailureClass) {
        self.counters.given_up.count();
        if let Some(given_up) = &self.config.on_give_up {
            // While the key is still leased, so that no other worker has it meanwhile.
            self.call(|| given_up(lease.key(), failure));
        }
        self.report(|metrics| metrics.gave_up(class));
        self.config.failure_policy.forget(lease.key());
        lease.succeed();
    }

    pub(crate) fn report(&self, what: impl FnOnce(&dyn ControllerMetrics)) {
        if let Some(metrics) = &self.config.metrics {
            self.call(|| what(&**metrics));
        }
    }

    /// Calls user code, and counts it if that panics.
    pub(crate) fn call<A>(&self, user: impl FnOnce() -> A) -> Option<A> {
        let called = panics::caught(user);
        if called.is_none() {
            self.counters.callback_panics.count();
        }
        called
    }
}
