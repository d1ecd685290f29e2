//! EDGE. A stop request, for which any number of tasks can wait.
//!
//! Cancel safety: a dropped future of [`Stop::requested`] only stops its wait.

use std::sync::Arc;

use tokio::sync::watch;

/// A request to stop. It cannot be withdrawn. Clones share it.
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
        // This cannot fail: `self` owns the sender.
        let _ = self.0.subscribe().wait_for(|requested| *requested).await;
    }
}
