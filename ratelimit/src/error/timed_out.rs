//! PURE. Why somebody who waited for tokens got none.

use std::fmt;

use crate::InsufficientCapacity;

/// The time was up before a token came; none was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up before the tokens came")
    }
}

impl std::error::Error for TimedOut {}

/// Why several tokens did not come in time; none was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireTimeoutError {
    /// The time was up.
    TimedOut,
    /// They never will come.
    InsufficientCapacity(InsufficientCapacity),
}

impl From<InsufficientCapacity> for AcquireTimeoutError {
    fn from(error: InsufficientCapacity) -> Self {
        Self::InsufficientCapacity(error)
    }
}

impl fmt::Display for AcquireTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => TimedOut.fmt(f),
            Self::InsufficientCapacity(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AcquireTimeoutError {}
