//! EDGE. What a controller runs on: tasks that can be aborted and joined, and time.
//!
//! It is a trait so that the same controller runs on tokio and in a simulation. Nothing else in this crate may spawn,
//! sleep or yield: what is simulated is what ships.
//!
//! Cancel safety: dropping [`Tasks`] aborts all of them, as tokio's [`JoinSet`] does; dropping a future of
//! [`Tasks::join_next`] only stops waiting.

use std::future::Future;
use std::panic::resume_unwind;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet, coop};
use tokio::time::Instant;

/// What a controller runs on.
pub(crate) trait Runtime: Clone + Send + Sync + 'static {
    type Tasks: Tasks;

    /// No task yet.
    fn tasks(&self) -> Self::Tasks;

    /// The output of `future`, or `None` when it takes longer than `limit`. It is polled before time is looked at.
    fn timeout<F>(&self, limit: Duration, future: F) -> impl Future<Output = Option<F::Output>> + Send
    where
        F: Future<Output: Send> + Send;

    /// How much time has passed since some moment.
    fn now(&self) -> Duration;

    /// Lets others have their turn, for a task that may always have something to do.
    fn yield_now(&self) -> impl Future<Output = ()> + Send;
}

/// A set of tasks, which are dropped with it.
pub(crate) trait Tasks: Send {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static);

    /// Drops all of them, where they next await something.
    fn abort_all(&mut self);

    /// Waits until a task has ended or was dropped; `false` when there is none. A panic of the task goes on here.
    fn join_next(&mut self) -> impl Future<Output = bool> + Send;
}

/// The tokio runtime this is polled in, since it was made.
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
