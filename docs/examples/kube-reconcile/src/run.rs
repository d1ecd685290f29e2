//! The loop between flyball's queue and kube's reconcile functions.

use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube::action_delay;
use flyball_ratelimit::{Exponential, Limiter, OncePerBackoff};
use flyball_workqueue::{Fifo, Lease, NoLimiter, Queue, TokioTimer, WithTimer};
use futures::FutureExt;
use futures::future::join_all;
use kube_runtime::controller::Action;
use kube_runtime::reflector::{Lookup, ObjectRef, Store};

/// Keys are what kube calls them.
pub(crate) type Keys<K> = Queue<ObjectRef<K>, Fifo, NoLimiter, WithTimer<TokioTimer>>;

/// A queue on the running tokio runtime.
pub(crate) fn queue<K>() -> Keys<K>
where
    K: Lookup + 'static,
    K::DynamicType: Clone + Eq + Hash + Send,
{
    Queue::builder().timer(TokioTimer::current()).build()
}

/// Runs `reconcile` for every key until the queue is closed, at most `workers` at once and no key twice at once.
///
/// `reconcile` and `error_policy` have kube-runtime's signatures. What is better than there: keys that wait for a worker
/// are served first in, first out; a panic is a failure of its key alone; and a key that goes on failing backs off, from 1 s
/// to 5 minutes, however short a time `error_policy` asks for.
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
    // An event during a backoff runs the key at once; if it fails again then, that is no further failure.
    let failures =
        Limiter::<ObjectRef<K>, _, _>::with_clock(OncePerBackoff::new(backoff), TokioTimer::current());

    let one = async |key: Lease<ObjectRef<K>, WithTimer<TokioTimer>>| {
        // Looked up when the key runs, not when it was added. An object that is gone needs nothing more.
        let Some(object) = store.get(&key) else {
            failures.forget(&key);
            return key.done();
        };
        let ran = AssertUnwindSafe(reconcile(object.clone(), context.clone())).catch_unwind().await;
        let (action, failed) = match &ran {
            Ok(Ok(action)) => (action.clone(), false),
            Ok(Err(error)) => (error_policy(object, error, context.clone()), true),
            // Of a panic kube has no notion: the key comes back when its backoff says.
            Err(_) => (Action::requeue(Duration::ZERO), true),
        };
        if !failed {
            failures.forget(&key);
        }
        match action_delay(&action) {
            Ok(None) => key.done(),
            Ok(Some(wait)) if !failed => key.succeed_and_requeue_after(wait),
            // Also where a kube shows its actions in another way: too often is better than never.
            asked => {
                let (asked, backoff) =
                    (asked.ok().flatten().unwrap_or_default(), failures.record_failure(&key));
                key.succeed_and_requeue_after(asked.max(backoff));
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
