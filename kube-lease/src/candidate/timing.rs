//! PURE. The periods of an election.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The periods of an election; see [`ElectionBuilder`](crate::ElectionBuilder).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionTiming {
    /// A candidate takes over from the holder of the lease only if the record has stayed unchanged for this long since the candidate first read it.
    pub lease_duration: Duration,
    /// How long a leader leads after it sent its last successful renewal.
    pub renew_deadline: Duration,
    /// The time between two attempts to acquire or to renew the lease.
    pub retry_period: Duration,
    /// How long the work may continue after leadership ends.
    pub stop_grace: Duration,
}

/// The maximum jitter, in percent of the retry period. The jitter is added to the time that a candidate waits between two attempts.
pub(crate) const JITTER_PERCENT: u32 = 120;

// === impl ElectionTiming ===

impl ElectionTiming {
    /// Creates the periods, and checks them. The stop grace is half of the difference between lease duration and renew deadline.
    ///
    /// # Errors
    /// Returns [`InvalidElectionConfig`] if the periods break a rule in the table of [`ElectionBuilder`](crate::ElectionBuilder).
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, InvalidElectionConfig> {
        let stop_grace = lease_duration.saturating_sub(renew_deadline) / 2;
        Self { lease_duration, renew_deadline, retry_period, stop_grace }.valid()
    }

    /// Replaces the stop grace.
    ///
    /// # Errors
    /// Returns [`InvalidElectionConfig::StopGrace`] if other candidates could lead before the stop grace is over.
    pub fn with_stop_grace(self, stop_grace: Duration) -> Result<Self, InvalidElectionConfig> {
        Self { stop_grace, ..self }.valid()
    }

    fn valid(self) -> Result<Self, InvalidElectionConfig> {
        if self.retry_period.is_zero() {
            Err(InvalidElectionConfig::RetryPeriod)
        } else if self.lease_duration > LONGEST || self.lease_duration <= self.renew_deadline {
            Err(InvalidElectionConfig::RenewDeadline)
        } else if self.renew_deadline <= self.retry_period.saturating_mul(JITTER_PERCENT) / 100 {
            Err(InvalidElectionConfig::RetryPeriod)
        } else if self.stop_grace >= self.lease_duration - self.renew_deadline {
            Err(InvalidElectionConfig::StopGrace)
        } else {
            Ok(self)
        }
    }

    /// Returns the timeout of a request. If the first request hangs, a second request can still succeed before the renew deadline.
    pub(crate) fn request_deadline(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// Returns the lease duration in whole seconds, as the record stores it. The duration is rounded up, because other candidates must not lead too
    /// early; client-go rounds down.
    pub(crate) fn lease_seconds(&self) -> i32 {
        let rounded_up =
            self.lease_duration.as_secs().saturating_add(u64::from(self.lease_duration.subsec_nanos() > 0));
        i32::try_from(rounded_up).unwrap_or(i32::MAX) // cannot overflow: at most `LONGEST`
    }
}

impl Default for ElectionTiming {
    /// Lease duration 15 s, renew deadline 10 s, retry period 2 s, stop grace 2.5 s.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            lease_duration: seconds(15),
            renew_deadline: seconds(10),
            retry_period: seconds(2),
            stop_grace: seconds(5) / 2,
        }
    }
}

const LONGEST: Duration = Duration::from_secs(i32::MAX as u64);

/// The error of [`ElectionBuilder::build`](crate::ElectionBuilder::build).
///
/// # Examples
/// ```
/// use flyball_kube_lease::{Election, InvalidElectionConfig};
/// use std::time::Duration;
/// # use flyball_kube_testing::ApiServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let client = ApiServer::new().client();
/// let builder = Election::builder(client, "default", "example", "a").renew_deadline(Duration::from_secs(20));
/// assert_eq!(builder.build().err(), Some(InvalidElectionConfig::RenewDeadline)); // the lease duration is 15 s
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidElectionConfig {
    /// The renew deadline is not shorter than the lease duration, or the lease duration is longer than a Lease can store
    /// (68 years).
    RenewDeadline,
    /// The retry period is zero, or 1.2 retry periods are not shorter than the renew deadline.
    RetryPeriod,
    /// The stop grace is not shorter than the lease duration minus the renew deadline.
    StopGrace,
    /// The identity is empty. In a Lease, an empty identity means that there is no holder.
    Identity,
    /// The name of the Lease is no DNS subdomain, or the namespace is no DNS label: the API server would refuse every request for this Lease.
    Name,
}

impl fmt::Display for InvalidElectionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RenewDeadline => "the renew deadline must be shorter than the lease duration",
            Self::RetryPeriod => {
                "the retry period must not be zero, and 1.2 retry periods must be shorter than the renew deadline"
            }
            Self::StopGrace => {
                "the stop grace must be shorter than the time between the renew deadline and the lease duration"
            }
            Self::Identity => "a candidate needs an identity",
            Self::Name => {
                "the name of a Lease must be a DNS subdomain, and its namespace a DNS label: lower-case letters, digits, `-` and, in the name, `.`"
            }
        })
    }
}

impl Error for InvalidElectionConfig {}
