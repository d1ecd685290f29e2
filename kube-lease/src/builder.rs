//! EDGE. The settings of an election.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::candidate::Candidate;
use crate::election::Election;
use crate::lease_api::Leases;
use crate::status::Standing;
use crate::timing::{InvalidElection, Timing};

/// The settings of an [`Election`]: see [`Election::builder`].
#[must_use]
pub struct ElectionBuilder {
    api: Api<Lease>,
    lease: String,
    identity: String,
    timing: Timing,
    wind_down: Option<Duration>,
    release: bool,
    seed: Option<u64>,
    on_new_leader: Option<OnNewLeader>,
}

pub(crate) type OnNewLeader = Arc<dyn Fn(&str) + Send + Sync>;

// === impl ElectionBuilder ===

impl ElectionBuilder {
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            lease: name.into(),
            identity: identity.into(),
            timing: Timing::default(),
            wind_down: None,
            release: true,
            seed: None,
            on_new_leader: None,
        }
    }

    /// How long others wait after the last renewal that they have seen. 15 s by default; a Lease says it in whole seconds, rounded up.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.timing.lease_duration = duration;
        self
    }

    /// For how long a leader leads after it has sent the last renewal that has succeeded. 10 s by default.
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.timing.renew_deadline = deadline;
        self
    }

    /// Between two tries: exactly so long for a leader, and up to 1.2 times as much longer for others. 2 s by default.
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.timing.retry_period = period;
        self
    }

    /// How long the work may go on after it was told that its leadership is over. By default half of the time between renew deadline and lease
    /// duration.
    pub fn wind_down(mut self, wind_down: Duration) -> Self {
        self.wind_down = Some(wind_down);
        self
    }

    /// Whether the lease is given away when the work has ended, so that others need not wait for it to run out: client-go's `ReleaseOnCancel`, but on by default, as
    /// here the work is known to be over.
    pub fn release_on_end(mut self, release: bool) -> Self {
        self.release = release;
        self
    }

    /// Called with every new leader that is seen, this candidate among them. In the task of the election: it must not block. A panic in it is caught
    /// and logged.
    pub fn on_new_leader(mut self, call: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_new_leader = Some(Arc::new(call));
        self
    }

    /// The seed of the jitter, for tests.
    #[doc(hidden)]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The election. Nothing is asked of the API server before it [runs](Election::run).
    ///
    /// # Errors
    /// [`InvalidElection`] for periods that do not fit, or an empty identity.
    pub fn build(self) -> Result<Election, InvalidElection> {
        let Timing { lease_duration, renew_deadline, retry_period, .. } = self.timing;
        let mut timing = Timing::new(lease_duration, renew_deadline, retry_period)?;
        if let Some(wind_down) = self.wind_down {
            timing = timing.with_wind_down(wind_down)?;
        }
        if self.identity.is_empty() {
            return Err(InvalidElection::Identity);
        }
        let seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one(&self.identity));
        Ok(Election {
            candidate: Candidate::new(self.identity.clone(), timing, seed),
            identity: self.identity,
            leases: Leases::new(self.api, self.lease.clone()),
            lease: self.lease,
            timing,
            release: self.release,
            on_new_leader: self.on_new_leader,
            standing: Standing::new(),
            origin: Instant::now(),
        })
    }
}

impl fmt::Debug for ElectionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, identity, timing) = (&self.lease, &self.identity, &self.timing);
        f.debug_struct("ElectionBuilder")
            .field("lease", lease)
            .field("identity", identity)
            .field("timing", timing)
            .finish_non_exhaustive()
    }
}

/// `prefix`, and something that no other process has: for a candidate's identity. With the name of the pod or the host as a prefix, a person who reads the Lease
/// knows where to look.
///
/// # Examples
/// ```
/// use flyball_kube_lease::unique_identity;
///
/// assert!(unique_identity("my-pod").starts_with("my-pod_"));
/// assert_ne!(unique_identity("my-pod"), unique_identity("my-pod"));
/// ```
#[must_use]
pub fn unique_identity(prefix: &str) -> String {
    // Its keys are the operating system's random numbers.
    let random = |n: u8| RandomState::new().hash_one(n);
    format!("{prefix}_{:016x}{:016x}", random(0), random(1))
}
