//! PURE. The outcomes of a lease.

use std::time::Duration;

/// The outcome of a lease. Each variant except `Dropped` names the methods of [`Lease`](crate::Lease) that end a lease with it.
///
/// A worker passes the outcome to the lease, and the queue reports the outcome to its [`QueueMetrics`](crate::QueueMetrics).
///
/// # Examples
/// A function that chooses the outcome without access to the lease:
/// ```
/// use flyball_workqueue::LeaseOutcome;
/// use std::io::{Error, ErrorKind};
/// use std::time::Duration;
///
/// fn outcome(result: Result<(), Error>) -> LeaseOutcome {
///     match result {
///         Ok(()) => LeaseOutcome::Succeeded,
///         Err(error) if error.kind() == ErrorKind::AlreadyExists => LeaseOutcome::Done,
///         Err(_) => LeaseOutcome::Failed { at_least: Duration::from_secs(1) },
///     }
/// }
///
/// assert!(outcome(Err(ErrorKind::TimedOut.into())).is_failure());
/// assert!(!outcome(Err(ErrorKind::AlreadyExists.into())).is_failure());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseOutcome {
    /// [`done`](crate::Lease::done): neither success nor failure; the failure count stays as it is.
    Done,
    /// [`done_and_requeue_after`](crate::Lease::done_and_requeue_after).
    DoneAndRequeueAfter(Duration),
    /// [`succeed`](crate::Lease::succeed): the failures of the key are forgotten.
    Succeeded,
    /// [`succeed_and_requeue_after`](crate::Lease::succeed_and_requeue_after).
    SucceededAndRequeueAfter(Duration),
    /// A failure: the outcome of [`retry`](crate::Lease::retry) if `at_least` is zero, otherwise of
    /// [`retry_after_at_least`](crate::Lease::retry_after_at_least).
    Failed {
        /// The minimum time before the key is Ready again.
        at_least: Duration,
    },
    /// The lease was dropped without an outcome, because of a panic, a timeout or a dropped future. Counts as a
    /// failure.
    Dropped,
    /// [`requeue`](crate::Lease::requeue): the worker did not start to work on the key. This outcome is not reported to
    /// metrics.
    Requeued,
}

impl LeaseOutcome {
    /// Returns whether the outcome is a failure.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Dropped)
    }
}
