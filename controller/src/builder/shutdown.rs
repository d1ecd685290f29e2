//! EDGE. The shutdown signal of a controller.
//!
//! Cancel safety: nothing here waits.

use std::future::Future;

use flyball_workqueue::{Key, Order, QueueLimiter, Timer};

use crate::Controller;
use futures_util::FutureExt;
use futures_util::future::select;

/// The shutdown signal.
impl<K, O, L, T> Controller<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    /// Shuts down when `signal` completes. Running reconciles finish. No further reconcile starts, and queued keys are left
    /// in the queue, unless the controller [drains](crate::ControllerConfig::drain_on_shutdown) the queue. Of several signals, the first one shuts down.
    ///
    /// | time after the signal | default | effect |
    /// |---|---|---|
    /// | immediately | | changes are no longer mapped; [`Context::shutdown_started`](crate::Context::shutdown_started) completes |
    /// | after [`shutdown_grace`](crate::ControllerConfig::shutdown_grace) | 20 s | [`Context::cancelled`](crate::Context::cancelled) completes; a drain ends |
    /// | after [`abort_after`](crate::ControllerConfig::abort_after) more | 5 s | reconciles that still run are dropped at an await point |
    ///
    /// The run does not wait for these times to pass: it ends as soon as no reconcile is running and the drain, if there is one, is complete.
    /// [`RunReport::leftovers`](crate::RunReport::leftovers) holds the keys that were left in the queue, and the keys of the reconciles that were
    /// dropped.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, ControllerConfig, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// use std::time::Duration;
    /// use tokio::time::sleep;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// queue.add_many(["polite", "deaf"]);
    /// let report = Controller::new(queue)
    ///     .with_config(ControllerConfig { workers: 2.into(), ..ControllerConfig::default() })
    ///     .graceful_shutdown_on(sleep(Duration::from_secs(1))) // in production a signal
    ///     .run(|key, context| async move {
    ///         tokio::select! {
    ///             () = sleep(Duration::from_secs(3600)) => {}
    ///             () = context.cancelled(), if key == "polite" => {}
    ///         }
    ///         Ok::<_, String>(Action::await_change())
    ///     })
    ///     .await?;
    /// assert_eq!(report.reconciles, 1);
    /// assert_eq!(report.leftovers.leased, ["deaf"]); // dropped after 26 s
    /// # Ok(())
    /// # }
    /// ```
    pub fn graceful_shutdown_on(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.setup.stop = Box::pin(select(self.setup.stop, Box::pin(signal)).map(drop));
        self
    }
}
