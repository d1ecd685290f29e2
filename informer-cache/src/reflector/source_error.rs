//! PURE. Why a source failed.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Why a source failed, as far as the informer behaves differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The version or the continuation is too old (Kubernetes: `410 Gone`, `Expired`).
    Expired,
    /// The version asked for is newer than the source's (Kubernetes: "too large resource version").
    VersionTooLarge,
    /// The source asks for fewer requests (`429`).
    TooManyRequests {
        /// Not before this time.
        retry_after: Option<Duration>,
    },
    /// Nobody answers at the moment (connection refused).
    ConnectionRefused,
    /// The source failed for a reason of its own (`500 InternalError`).
    Internal,
    /// Anything else.
    Other,
}

impl fmt::Display for SourceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "version expired",
            Self::VersionTooLarge => "version too large",
            Self::TooManyRequests { .. } => "too many requests",
            Self::ConnectionRefused => "connection refused",
            Self::Internal => "internal error of the source",
            Self::Other => "source failed",
        })
    }
}

/// Why a list or a watch failed.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{SourceError, SourceErrorKind};
///
/// let error = SourceError::new(SourceErrorKind::Expired, "410 Gone");
/// assert_eq!(error.kind(), SourceErrorKind::Expired);
/// assert_eq!(error.to_string(), "version expired: 410 Gone");
/// ```
#[derive(Debug)]
pub struct SourceError {
    kind: SourceErrorKind,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl SourceError {
    /// An error of this kind, with its cause.
    pub fn new(kind: SourceErrorKind, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, cause: Some(cause.into()) }
    }

    /// What the informer goes by.
    #[must_use]
    pub const fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// The cause it was made with: who knows the source can downcast it.
    ///
    /// [`Error::source`] is the cause's own, since the cause itself is part of the message.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{SourceError, SourceErrorKind};
    /// use std::io;
    ///
    /// let error = SourceError::new(SourceErrorKind::Other, io::Error::from(io::ErrorKind::BrokenPipe));
    /// let cause = error.cause().and_then(|cause| cause.downcast_ref::<io::Error>());
    /// assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::BrokenPipe));
    /// assert!(SourceError::from(SourceErrorKind::Other).cause().is_none());
    /// ```
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.cause.as_deref()
    }
}

/// An error without a cause worth telling.
impl From<SourceErrorKind> for SourceError {
    fn from(kind: SourceErrorKind) -> Self {
        Self { kind, cause: None }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{}: {cause}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The cause itself is part of the message.
        self.cause.as_deref().and_then(Error::source)
    }
}
