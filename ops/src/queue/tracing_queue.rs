//! EDGE. The metrics of a queue, as events of `tracing`.
//!
//! Cancel safety: nothing here waits.

use std::time::Duration;

use super::outcome_label::outcome_label;
use flyball_workqueue::{AddErrorKind, LeaseOutcome, QueueMetrics};
use tracing::{debug, trace, warn};

/// Reports the metrics of one queue as [`tracing`] events, with the target `flyball_workqueue` and the queue's name in the
/// field `queue`.
///
/// | level | events |
/// |---|---|
/// | `TRACE` | keys dequeued, leases that ended without a failure |
/// | `DEBUG` | leases that failed, failures that the limiter counted |
/// | `WARN` | keys given up, adds refused, overdue leases |
///
/// Events do not contain the key. Log the key in the worker, which can read it from the lease.
///
/// # Examples
/// ```
/// use flyball_ops::TracingQueue;
/// use flyball_workqueue::Queue;
///
/// let queue = Queue::builder().metrics(TracingQueue::new("pods")).build();
/// queue.add("a")?;
/// queue.try_get()?.retry(); // DEBUG flyball_workqueue: a lease failed queue="pods" dropped=false worked_seconds=…
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TracingQueue {
    queue: String,
}

const TARGET: &str = "flyball_workqueue";

impl TracingQueue {
    /// Creates the sink for a queue with this name.
    #[must_use]
    pub fn new(queue: impl Into<String>) -> Self {
        Self { queue: queue.into() }
    }
}

impl QueueMetrics for TracingQueue {
    fn dequeued(&self, queued: Duration, delayed: bool) {
        let queued_seconds = queued.as_secs_f64();
        trace!(target: TARGET, queue = self.queue, queued_seconds, delayed, "a key was handed out");
    }

    fn lease_ended(&self, outcome: LeaseOutcome, work_duration: Duration) {
        let worked_seconds = work_duration.as_secs_f64();
        if outcome.is_failure() {
            let dropped = outcome == LeaseOutcome::Dropped;
            debug!(target: TARGET, queue = self.queue, dropped, worked_seconds, "a lease failed");
        } else {
            let outcome = outcome_label(outcome);
            trace!(target: TARGET, queue = self.queue, outcome, worked_seconds, "a lease ended");
        }
    }

    fn failure_counted(&self) {
        debug!(target: TARGET, queue = self.queue, "a failure was counted");
    }

    fn gave_up(&self, failures: u32) {
        warn!(target: TARGET, queue = self.queue, failures, "a key was given up");
    }

    fn add_refused(&self, reason: AddErrorKind) {
        warn!(target: TARGET, queue = self.queue, %reason, "an add was refused");
    }

    fn lease_overdue(&self, age: Duration) {
        let age_seconds = age.as_secs_f64();
        warn!(target: TARGET, queue = self.queue, age_seconds, "a lease is overdue");
    }
}
