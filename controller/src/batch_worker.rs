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

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use flyball_ratelimit::Policy;
use flyball_workqueue::{AsyncGet, Delays, Key, Lease, Order};

use crate::attempt::attempt;
use crate::batch::Accumulator;
use crate::batches::Batches;
use crate::guard::guarded;
use crate::metrics::{OnDuty, Owed};
use crate::runtime::Runtime;
use crate::sync::Turn;
use crate::worker::Shop;
use crate::{Action, Context, Failure};

/// So many batches may be in the making, by number of keys: the queue's order holds for what is in the queue.
const IN_THE_MAKING: usize = 8;

/// So many keys may come into no batch before somebody looks which batch is due.
const NOWHERE: usize = 64;

/// What a batch is, how it is reconciled, and what was collected so far.
pub(crate) struct Batching<K, G, T, F> {
    batches: Batches<K, G>,
    reconcile: F,
    collected: Turn<Accumulator<G, Lease<K, T>>>,
}

impl<K, G: Key, T, F> Batching<K, G, T, F> {
    pub(crate) fn new(batches: Batches<K, G>, reconcile: F) -> Self {
        let most = batches.size.saturating_mul(IN_THE_MAKING);
        let collected = Turn::new(Accumulator::new(batches.size, batches.window, most));
        Self { batches, reconcile, collected }
    }
}

impl<X, K, O, L, T, G, F> Shop<X, K, O, L, T, Batching<K, G, T, F>>
where
    X: Runtime,
    K: Key,
    O: Order<K>,
    L: Policy<K> + Send + 'static,
    T: AsyncGet + Delays,
    G: Key,
    F: Send + Sync + 'static,
{
    /// Serves the queue until it is closed, or until he may go.
    pub(crate) async fn work_batches<R, E>(self: Arc<Self>)
    where
        F: Fn(Vec<K>, Context) -> R,
        R: Future<Output = Result<Vec<Result<Action, E>>, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>> + Send,
    {
        self.tell(|metrics| metrics.worker_came());
        let _on_duty = OnDuty(self.config.metrics.as_deref());
        let mut may_leave = self.staff.is_large();
        while let Some(batch) = self.staff.next(&self.runtime, may_leave, || self.collect()).await {
            self.serve_batch(batch).await;
            may_leave = self.staff.rests();
            self.close_if_settled();
            self.runtime.breathe().await;
        }
    }

    /// The next batch, when it is this worker's turn; `None` once the queue is closed.
    async fn collect(&self) -> Option<Vec<Lease<K, T>>> {
        let mut collected = self.reconcile.collected.lock().await;
        loop {
            // What is Ready comes first, so that a batch that waits for nothing has what there is.
            // But one that comes into no batch may come back at once, and again: nobody waits for that to end.
            let mut nowhere = 0;
            while nowhere < NOWHERE {
                let Ok(lease) = self.queue.try_get() else { break };
                match self.put(&mut collected, lease) {
                    Put::Full(batch) => return Some(batch),
                    Put::Open => {}
                    Put::Nowhere => nowhere += 1,
                }
                self.runtime.breathe().await;
            }
            let now = self.runtime.now();
            if let Some(batch) = self.call(|| collected.due(now)).flatten() {
                return Some(batch);
            }
            let taken = match collected.next_due() {
                None => Some(self.queue.get().await),
                Some(due) => self.runtime.timeout(due.saturating_sub(now), self.queue.get()).await,
            };
            match taken {
                Some(Some(lease)) => {
                    if let Put::Full(batch) = self.put(&mut collected, lease) {
                        return Some(batch);
                    }
                    self.runtime.breathe().await;
                }
                // Closed: nothing more comes to what is in the making.
                Some(None) => {
                    while collected.next_due().is_some() {
                        if let Some(batch) = self.call(|| collected.oldest()).flatten() {
                            return Some(batch);
                        }
                    }
                    return None;
                }
                None => {}
            }
        }
    }

    /// Takes a key in.
    fn put(&self, collected: &mut Accumulator<G, Lease<K, T>>, lease: Lease<K, T>) -> Put<Lease<K, T>> {
        // `Eq` and `Hash` of the group, and the clock, are user code, too: the lease is dropped then, and so a failure.
        let taken = self.own(lease).and_then(|lease| {
            self.call(|| {
                let group = (self.reconcile.batches.group)(lease.key());
                collected.put(group, lease, self.runtime.now())
            })
        });
        match taken {
            Some(Some(batch)) => Put::Full(batch),
            Some(None) => Put::Open,
            None => {
                // No batch will end that looks after this key.
                self.close_if_settled();
                Put::Nowhere
            }
        }
    }

    async fn serve_batch<R, E>(&self, batch: Vec<Lease<K, T>>)
    where
        F: Fn(Vec<K>, Context) -> R,
        R: Future<Output = Result<Vec<Result<Action, E>>, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>> + Send,
    {
        let metrics = self.config.metrics.as_deref();
        let keys: Vec<K> = batch.iter().map(|lease| lease.key().clone()).collect();
        let count = keys.len();
        self.tally.batches.count();
        self.tell(|metrics| metrics.batch(count));
        let held: Vec<_> = batch
            .into_iter()
            .map(|lease| {
                self.tell(|metrics| metrics.started());
                (lease, Owed::new(metrics))
            })
            .collect();
        let span = self.call(|| self.config.spans.of_batch(count)).unwrap_or_default();
        let start = || span.start(|| (self.reconcile.reconcile)(keys, self.context.clone()));
        let results = attempt(&self.runtime, start, self.config.timeout).await;
        let results = results.and_then(|results| own_results(results, count));
        let results = match results {
            Ok(results) => results,
            // The failure of the batch is that of each of its keys.
            Err(failure) => vec![Err(Arc::new(failure)); count],
        };
        for ((lease, owed), result) in held.into_iter().zip(results) {
            // What comes after is of each key, and so is its span.
            let span = self.call(|| self.config.spans.of(lease.key())).unwrap_or_default();
            let result = match &self.config.finally {
                None => result,
                Some(finally) => self.finish(lease.key().clone(), result, &**finally, &span).await,
            };
            owed.paid();
            self.ended(lease, &result, &span);
        }
    }
}

/// What became of a key that was to be put into a batch.
enum Put<L> {
    /// It made one full, or one too many.
    Full(Vec<L>),
    Open,
    /// It is another replica's, or a failure: not held any more.
    Nowhere,
}

type Results = Vec<Result<Action, Arc<Failure>>>;

/// What was said of each key, if something was said of each.
fn own_results<E>(results: Vec<Result<Action, E>>, count: usize) -> Result<Results, Failure>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let said = results.len();
    let error = |error: E| Arc::new(Failure::Error(error.into()));
    // What becomes of an error is user code.
    let results: Results = guarded(|| results.into_iter().map(|result| result.map_err(error)).collect())
        .map_err(Failure::Panic)?;
    if said == count { Ok(results) } else { Err(Failure::Error(Box::new(Miscounted { said, count }))) }
}

/// Nobody can tell which result is of which key.
#[derive(Debug)]
struct Miscounted {
    said: usize,
    count: usize,
}

impl fmt::Display for Miscounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a batch of {} keys came to {} results", self.count, self.said)
    }
}

impl Error for Miscounted {}
