//! EDGE. Wakes all waiters when a run future completes, is dropped or panics.
//!
//! Cancel safety: the waiters are woken in a destructor, so they are also woken if the future is dropped, at whatever point.

use std::future::poll_fn;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use super::Shared;
use crate::InformerState;

/// Signals the end of the informer when it is dropped, that is, after the run future has completed or panicked, or was dropped.
pub(super) struct NotifyOnExit<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    shared: Arc<Shared<K, V>>,
    /// Whether the future is being polled. If this is still true when the value is dropped, the poll panicked.
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

    /// Returns the run future, which polls `task`. Dropping the run future signals the end of the informer, even if the future was never polled.
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
        // Each of these calls runs wakers, and a waker may panic. The panic is caught for two reasons: the next call must still run, and if the
        // thread is already unwinding, a second panic that is not caught would abort the process.
        let run_caught = |wake: &dyn Fn()| drop(catch_unwind(AssertUnwindSafe(wake)));
        run_caught(&|| shared.stop.exited());
        run_caught(&|| shared.writer.close());
        run_caught(&|| shared.stopped.set());
    }
}
