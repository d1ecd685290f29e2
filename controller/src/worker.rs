//! EDGE. One worker: takes a key, reconciles it, says how it went; until the queue is closed.
//!
//! Cancel safety: a worker dropped in the middle of a reconcile drops the reconcile first and its lease after it. The
//! lease without an outcome is a failure to the queue, so the key comes back, to another worker. A reconcile that panics
//! when it is dropped changes nothing about that.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use flyball_ratelimit::Policy;
use flyball_workqueue::{AsyncGet, Delays, Key, Lease, Order, Queue};

use crate::config::{Attempts, Config};
use crate::guard::guarded;
use crate::report::Tally;
use crate::runtime::Runtime;
use crate::sync::{AtomicBool, Ordering};
use crate::{Action, Context, Failure};

/// What all workers of a controller share.
pub(crate) struct Shop<X, K, O: Order<K>, L, T, F> {
    pub(crate) runtime: X,
    pub(crate) queue: Queue<K, O, L, T>,
    pub(crate) reconcile: F,
    pub(crate) config: Config<K>,
    pub(crate) context: Context,
    pub(crate) tally: Arc<Tally>,
    /// No change will come any more, and the controller ends when the queue is idle.
    settling: AtomicBool,
}

impl<X, K, O, L, T, F> Shop<X, K, O, L, T, F>
where
    X: Runtime,
    K: Key,
    O: Order<K>,
    L: Policy<K> + Send + 'static,
    T: AsyncGet + Delays,
{
    pub(crate) fn new(
        runtime: X,
        queue: Queue<K, O, L, T>,
        reconcile: F,
        config: Config<K>,
        context: Context,
        tally: Arc<Tally>,
    ) -> Self {
        Self { runtime, queue, reconcile, config, context, tally, settling: AtomicBool::new(false) }
    }

    /// Ends the queue once it is idle; every worker looks after each key from now on.
    pub(crate) fn settle(&self) {
        // Ordering: Relaxed, the queue's lock orders it. A worker that ended its lease before we look below left
        // nothing to find; one that ends it after that locks after us, and sees the flag.
        self.settling.store(true, Ordering::Relaxed);
        self.close_if_idle();
    }

    fn close_if_idle(&self) {
        let counts = self.queue.counts();
        if counts.ready + counts.waiting + counts.leased == 0 {
            self.queue.shut_down();
        }
    }

    /// Serves the queue until it is closed.
    pub(crate) async fn work<R, E>(self: Arc<Self>)
    where
        F: Fn(K, Context) -> R,
        R: Future<Output = Result<Action, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        while let Some(lease) = self.queue.get().await {
            self.serve(lease).await;
            // Ordering: Relaxed, see `settle`.
            if self.settling.load(Ordering::Relaxed) {
                self.close_if_idle();
            }
            // A queue that always has a key is never pending: without this, other tasks would starve.
            self.runtime.breathe().await;
        }
    }

    async fn serve<R, E>(&self, lease: Lease<K, T>)
    where
        F: Fn(K, Context) -> R,
        R: Future<Output = Result<Action, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let key = lease.key().clone();
        let start = || (self.reconcile)(key, self.context.clone());
        let outcome = attempt(&self.runtime, start, self.config.timeout).await;
        self.tally.reconciles.count();
        // Ending a lease calls the limiter and the clock, which are user code: whatever they do, the worker lives on,
        // and the queue says what becomes of the key.
        let ended = guarded(|| match outcome {
            Ok(action) => match action.requeues_after() {
                None => lease.succeed(),
                Some(delay) => lease.requeue_after(delay),
            },
            Err(failure) => self.failed(lease, failure),
        });
        if ended.is_err() {
            self.tally.hook_panics.count();
        }
    }

    fn failed(&self, lease: Lease<K, T>, failure: Failure) {
        match failure {
            Failure::Error(_) => self.tally.errors.count(),
            Failure::Panic(_) => self.tally.panics.count(),
            Failure::Timeout(_) => self.tally.timeouts.count(),
        }
        match &self.config.attempts {
            Some(Attempts { most, given_up }) if lease.failures().saturating_add(1) >= *most => {
                self.tally.dead_letters.count();
                // Told while the key is still held, so that nobody works on it meanwhile.
                if guarded(|| given_up(lease.key(), failure)).is_err() {
                    self.tally.hook_panics.count();
                }
                lease.succeed();
            }
            _ => lease.retry(),
        }
    }
}

/// Runs one reconcile on the worker's own task. It is dropped when this returns, and when this is dropped.
///
/// A task per reconcile would catch panics, too, but costs an allocation and a hand-over for each key.
async fn attempt<X, R, E>(
    runtime: &X,
    start: impl FnOnce() -> R,
    limit: Option<Duration>,
) -> Result<Action, Failure>
where
    X: Runtime,
    R: Future<Output = Result<Action, E>> + Send,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let mut running = Running(pin!(Some(guarded(start).map_err(Failure::Panic)?)));
    let done = poll_fn(|context| {
        let polled = guarded(|| {
            let future = running.0.as_mut().as_pin_mut().expect("it is taken out after the last poll only");
            future.poll(context).map_err(|error| Failure::Error(error.into()))
        });
        polled.unwrap_or_else(|message| Err(Failure::Panic(message)).into())
    });
    let outcome = match limit {
        None => done.await,
        Some(limit) => runtime.timeout(limit, done).await.unwrap_or(Err(Failure::Timeout(limit))),
    };
    running.end().map_err(Failure::Panic)?;
    outcome
}

/// The future of the user. An option, so that dropping it can be guarded as polling it is, wherever its worker ends.
struct Running<'a, R>(Pin<&'a mut Option<R>>);

impl<R> Running<'_, R> {
    fn end(&mut self) -> Result<(), String> {
        guarded(|| self.0.set(None))
    }
}

impl<R> Drop for Running<'_, R> {
    fn drop(&mut self) {
        // Has something to do only when the worker is aborted. The panic is told to nobody: the key is a leftover.
        let _ = self.end();
    }
}
