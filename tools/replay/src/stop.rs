//! EDGE. The wish to end, told to everybody at once.
//!
//! Cancel safety: dropping [`Stop::wished`] only stops waiting.

use std::sync::Arc;

use tokio::sync::watch;

/// The wish to end. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<watch::Sender<bool>>);

impl Stop {
    pub(crate) fn wish(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn is_wished(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn wished(&self) {
        // It cannot fail: the sender is ours.
        let _ = self.0.subscribe().wait_for(|wished| *wished).await;
    }
}
