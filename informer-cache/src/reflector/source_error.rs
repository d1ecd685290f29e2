//! PURE. The error of a source.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use flyball_sync::panics::DropContained;

/// The kind of a source error. It determines how the informer reacts.
///
/// # Examples
/// The kinds of the responses of a server with HTTP:
/// ```
/// use flyball_informer_cache::{SourceError, SourceErrorKind};
/// use std::time::Duration;
///
/// fn error(status: u16, retry_after: Option<Duration>) -> SourceError {
///     let kind = match status {
///         410 => SourceErrorKind::Expired,
///         429 => SourceErrorKind::TooManyRequests { retry_after },
///         500 => SourceErrorKind::Internal,
///         _ => SourceErrorKind::Other,
///     };
///     SourceError::new(kind, format!("status {status}"))
/// }
///
/// assert_eq!(error(410, None).to_string(), "version expired: status 410");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The version or the continuation is too old (Kubernetes: `410 Gone`, `Expired`).
    Expired,
    /// The requested version is newer than the newest version of the source (Kubernetes: "too large resource version").
    VersionTooLarge,
    /// The source received too many requests (`429 Too Many Requests`).
    TooManyRequests {
        /// The minimum wait before the next request, if the source specifies one.
        retry_after: Option<Duration>,
    },
    /// The source does not accept connections at the moment (connection refused).
    ConnectionRefused,
    /// The source failed with an internal error (`500 InternalError`).
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

/// An error that a list or a watch returns.
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
    cause: Option<DropContained<Box<dyn Error + Send + Sync>>>,
}

impl SourceError {
    /// Creates an error of this kind, with its cause.
    pub fn new(kind: SourceErrorKind, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, cause: Some(DropContained::new(cause.into())) }
    }

    /// Returns the kind of the error, which determines how the informer reacts.
    #[must_use]
    pub const fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// Returns the cause that was passed to [`new`](Self::new), if there is one. Code that knows the type of the source can downcast it.
    ///
    /// [`Error::source`] skips the cause and returns the cause's own source, because the message of this error already includes the cause.
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
        self.cause.as_deref().map(|cause| &**cause)
    }
}

/// Creates an error without a cause.
impl From<SourceErrorKind> for SourceError {
    fn from(kind: SourceErrorKind) -> Self {
        Self { kind, cause: None }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause() {
            Some(cause) => write!(f, "{}: {cause}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The message already includes the cause itself.
        self.cause().and_then(Error::source)
    }
}
