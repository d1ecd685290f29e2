//! EDGE. What a queue tells, as events of `tracing`.
//!
//! Cancel safety: nothing here waits.

use std::time::Duration;

use tracing::{debug, trace, warn};

use super::{Ended, Metrics};
use crate::error::AddErrorKind;

/// Tells what happens in a queue as events of `tracing`, under the target `flyball_workqueue` and with its name in the
/// field `queue`.
///
/// | level | what |
/// |---|---|
/// | `TRACE` | hand-outs, leases that ended well |
/// | `DEBUG` | leases that ended as a failure, failures that were counted |
/// | `WARN` | keys given up, adds refused, leases overdue |
///
/// No key is in them: a worker has it, and its span is the place for it.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Queue, Traced};
///
/// let queue = Queue::builder().metrics(Traced::new("pods")).build();
/// queue.add("a")?;
/// queue.try_get()?.retry(); // DEBUG flyball_workqueue: a lease failed queue="pods" dropped=false worked_seconds=…
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Traced {
    queue: String,
}

const TARGET: &str = "flyball_workqueue";

impl Traced {
    /// For a queue of this name.
    #[must_use]
    pub fn new(queue: impl Into<String>) -> Self {
        Self { queue: queue.into() }
    }
}

impl Metrics for Traced {
    fn handed_out(&self, queued: Duration, delayed: bool) {
        let queued_seconds = queued.as_secs_f64();
        trace!(target: TARGET, queue = self.queue, queued_seconds, delayed, "a key was handed out");
    }

    fn ended(&self, how: Ended, worked: Duration) {
        let worked_seconds = worked.as_secs_f64();
        if how.is_failure() {
            let dropped = how == Ended::Dropped;
            debug!(target: TARGET, queue = self.queue, dropped, worked_seconds, "a lease failed");
        } else {
            trace!(target: TARGET, queue = self.queue, outcome = ?how, worked_seconds, "a lease ended");
        }
    }

    fn failed(&self) {
        debug!(target: TARGET, queue = self.queue, "a failure was counted");
    }

    fn gave_up(&self, failures: u32) {
        warn!(target: TARGET, queue = self.queue, failures, "a key was given up");
    }

    fn refused(&self, reason: AddErrorKind) {
        warn!(target: TARGET, queue = self.queue, %reason, "an add was refused");
    }

    fn overdue(&self, age: Duration) {
        let age_seconds = age.as_secs_f64();
        warn!(target: TARGET, queue = self.queue, age_seconds, "a lease is overdue");
    }
}
