//! PURE. The outcome of a lease as the value of a label.

use flyball_workqueue::LeaseOutcome;

/// Returns the value of the label `outcome`. All requeues have the same value, whatever their delay is.
pub(super) fn outcome_label(outcome: LeaseOutcome) -> &'static str {
    match outcome {
        LeaseOutcome::Done | LeaseOutcome::DoneAndRequeueAfter(_) => "done",
        LeaseOutcome::Succeeded => "succeeded",
        LeaseOutcome::SucceededAndRequeueAfter(_) => "requeued",
        LeaseOutcome::Failed { .. } => "failed",
        LeaseOutcome::Dropped => "dropped",
        // Outcomes that are not reported, or that a later version of flyball-workqueue adds, have no series.
        _ => "other",
    }
}
