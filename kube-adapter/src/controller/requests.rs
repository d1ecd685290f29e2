//! EDGE. Reconciles that are asked for from outside.
//!
//! Cancel safety: a stream that is dropped between two of its items loses none that it gave.

use flyball_informer_cache::NamespacedName;
use futures_util::StreamExt;
use futures_util::future::pending;
use futures_util::stream::{BoxStream, select_all};
use tokio::task::coop::consume_budget;

use super::turning::{Adding, Keys, Turning};

/// Adds what the streams ask for. Never done: their end is not the controller's.
pub(crate) async fn pump<O: Turning>(
    requests: Vec<BoxStream<'static, Vec<NamespacedName>>>,
    queue: &Keys<O>,
    adding: Adding,
) {
    let mut requests = select_all(requests);
    while let Some(keys) = requests.next().await {
        for key in keys {
            // Refused only when the queue is being finished.
            let _ = adding.add(queue, key, false);
        }
        // A stream that always has another one would keep the thread, and signals would not be heard.
        consume_budget().await;
    }
    pending().await
}
