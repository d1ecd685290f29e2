//! PURE. How a reconcile failed, as the loop has to know it. The user's own error has gone to the stream of results by then.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use flyball_controller::{Class, Failure};

/// What becomes of the object after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) class: Class,
    /// It is not tried again before this.
    pub(crate) least: Duration,
}

impl Failed {
    /// What becomes of it when the error policy asks for `asked`, where the class of the error and what the server asks for are
    /// known. A policy that asks to wait for a change has the last word.
    pub(crate) fn new(asked: Option<Duration>, class: Class, server: Option<Duration>) -> Self {
        match asked {
            None => Self { class: Class::Permanent, least: Duration::ZERO },
            Some(asked) => Self { class, least: asked.max(server.unwrap_or_default()) },
        }
    }

    pub(crate) fn class_of(failure: &Failure) -> Class {
        failure.error::<Self>().map_or(Class::Transient, |failed| failed.class)
    }

    pub(crate) fn least_of(failure: &Failure) -> Option<Duration> {
        failure.error::<Self>().map(|failed| failed.least)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reconciler failed")
    }
}

impl Error for Failed {}
