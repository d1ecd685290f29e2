//! EDGE. A word to whoever wants to know of each failure, not only of the last.

use std::fmt;

use flyball_ratelimit::Nanos;

use crate::{Cause, SourceError};

/// One failure of a source, as [`InformerBuilder::on_error`](crate::InformerBuilder::on_error) is told of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SourceFailure<'a> {
    /// When, on the informer's clock.
    pub at: Nanos,
    /// What, as a value.
    pub cause: Cause,
    /// The words of the source, if it answered.
    pub error: Option<&'a SourceError>,
    /// When it is asked again; nothing if that is at once.
    pub until: Option<Nanos>,
}

impl fmt::Display for SourceFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error {
            Some(error) => error.fmt(f),
            None => self.cause.fmt(f),
        }
    }
}

/// Who is told.
pub(super) type OnError = Box<dyn FnMut(&SourceFailure<'_>) + Send + Sync>;
