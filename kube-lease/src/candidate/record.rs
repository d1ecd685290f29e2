//! PURE. The record in a Lease.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The fields of a Lease that client-go's elections use, with the same meanings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderElectionRecord {
    /// The leader; empty if there is none.
    pub holder_identity: String,
    /// Another candidate takes over from the holder only if this record has stayed unchanged for this many seconds since that candidate first read
    /// it.
    pub lease_duration_seconds: i32,
    /// When the holder became the leader, according to its wall clock. This time is never used to decide whether the lease has expired.
    pub acquire_time: Option<Timestamp>,
    /// When the holder wrote this record, according to its wall clock. This time is never used to decide whether the lease has expired.
    pub renew_time: Option<Timestamp>,
    /// How many times the holder has changed.
    pub leader_transitions: i32,
}

impl LeaderElectionRecord {
    /// Reads the record of a Lease.
    pub(crate) fn from_spec(spec: &LeaseSpec) -> Self {
        let time = |time: &Option<MicroTime>| time.as_ref().map(|time| time.0);
        Self {
            holder_identity: spec.holder_identity.clone().unwrap_or_default(),
            lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquire_time: time(&spec.acquire_time),
            renew_time: time(&spec.renew_time),
            leader_transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }

    /// Writes the record to a Lease, and preserves its other fields.
    pub(crate) fn write_spec(&self, spec: &mut LeaseSpec) {
        spec.holder_identity = Some(self.holder_identity.clone());
        spec.lease_duration_seconds = Some(self.lease_duration_seconds);
        spec.acquire_time = self.acquire_time.map(MicroTime);
        spec.renew_time = self.renew_time.map(MicroTime);
        spec.lease_transitions = Some(self.leader_transitions);
    }
}
