//! PURE. The failure of a reconcile.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The failure of a reconcile.
///
/// After a failure of any variant, the key is retried after the delay of the queue's limiter, unless the controller
/// [classifies](crate::Controller::classify) the failure differently.
///
/// If a reconcile returns a `ReconcileError` as its error, that value becomes the failure and is not wrapped again. So a reconcile that wraps another
/// reconcile can pass on the inner failure.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReconcileError {
    /// The reconcile returned this error.
    Error(Box<dyn Error + Send + Sync>),
    /// The reconcile panicked with this message.
    Panic(String),
    /// The reconcile had not completed after this time, and was dropped.
    Timeout(Duration),
}

impl ReconcileError {
    /// Wraps the error that a reconcile returned. A `ReconcileError` is not wrapped again.
    pub(crate) fn of(error: Box<dyn Error + Send + Sync>) -> Self {
        error.downcast().map_or_else(Self::Error, |failure| *failure)
    }

    /// Returns the error of type `E` that the reconcile returned, or the first error of that type in its chain of sources.
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
            // `Display` prints the message of `error` itself, so the source is the next error in the chain.
            Self::Error(error) => error.source(),
            Self::Panic(_) | Self::Timeout(_) => None,
        }
    }
}
