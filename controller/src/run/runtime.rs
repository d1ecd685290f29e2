//! EDGE. The runtime of a controller: its clock, and its tasks, which can be aborted and joined.
//!
//! `Runtime` is a trait so that the same controller runs on tokio and in a simulation. No other code in this crate may spawn,
//! sleep or yield, so that a simulation runs exactly the code that runs in production.
//!
//! Cancel safety: dropping [`Tasks`] aborts all tasks, as with tokio's [`JoinSet`]; dropping the future that [`Tasks::join_next`] returns only ends
//! the wait.

use std::future::Future;
use std::panic::resume_unwind;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet, coop};
use tokio::time::Instant;

/// The runtime of a controller.
pub(crate) trait Runtime: Clone + Send + Sync + 'static {
    type Tasks: Tasks;

    /// Returns an empty set of tasks.
    fn tasks(&self) -> Self::Tasks;

    /// Returns the output of `future`, or `None` if it takes longer than `limit`. The future is polled before the time is
    /// checked.
    fn timeout<F>(&self, limit: Duration, future: F) -> impl Future<Output = Option<F::Output>> + Send
    where
        F: Future<Output: Send> + Send;

    /// Returns the time that has passed since a fixed moment.
    fn now(&self) -> Duration;

    /// May yield to other tasks. Called in loops that might otherwise never yield.
    fn yield_now(&self) -> impl Future<Output = ()> + Send;
}

/// A set of tasks. Dropping the set aborts the tasks.
pub(crate) trait Tasks: Send {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static);

    /// Aborts all tasks: each is dropped at its next await point.
    fn abort_all(&mut self);

    /// Waits until a task has ended or was dropped; returns `false` if the set is empty. Propagates a panic of the task.
    fn join_next(&mut self) -> impl Future<Output = bool> + Send;
}

/// The current tokio runtime. The field is the time at which this value was created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokio(Instant);

impl Tokio {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Runtime for Tokio {
    type Tasks = JoinSet<()>;

    fn tasks(&self) -> JoinSet<()> {
        JoinSet::new()
    }

    async fn timeout<F>(&self, limit: Duration, future: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send,
    {
        tokio::time::timeout(limit, future).await.ok()
    }

    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    async fn yield_now(&self) {
        coop::consume_budget().await;
    }
}

impl Tasks for JoinSet<()> {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn(task);
    }

    fn abort_all(&mut self) {
        self.abort_all();
    }

    async fn join_next(&mut self) -> bool {
        let Some(joined) = self.join_next().await else { return false };
        if let Some(Ok(panic)) = joined.err().map(JoinError::try_into_panic) {
            resume_unwind(panic);
        }
        true
    }
}
