//! PURE. How a reconcile failed.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// How a reconcile failed.
///
/// All three are alike to the queue: the key is retried when its limiter says.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// It returned this error.
    Error(Box<dyn Error + Send + Sync>),
    /// It panicked, with this message.
    Panic(String),
    /// It was not done after this time, and was dropped.
    Timeout(Duration),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Panic(message) => write!(f, "reconcile panicked: {message}"),
            Self::Timeout(limit) => write!(f, "reconcile was not done after {limit:?}"),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The error itself is the message.
            Self::Error(error) => error.source(),
            Self::Panic(_) | Self::Timeout(_) => None,
        }
    }
}
