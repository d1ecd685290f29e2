//! SHELL. One worker that takes batches: collects one, reconciles it, says for each key how it went; until the queue is closed.
//!
//! | guarded by | |
//! |---|---|
//! | `collected` | a lock that is held across awaits: by the one worker whose turn it is to collect. The others wait for it as they would for a key |
//!
//! Only one collects, or the keys of a group would be spread over as many batches as there are workers. While all are busy
//! nobody does, and keys stay where they are, in their order.
//!
//! Cancel safety: what was collected is in the accumulator, not in the future of who collects: dropping that drops no lease,
//! and the next one goes on with it. Whatever is in there when the controller is dropped comes back, as what was being worked on
//! does: each key counts as failed.

pub(crate) mod accumulator;

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use flyball_workqueue::{Key, Lease, Order, QueueLimiter, SupportsAsync, SupportsDelays};

use crate::metrics::{ReconcileMetricsGuard, WorkerMetricsGuard};
use crate::run::attempt::attempt;
use crate::run::batch::accumulator::Accumulator;
use crate::run::batch_config::BatchConfig;
use crate::run::phase::RunPhase;
use crate::run::runtime::Runtime;
use crate::run::worker::{WorkerContext, copied};
use crate::{Action, Context, ReconcileError};
use flyball_sync::panics;
use tokio::sync::Mutex as Turn;

/// So many batches may be in the making, by number of keys: the queue's order holds for what is in the queue.
const MAX_OPEN_BATCHES: usize = 8;

/// So many keys may come into no batch before it is looked which batch is due.
const MAX_DROPPED: usize = 64;

/// What a batch is, how it is reconciled, and what was collected so far.
pub(crate) struct Batching<K, G, T, F> {
    batches: BatchConfig<K, G>,
    reconcile: F,
    collected: Turn<Accumulator<G, Lease<K, T>>>,
}

impl<K, G: Key, T, F> Batching<K, G, T, F> {
    pub(crate) fn new(batches: BatchConfig<K, G>, reconcile: F) -> Self {
        let most = batches.max_size.saturating_mul(MAX_OPEN_BATCHES);
        let collected = Turn::new(Accumulator::new(batches.max_size, batches.max_wait, most));
        Self { batches, reconcile, collected }
    }
}

impl<X, K, O, L, T, G, F> WorkerContext<X, K, O, L, T, Batching<K, G, T, F>>
where
    X: Runtime,
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: SupportsAsync + SupportsDelays,
    G: Key,
    F: Send + Sync + 'static,
{
    /// Serves the queue until it is closed, or the worker is expired.
    pub(crate) async fn work_batches<R, E>(self: Arc<Self>)
    where
        F: Fn(Vec<K>, Context) -> R,
        R: Future<Output = Result<Vec<Result<Action, E>>, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>> + Send,
    {
        self.report(|metrics| metrics.worker_started());
        let _metrics_guard = WorkerMetricsGuard(self.config.metrics.as_deref());
        let mut may_expire = self.pool.exceeds_min();
        while let Some(batch) = self.next(may_expire, || self.collect()).await {
            self.serve_batch(batch).await;
            may_expire = self.pool.worker_idle();
            self.runtime.yield_now().await;
        }
    }

    /// Gives back what is in the making, when no worker will reconcile it any more.
    pub(crate) fn release(&self) {
        // Nobody collects then. One who does is cut off, and drops nothing that is in there.
        let Some(mut collected) = self.reconcile.collected.try_lock().ok() else { return };
        while collected.next_due().is_some() {
            let batch = self.call(|| collected.oldest()).flatten();
            batch.into_iter().flatten().for_each(|lease| _ = self.call(|| lease.requeue()));
        }
    }

    /// The next batch, when it is this worker's turn; `None` once the queue is closed.
    async fn collect(&self) -> Option<Vec<Lease<K, T>>> {
        let mut collected = self.reconcile.collected.lock().await;
        loop {
            // What is Ready comes first, so that a batch that waits for nothing has what there is; but not before a batch whose time is
            // over, as there may always be something Ready.
            // One that comes into no batch may come back at once, and again: that need not end.
            let (mut dropped, mut held_back) = (0, false);
            while dropped < MAX_DROPPED {
                if self.phase.has(RunPhase::Stopping) {
                    return None;
                }
                if let Some(batch) = self.call(|| collected.overdue(self.runtime.now())).flatten() {
                    return Some(batch);
                }
                let Ok(lease) = self.queue.try_get() else {
                    held_back = self.queue.has_ready();
                    break;
                };
                match self.put(&mut collected, lease) {
                    Put::Full(batch) => return Some(batch),
                    Put::Open => {}
                    Put::Dropped => dropped += 1,
                }
                self.runtime.yield_now().await;
            }
            let now = self.runtime.now();
            // What is Ready and not handed out is held back by a cap of its group, for which keys in the making count.
            let waits = !held_back && !self.is_draining();
            let batch = self.call(|| if waits { collected.due(now) } else { collected.oldest() });
            if let Some(batch) = batch.flatten() {
                return Some(batch);
            }
            let taken = match collected.next_due() {
                None => Some(self.queue.get().await),
                Some(due) => {
                    let limit = due.saturating_sub(now);
                    tokio::select! {
                        // In a fixed order, so that a simulated run replays.
                        biased;
                        taken = self.runtime.timeout(limit, self.queue.get()) => taken,
                        () = self.draining() => None,
                    }
                }
            };
            match taken {
                Some(Some(lease)) => {
                    if let Put::Full(batch) = self.put(&mut collected, lease) {
                        return Some(batch);
                    }
                    self.runtime.yield_now().await;
                }
                // Closed: nothing more comes to what is in the making.
                Some(None) if collected.next_due().is_none() => return None,
                Some(None) => {}
                None => {}
            }
        }
    }

    /// Whether no change will bring a key any more.
    fn is_draining(&self) -> bool {
        self.phase.has(RunPhase::Draining) || self.queue.is_shutting_down()
    }

    /// Waits for that, beside a `get` of this task: the queue wakes it when it is shut down.
    async fn draining(&self) {
        let mut paced = pin!(self.phase.reached(RunPhase::Draining));
        poll_fn(|cx| {
            let draining = paced.as_mut().poll(cx).is_ready() || self.queue.is_shutting_down();
            if draining { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Takes a key in.
    fn put(&self, collected: &mut Accumulator<G, Lease<K, T>>, lease: Lease<K, T>) -> Put<Lease<K, T>> {
        // `Eq` and `Hash` of the group, and the clock, are user code, too: the lease is dropped then, and so a failure.
        let taken = self.filter_key(lease).and_then(|lease| {
            self.call(|| {
                let group = (self.reconcile.batches.group)(lease.key());
                collected.put(group, lease, self.runtime.now())
            })
        });
        match taken {
            Some(Some(batch)) => Put::Full(batch),
            Some(None) => Put::Open,
            None => Put::Dropped,
        }
    }

    async fn serve_batch<R, E>(&self, batch: Vec<Lease<K, T>>)
    where
        F: Fn(Vec<K>, Context) -> R,
        R: Future<Output = Result<Vec<Result<Action, E>>, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>> + Send,
    {
        let metrics = self.config.metrics.as_deref();
        // `Clone` of a key is user code, too: where it panics, that key has failed, and the others are the batch.
        let (mut keys, mut leases) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for lease in batch {
            match copied(&lease) {
                Ok(key) => {
                    keys.push(key);
                    leases.push(lease);
                }
                Err(message) => {
                    self.report(|metrics| metrics.reconcile_started());
                    let failed = Err(Arc::new(ReconcileError::Panic(message)));
                    self.end_of(lease, ReconcileMetricsGuard::new(metrics), failed).await;
                }
            }
        }
        let count = keys.len();
        if count == 0 {
            return;
        }
        self.counters.batches.count();
        self.report(|metrics| metrics.batch_started(count));
        let started = |lease| {
            self.report(|metrics| metrics.reconcile_started());
            (lease, ReconcileMetricsGuard::new(metrics))
        };
        let held: Vec<_> = leases.into_iter().map(started).collect();
        let span = self.call(|| self.config.spans.of_batch(count)).unwrap_or_default();
        let start = || span.start(|| (self.reconcile.reconcile)(keys, self.context.clone()));
        let results = attempt(&self.runtime, start, self.config.settings.reconcile_timeout).await;
        let results = results.and_then(|results| check_results(results, count));
        let results = match results {
            Ok(results) => results,
            // The failure of the batch is that of each of its keys.
            Err(failure) => vec![Err(Arc::new(failure)); count],
        };
        // At once: none waits for what comes after another one, and one that is cut off then takes no others along.
        let ends = held.into_iter().zip(results);
        let mut ends: Vec<_> = ends
            .map(|((lease, metrics_guard), result)| Box::pin(self.end_of(lease, metrics_guard, result)))
            .collect();
        poll_fn(|cx| {
            ends.retain_mut(|end| end.as_mut().poll(cx).is_pending());
            if ends.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// The end of one key of a batch. What comes after is of each key, and so is its span.
    async fn end_of(
        &self,
        lease: Lease<K, T>,
        metrics_guard: ReconcileMetricsGuard<'_>,
        result: Result<Action, Arc<ReconcileError>>,
    ) {
        let span = self.call(|| self.config.spans.of(lease.key())).unwrap_or_default();
        let result = match &self.config.finally {
            None => result,
            Some(finally) => self.finish(copied(&lease), result, &**finally, &span).await,
        };
        metrics_guard.disarm();
        if let Some((lease, outcome)) = self.ended(lease, &result, &span) {
            self.call(|| lease.end(outcome));
        }
    }
}

/// What became of a key that was to be put into a batch.
enum Put<L> {
    /// It made one full, or one too many.
    Full(Vec<L>),
    Open,
    /// It is another replica's, or a failure: not held any more.
    Dropped,
}

type Results = Vec<Result<Action, Arc<ReconcileError>>>;

/// What was said of each key, if something was said of each.
fn check_results<E>(results: Vec<Result<Action, E>>, count: usize) -> Result<Results, ReconcileError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let said = results.len();
    let error = |error: E| Arc::new(ReconcileError::of(error.into()));
    // What becomes of an error is user code.
    let results: Results =
        panics::attempt(|| results.into_iter().map(|result| result.map_err(error)).collect())
            .map_err(ReconcileError::Panic)?;
    if said == count {
        Ok(results)
    } else {
        Err(ReconcileError::Error(Box::new(WrongResultCount { said, count })))
    }
}

/// A batch returned another number of results than it has keys, so results cannot be matched to keys.
#[derive(Debug)]
struct WrongResultCount {
    said: usize,
    count: usize,
}

impl fmt::Display for WrongResultCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a batch of {} keys came to {} results", self.count, self.said)
    }
}

impl Error for WrongResultCount {}
