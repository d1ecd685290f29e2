//! PURE. How a reconcile failed.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// How a reconcile failed.
///
/// All three are retried when the queue's limiter says, unless the controller [classifies](crate::Controller::classify) them.
///
/// A reconcile around another one may hand on how that failed: one that returns a `ReconcileError` as its error has failed in this way.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReconcileError {
    /// It returned this error.
    Error(Box<dyn Error + Send + Sync>),
    /// It panicked, with this message.
    Panic(String),
    /// It was not done after this time, and was dropped.
    Timeout(Duration),
}

impl ReconcileError {
    /// What a reconcile returned as its error.
    pub(crate) fn of(error: Box<dyn Error + Send + Sync>) -> Self {
        error.downcast().map_or_else(Self::Error, |failure| *failure)
    }

    /// The error of this type that the reconcile returned, or the first one among what it says was its cause.
    ///
    /// # Examples
    /// ```
    /// use flyball_controller::ReconcileError;
    /// use std::io;
    ///
    /// let failure = ReconcileError::Error(Box::new(io::Error::from(io::ErrorKind::AlreadyExists)));
    /// assert!(failure.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::AlreadyExists));
    /// assert!(ReconcileError::Panic("boom".into()).downcast_ref::<io::Error>().is_none());
    /// ```
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        let Self::Error(error) = self else { return None };
        let mut next: Option<&(dyn Error + 'static)> = Some(&**error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Panic(message) => write!(f, "reconcile panicked: {message}"),
            Self::Timeout(limit) => write!(f, "reconcile was not done after {limit:?}"),
        }
    }
}

impl Error for ReconcileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The error itself is the message.
            Self::Error(error) => error.source(),
            Self::Panic(_) | Self::Timeout(_) => None,
        }
    }
}
