//! EDGE. The settings for workers: how many workers run at once.
//!
//! Cancel safety: nothing here waits.

use std::time::Duration;

use flyball_workqueue::{Key, Order, QueueLimiter, Timer};

use crate::{Controller, Workers};

/// Settings for workers: how many workers run at once.
impl<K, O, L, T> Controller<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    /// Sets how many keys (with [`run_batches`](Self::run_batches), how many batches) are reconciled at once: a number, or a range from a minimum to a
    /// maximum. The default is 1.
    ///
    /// With a range, one more worker is started whenever all running workers are busy, up to the maximum. A worker that was idle
    /// [for some time](Self::worker_idle_timeout) stops, unless no other worker is idle or only the minimum is running.
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
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// # queue.add_many(0..100);
    /// # queue.shut_down();
    /// let report = Controller::new(queue)
    ///     .workers(1..=16)
    ///     .worker_idle_timeout(Duration::from_secs(60))
    ///     .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
    ///     .await?;
    /// # assert_eq!(report.reconciles, 100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn workers(mut self, workers: impl Into<Workers>) -> Self {
        self.setup.config.settings.workers = workers.into();
        self
    }

    /// Sets how long a worker stays idle before it stops, if there are more workers than the minimum. The default is 10 s.
    pub fn worker_idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.setup.config.settings.worker_idle_timeout = idle_timeout;
        self
    }
}
