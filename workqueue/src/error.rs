//! PURE. One small error per operation.

use std::error::Error;
use std::fmt;

/// The queue is shut down and takes no keys; the key is handed back.
pub struct Refused<K>(pub(crate) K);

impl<K> Refused<K> {
    /// The key that was not added.
    pub fn into_key(self) -> K {
        self.0
    }

    /// The key that was not added.
    pub fn key(&self) -> &K {
        &self.0
    }
}

/// Needs nothing of the key.
impl<K> fmt::Debug for Refused<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refused(..)")
    }
}

impl<K> fmt::Display for Refused<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is shut down")
    }
}

impl<K> Error for Refused<K> {}

/// Why `try_get` gave no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryGetError {
    /// Nothing is Ready now.
    Empty,
    /// The queue is shut down and nothing can become Ready.
    Closed,
}

impl fmt::Display for TryGetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no key is ready",
            Self::Closed => "the queue is closed",
        })
    }
}

impl Error for TryGetError {}

/// Why `get_timeout` gave no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetTimeoutError {
    /// Nothing became Ready in time.
    TimedOut,
    /// The queue is shut down and nothing can become Ready.
    Closed,
}

impl fmt::Display for GetTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "no key became ready in time",
            Self::Closed => "the queue is closed",
        })
    }
}

impl Error for GetTimeoutError {}
