//! PURE. The error that the controller loop receives for a failed reconcile. The user's own error has already been sent to the stream of results.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use flyball_controller::{FailureClass, ReconcileError};

use crate::UnknownAction;

/// How an object is retried after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReconcileFailed {
    pub(crate) class: FailureClass,
    /// The delay before the retry; `None` if no delay was requested, or if the requested delay cannot be parsed.
    pub(crate) delay: Option<Duration>,
}

impl ReconcileFailed {
    /// Creates the failure for the `action` that the error policy returned. `server` is the delay that the server requests; `None` if it requests
    /// none, or if the configuration ignores it. The longer of the two delays applies, unless the action waits for a change.
    pub(crate) fn new(
        action: Result<Option<Duration>, UnknownAction>,
        class: FailureClass,
        server: Option<Duration>,
    ) -> Self {
        match action {
            Ok(None) => Self { class: FailureClass::Permanent, delay: None },
            Ok(Some(delay)) => Self { class, delay: Some(delay.max(server.unwrap_or_default())) },
            Err(_) => Self { class, delay: server },
        }
    }

    pub(crate) fn class_of(failure: &ReconcileError) -> FailureClass {
        failure.downcast_ref::<Self>().map_or(FailureClass::Transient, |failed| failed.class)
    }

    /// Returns the delay before the retry; `None` for a panic or a timeout, because the error policy is not called for them.
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
