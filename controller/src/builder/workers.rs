//! EDGE. How many workers there are.
//!
//! Cancel safety: nothing here waits.

use std::ops::RangeInclusive;
use std::time::Duration;

use flyball_workqueue::{Key, Order, QueueLimiter, SupportsAsync, SupportsDelays};

use crate::Controller;

/// How many workers there are.
impl<K, O, L, T> Controller<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: SupportsAsync + SupportsDelays,
{
    /// How many keys are worked on at once. 1 by default.
    pub fn workers(self, workers: usize) -> Self {
        self.workers_between(workers..=workers)
    }

    /// How many keys are worked on at once, at least and at most: as long as all workers are busy another one comes, up to the upper
    /// bound, and one that has had nothing to do [for a while](Self::worker_idle_timeout) goes, down to the lower one.
    ///
    /// So a key waits for a worker only while there are as many as there may be. Each is a task, cheap to start; the bound is
    /// for what reconciles use. [`ControllerMetrics`](crate::ControllerMetrics) reports those that start and stop.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().timer(TokioTimer::current()).build();
    /// # queue.add_many(0..100);
    /// # queue.shut_down();
    /// let report = Controller::new(queue)
    ///     .workers_between(1..=16)
    ///     .worker_idle_timeout(Duration::from_secs(60))
    ///     .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
    ///     .await?;
    /// # assert_eq!(report.reconciles, 100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn workers_between(mut self, workers: RangeInclusive<usize>) -> Self {
        (self.setup.config.settings.workers, self.setup.config.settings.max_workers) =
            (*workers.start(), Some(*workers.end()));
        self
    }

    /// How long a worker stays that has nothing to do and is one more than there have to be: 10 s by default.
    pub fn worker_idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.setup.config.settings.worker_idle_timeout = idle_timeout;
        self
    }
}
