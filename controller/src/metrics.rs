//! EDGE. The metrics of a controller: a trait to which the controller reports each reconcile.
//!
//! Cancel safety: nothing here waits. If a reconcile is dropped with its worker, a guard reports it as dropped.

use std::sync::Arc;
use std::time::Duration;

use crate::{FailureClass, ReconcileOutcome};
use flyball_sync::panics;

/// Receives the metrics of a controller; pass an implementation to [`Controller::metrics`](crate::Controller::metrics).
///
/// Every method has an empty default body; implement only the methods that you need. The workers call the methods, so the methods must be quick. A
/// panic in a method is caught and has no effect, except that it is [counted](crate::RunReport::callback_panics); panics in `worker_stopped` and
/// `reconcile_dropped` are not counted. Keys are not reported, because a metric labelled by key would have one series per key.
///
/// The depth of the queue and the waiting times of keys are reported by the queue's own [metrics](flyball_workqueue::QueueBuilder::metrics).
///
/// # Examples
/// Counts the reconciles of each outcome, and measures the slowest one:
/// ```
/// # use flyball_controller::{Action, Controller, ControllerMetrics, ReconcileOutcome};
/// # use flyball_ratelimit::Exponential;
/// # use flyball_controller::TokioTimer;
/// # use flyball_workqueue::Queue;
/// # use std::collections::BTreeMap;
/// # use std::sync::{Arc, Mutex};
/// # use std::time::Duration;
/// #[derive(Default)]
/// struct Seen(Mutex<BTreeMap<&'static str, (u32, Duration)>>);
///
/// impl ControllerMetrics for Seen {
///     fn reconcile_ended(&self, outcome: ReconcileOutcome, took: Duration) {
///         let mut seen = self.0.lock().unwrap();
///         let (count, slowest) = seen.entry(outcome.label()).or_default();
///         (*count, *slowest) = (*count + 1, took.max(*slowest));
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
/// # let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
/// let seen = Arc::new(Seen::default());
/// queue.add_many([1, 2, 3]);
/// queue.shut_down();
/// Controller::new(queue)
///     .metrics(seen.clone())
///     .run(|key, _| async move { if key == 3 { Err("no luck") } else { Ok(Action::await_change()) } })
///     .await?;
/// let seen = seen.0.lock().unwrap();
/// assert_eq!((seen["success"].0, seen["error"].0), (2, 1));
/// # Ok(())
/// # }
/// ```
///
/// Collects all reports as lines:
/// ```
/// use flyball_controller::testing::Simulation;
/// use flyball_controller::{Action, Controller, ControllerMetrics, FailureClass, ReconcileOutcome};
/// use flyball_ratelimit::Exponential;
/// use flyball_workqueue::Queue;
/// use std::sync::{Arc, Mutex, atomic::{AtomicBool, Ordering}};
/// use std::time::Duration;
///
/// #[derive(Default)]
/// struct Lines(Mutex<Vec<String>>);
///
/// impl Lines {
///     fn add(&self, line: impl Into<String>) {
///         self.0.lock().unwrap().push(line.into());
///     }
/// }
///
/// impl ControllerMetrics for Lines {
///     fn max_workers(&self, workers: usize) { self.add(format!("at most {workers}")) }
///     fn worker_started(&self) { self.add("worker") }
///     fn worker_stopped(&self) { self.add("worker stopped") }
///     fn batch_started(&self, keys: usize) { self.add(format!("batch of {keys}")) }
///     fn reconcile_started(&self) { self.add("start") }
///     fn reconcile_ended(&self, outcome: ReconcileOutcome, _: Duration) { self.add(outcome.label()) }
///     fn reconcile_dropped(&self) { self.add("dropped") }
///     fn retry_succeeded(&self, failures: u32) { self.add(format!("well after {failures}")) }
///     fn gave_up(&self, class: FailureClass) { self.add(format!("gave up: {class:?}")) }
/// }
///
/// let mut sim = Simulation::new(1);
/// let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
/// let queue = Queue::builder().limiter(backoff).timer(sim.timer()).build();
/// queue.add("a")?;
/// let (lines, failed) = (Arc::new(Lines::default()), AtomicBool::new(false));
/// sim.run(Controller::new(queue).metrics(lines.clone()), move |_, _| {
///     let again = failed.swap(true, Ordering::Relaxed);
///     async move { if again { Ok(Action::await_change()) } else { Err("no luck") } }
/// });
/// sim.advance(Duration::from_millis(5));
/// let mut lines = lines.0.lock().unwrap();
/// lines.sort();
/// assert_eq!(*lines, ["at most 1", "error", "start", "start", "success", "well after 1", "worker"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Pass the metrics of a queue to the queue. The controller does not accept them, so this does not compile:
/// ```compile_fail,E0277
/// # use flyball_controller::{Controller, TokioTimer};
/// # use flyball_workqueue::{Queue, QueueMetrics};
/// struct QueueSink;
/// impl QueueMetrics for QueueSink {}
/// # let queue = Queue::<u32>::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
/// let controller = Controller::new(queue).metrics(QueueSink);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sink for the metrics of a controller",
    note = "implement `ControllerMetrics`, or use the sink that `flyball_ops::PrometheusControllers::controller` returns",
    note = "metrics of a queue are given to the queue: `Queue::builder().metrics(..)`"
)]
pub trait ControllerMetrics: Send + Sync + 'static {
    /// The controller starts, with this maximum number of workers: `usize::MAX` if it is unbounded. An implementation that adds up the maxima of several
    /// controllers must not overflow.
    fn max_workers(&self, workers: usize) {
        let _ = workers;
    }

    /// A worker starts, either at the start of the run or [because all other workers are busy](crate::ControllerConfig::workers).
    fn worker_started(&self) {}

    /// A worker stopped, because it was idle for longer than its timeout, or because the controller ends.
    fn worker_stopped(&self) {}

    /// A reconcile starts.
    fn reconcile_started(&self) {}

    /// A batch of `keys` keys starts. Each key is also reported as a reconcile of its own.
    fn batch_started(&self, keys: usize) {
        let _ = keys;
    }

    /// A reconcile has ended; `took` is the time since its key was dequeued. After a failure, the lease of the key ends before this call. After a
    /// success, the lease ends right after this call.
    fn reconcile_ended(&self, outcome: ReconcileOutcome, took: Duration) {
        let _ = (outcome, took);
    }

    /// A reconcile was dropped with its worker, because the controller was dropped, or because the reconcile still ran when
    /// [`abort_after`](crate::ControllerConfig::abort_after) was over.
    fn reconcile_dropped(&self) {}

    /// A key succeeded after `failures` failures: those that the queue's limiter has counted, and the counted conflicts. Called before the lease of
    /// the key ends.
    fn retry_succeeded(&self, failures: u32) {
        let _ = failures;
    }

    /// A key was given up after a failure of the class `class`. Called before the lease of the key ends.
    fn gave_up(&self, class: FailureClass) {
        let _ = class;
    }
}

/// Forwards all reports to the inner value, so that the caller can keep a handle to it.
impl<M: ControllerMetrics + ?Sized> ControllerMetrics for Arc<M> {
    fn max_workers(&self, workers: usize) {
        (**self).max_workers(workers);
    }

    fn worker_started(&self) {
        (**self).worker_started();
    }

    fn worker_stopped(&self) {
        (**self).worker_stopped();
    }

    fn reconcile_started(&self) {
        (**self).reconcile_started();
    }

    fn batch_started(&self, keys: usize) {
        (**self).batch_started(keys);
    }

    fn reconcile_ended(&self, outcome: ReconcileOutcome, took: Duration) {
        (**self).reconcile_ended(outcome, took);
    }

    fn reconcile_dropped(&self) {
        (**self).reconcile_dropped();
    }

    fn retry_succeeded(&self, failures: u32) {
        (**self).retry_succeeded(failures);
    }

    fn gave_up(&self, class: FailureClass) {
        (**self).gave_up(class);
    }
}

/// When dropped, reports that a worker has stopped. It is created when the start of the worker is reported.
pub(crate) struct WorkerMetricsGuard<'a>(pub(crate) Option<&'a dyn ControllerMetrics>);

impl Drop for WorkerMetricsGuard<'_> {
    fn drop(&mut self) {
        if let Some(sink) = self.0 {
            // If `worker_stopped` panics, the panic is not counted, because the worker has already ended.
            panics::caught(|| sink.worker_stopped());
        }
    }
}

/// When dropped, reports that a reconcile was dropped, unless the guard was [disarmed](Self::disarm).
pub(crate) struct ReconcileMetricsGuard<'a>(Option<&'a dyn ControllerMetrics>);

impl<'a> ReconcileMetricsGuard<'a> {
    pub(crate) fn new(sink: Option<&'a dyn ControllerMetrics>) -> Self {
        Self(sink)
    }

    /// Disables the report on drop, because the end of the reconcile is reported elsewhere.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for ReconcileMetricsGuard<'_> {
    fn drop(&mut self) {
        if let Some(sink) = self.0 {
            // If `reconcile_dropped` panics, the panic is not counted, because the report of the run may already be complete.
            panics::caught(|| sink.reconcile_dropped());
        }
    }
}
