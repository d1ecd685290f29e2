//! SHELL. The status of an election, for probes, metrics and logs.
//!
//! | guarded by | |
//! |---|---|
//! | `StatusState` | a `watch` channel: written by the election alone |

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::leadership::Leadership;

/// The status of an election, seen from one candidate; see [`Election::status`](crate::Election::status). Cloning increments a reference
/// count.
///
/// # Examples
/// ```
/// # use flyball_kube_testing::ApiServer;
/// # use k8s_openapi::api::coordination::v1::Lease;
/// use flyball_kube_lease::{Election, ElectionOutcome, LeaderStatus};
/// use std::future::pending;
/// use std::time::Duration;
/// use tokio::time::sleep;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = ApiServer::new();
/// # server.register::<Lease>();
/// let mut election = Election::builder(server.client(), "default", "example", "a").build()?;
/// let status: LeaderStatus = election.status();
/// assert!(!status.is_leader() && status.leader().is_none());
///
/// let outcome = election
///     .run(pending(), async |_| {
///         sleep(Duration::from_secs(60)).await;
///         assert_eq!((status.leader().as_deref(), status.times_elected()), (Some("a"), 1));
///         assert!(status.since_last_renewal() <= Some(Duration::from_secs(2)));
///         assert_eq!(status.last_error(), None);
///         status.live(Duration::from_secs(5)) // for a liveness probe
///     })
///     .await;
/// assert_eq!(outcome, ElectionOutcome::Done(Ok(())));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LeaderStatus {
    pub(crate) state: Arc<watch::Sender<StatusState>>,
}

#[derive(Default)]
pub(crate) struct StatusState {
    pub(crate) leader: Option<Arc<str>>,
    pub(crate) term: Option<Leadership>,
    /// The time at which the last successful renewal was sent.
    pub(crate) last_renewal: Option<Instant>,
    /// The time from which other candidates may lead; `None` unless the work of a leader is running.
    pub(crate) lease_expiry: Option<Instant>,
    pub(crate) times_elected: u64,
    pub(crate) last_error: Option<Arc<str>>,
}

// === impl LeaderStatus ===

impl LeaderStatus {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default() }
    }

    /// Returns whether this candidate leads now, according to the local clock.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.state.borrow().term.as_ref().is_some_and(Leadership::is_leader)
    }

    /// Returns the identity of the leader according to the last response that contained the Lease; `None` if no response has contained it, or if the
    /// Lease was released or deleted.
    #[must_use]
    pub fn leader(&self) -> Option<Arc<str>> {
        self.state.borrow().leader.clone()
    }

    /// Returns how many times this candidate was elected.
    #[must_use]
    pub fn times_elected(&self) -> u64 {
        self.state.borrow().times_elected
    }

    /// Returns the time since the last successful renewal was sent; `None` if this candidate has never led.
    #[must_use]
    pub fn since_last_renewal(&self) -> Option<Duration> {
        self.state.borrow().last_renewal.map(|at| at.elapsed())
    }

    /// Returns the error of the last request; `None` if the last request succeeded or ended in a conflict. If there was no response in time, includes the
    /// error before it. A response that the Lease is missing keeps the
    /// error of an earlier request, because a creation that failed is repeated only after a lease duration.
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<str>> {
        self.state.borrow().last_error.clone()
    }

    /// Checks liveness, like client-go's `HealthzAdaptor`: fails if the work of a leader is still running and other
    /// candidates may have led for longer than `tolerated`. In that case the task of the election is blocked, and only
    /// a restart of the process helps.
    ///
    /// # Errors
    /// Returns [`LeaseOverrun`], which contains how long another candidate may already have been leading.
    pub fn live(&self, tolerated: Duration) -> Result<(), LeaseOverrun> {
        match self.state.borrow().lease_expiry.map(|at| at.elapsed()) {
            Some(since) if since > tolerated => Err(LeaseOverrun(since)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for LeaderStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderStatus")
            .field("is_leader", &self.is_leader())
            .field("leader", &self.leader())
            .finish_non_exhaustive()
    }
}

/// The error of [`LeaderStatus::live`]: the work of a leader continues although other candidates may lead. Contains how long they may have been
/// leading.
///
/// # Examples
/// ```
/// use flyball_kube_lease::{LeaderStatus, LeaseOverrun};
/// use std::time::Duration;
///
/// /// The answer to a liveness probe.
/// fn healthz(status: &LeaderStatus) -> (u16, String) {
///     match status.live(Duration::from_secs(5)) {
///         Ok(()) => (200, "ok".into()),
///         Err(LeaseOverrun(since)) => (503, format!("blocked: others may have led for {since:?}")),
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseOverrun(pub Duration);

impl fmt::Display for LeaseOverrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the work of a leader continues, although others may have led for {:?}", self.0)
    }
}

impl Error for LeaseOverrun {}
