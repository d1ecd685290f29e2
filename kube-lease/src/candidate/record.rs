//! PURE. The record in a Lease.

use jiff::Timestamp;
use serde_json::{Value, json};

/// The fields of a Lease that client-go's elections use, with the same meanings.
///
/// Times are the text of the Lease: a text that is no [`Timestamp`], such as the last second of the year 9999, is a record like any other, and two such
/// texts that differ are two records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderElectionRecord {
    /// The leader; empty if there is none.
    pub holder_identity: String,
    /// Another candidate takes over from the holder only if this record has stayed unchanged for this many seconds since that candidate first read
    /// it.
    pub lease_duration_seconds: i32,
    /// When the holder became the leader, according to its wall clock. This time is never used to decide whether the lease has expired.
    pub acquire_time: Option<String>,
    /// When the holder wrote this record, according to its wall clock. This time is never used to decide whether the lease has expired.
    pub renew_time: Option<String>,
    /// How many times the holder has changed.
    pub leader_transitions: i32,
}

impl LeaderElectionRecord {
    /// Reads the record from the `spec` of a Lease.
    pub(crate) fn from_spec(spec: &Value) -> Self {
        let text = |field: &str| spec[field].as_str().map(str::to_owned);
        let number = |field: &str| spec[field].as_i64().and_then(|number| i32::try_from(number).ok());
        Self {
            holder_identity: text("holderIdentity").unwrap_or_default(),
            lease_duration_seconds: number("leaseDurationSeconds").unwrap_or_default(),
            acquire_time: text("acquireTime"),
            renew_time: text("renewTime"),
            leader_transitions: number("leaseTransitions").unwrap_or_default(),
        }
    }

    /// Writes the record to the `spec` of a Lease, and preserves its other fields.
    pub(crate) fn write_spec(&self, spec: &mut Value) {
        if !spec.is_object() {
            *spec = json!({});
        }
        spec["holderIdentity"] = json!(self.holder_identity);
        spec["leaseDurationSeconds"] = json!(self.lease_duration_seconds);
        spec["acquireTime"] = json!(self.acquire_time);
        spec["renewTime"] = json!(self.renew_time);
        spec["leaseTransitions"] = json!(self.leader_transitions);
    }
}

/// Formats a time as a Lease stores it, in microseconds.
pub(super) fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}
