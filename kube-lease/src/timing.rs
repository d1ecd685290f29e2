//! PURE. The periods of an election.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The periods of an election, with client-go's rules and defaults.
///
/// | | default | rule |
/// |---|---|---|
/// | lease duration | 15 s | longer than the renew deadline |
/// | renew deadline | 10 s | longer than 1.2 retry periods |
/// | retry period | 2 s | longer than nothing |
/// | wind-down | half of what lies between the first two: 2.5 s | less than all of it |
///
/// # Examples
/// ```
/// use flyball_kube_lease::{InvalidElection, Timing};
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// assert_eq!(Timing::new(15 * second, 10 * second, 2 * second), Ok(Timing::default()));
/// assert_eq!(Timing::new(10 * second, 10 * second, 2 * second), Err(InvalidElection::RenewDeadline));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    pub(crate) lease_duration: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry_period: Duration,
    pub(crate) wind_down: Duration,
}

/// A candidate waits for a retry period and up to so many hundredths of it more.
pub(crate) const JITTER_PERCENT: u32 = 120;

// === impl Timing ===

impl Timing {
    /// Periods that fit.
    ///
    /// # Errors
    /// [`InvalidElection`] for those that do not.
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, InvalidElection> {
        let wind_down = lease_duration.saturating_sub(renew_deadline) / 2;
        Self { lease_duration, renew_deadline, retry_period, wind_down }.valid()
    }

    /// How long the work may go on after it was told that its leadership is over: to end in order.
    ///
    /// # Errors
    /// [`InvalidElection::WindDown`] if others could lead before it is over.
    pub fn with_wind_down(self, wind_down: Duration) -> Result<Self, InvalidElection> {
        Self { wind_down, ..self }.valid()
    }

    fn valid(self) -> Result<Self, InvalidElection> {
        if self.retry_period.is_zero() {
            Err(InvalidElection::RetryPeriod)
        } else if self.lease_duration > LONGEST || self.lease_duration <= self.renew_deadline {
            Err(InvalidElection::RenewDeadline)
        } else if self.renew_deadline <= self.retry_period.saturating_mul(JITTER_PERCENT) / 100 {
            Err(InvalidElection::RetryPeriod)
        } else if self.wind_down >= self.lease_duration - self.renew_deadline {
            Err(InvalidElection::WindDown)
        } else {
            Ok(self)
        }
    }

    /// How long others wait, once they have seen the record for the first time.
    #[must_use]
    pub const fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// For how long a leader leads after it has sent the last renewal that it knows of to have succeeded.
    #[must_use]
    pub const fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// Between two tries.
    #[must_use]
    pub const fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// For how long the work may go on after the renew deadline.
    #[must_use]
    pub const fn wind_down(&self) -> Duration {
        self.wind_down
    }

    /// The longest that a request may take: so a hanging one leaves time for another before the deadline.
    pub(crate) fn patience(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// In whole seconds, as the record has it: rounded up, as others must not come too early. (client-go rounds down.)
    pub(crate) fn lease_seconds(&self) -> i32 {
        let rounded_up =
            self.lease_duration.as_secs().saturating_add(u64::from(self.lease_duration.subsec_nanos() > 0));
        i32::try_from(rounded_up).unwrap_or(i32::MAX) // never: at most `LONGEST`
    }
}

impl Default for Timing {
    /// 15 s, 10 s and 2 s.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            lease_duration: seconds(15),
            renew_deadline: seconds(10),
            retry_period: seconds(2),
            wind_down: seconds(5) / 2,
        }
    }
}

const LONGEST: Duration = Duration::from_secs(i32::MAX as u64);

/// Why there can be no such election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidElection {
    /// The renew deadline is not shorter than the lease duration, or that is longer than a Lease can say (68 years).
    RenewDeadline,
    /// The retry period is zero, or 1.2 of them are not shorter than the renew deadline.
    RetryPeriod,
    /// The wind-down does not end before others could lead.
    WindDown,
    /// The identity is empty: that of nobody.
    Identity,
}

impl fmt::Display for InvalidElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RenewDeadline => "the renew deadline must be shorter than the lease duration",
            Self::RetryPeriod => {
                "the retry period must not be zero, and 1.2 of them must be shorter than the renew deadline"
            }
            Self::WindDown => {
                "the wind-down must be shorter than what is left of the lease at the renew deadline"
            }
            Self::Identity => "a candidate needs an identity",
        })
    }
}

impl Error for InvalidElection {}
