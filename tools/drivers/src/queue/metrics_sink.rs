//! A metrics sink that converts each report to the type of the model, and records it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use flyball_workqueue::{AddErrorKind, LeaseOutcome, QueueMetrics, QueueStats};
use testkit::queue_answers::{Ending, Read, Report};

use crate::queue::model_answers::{nanos, reason};

/// A sink for one queue. All clones record into the same list.
#[derive(Clone, Debug, Default)]
pub struct Reports(Arc<Mutex<Vec<Report>>>);

impl Reports {
    /// Removes and returns the reports that were recorded since the last call.
    pub fn take(&self) -> Vec<Report> {
        std::mem::take(&mut self.0.lock().expect("the lock is not poisoned"))
    }

    fn record(&self, report: Report) {
        self.0.lock().expect("the lock is not poisoned").push(report);
    }
}

impl QueueMetrics for Reports {
    fn dequeued(&self, queued: Duration, delayed: bool) {
        self.record(Report::HandedOut { queued: nanos(queued), delayed });
    }

    fn lease_ended(&self, how: LeaseOutcome, worked: Duration) {
        let how = match how {
            LeaseOutcome::Done | LeaseOutcome::DoneAndRequeueAfter(_) => Ending::Done,
            LeaseOutcome::Succeeded => Ending::Succeed,
            LeaseOutcome::SucceededAndRequeueAfter(_) => Ending::RequeueAfter(Duration::ZERO),
            LeaseOutcome::Failed { .. } => Ending::Retry,
            LeaseOutcome::Dropped => Ending::Dropped,
            how => panic!("unknown to the model: {how:?}"),
        };
        self.record(Report::Ended(how, nanos(worked)));
    }

    fn failure_counted(&self) {
        self.record(Report::Failed);
    }

    fn gave_up(&self, failures: u32) {
        self.record(Report::GaveUp(failures));
    }

    fn add_refused(&self, why: AddErrorKind) {
        self.record(Report::Refused(reason(why)));
    }

    fn lease_overdue(&self, age: Duration) {
        self.record(Report::Overdue(nanos(age)));
    }
}

/// Removes the delay from the model's report of a lease end, because the metrics of a queue do not contain the delay.
pub(crate) fn without_delay(report: Report) -> Report {
    match report {
        Report::Ended(Ending::RequeueAfter(_), worked) => {
            Report::Ended(Ending::RequeueAfter(Duration::ZERO), worked)
        }
        Report::Ended(Ending::DoneAfter(_), worked) => Report::Ended(Ending::Done, worked),
        Report::Ended(Ending::RetryNoSooner(_), worked) => Report::Ended(Ending::Retry, worked),
        report => report,
    }
}

pub(crate) fn read(stats: QueueStats) -> Read {
    Read {
        adds: stats.adds,
        delays: stats.delayed_adds,
        depth: stats.depth(),
        waiting: stats.waiting + stats.leased_waiting,
        leased: stats.leased,
        unfinished: nanos(stats.unfinished_work),
        longest: nanos(stats.oldest_lease.unwrap_or_default()),
        oldest_ready: nanos(stats.oldest_ready.unwrap_or_default()),
        room: stats.capacity_left,
    }
}
