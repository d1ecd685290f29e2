//! PURE. The outcomes of a lease.

use std::time::Duration;

/// The outcome of a lease.
///
/// The methods of [`Lease`](crate::Lease) end a lease with the frequent ones; [`Lease::end`](crate::Lease::end) takes any. After a shutdown, a key that
/// would be Ready again later becomes a leftover instead, except while [a drain](crate::DrainOptions::serve_waiting) serves delayed keys.
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
    /// Neither success nor failure, such as a write conflict: the key is Ready again after this delay, and immediately, at the tail, if the delay is zero.
    DoneAndRequeueAfter(Duration),
    /// [`succeed`](crate::Lease::succeed): the failures of the key are forgotten.
    Succeeded,
    /// [`requeue_after`](crate::Lease::requeue_after): the failures of the key are forgotten, and it is Ready again after this delay.
    SucceededAndRequeueAfter(Duration),
    /// [`retry`](crate::Lease::retry): a failure. The key waits for the longer of `at_least` and the limiter's delay.
    Failed {
        /// The minimum time before the key is Ready again, for example a server's `Retry-After`. It does not influence the limiter's delay. An add still
        /// makes the key Ready immediately, unless backoff is [strict](crate::QueueBuilder::strict_backoff).
        at_least: Duration,
    },
    /// The lease was dropped without an outcome, because of a panic, a timeout or a dropped future. Counts as a
    /// failure.
    Dropped,
    /// The worker did not start to work on the key: it is Ready again at the tail, and no failure is counted. This outcome is not reported to metrics.
    Requeued,
}

impl LeaseOutcome {
    /// Returns whether the outcome is a failure.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Dropped)
    }
}
