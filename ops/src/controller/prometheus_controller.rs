//! EDGE. The metrics of one controller in a registry of `prometheus-client`.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::{ControllerMetrics, FailureClass, ReconcileOutcome};

use super::series::{MaxWorkers, Series};

/// The metrics of one controller in a [`PrometheusControllers`](crate::PrometheusControllers).
///
/// Pass it to [`Controller::metrics`](flyball_controller::Controller::metrics).
///
/// # Examples
/// ```
/// use flyball_controller::{Controller, TokioTimer};
/// use flyball_ops::{PrometheusController, PrometheusControllers};
/// use flyball_workqueue::Queue;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let controllers = PrometheusControllers::new(); // its clone is in the registry
/// let pods: PrometheusController = controllers.controller("pods");
/// let queue = Queue::<u32>::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
/// let controller = Controller::new(queue).metrics(pods);
/// # }
/// ```
pub struct PrometheusController {
    series: Arc<Series>,
    /// The maximum worker counts that were reported to this sink; subtracted from the series when the sink is dropped.
    max_workers: MaxWorkers,
}

impl PrometheusController {
    pub(super) fn new(series: Arc<Series>) -> Self {
        Self { series, max_workers: MaxWorkers::default() }
    }
}

impl ControllerMetrics for PrometheusController {
    fn max_workers(&self, workers: usize) {
        self.max_workers.add(workers);
        self.series.max_workers.add(workers);
    }

    fn worker_started(&self) {
        self.series.workers.inc();
    }

    fn worker_stopped(&self) {
        self.series.workers.dec();
    }

    fn reconcile_started(&self) {
        self.series.active.inc();
    }

    fn batch_started(&self, _: usize) {
        self.series.batches.inc();
    }

    fn reconcile_ended(&self, outcome: ReconcileOutcome, took: Duration) {
        let own = &*self.series;
        own.active.dec();
        own.took.observe(took.as_secs_f64());
        match outcome.class() {
            Some(class) => {
                own.errors.inc();
                own.failures.get(class).inc();
            }
            None if outcome == ReconcileOutcome::Requeued => _ = own.requeues.inc(),
            None => _ = own.successes.inc(),
        }
        match outcome {
            ReconcileOutcome::Panicked(_) => _ = own.panics.inc(),
            ReconcileOutcome::TimedOut(_) => _ = own.timeouts.inc(),
            _ => {}
        }
    }

    fn reconcile_dropped(&self) {
        self.series.active.dec();
        self.series.dropped.inc();
    }

    fn retry_succeeded(&self, _: u32) {
        self.series.successful_retries.inc();
    }

    fn gave_up(&self, class: FailureClass) {
        self.series.given_up.get(class).inc();
    }
}

impl Drop for PrometheusController {
    fn drop(&mut self) {
        self.series.max_workers.subtract(&self.max_workers);
    }
}

impl fmt::Debug for PrometheusController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrometheusController")
            .field("controller", &self.series.controller)
            .finish_non_exhaustive()
    }
}
