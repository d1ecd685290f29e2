//! EDGE. Wakes all waiters when a run future ends: by return, drop or panic.
//!
//! Cancel safety: the destructor does the work, so it is also done if the future is dropped at any point.

use std::future::poll_fn;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use super::Shared;
use crate::InformerState;

/// Signals the end of the informer when dropped: after the run future completed, was dropped, or panicked.
pub(super) struct NotifyOnExit<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    shared: Arc<Shared<K, V>>,
    /// True during a poll. If it is still true on drop, the poll panicked.
    polling: bool,
}

impl<K, V> NotifyOnExit<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(shared: Arc<Shared<K, V>>) -> Self {
        Self { shared, polling: false }
    }

    /// Returns the run future, which polls `task`. Dropping the run future signals the end even if it was never polled.
    pub(super) async fn wrap<F: Future<Output = ()>>(mut self, task: F) {
        let mut task = pin!(task);
        poll_fn(|cx| {
            self.polling = true;
            let done = task.as_mut().poll(cx);
            self.polling = false;
            done
        })
        .await;
    }
}

impl<K, V> Drop for NotifyOnExit<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.status.ended(if self.polling { InformerState::Failed } else { InformerState::Stopped });
        // Each of these calls runs wakers. A panic of a waker must not prevent the next call. Nor may it abort the process, as a second panic would
        // in a thread that is already unwinding.
        let run_caught = |wake: &dyn Fn()| drop(catch_unwind(AssertUnwindSafe(wake)));
        run_caught(&|| shared.stop.exited());
        run_caught(&|| shared.writer.close());
        run_caught(&|| shared.stopped.set());
    }
}
