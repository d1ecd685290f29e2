//! PURE. Maps errors of the API server to the error kinds of an informer, as client-go does, and back to kube's own errors.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{BackoffCause, SourceError, SourceErrorKind, SourceFailure};
use kube::core::Status;
use kube::core::response::reason;
use kube::runtime::watcher;

use crate::config::classify::DEEPEST_CAUSE;

/// The error of a failed request to the API server: kube's own error, with the type of the request. Every [`SourceError`] of a source of this crate
/// has an `ApiError` as its [cause](SourceError::cause). Clones share the error.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{SourceError, SourceErrorKind};
/// use flyball_kube::ApiError;
/// use kube::{core::Status, runtime::watcher};
///
/// let status = Status::failure("too old resource version", "Expired").with_code(410);
/// let error = SourceError::from(ApiError::from(watcher::Error::WatchError(status.boxed())));
/// assert_eq!(error.kind(), SourceErrorKind::Expired);
///
/// let cause = error.cause().and_then(|cause| cause.downcast_ref::<ApiError>()).unwrap();
/// assert_eq!(cause.status().unwrap().code, 410);
/// assert_eq!(cause.kind(), error.kind());
/// assert!(matches!(cause.watcher_error(), watcher::Error::WatchError(_)));
/// assert!(cause.kube_error().is_none()); // it came as an event of a watch
/// ```
#[derive(Clone, Debug)]
pub struct ApiError {
    error: Arc<watcher::Error>,
    /// Whether this error is wrapped by a different error that names the failed request. If so, the `Display` of this error shows only the client's
    /// error.
    within: bool,
}

impl ApiError {
    /// Returns the error that kube's watcher would have returned. Its variant names the failed operation: a list, the
    /// request that opens a watch, or a watch.
    #[must_use]
    pub fn watcher_error(&self) -> &watcher::Error {
        &self.error
    }

    /// Returns the error of kube's client, if the request failed with one.
    #[must_use]
    pub fn kube_error(&self) -> Option<&kube::Error> {
        match &*self.error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => Some(error),
            watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => None,
        }
    }

    /// Returns the status of the API server, if the server answered.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match &*self.error {
            watcher::Error::WatchError(status) => Some(status),
            _ => match self.kube_error()? {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
        }
    }

    /// Returns the [`SourceErrorKind`], which determines how an informer reacts.
    #[must_use]
    pub fn kind(&self) -> SourceErrorKind {
        match (self.status(), self.kube_error()) {
            (Some(status), _) => kind_of_status(status),
            // The server did not answer. The requested version may still be valid, so no relist is needed.
            (None, Some(error)) if is_connection_lost(error) => SourceErrorKind::ConnectionRefused,
            _ => SourceErrorKind::Other,
        }
    }

    /// Returns the client's error if this error is wrapped, because then only the client's error is displayed. If the client's error is a service
    /// error, returns the error inside it, because the wrapping error already displays the prefix of service errors.
    fn within(&self) -> Option<&(dyn StdError + 'static)> {
        match self.kube_error().filter(|_| self.within)? {
            kube::Error::Service(error) => Some(&**error),
            error => Some(error),
        }
    }

    /// Returns an owned copy of kube's error. A status of the server is cloned; any other error is shared.
    fn to_watcher(&self) -> watcher::Error {
        let copy = |error: &kube::Error| match error {
            kube::Error::Api(status) => kube::Error::Api(status.clone()),
            _ => kube::Error::Service(Box::new(Self { within: true, ..self.clone() })),
        };
        match &*self.error {
            watcher::Error::InitialListFailed(error) => watcher::Error::InitialListFailed(copy(error)),
            watcher::Error::WatchStartFailed(error) => watcher::Error::WatchStartFailed(copy(error)),
            watcher::Error::WatchFailed(error) => watcher::Error::WatchFailed(copy(error)),
            watcher::Error::WatchError(status) => watcher::Error::WatchError(status.clone()),
            watcher::Error::NoResourceVersion => watcher::Error::NoResourceVersion,
        }
    }
}

/// Converts a watcher error to a [`SourceError`].
pub(crate) fn source_error(error: watcher::Error) -> SourceError {
    ApiError::from(error).into()
}

impl From<watcher::Error> for ApiError {
    fn from(error: watcher::Error) -> Self {
        Self { error: Arc::new(error), within: false }
    }
}

impl From<ApiError> for SourceError {
    fn from(error: ApiError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.within() {
            Some(error) => fmt::Display::fmt(error, f),
            None => self.error.fmt(f),
        }
    }
}

impl StdError for ApiError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self.within() {
            Some(error) => error.source(),
            None => self.error.source(),
        }
    }
}

/// Converts the failure of a source of this crate to the error that kube's watcher would have returned, for streams and functions that use
/// `watcher::Error`.
///
/// A failure without a variant in kube's watcher, such as a request timeout, becomes
/// [`WatchFailed`](watcher::Error::WatchFailed) with the failure's message inside.
pub(crate) fn watcher_error(failure: &SourceFailure<'_>) -> watcher::Error {
    let cause = failure.error.and_then(SourceError::cause);
    match (cause.and_then(|cause| cause.downcast_ref::<ApiError>()), failure.cause) {
        (Some(error), _) => error.to_watcher(),
        (None, BackoffCause::Unversioned) => watcher::Error::NoResourceVersion,
        (None, _) => watcher::Error::WatchFailed(kube::Error::Service(failure.to_string().into())),
    }
}

/// Returns the [`SourceErrorKind`] of a status. The kinds are checked in client-go's order, because a status may match several of them.
fn kind_of_status(status: &Status) -> SourceErrorKind {
    if status.code == 429 || status.reason == "TooManyRequests" {
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        SourceErrorKind::TooManyRequests { retry_after }
    } else if status.code == 410 || [reason::EXPIRED, reason::GONE].contains(&&*status.reason) {
        SourceErrorKind::Expired
    } else if is_too_large_version(status) {
        SourceErrorKind::VersionTooLarge
    } else if status.reason == reason::INTERNAL_ERROR
        || (status.code == 500 && !reason::is_known(&status.reason))
    {
        SourceErrorKind::Internal
    } else {
        SourceErrorKind::Other
    }
}

/// Returns whether the status means "Too large resource version". It has a different form in servers before 1.17, from 1.17 on, and from 1.19 on.
fn is_too_large_version(status: &Status) -> bool {
    const WORDS: &str = "Too large resource version";
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.clone().any(|cause| cause.reason == "ResourceVersionTooLarge")
        || (status.reason == reason::TIMEOUT
            && (causes.any(|cause| cause.message == WORDS) || status.message.contains(WORDS)))
}

/// Returns whether a connection could not be opened or was lost, as opposed to a malformed answer.
///
/// client-go checks only whether the connection was refused, and relists after any other error. This function accepts more errors, because
/// connections fail in other ways, too, when a server stops or starts.
pub(crate) fn is_connection_lost(error: &(dyn StdError + 'static)) -> bool {
    std::iter::successors(Some(error), |error| beneath(*error)).take(DEEPEST_CAUSE).any(|error| {
        error.downcast_ref().is_some_and(is_io_connection_lost)
            || error.downcast_ref().is_some_and(hyper::Error::is_incomplete_message)
    })
}

fn is_io_connection_lost(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable,
        NetworkUnreachable, NotConnected, TimedOut, UnexpectedEof,
    };
    matches!(
        error.kind(),
        BrokenPipe
            | ConnectionAborted
            | ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | NetworkUnreachable
            | NotConnected
            | TimedOut
            | UnexpectedEof
    )
}

fn beneath<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    // The `source` of an I/O error is the source of the error that it wraps, not the wrapped error itself.
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(held) => Some(held),
        None => error.source(),
    }
}
