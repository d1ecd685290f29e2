//! PURE. The requests of a candidate, and the responses to them.

use flyball_sync::Nanos;

use super::record::LeaderElectionRecord;

/// What a driver does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CandidateStep {
    /// Sends this request. It replaces the one before, if that has not been answered.
    Request(LeaseRequest),
    /// Waits for a response, until this time at most.
    Wait(Nanos),
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Reads the Lease.
    Get,
    /// Creates it.
    Create(LeaderElectionRecord),
    /// Replaces it, if it still has this version.
    Update {
        /// The new record.
        record: LeaderElectionRecord,
        /// The `resourceVersion` it must have.
        version: String,
    },
}

/// A response of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseResponse {
    /// The Lease as it was read or written.
    Found {
        /// Its record.
        record: LeaderElectionRecord,
        /// Its `resourceVersion`.
        version: String,
    },
    /// There is no Lease to read.
    NotFound,
    /// Any other: a conflict, an error, no response. It is not known whether a write was carried out.
    Failed,
}
