//! PURE. The ways in which a lease ends.

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// By [`done`](crate::Lease::done), which says nothing about success.
    Done,
    /// By [`succeed`](crate::Lease::succeed).
    Succeeded,
    /// By [`succeed_and_requeue_after`](crate::Lease::succeed_and_requeue_after).
    Requeued,
    /// By [`retry`](crate::Lease::retry).
    Failed,
    /// Without an outcome: by a panic, a timeout, or a future that was dropped. A failure, too.
    Dropped,
}

impl Ended {
    /// Whether it ended as a failure.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Dropped)
    }
}
