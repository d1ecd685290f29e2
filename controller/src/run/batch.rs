//! SHELL. A worker for batches. Until the queue is closed, it collects a batch, reconciles it, and ends the lease of each key with the key's result.
//!
//! | guarded by | |
//! |---|---|
//! | `collected` | an async lock that the collecting worker holds across awaits. Other idle workers wait for this lock instead of waiting for a key |
//!
//! Only one worker collects at a time. Otherwise the keys of a group would be distributed over as many batches as there are workers. While all
//! workers are busy, no worker collects, and keys stay in the queue, in the queue's order.
//!
//! Cancel safety: the collected leases belong to the accumulator, and not to the future of the collecting worker. Dropping that future drops no
//! lease, and the next worker continues with the collected leases. If the controller is dropped, the leases in the accumulator are dropped like those
//! of running reconciles: each key counts as failed, and is retried.

pub(crate) mod accumulator;

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use flyball_workqueue::{Key, Lease, LeaseOutcome, Order, QueueLimiter, Timer};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::metrics::{ReconcileMetricsGuard, WorkerMetricsGuard};
use crate::run::attempt::attempt;
use crate::run::batch::accumulator::Accumulator;
use crate::run::batch_config::BatchConfig;
use crate::run::in_flight::Reconcile;
use crate::run::phase::RunPhase;
use crate::run::reconciler::Reconciler;
use crate::run::runtime::Runtime;
use crate::run::worker::{WorkerContext, copied};
use crate::{Action, Context, ReconcileError};
use flyball_sync::panics;
use tokio::sync::Mutex as AsyncMutex;

/// The maximum number of keys in open batches, in units of full batches. The maximum is small, because keys in open batches have left the queue, so
/// the queue's order no longer applies to them.
const MAX_OPEN_BATCHES: usize = 8;

/// After this many dequeued keys that join no batch, because they are filtered out or fail, the deadlines of open batches are checked again.
const MAX_DROPPED: usize = 64;

/// The batch configuration, and the keys that were collected so far.
pub(crate) struct Batching<K, G> {
    batches: BatchConfig<K, G>,
    collected: AsyncMutex<Accumulator<G, Lease<K>>>,
}

/// A reconcile function for batches: one result per key.
type BatchReconciler<K> = dyn Reconciler<Vec<K>, Results>;

impl<K, G: Key> Batching<K, G> {
    pub(crate) fn new(batches: BatchConfig<K, G>) -> Self {
        let most = batches.max_size.saturating_mul(MAX_OPEN_BATCHES);
        let collected = AsyncMutex::new(Accumulator::new(batches.max_size, batches.max_wait, most));
        Self { batches, collected }
    }
}

impl<K: Key, G: Key> Batching<K, G> {
    /// Reconciles batches of keys until the queue is closed, or until the worker is idle for too long.
    pub(crate) async fn work<X, O, L, T>(
        self: Arc<Self>,
        context: Arc<WorkerContext<X, K, O, L, T>>,
        mut reconciler: Box<BatchReconciler<K>>,
    ) where
        X: Runtime,
        O: Order<K>,
        L: QueueLimiter<K>,
        T: Timer,
    {
        context.report(|metrics| metrics.worker_started());
        let _metrics_guard = WorkerMetricsGuard(context.config.metrics.as_deref());
        let mut may_expire = context.pool.exceeds_min();
        let mut slot = Reconcile::new();
        while let Some(batch) = context.next(may_expire, || self.collect(&context)).await {
            slot.next();
            context.serve_batch(batch, &slot, &mut *reconciler).await;
            may_expire = context.pool.worker_idle();
            context.runtime.yield_now().await;
        }
    }

    /// Requeues the leases of open batches. Called at a shutdown, when no worker will reconcile these batches.
    pub(crate) async fn release<X, O, L, T>(self: Arc<Self>, context: Arc<WorkerContext<X, K, O, L, T>>)
    where
        X: Runtime,
        O: Order<K>,
        L: QueueLimiter<K>,
        T: Timer,
    {
        // A worker that holds the lock was notified of the phase `Stopping`, so it unlocks at its next poll. With a grace of zero, it may not have been
        // polled yet.
        let mut collected = self.collected.lock().await;
        while collected.next_due().is_some() {
            collected
                .oldest()
                .into_iter()
                .flatten()
                .for_each(|lease| _ = context.call(|| lease.end(LeaseOutcome::Requeued)));
        }
    }

    /// Waits for the lock, then collects the next batch; returns `None` once the queue is closed.
    async fn collect<X, O, L, T>(&self, context: &WorkerContext<X, K, O, L, T>) -> Option<Vec<Lease<K>>>
    where
        X: Runtime,
        O: Order<K>,
        L: QueueLimiter<K>,
        T: Timer,
    {
        let mut collected = self.collected.lock().await;
        loop {
            // This loop dequeues Ready keys before an open batch is returned, so that a batch with a window of zero gets all Ready keys. A full or an
            // overdue batch is returned earlier, so that it need not wait until no key is Ready, which may never happen. A key that joins no batch
            // may be added again immediately, and could keep this loop running forever, so the number of such keys per pass is limited.
            let mut dropped = 0;
            while dropped < MAX_DROPPED {
                if context.phase.has(RunPhase::Stopping) {
                    return None;
                }
                if let Some(batch) = collected.overdue(context.runtime.now()) {
                    return Some(batch);
                }
                let Ok(lease) = context.queue.try_get() else { break };
                match self.put(context, &mut collected, lease) {
                    Put::Full(batch) => return Some(batch),
                    Put::Open => {}
                    Put::Dropped => dropped += 1,
                }
                context.runtime.yield_now().await;
            }
            let now = context.runtime.now();
            // Ready keys that `try_get` does not return, because of a lease limit or a rate of `Fair` or because the queue is paused, close no batch. Rejected:
            // closing all open batches because their leases may be those that reach a limit. One group at its limit would then close the batches of all
            // groups early, and the queue does not distinguish a limit from a rate, for whose tokens a batch can wait.
            if let Some(batch) = if context.is_draining() { collected.oldest() } else { collected.due(now) } {
                return Some(batch);
            }
            let taken = match collected.next_due() {
                None => Some(context.queue.get().await),
                Some(due) => {
                    let limit = due.saturating_sub(now);
                    tokio::select! {
                        // Biased, so that a simulation with the same seed repeats the run.
                        biased;
                        taken = context.runtime.timeout(limit, context.queue.get()) => taken,
                        () = context.draining() => None,
                    }
                }
            };
            match taken {
                Some(Some(lease)) => {
                    if let Put::Full(batch) = self.put(context, &mut collected, lease) {
                        return Some(batch);
                    }
                    context.runtime.yield_now().await;
                }
                // The queue is closed, so no more keys join the open batches.
                Some(None) if collected.next_due().is_none() => return None,
                Some(None) => {}
                None => {}
            }
        }
    }

    /// Adds a key to the accumulator.
    fn put<X, O, L, T>(
        &self,
        context: &WorkerContext<X, K, O, L, T>,
        collected: &mut Accumulator<G, Lease<K>>,
        lease: Lease<K>,
    ) -> Put<Lease<K>>
    where
        X: Runtime,
        O: Order<K>,
        L: QueueLimiter<K>,
        T: Timer,
    {
        let Some(lease) = context.filter_key(lease) else { return Put::Dropped };
        // The group function, and `Eq`, `Hash` and `Clone` of the group, are user code. If they panic, the key fails.
        let number = panics::attempt(|| {
            let group = (self.batches.group)(lease.key());
            collected.place(group, context.runtime.now())
        });
        match number {
            Ok(number) => collected.add(number, lease).map_or(Put::Open, Put::Full),
            Err(message) => {
                context.group_failed(lease, message);
                Put::Dropped
            }
        }
    }
}

impl<X, K, O, L, T> WorkerContext<X, K, O, L, T>
where
    X: Runtime,
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    /// Waits until the drain begins. The caller also polls `Queue::get` in the same task, so the task is woken when the queue is shut down.
    async fn draining(&self) {
        let mut phase = pin!(self.phase.reached(RunPhase::Draining));
        poll_fn(|cx| {
            let draining = phase.as_mut().poll(cx).is_ready() || self.queue.is_shutting_down();
            if draining { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Ends the lease of a key whose group function panicked, like that of a key whose reconcile panicked.
    fn group_failed(&self, lease: Lease<K>, message: String) {
        self.counters.callback_panics.count();
        self.report(|metrics| metrics.reconcile_started());
        let span = self.call(|| self.config.spans.of(lease.key())).unwrap_or_default();
        self.ended(lease, Err(Arc::new(ReconcileError::Panic(message))), &span);
    }

    /// Reconciles a batch, and ends the lease of each key.
    async fn serve_batch(&self, batch: Vec<Lease<K>>, slot: &Reconcile, reconciler: &mut BatchReconciler<K>) {
        let metrics = self.config.metrics.as_deref();
        // `Clone` of a key is also user code. If the clone of a key panics, that key fails, and the batch is called with the other keys.
        let batch: Vec<_> = batch.into_iter().map(|lease| (copied(&lease), lease)).collect();
        // Keys may have waited in the open batch for long, so the ownership is tested again. There is no await point between this test and the first
        // poll of the reconcile.
        let mut failing = Vec::new();
        let own = |(key, lease)| {
            let admitted = self.filter_key(lease).and_then(|lease| self.admit(lease));
            let Some((lease, fails)) = admitted else {
                self.discard(key);
                return None;
            };
            failing.extend(fails);
            Some((key, lease))
        };
        let batch: Vec<_> = batch.into_iter().filter_map(own).collect();
        let started = |lease| {
            self.report(|metrics| metrics.reconcile_started());
            (lease, ReconcileMetricsGuard::new(metrics))
        };
        let count = batch.iter().filter(|(key, _)| key.is_ok()).count();
        if count > 0 {
            self.counters.batches.count();
            self.report(|metrics| metrics.batch_started(count));
        }
        let (mut keys, mut held, mut failed) =
            (Vec::with_capacity(count), Vec::with_capacity(count), Vec::new());
        for (key, lease) in batch {
            match key {
                Ok(key) => {
                    keys.push(key);
                    held.push(started(lease));
                }
                Err(message) => failed.push((started(lease), Arc::new(ReconcileError::Panic(message)))),
            }
        }
        let context = self.context.of(slot);
        // If `Hash` of a key panics, the batch is not notified of changes of this key.
        let hashes: Vec<_> = keys.iter().filter_map(|key| self.call(|| self.in_flight.hash(key))).collect();
        let registered = self.in_flight.begin(slot, hashes);
        let results = match keys.is_empty() {
            true => Vec::new(),
            false => self.reconcile_batch(keys, &context, reconciler).await,
        };
        // The futures run concurrently, so no key waits for the `finally` of another key, and if the worker is aborted during one `finally`, the
        // results of the other keys are not lost. The keys that could not be cloned end with the others, because their `finally` must not delay the
        // reconcile of the batch.
        let failed = failed.into_iter().map(|(held, failure)| (held, Err(failure)));
        let ends = held.into_iter().zip(results).chain(failed);
        let mut ends: FuturesUnordered<_> = ends
            .map(|((lease, metrics_guard), result)| self.end_of(lease, metrics_guard, result, &context))
            .collect();
        while ends.next().await.is_some() {}
        drop((failing, registered));
    }

    /// Reconciles the keys of a batch, and returns one result per key.
    async fn reconcile_batch(
        &self,
        keys: Vec<K>,
        context: &Context,
        reconciler: &mut BatchReconciler<K>,
    ) -> Results {
        let count = keys.len();
        let span = self.call(|| self.config.spans.of_batch(count)).unwrap_or_default();
        let start = |reconciler: &mut BatchReconciler<K>| reconciler.start(keys, context.clone());
        let limit = self.config.settings.reconcile_timeout;
        let results = attempt(&self.runtime, &span, reconciler, start, limit).await;
        let failure = match results {
            Ok(results) if results.len() == count => return results,
            Ok(results) => {
                let returned = results.len();
                results.into_iter().for_each(|result| self.discard(result));
                ReconcileError::Error(Box::new(WrongResultCount { returned, count }))
            }
            Err(failure) => failure,
        };
        // If the whole call fails, each key of the batch fails.
        vec![Err(Arc::new(failure)); count]
    }

    /// Ends the lease of one key of a batch. `finally` runs for each key, within a span of its own.
    async fn end_of(
        &self,
        lease: Lease<K>,
        metrics_guard: ReconcileMetricsGuard<'_>,
        result: Result<Action, Arc<ReconcileError>>,
        context: &Context,
    ) {
        let span = self.call(|| self.config.spans.of(lease.key())).unwrap_or_default();
        let result = match &self.config.finally {
            None => result,
            Some(finally) => self.finish(copied(&lease), result, &**finally, context, &span).await,
        };
        metrics_guard.disarm();
        self.ended(lease, result, &span);
    }
}

/// The outcome of adding a key to a batch.
enum Put<L> {
    /// The key filled its batch, or the limit of collected keys was reached. Contains the batch that must be reconciled now.
    Full(Vec<L>),
    Open,
    /// The key joined no batch, and its lease has ended: the key belongs to a different replica, or it failed.
    Dropped,
}

type Results = Vec<Result<Action, Arc<ReconcileError>>>;

/// Converts what the reconcile function of a batch returned.
pub(crate) fn batch_results<E>(results: Result<Vec<Result<Action, E>>, E>) -> Result<Results, ReconcileError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let failure = |error: E| Arc::new(ReconcileError::of(error.into()));
    let results = results.map_err(|error| ReconcileError::of(error.into()))?;
    Ok(results.into_iter().map(|result| result.map_err(failure)).collect())
}

/// The error of a batch whose number of results differs from its number of keys. Such results cannot be assigned to keys.
#[derive(Debug)]
struct WrongResultCount {
    returned: usize,
    count: usize,
}

impl fmt::Display for WrongResultCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a batch of {} keys came to {} results", self.count, self.returned)
    }
}

impl Error for WrongResultCount {}
