//! EDGE. An election. Nothing here waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_sync::Nanos;
use tokio::time::Instant;

use crate::candidate::Candidate;
use crate::candidate::loss_reason::LossReason;
use crate::candidate::timing::ElectionTiming;
use crate::lease_api::LeaseApi;
use crate::status::LeaderStatus;

/// A candidate of a leader election by a Lease: at any time at most one of the participating processes does the work.
///
/// The record and the periods are client-go's, so processes in Go can take part in the same election; the [crate's
/// documentation](crate#rules-of-client-go) lists the differences. The future of [`run`](Self::run) does everything: no task is
/// spawned.
///
/// # Examples
/// ```
/// use flyball_kube_lease::{Election, ElectionOutcome, unique_identity};
/// use std::future::pending;
///
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let identity = unique_identity(&std::env::var("HOSTNAME").unwrap_or_default());
/// let mut election = Election::builder(client, "kube-system", "my-controller", identity).build()?;
/// let status = election.status(); // for probes and metrics
/// let outcome = election
///     .run(pending(), |leadership| async move {
///         // The work of the leader. To fill caches before the election, build it with `standby(true)`.
///         leadership.lost().await;
///     })
///     .await;
/// // As in Go: a process that has lost its lease exits, and is restarted.
/// if let ElectionOutcome::Lost(reason, _) = outcome {
///     return Err(format!("lost the leadership: {reason:?}").into());
/// }
/// # Ok(()) }
/// ```
pub struct Election {
    pub(crate) candidate: Candidate,
    pub(crate) identity: String,
    pub(crate) lease_api: LeaseApi,
    pub(crate) lease: String,
    pub(crate) timing: ElectionTiming,
    /// Whether the work starts before the candidate leads.
    pub(crate) standby: bool,
    pub(crate) release: bool,
    pub(crate) on_new_leader: Option<OnNewLeader>,
    pub(crate) status: LeaderStatus,
    pub(crate) origin: Instant,
}

pub(crate) type OnNewLeader = Arc<dyn Fn(&str) + Send + Sync>;

/// The outcome of [`Election::run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionOutcome<T> {
    /// The work ended with this result, either while this candidate led or, as a [standby](crate::ElectionBuilder::standby), before it led.
    Done(T),
    /// The leadership was lost. Contains the result of the work, if the work ended within the stop grace.
    Lost(LossReason, Option<T>),
    /// The election was stopped before this candidate led.
    Stopped,
}

// === impl Election ===

impl Election {
    /// Returns the status of the election, for probes and metrics.
    #[must_use]
    pub fn status(&self) -> LeaderStatus {
        self.status.clone()
    }

    /// Returns the time of the candidate's monotonic clock.
    pub(crate) fn clock(&self) -> Nanos {
        Nanos::ZERO + self.origin.elapsed()
    }

    pub(crate) fn instant(&self, at: Nanos) -> Instant {
        self.origin + at.since(Nanos::ZERO).min(FAR)
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, identity) = (&self.lease, &self.identity);
        f.debug_struct("Election")
            .field("lease", lease)
            .field("identity", identity)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// The maximum time from `origin` to a deadline. No process runs for that long, and adding it to an `Instant` does not overflow.
const FAR: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);
