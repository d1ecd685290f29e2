//! EDGE. The builder of an election. Nothing here waits.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use crate::candidate::Candidate;
use crate::candidate::timing::{ElectionTiming, InvalidElectionConfig};
use crate::election::{Election, OnNewLeader};
use crate::lease_api::LeaseApi;
use crate::status::LeaderStatus;

/// Configures an [`Election`]; see [`Election::builder`]. The periods have client-go's rules and defaults:
///
/// | | default | rule |
/// |---|---|---|
/// | [`lease_duration`](Self::lease_duration) | 15 s | longer than the renew deadline |
/// | [`renew_deadline`](Self::renew_deadline) | 10 s | longer than 1.2 retry periods |
/// | [`retry_period`](Self::retry_period) | 2 s | not zero |
/// | [`stop_grace`](Self::stop_grace) | half of (lease duration − renew deadline): 2.5 s | shorter than lease duration − renew deadline |
///
/// # Examples
/// ```
/// use flyball_kube_lease::{Election, ElectionBuilder};
/// use std::time::Duration;
/// # use flyball_kube_testing::ApiServer;
///
/// /// The settings of all elections of a program: a failover takes 6 s instead of 15 s.
/// fn quick(builder: ElectionBuilder) -> ElectionBuilder {
///     builder
///         .lease_duration(Duration::from_secs(6))
///         .renew_deadline(Duration::from_secs(4))
///         .retry_period(Duration::from_secs(1))
///         .stop_grace(Duration::from_millis(1500))
///         .release_on_exit(true)
///         .on_new_leader(|identity| println!("{identity} leads"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = ApiServer::new().client();
/// let election = quick(Election::builder(client, "default", "example", "a")).build()?;
/// # drop(election);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct ElectionBuilder {
    client: Client,
    namespace: String,
    lease: String,
    identity: String,
    timing: ElectionTiming,
    stop_grace: Option<Duration>,
    standby: bool,
    release: bool,
    seed: Option<u64>,
    on_new_leader: Option<OnNewLeader>,
}

impl Election {
    /// Returns a builder for a candidate that competes for the Lease `name`. Identities must be unique, because two processes with the same identity
    /// treat each other's lease as their own: see [`unique_identity`](crate::unique_identity).
    ///
    /// The service account needs the verbs `get`, `create` and `update` for `leases` in `coordination.k8s.io`.
    pub fn builder(
        client: Client,
        namespace: &str,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> ElectionBuilder {
        ElectionBuilder {
            client,
            namespace: namespace.to_owned(),
            lease: name.into(),
            identity: identity.into(),
            timing: ElectionTiming::default(),
            stop_grace: None,
            standby: false,
            release: true,
            seed: None,
            on_new_leader: None,
        }
    }
}

// === impl ElectionBuilder ===

impl ElectionBuilder {
    /// Sets the lease duration: other candidates acquire the lease only after they have seen no renewal for this long.
    /// The Lease stores the duration in whole seconds, rounded up.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.timing.lease_duration = duration;
        self
    }

    /// Sets the renew deadline: a leader stops leading this long after it sent its last successful renewal.
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.timing.renew_deadline = deadline;
        self
    }

    /// Sets the time between two attempts to acquire or to renew the lease. A leader waits exactly this long; other candidates add a random time of
    /// up to 1.2 retry periods, but wait no longer than until the lease expires.
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.timing.retry_period = period;
        self
    }

    /// Sets the stop grace: how long the work may continue after the lease was not renewed in time, so that it can stop gracefully. Then the work is
    /// dropped. If the Lease was overwritten or deleted, the work is dropped immediately.
    pub fn stop_grace(mut self, stop_grace: Duration) -> Self {
        self.stop_grace = Some(stop_grace);
        self
    }

    /// Sets whether the work starts as soon as the election [runs](Election::run), before this candidate leads. Off by default.
    ///
    /// A standby can fill its caches, but must change nothing before this candidate [is elected](crate::Leadership::elected). A replica whose caches are
    /// filled can report ready, so a rolling update proceeds. When the replica is elected, its caches need no new list.
    ///
    /// **The work itself has to wait for the leadership.** A controller of flyball-kube does so with `Controller::with_leadership`. In other work, await
    /// [`Leadership::elected`](crate::Leadership::elected) first.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube_lease::{Election, ElectionBuilder};
    /// # struct Caches;
    /// # impl Caches {
    /// #     async fn fill() -> Self { Self }
    /// #     async fn reconcile(self) {}
    /// # }
    /// # async fn sigterm() {}
    /// # async fn example(builder: ElectionBuilder) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut election = builder.standby(true).build()?;
    /// let outcome = election
    ///     .run(sigterm(), async |leadership| {
    ///         let caches = Caches::fill().await;
    ///         leadership.elected().await;
    ///         tokio::select! {
    ///             () = caches.reconcile() => {}
    ///             () = leadership.lost() => {}
    ///         }
    ///     })
    ///     .await;
    /// # Ok(()) }
    /// ```
    pub fn standby(mut self, standby: bool) -> Self {
        self.standby = standby;
        self
    }

    /// Sets whether the lease is released when the work has ended, so that other candidates need not wait for it to expire. On by default,
    /// unlike client-go's `ReleaseOnCancel`, because this crate never releases a lease before the work has ended.
    #[doc(alias = "ReleaseOnCancel")]
    pub fn release_on_exit(mut self, release: bool) -> Self {
        self.release = release;
        self
    }

    /// Sets a function that is called with the identity of each new leader, including this candidate. The function runs in the task of the election
    /// and must not block. If the function panics, the panic is caught and logged.
    pub fn on_new_leader(mut self, call: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_new_leader = Some(Arc::new(call));
        self
    }

    /// Sets the seed of the jitter, for tests.
    #[doc(hidden)]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Builds the election. The election sends no request before it [runs](Election::run).
    ///
    /// # Errors
    /// Returns [`InvalidElectionConfig`] if the periods break a rule in the table of [`ElectionBuilder`], if the identity is empty, or if no Lease can have
    /// this name or namespace.
    pub fn build(self) -> Result<Election, InvalidElectionConfig> {
        let ElectionTiming { lease_duration, renew_deadline, retry_period, .. } = self.timing;
        let mut timing = ElectionTiming::new(lease_duration, renew_deadline, retry_period)?;
        if let Some(stop_grace) = self.stop_grace {
            timing = timing.with_stop_grace(stop_grace)?;
        }
        if self.identity.is_empty() {
            return Err(InvalidElectionConfig::Identity);
        }
        let is_subdomain = self.lease.len() <= 253 && self.lease.split('.').all(is_label);
        if !is_subdomain || !is_label(&self.namespace) || self.namespace.len() > 63 {
            return Err(InvalidElectionConfig::Name);
        }
        let seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one(&self.identity));
        Ok(Election {
            candidate: Candidate::new(self.identity.clone(), timing, seed),
            identity: self.identity,
            lease_api: LeaseApi::new(self.client, self.namespace, self.lease.clone()),
            lease: self.lease,
            timing,
            standby: self.standby,
            release: self.release,
            on_new_leader: self.on_new_leader,
            status: LeaderStatus::new(),
            origin: Instant::now(),
        })
    }
}

/// Returns whether a name consists of lower-case letters, digits and, within it, dashes. Its length is not checked.
fn is_label(name: &str) -> bool {
    let ends = !name.is_empty() && !name.starts_with('-') && !name.ends_with('-');
    ends && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
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

/// Returns an identity that no other process has: `prefix`, an underscore and random digits. If the prefix is the name of the pod or the
/// host, the Lease shows where the leader runs.
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
    // A `RandomState` gets its keys from the random number generator of the operating system.
    let random = |n: u8| RandomState::new().hash_one(n);
    format!("{prefix}_{:016x}{:016x}", random(0), random(1))
}
