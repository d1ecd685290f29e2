//! PURE. The outcome of a lease as the value of a label.

use flyball_workqueue::LeaseOutcome;

/// The value of the label `outcome`. How long the key waits then is not in it.
pub(super) fn outcome_label(outcome: LeaseOutcome) -> &'static str {
    match outcome {
        LeaseOutcome::Done | LeaseOutcome::DoneAndRequeueAfter(_) => "done",
        LeaseOutcome::Succeeded => "succeeded",
        LeaseOutcome::SucceededAndRequeueAfter(_) => "requeued",
        LeaseOutcome::Failed { .. } => "failed",
        LeaseOutcome::Dropped => "dropped",
        // Not reported, or of a later version of flyball-workqueue: it has no series.
        _ => "other",
    }
}
