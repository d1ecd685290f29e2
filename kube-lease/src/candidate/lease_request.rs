//! PURE. The requests of a candidate, and the responses to them.

use flyball_sync::Nanos;

use super::record::LeaderElectionRecord;

/// The next step of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CandidateStep {
    /// Sends this request. It replaces the previous request if the previous one has no response yet.
    Request(LeaseRequest),
    /// Waits for a response, at most until this time.
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
    /// There is no Lease to read.
    NotFound,
    /// Any other response: a conflict, an error, or none. Whether a write was executed is unknown.
    Failed,
}
