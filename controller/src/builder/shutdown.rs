//! EDGE. The settings for shutdown: when a controller ends, and what happens to running reconciles and queued keys.
//!
//! Cancel safety: nothing here waits.

use std::future::Future;
use std::time::Duration;

use flyball_workqueue::{Key, Order, QueueLimiter, Timer};

use crate::Controller;

/// Settings for shutdown: when the controller ends, and what happens to running reconciles and queued keys.
impl<K, O, L, T> Controller<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    /// Shuts down when `signal` completes. Running reconciles finish. No further reconcile starts, and queued keys are left
    /// in the queue, unless the controller [drains](Self::drain_on_shutdown) the queue.
    ///
    /// | time after the signal | default | effect |
    /// |---|---|---|
    /// | immediately | | changes are no longer mapped; [`Context::shutdown_started`](crate::Context::shutdown_started) completes |
    /// | after [`shutdown_grace`](Self::shutdown_grace) | 20 s | [`Context::cancelled`](crate::Context::cancelled) completes; a drain ends |
    /// | after [`abort_after`](Self::abort_after) more | 5 s | reconciles that still run are dropped at an await point |
    ///
    /// The run does not wait for these times to pass: it ends as soon as no reconcile is running and the drain, if there is one, is complete.
    /// [`RunReport::leftovers`](crate::RunReport::leftovers) holds the keys that were left in the queue, and the keys of the reconciles that were
    /// dropped.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// use std::time::Duration;
    /// use tokio::time::sleep;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// queue.add_many(["polite", "deaf"]);
    /// let report = Controller::new(queue)
    ///     .workers(2)
    ///     .graceful_shutdown_on(sleep(Duration::from_secs(1))) // in production a signal
    ///     .shutdown_grace(Duration::from_secs(20))
    ///     .abort_after(Duration::from_secs(5))
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
        self.setup.stop = Box::pin(signal);
        self
    }

    /// Sets how long running reconciles, and a [drain](Self::drain_on_shutdown), may take at shutdown. After this
    /// time, reconciles that still run are [cancelled](crate::Context::cancelled), and no further reconcile starts.
    /// The default is 20 s; `Duration::MAX` means no limit.
    pub fn shutdown_grace(mut self, limit: Duration) -> Self {
        self.setup.config.settings.shutdown_grace = limit;
        self
    }

    /// Sets how long a reconcile that was [cancelled](crate::Context::cancelled) at shutdown may still run. After this time
    /// the reconcile is dropped at an await point, and its key is a [leftover](crate::RunReport::leftovers); a panic during
    /// the drop is caught. The default is 5 s.
    ///
    /// With the default [grace](Self::shutdown_grace) the shutdown takes at most 25 s, unless a reconcile blocks its thread. Kubernetes by default
    /// kills a pod 30 s after the signal.
    pub fn abort_after(mut self, limit: Duration) -> Self {
        self.setup.config.settings.abort_after = limit;
        self
    }

    /// Also reconciles the keys that are Ready at shutdown, and once more the leased keys that are dirty, within the [grace](Self::shutdown_grace).
    /// By default these keys are left in the queue, because the next controller lists all objects anyway.
    ///
    /// Retries and delayed keys are not reconciled. From the signal on, the queue rejects new keys. Open [batches](Self::run_batches) are closed
    /// immediately.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// use std::time::Duration;
    /// use tokio::time::sleep;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// queue.add_many(["a", "b", "c"]);
    /// let report = Controller::new(queue)
    ///     .graceful_shutdown_on(sleep(Duration::from_secs(1))) // while the first key is reconciled
    ///     .drain_on_shutdown()
    ///     .run(|_, _| async {
    ///         sleep(Duration::from_secs(5)).await;
    ///         Ok::<_, String>(Action::await_change())
    ///     })
    ///     .await?;
    /// assert_eq!((report.reconciles, report.leftovers.ready.len()), (3, 0)); // without it: 1 and 2
    /// # Ok(())
    /// # }
    /// ```
    pub fn drain_on_shutdown(mut self) -> Self {
        self.setup.config.settings.drain_on_shutdown = true;
        self
    }

    /// Ends the run without a signal once no work is left: every informer has stopped, the keys of all changes have been added, and the queue is idle
    /// (no retry and no delayed key is left).
    ///
    /// The run also waits for watches that are [added](crate::ControllerHandle::add_watch) while it runs. After the last watch is removed, the run
    /// has no informer to wait for. So to replace a watch, add the new watch before you remove the old one.
    ///
    /// Use this for jobs and tests. If the reconciles of a key always request a requeue, the run never ends.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, TokioTimer};
    /// # use flyball_informer_cache::testing::TestServer;
    /// # use flyball_informer_cache::{Informer, Schema, Version};
    /// # use flyball_workqueue::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let schema = Schema::new(|number: &u32| *number, |_| Version::ZERO);
    /// # let server = TestServer::new(schema, |_, _, _| {});
    /// # server.put(7);
    /// # server.put(8);
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// let numbers = Informer::builder(schema, server).start()?;
    /// numbers.synced().await?;
    /// numbers.shut_down(); // this job reconciles only the existing objects
    /// let report = Controller::new(queue)
    ///     .watches(&numbers, |change| *change.key())
    ///     .stop_when_idle()
    ///     .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
    ///     .await?;
    /// assert_eq!(report.reconciles, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop_when_idle(mut self) -> Self {
        self.setup.config.stop_when_idle = true;
        self
    }
}
