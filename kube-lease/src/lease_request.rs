//! PURE. What a candidate asks, and what it is told.

use flyball_sync::Nanos;

use crate::record::Record;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask this of the API server, in place of what was asked before, if that has not been answered.
    Ask(Ask),
    /// Nothing before then, but for an answer.
    Wait(Nanos),
}

/// A question to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Read the Lease.
    Get,
    /// Create it.
    Create(Record),
    /// Overwrite it, if it is still of this version.
    Update {
        /// What it is to say.
        record: Record,
        /// The `resourceVersion` it must have.
        version: String,
    },
}

/// An answer of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The Lease as it was read or written.
    Found {
        /// What it says.
        record: Record,
        /// Its `resourceVersion`.
        version: String,
    },
    /// There is no Lease to read.
    NotFound,
    /// Any other: a conflict, an error, none at all. It is not known whether a write happened.
    Failed,
}

/// Why a leadership is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// The lease could not be renewed in time.
    NotRenewed,
    /// The lease says somebody else, or nobody (an empty name), though nobody may have taken it.
    Taken(String),
}
