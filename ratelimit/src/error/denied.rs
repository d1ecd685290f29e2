//! PURE. Why several tokens at once are refused.

use std::fmt;
use std::num::NonZeroU32;

use crate::NotYet;

/// More tokens were asked for than a full bucket holds: they can never be granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsufficientCapacity {
    asked: NonZeroU32,
    burst: NonZeroU32,
}

impl InsufficientCapacity {
    pub(crate) const fn new(asked: NonZeroU32, burst: NonZeroU32) -> Self {
        Self { asked, burst }
    }

    /// How many were asked for.
    #[must_use]
    pub const fn requested(&self) -> NonZeroU32 {
        self.asked
    }

    /// The most that the quota in force grants at once.
    #[must_use]
    pub const fn burst(&self) -> NonZeroU32 {
        self.burst
    }
}

impl fmt::Display for InsufficientCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens were asked for at once, and the burst is {}", self.asked, self.burst)
    }
}

impl std::error::Error for InsufficientCapacity {}

/// Why several tokens were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryAcquireError {
    /// They are not there now; the time says when they will be.
    NotYet(NotYet),
    /// They never will be.
    InsufficientCapacity(InsufficientCapacity),
}

impl From<InsufficientCapacity> for TryAcquireError {
    fn from(error: InsufficientCapacity) -> Self {
        Self::InsufficientCapacity(error)
    }
}

impl From<NotYet> for TryAcquireError {
    fn from(error: NotYet) -> Self {
        Self::NotYet(error)
    }
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotYet(error) => error.fmt(f),
            Self::InsufficientCapacity(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TryAcquireError {}
