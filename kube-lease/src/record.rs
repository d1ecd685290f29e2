//! PURE. What a Lease says of who leads.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// What a Lease says of who leads: the fields that client-go's elections use, with its meanings.
///
/// # Examples
/// ```
/// use flyball_kube_lease::Record;
/// use k8s_openapi::api::coordination::v1::LeaseSpec;
///
/// let spec = LeaseSpec { holder_identity: Some("a".into()), lease_duration_seconds: Some(15), ..LeaseSpec::default() };
/// assert_eq!(Record::of(&spec).holder, "a");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Who leads; empty if nobody does.
    pub holder: String,
    /// For how long others wait after they have seen this record.
    pub lease_duration_seconds: i32,
    /// Since when the holder leads, by its wall clock. Only told, never compared with a clock.
    pub acquire_time: Option<Timestamp>,
    /// When the holder wrote this, by its wall clock. Only told, never compared with a clock.
    pub renew_time: Option<Timestamp>,
    /// How often the holder has changed.
    pub transitions: i32,
}

impl Record {
    /// What a Lease says.
    #[must_use]
    pub fn of(spec: &LeaseSpec) -> Self {
        let time = |time: &Option<MicroTime>| time.as_ref().map(|time| time.0);
        Self {
            holder: spec.holder_identity.clone().unwrap_or_default(),
            lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquire_time: time(&spec.acquire_time),
            renew_time: time(&spec.renew_time),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }

    /// Makes a Lease say this. What it says besides stays.
    pub fn write_to(&self, spec: &mut LeaseSpec) {
        spec.holder_identity = Some(self.holder.clone());
        spec.lease_duration_seconds = Some(self.lease_duration_seconds);
        spec.acquire_time = self.acquire_time.map(MicroTime);
        spec.renew_time = self.renew_time.map(MicroTime);
        spec.lease_transitions = Some(self.transitions);
    }
}
