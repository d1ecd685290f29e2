//! PURE. How a lease ends.

use std::time::Duration;

/// How a lease ends, in the words of its methods.
///
/// A worker passes it to the [`Lease`](crate::Lease), and the queue reports it to its [`QueueMetrics`](crate::QueueMetrics).
///
/// # Examples
/// A function that decides, apart from the lease:
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
    /// [`done`](crate::Lease::done): it says nothing about success, and failures stay counted.
    Done,
    /// [`done_and_requeue_after`](crate::Lease::done_and_requeue_after).
    DoneAndRequeueAfter(Duration),
    /// [`succeed`](crate::Lease::succeed): failures are forgotten.
    Succeeded,
    /// [`succeed_and_requeue_after`](crate::Lease::succeed_and_requeue_after).
    SucceededAndRequeueAfter(Duration),
    /// [`retry`](crate::Lease::retry) where it is zero, else [`retry_after_at_least`](crate::Lease::retry_after_at_least): a failure.
    Failed {
        /// The key comes back no sooner than after this.
        at_least: Duration,
    },
    /// The lease was dropped without an outcome: by a panic, a timeout, or a dropped future. Counts as a failure.
    Dropped,
    /// [`requeue`](crate::Lease::requeue): the work was not begun. It is not reported to metrics.
    Requeued,
}

impl LeaseOutcome {
    /// Whether it is a failure.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Dropped)
    }
}
