//! EDGE. What a reconcile is told beside its key.
//!
//! Cancel safety: a context only looks; dropping [`Context::shutdown`] stops looking.

use std::sync::Arc;

use tokio::sync::watch;

/// What a reconcile is told beside its key. A clone costs a reference count.
#[derive(Clone, Debug)]
pub struct Context {
    stopping: Arc<watch::Sender<bool>>,
}

impl Context {
    pub(crate) fn new() -> Self {
        Self { stopping: Arc::new(watch::Sender::new(false)) }
    }

    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Whether the controller is shutting down: no change is mapped any more, and the queue is being finished.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the controller begins to shut down. For long reconciles that want to end early then.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    pub async fn shutdown(&self) {
        // It cannot fail: the sender is ours.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }
}
