//! A metrics sink that records each report as the model's type.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use flyball_workqueue::{AddErrorKind, LeaseOutcome, QueueMetrics, QueueStats};
use testkit::queue_answers::{Ending, Read, Told};

use crate::queue::model_answers::{nanos, reason};

/// A sink for one queue; clones write into the same list.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Vec<Told>>>);

impl Notes {
    /// Takes the reports since the last call.
    pub fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().expect("the lock is not poisoned"))
    }

    fn note(&self, told: Told) {
        self.0.lock().expect("the lock is not poisoned").push(told);
    }
}

impl QueueMetrics for Notes {
    fn dequeued(&self, queued: Duration, delayed: bool) {
        self.note(Told::HandedOut { queued: nanos(queued), delayed });
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
        self.note(Told::Ended(how, nanos(worked)));
    }

    fn failure_counted(&self) {
        self.note(Told::Failed);
    }

    fn gave_up(&self, failures: u32) {
        self.note(Told::GaveUp(failures));
    }

    fn add_refused(&self, why: AddErrorKind) {
        self.note(Told::Refused(reason(why)));
    }

    fn lease_overdue(&self, age: Duration) {
        self.note(Told::Overdue(nanos(age)));
    }
}

/// The model's report of an ended lease, without the delay, which a queue does not report.
pub(crate) fn as_told(told: Told) -> Told {
    match told {
        Told::Ended(Ending::RequeueAfter(_), worked) => {
            Told::Ended(Ending::RequeueAfter(Duration::ZERO), worked)
        }
        Told::Ended(Ending::DoneAfter(_), worked) => Told::Ended(Ending::Done, worked),
        Told::Ended(Ending::RetryNoSooner(_), worked) => Told::Ended(Ending::Retry, worked),
        told => told,
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
