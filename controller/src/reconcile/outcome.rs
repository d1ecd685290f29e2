//! PURE. How a reconcile ended.

use crate::{Action, Class, Failure};

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Well, and it waits for the next change.
    Succeeded,
    /// Well, and it asked to come back.
    Requeued,
    /// It returned an error.
    Errored(Class),
    /// It panicked.
    Panicked(Class),
    /// It took too long.
    TimedOut(Class),
}

impl Outcome {
    pub(crate) fn of(result: Result<&Action, (&Failure, Class)>) -> Self {
        match result {
            Ok(action) if action.requeues_after().is_none() => Self::Succeeded,
            Ok(_) => Self::Requeued,
            Err((Failure::Error(_), class)) => Self::Errored(class),
            Err((Failure::Panic(_), class)) => Self::Panicked(class),
            Err((Failure::Timeout(_), class)) => Self::TimedOut(class),
        }
    }

    /// Of which class the failure was; `None` if it ended well.
    #[must_use]
    pub const fn class(self) -> Option<Class> {
        match self {
            Self::Succeeded | Self::Requeued => None,
            Self::Errored(class) | Self::Panicked(class) | Self::TimedOut(class) => Some(class),
        }
    }

    /// In one word, as a label of metrics: `success`, `requeue`, `error`, `panic` or `timeout`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Succeeded => "success",
            Self::Requeued => "requeue",
            Self::Errored(_) => "error",
            Self::Panicked(_) => "panic",
            Self::TimedOut(_) => "timeout",
        }
    }
}
