//! EDGE. The settings for workers: how many workers run at once.
//!
//! Cancel safety: nothing here waits.

use std::ops::RangeInclusive;
use std::time::Duration;

use flyball_workqueue::{Key, Order, QueueLimiter, Timer};

use crate::Controller;

/// Settings for workers: how many workers run at once.
impl<K, O, L, T> Controller<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    /// Sets how many keys (with [`run_batches`](Self::run_batches), how many batches) are reconciled at once. The default is 1.
    pub fn workers(self, workers: usize) -> Self {
        self.workers_between(workers..=workers)
    }

    /// Sets the minimum and maximum number of keys that are reconciled at once. Whenever all running workers are busy, one more worker is started, up
    /// to the maximum; a worker that was idle [for some time](Self::worker_idle_timeout) stops, unless no other worker is idle or only the minimum is
    /// running.
    ///
    /// A key waits for a worker only while the maximum number of workers is busy. Each worker is a task, which is cheap to
    /// start; the maximum limits the resources that reconciles use. [`ControllerMetrics`](crate::ControllerMetrics) reports
    /// when a worker starts or stops.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::Exponential::new(std::time::Duration::from_millis(5)..=std::time::Duration::from_secs(1000))).timer(TokioTimer::current()).build();
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

    /// Sets how long a worker stays idle before it stops, if there are more workers than the minimum. The default is 10 s.
    pub fn worker_idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.setup.config.settings.worker_idle_timeout = idle_timeout;
        self
    }
}
