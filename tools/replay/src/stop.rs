//! EDGE. A request to stop that any number of tasks can await.
//!
//! Cancel safety: dropping [`Stop::requested`] only stops waiting.

use std::sync::Arc;

use tokio::sync::watch;

/// A request to stop, which is never withdrawn. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<watch::Sender<bool>>);

impl Stop {
    pub(crate) fn request(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn requested(&self) {
        // It cannot fail: the sender is ours.
        let _ = self.0.subscribe().wait_for(|requested| *requested).await;
    }
}
