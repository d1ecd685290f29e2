//! EDGE. Moves the changes of one informer into the queue, as keys.
//!
//! Cancel safety: between taking a change and adding its keys nothing is awaited, so a pump that is dropped has added
//! every key of every change it took. What it did not take stays in its subscription and goes with it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use flyball_informer_cache::{Change, Stopped, Subscription};
use flyball_ratelimit::Policy;
use flyball_workqueue::{Key, Order, Queue, Time};
use tokio::task::coop;

use crate::guard::guarded;
use crate::report::Tally;

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One informer, its types out of sight: when it has synced, and what moves its changes.
pub(crate) struct Feed<K, O, L, T> {
    pub(crate) synced: BoxFuture<Result<(), Stopped>>,
    #[expect(clippy::type_complexity, reason = "a closure that starts a future, named nowhere else")]
    pub(crate) pump: Box<dyn FnOnce(Queue<K, O, L, T>, Arc<Tally>) -> BoxFuture<()> + Send>,
}

/// Ends when the store of the subscription is closed and all changes were moved, or when the queue refuses.
pub(crate) async fn pump<K, V, Q, I, O, L, T>(
    mut changes: Subscription<K, V>,
    mut keys_of: impl FnMut(&Change<K, V>) -> I + Send,
    queue: Queue<Q, O, L, T>,
    tally: Arc<Tally>,
) where
    K: Key + Sync,
    V: Send + Sync + 'static,
    I: IntoIterator<Item = Q>,
    Q: Key,
    O: Order,
    L: Policy<Q> + Send + 'static,
    T: Time,
{
    while let Some(change) = changes.next().await {
        let added = guarded(|| {
            for key in keys_of(&change) {
                if queue.add(key).is_err() {
                    return false;
                }
                tally.adds.count();
            }
            true
        });
        match added {
            Ok(true) => {}
            Ok(false) => return,
            // The change is left out, as its keys are not known. The next change of the object is mapped again.
            Err(_) => tally.hook_panics.count(),
        }
        // A subscription that always has something is never pending: without this, a storm would starve the workers.
        coop::consume_budget().await;
    }
}
