//! PURE. The errors of a reconcile.

use std::fmt;

/// The reason why a reconcile failed.
#[derive(Debug)]
pub enum Error {
    /// The API server refused a request, or could not be reached.
    Kube(kube::Error),
    /// The cache does not contain this controller's own writes yet.
    Behind,
    /// The object is invalid, although the API server has accepted it.
    Invalid(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kube(_) => f.write_str("a request failed"),
            Self::Behind => f.write_str("the cache is behind this controller's own writes"),
            Self::Invalid(why) => write!(f, "invalid: {why}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kube(error) => Some(error),
            Self::Behind | Self::Invalid(_) => None,
        }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(error)
    }
}

/// Returns true if the API server responded with this status.
#[must_use]
pub fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Converts an error with the status 404 to `Ok(None)`.
///
/// # Errors
/// Returns all other errors.
pub fn unless_gone<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_status(&error, 404) => Ok(None),
        Err(error) => Err(error),
    }
}
