//! EDGE. The description of one failure of an informer.

use std::fmt;

use flyball_sync::Nanos;
use flyball_sync::panics::DropContained;

use crate::{BackoffCause, SourceError};

/// A failure of the source, or a panic of a user's function, as [`InformerBuilder::on_error`](crate::InformerBuilder::on_error) reports it.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Informer, Schema, SourceFailure, Version, testing::TestServer};
///
/// /// One line for each failure.
/// fn log(failure: &SourceFailure<'_>) {
///     match failure.retry_at {
///         Some(at) => eprintln!("{:?}: {failure}; next request at {at:?}", failure.at),
///         None => eprintln!("{:?}: {failure}; next request now", failure.at),
///     }
/// }
///
/// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
/// let builder = Informer::builder(NUMBERS, TestServer::new(NUMBERS, |_, _, _| {})).on_error(log);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SourceFailure<'a> {
    /// The time of the failure, on the informer's clock.
    pub at: Nanos,
    /// The cause of the failure.
    pub cause: BackoffCause,
    /// The error of the source, if it returned one.
    pub error: Option<&'a SourceError>,
    /// If the source has not answered in time: the last error that it has returned since its last successful answer. The same may have caused both.
    pub before: Option<&'a SourceError>,
    /// The message of the panic, if the failure is a panic.
    pub panic: Option<&'a str>,
    /// The time of the next request, at which the wait ends; `None` if the informer does not wait.
    pub retry_at: Option<Nanos>,
}

impl fmt::Display for SourceFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.error, self.panic, self.before) {
            (Some(error), ..) => error.fmt(f),
            (None, Some(panic), _) => write!(f, "{}: {panic}", self.cause),
            (None, None, Some(before)) => write!(f, "{}; before that: {before}", self.cause),
            (None, None, None) => self.cause.fmt(f),
        }
    }
}

/// The function that is called with each failure.
pub(super) type OnError = DropContained<Box<dyn FnMut(&SourceFailure<'_>) + Send + Sync>>;

/// What is known about a failure besides its [`BackoffCause`]: an error of the source, the message of a panic, or nothing but the error before it.
pub(super) enum Failed<'a> {
    Answer(&'a SourceError),
    Panic(&'a str),
    Silent(Option<&'a SourceError>),
}

impl<'a> Failed<'a> {
    pub(super) fn to_failure(
        &self,
        at: Nanos,
        cause: BackoffCause,
        until: Option<Nanos>,
    ) -> SourceFailure<'a> {
        let mut failure =
            SourceFailure { at, cause, error: None, before: None, panic: None, retry_at: until };
        match *self {
            Self::Answer(error) => failure.error = Some(error),
            Self::Panic(message) => failure.panic = Some(message),
            Self::Silent(before) => failure.before = before.filter(|_| cause == BackoffCause::TimedOut),
        }
        failure
    }
}
