//! PURE. How a reconcile ended.

use crate::{Action, FailureClass, ReconcileError};

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReconcileOutcome {
    /// Well, and it waits for the next change.
    Succeeded,
    /// Well, and it asked to come back.
    Requeued,
    /// It returned an error.
    Failed(FailureClass),
    /// It panicked.
    Panicked(FailureClass),
    /// It took too long.
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

    /// Of which class the failure was; `None` if it ended well.
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

    /// In one word, as a label of metrics: `success`, `requeue`, `error`, `panic` or `timeout`.
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
