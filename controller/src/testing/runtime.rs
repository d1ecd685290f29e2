//! EDGE. Simulated tasks and timeouts of a controller.
//!
//! Cancel safety: as required by the trait `Runtime`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use flyball_sync::Clock;

use super::scheduler::Scheduler;
use super::simulated_time::SimulatedTime;
use crate::run::runtime::{Runtime, Tasks};

#[derive(Clone)]
pub(super) struct Simulated(pub(super) Arc<Scheduler>);

impl Runtime for Simulated {
    type Tasks = SimulatedTasks;

    fn tasks(&self) -> SimulatedTasks {
        SimulatedTasks { scheduler: self.0.clone(), ids: Vec::new() }
    }

    async fn timeout<F>(&self, limit: Duration, future: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send,
    {
        let (mut future, mut late) =
            (pin!(future), pin!(SimulatedTime::new(self.0.clock.clone()).sleep(limit)));
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => late.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.clock.now().get())
    }

    async fn yield_now(&self) {
        // Yields at random. On tokio, a task yields here only when its cooperative budget is used up.
        if self.0.random() % 2 == 0 {
            SimulatedTime::new(self.0.clock.clone()).sleep(Duration::ZERO).await;
        }
    }
}

pub(super) struct SimulatedTasks {
    scheduler: Arc<Scheduler>,
    /// The ids of the tasks that were not joined yet.
    ids: Vec<u64>,
}

impl Tasks for SimulatedTasks {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.ids.push(self.scheduler.spawn(Box::pin(task)));
    }

    fn abort_all(&mut self) {
        self.ids.iter().for_each(|id| self.scheduler.abort(*id));
    }

    async fn join_next(&mut self) -> bool {
        if self.ids.is_empty() {
            return false;
        }
        let over = poll_fn(|cx| self.scheduler.poll_finished(&self.ids, cx)).await;
        self.ids.remove(over);
        true
    }
}

impl Drop for SimulatedTasks {
    fn drop(&mut self) {
        self.abort_all();
    }
}
