//! PURE. The requests of a candidate, and the responses to them.

use flyball_sync::Nanos;

use super::record::LeaderElectionRecord;

/// What the caller of `Candidate::step` must do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CandidateStep {
    /// Send this request. If the previous request has no response yet, drop it.
    Request(LeaseRequest),
    /// Wait until this time, or until a response arrives.
    Wait(Nanos),
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Reads the Lease.
    Get,
    /// Creates the Lease.
    Create(LeaderElectionRecord),
    /// Replaces the Lease if it still has this version.
    Update {
        /// The new record.
        record: LeaderElectionRecord,
        /// The expected `resourceVersion`.
        version: String,
    },
}

/// A response of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseResponse {
    /// The Lease that was read or written.
    Found {
        /// The record of the Lease.
        record: LeaderElectionRecord,
        /// The `resourceVersion` of the Lease.
        version: String,
    },
    /// The Lease does not exist. This is a statement about the Lease itself: a missing namespace or path is [`Failed`](Self::Failed).
    NotFound,
    /// Any other outcome: a conflict, an error, or no response. If the request was a write, the candidate assumes that the server may or may not have
    /// executed it.
    Failed,
}
