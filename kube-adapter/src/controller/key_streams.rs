//! EDGE. Reconciles that are asked for from outside.
//!
//! Cancel safety: a stream that is dropped between two of its items loses none that it gave.

use flyball_informer_cache::NamespacedName;
use futures_util::StreamExt;
use futures_util::future::pending;
use futures_util::stream::{BoxStream, select_all};
use tokio::task::coop::consume_budget;

use super::reconcile_reasons::Reason;
use super::trigger::{AddOptions, Keys, OrderedLoop};
use flyball_kube_lease::Leadership;

/// Keys that are asked for from outside, and why.
pub(crate) type Request = BoxStream<'static, (Vec<NamespacedName>, Reason)>;

/// Adds what the streams ask for. Never done: their end is not the controller's.
pub(crate) async fn pump<O: OrderedLoop>(
    requests: Vec<Request>,
    queue: &Keys<O>,
    options: AddOptions,
    leadership: Option<&Leadership>,
) {
    let mut requests = select_all(requests);
    while let Some((keys, reason)) = requests.next().await {
        // All objects are reconciled when it is elected.
        let keys = if leadership.is_none_or(Leadership::is_leader) { keys } else { Vec::new() };
        for key in keys {
            // Refused only when the queue is being finished.
            let _ = options.add(queue, key, false, || reason.clone());
        }
        // A stream that always has another one would keep the thread, and signals would not be heard.
        consume_budget().await;
    }
    pending().await
}
