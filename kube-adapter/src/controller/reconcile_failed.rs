//! PURE. How a reconcile failed, as the loop has to know it. The user's own error has gone to the stream of results by then.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use flyball_controller::{FailureClass, ReconcileError};

use crate::UnknownAction;

/// What becomes of the object after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReconcileFailed {
    pub(crate) class: FailureClass,
    /// The delay that is asked for; `None` when there is none, or it cannot be read.
    pub(crate) delay: Option<Duration>,
}

impl ReconcileFailed {
    /// What becomes of it when the error policy returns `action`. A policy that waits for a change decides alone; otherwise the
    /// later of its delay and the server's holds, where the latter is to be respected.
    pub(crate) fn new(
        action: Result<Option<Duration>, UnknownAction>,
        class: FailureClass,
        server: Option<Duration>,
    ) -> Self {
        match action {
            Ok(None) => Self { class: FailureClass::Permanent, delay: None },
            Ok(Some(asked)) => Self { class, delay: Some(asked.max(server.unwrap_or_default())) },
            Err(_) => Self { class, delay: server },
        }
    }

    pub(crate) fn class_of(failure: &ReconcileError) -> FailureClass {
        failure.downcast_ref::<Self>().map_or(FailureClass::Transient, |failed| failed.class)
    }

    /// The delay that the error policy asked for; a panic and a timeout have none.
    pub(crate) fn delay_of(failure: &ReconcileError) -> Option<Duration> {
        failure.downcast_ref::<Self>().and_then(|failed| failed.delay)
    }
}

impl fmt::Display for ReconcileFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reconciler failed")
    }
}

impl Error for ReconcileFailed {}
