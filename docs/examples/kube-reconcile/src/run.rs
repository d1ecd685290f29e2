//! The loop that takes keys from flyball's queue and calls a reconcile function written for kube-runtime.

use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube::action_delay;
use flyball_ratelimit::{Exponential, Limiter, OncePerBackoff};
use flyball_workqueue::{Fifo, Lease, NoLimiter, Queue, TokioTimer};
use futures::FutureExt;
use futures::future::join_all;
use kube_runtime::controller::Action;
use kube_runtime::reflector::{Lookup, ObjectRef, Store};

/// A queue whose keys are kube's `ObjectRef`s.
pub(crate) type Keys<K> = Queue<ObjectRef<K>, Fifo, NoLimiter, TokioTimer>;

/// Creates a queue with the timer of the current tokio runtime.
pub(crate) fn queue<K>() -> Keys<K>
where
    K: Lookup + 'static,
    K::DynamicType: Clone + Eq + Hash + Send,
{
    Queue::builder().timer(TokioTimer::current()).build()
}

/// Runs `reconcile` for every key until the queue is closed: at most `workers` reconciles at a time, and at most one per key.
///
/// `reconcile` and `error_policy` have kube-runtime's signatures. Unlike with kube-runtime, keys that wait for a worker are served in FIFO
/// order, a panic fails only its key, and a key that keeps failing has a backoff from 1 s to 5 minutes, even if `error_policy` returns a
/// shorter delay.
pub(crate) async fn run<K, C, E, F>(
    queue: &Keys<K>,
    store: &Store<K>,
    workers: usize,
    reconcile: impl Fn(Arc<K>, Arc<C>) -> F,
    error_policy: impl Fn(Arc<K>, &E, Arc<C>) -> Action,
    context: Arc<C>,
) where
    K: Lookup + Clone + 'static,
    K::DynamicType: Clone + Eq + Hash + Send,
    F: Future<Output = Result<Action, E>>,
{
    let backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(300));
    // An event of a key that is in its backoff causes a run immediately. If this run fails, too, its failure does not lengthen the backoff.
    let failures =
        Limiter::<ObjectRef<K>, _, _>::with_clock(OncePerBackoff::new(backoff), TokioTimer::current());

    let one = async |key: Lease<ObjectRef<K>>| {
        // The object is read now, not when its key was added, so the reconcile gets its newest state. If the object has been deleted, nothing is
        // reconciled.
        let Some(object) = store.get(&key) else {
            failures.forget(&key);
            return key.done();
        };
        let ran = AssertUnwindSafe(reconcile(object.clone(), context.clone())).catch_unwind().await;
        let (action, failed) = match &ran {
            Ok(Ok(action)) => (action.clone(), false),
            Ok(Err(error)) => (error_policy(object, error, context.clone()), true),
            // After a panic there is no error with which `error_policy` could be called, so the key is retried after its backoff.
            Err(_) => (Action::requeue(Duration::ZERO), true),
        };
        if !failed {
            failures.forget(&key);
        }
        match action_delay(&action) {
            Ok(None) => key.done(),
            Ok(Some(wait)) if !failed => key.requeue_after(wait),
            // `action_delay` reads the `Debug` output of the action. If a later version of kube prints actions in a different form, `action_delay`
            // returns an error, and this branch retries the key after its backoff, so that the key is not lost.
            asked => {
                let (asked, backoff) =
                    (asked.ok().flatten().unwrap_or_default(), failures.record_failure(&key));
                key.requeue_after(asked.max(backoff));
            }
        }
    };
    let worker = async || {
        while let Some(key) = queue.get().await {
            one(key).await;
        }
    };
    join_all((0..workers).map(|_| worker())).await;
}
