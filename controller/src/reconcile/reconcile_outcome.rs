//! PURE. The outcome of a reconcile.

use crate::{Action, FailureClass, ReconcileError};

/// The outcome of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReconcileOutcome {
    /// The reconcile succeeded, and its key waits for the next change.
    Succeeded,
    /// The reconcile succeeded, and requested a requeue.
    Requeued,
    /// The reconcile returned an error.
    Failed(FailureClass),
    /// The reconcile panicked.
    Panicked(FailureClass),
    /// The reconcile timed out.
    TimedOut(FailureClass),
}

impl ReconcileOutcome {
    pub(crate) fn of(result: Result<&Action, (&ReconcileError, FailureClass)>) -> Self {
        match result {
            Ok(action) if action.requeue_delay().is_none() => Self::Succeeded,
            Ok(_) => Self::Requeued,
            Err((ReconcileError::Error(_), class)) => Self::Failed(class),
            Err((ReconcileError::Panic(_), class)) => Self::Panicked(class),
            Err((ReconcileError::Timeout(_), class)) => Self::TimedOut(class),
        }
    }

    /// Returns the class of the failure; `None` for a success.
    ///
    /// # Examples
    /// ```
    /// use flyball_controller::{FailureClass, ReconcileOutcome};
    ///
    /// let outcome = ReconcileOutcome::TimedOut(FailureClass::Transient);
    /// assert_eq!((outcome.label(), outcome.class()), ("timeout", Some(FailureClass::Transient)));
    /// assert_eq!(ReconcileOutcome::Requeued.class(), None);
    /// ```
    #[must_use]
    pub const fn class(self) -> Option<FailureClass> {
        match self {
            Self::Succeeded | Self::Requeued => None,
            Self::Failed(class) | Self::Panicked(class) | Self::TimedOut(class) => Some(class),
        }
    }

    /// Returns the outcome as one word, for a metrics label: `success`, `requeue`, `error`, `panic` or `timeout`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Succeeded => "success",
            Self::Requeued => "requeue",
            Self::Failed(_) => "error",
            Self::Panicked(_) => "panic",
            Self::TimedOut(_) => "timeout",
        }
    }
}
