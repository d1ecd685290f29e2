//! EDGE. The handle of a simulated task.
//!
//! Cancel safety: dropping a handle does not abort the task.

use std::fmt;
use std::sync::Arc;

use flyball_sync::locks::Mutex;

use super::scheduler::Scheduler;

/// A handle to a task of a [`Simulation`](super::Simulation). The task continues when the handle is dropped.
pub struct SimulatedTask<T> {
    scheduler: Arc<Scheduler>,
    id: u64,
    output: Arc<Mutex<Option<T>>>,
}

impl<T> SimulatedTask<T> {
    pub(super) fn new(scheduler: Arc<Scheduler>, id: u64, output: Arc<Mutex<Option<T>>>) -> Self {
        Self { scheduler, id, output }
    }

    /// Returns whether the task has ended or was dropped.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.scheduler.is_finished(self.id)
    }

    /// Takes the output of the task. Returns `None` if the task has not ended, or if a previous call has returned the output.
    #[must_use]
    pub fn take_output(&self) -> Option<T> {
        self.output.lock().take()
    }

    /// Aborts the task: its future is dropped at its next step.
    ///
    /// # Examples
    /// ```
    /// use flyball_controller::testing::Simulation;
    ///
    /// let mut sim = Simulation::new(1);
    /// let task = sim.spawn(std::future::pending::<()>());
    /// task.abort();
    /// sim.run_until_stalled();
    /// assert!(task.is_finished() && task.take_output().is_none());
    /// ```
    pub fn abort(&self) {
        self.scheduler.abort(self.id);
    }
}

impl<T> fmt::Debug for SimulatedTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedTask")
            .field("id", &self.id)
            .field("is_finished", &self.is_finished())
            .finish()
    }
}
