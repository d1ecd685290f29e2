//! EDGE. An election, as a program takes part in it.
//!
//! Cancel safety: see [`Election::run`].

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use flyball_ratelimit::Nanos;
use kube::Client;
use tokio::time::Instant;

use super::builder::{ElectionBuilder, OnNewLeader};
use super::candidate::Candidate;
use super::driver::Driver;
use super::leadership::Leadership;
use super::lease::Leases;
use super::question::Lost;
use super::standing::Standing;
use super::timing::Timing;

/// An election by a Lease: of all processes that take part, one at a time does the work.
///
/// With client-go's record and periods, so that it can take part with processes in Go in one election: see the [module](super) for what
/// differs. Everything happens in the future of [`run`](Self::run): no task is spawned, and nothing is done before or after.
///
/// # Examples
/// ```
/// use flyball_kube::leader::{Election, Ended, unique_identity};
///
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let identity = unique_identity(&std::env::var("HOSTNAME").unwrap_or_default());
/// let mut election = Election::builder(client, "kube-system", "my-controller", identity).build()?;
/// let standing = election.standing(); // for probes and metrics
/// let ended = election
///     .run(|leadership| async move {
///         // A controller, with `.graceful_shutdown_on(leadership.lost())`.
///         leadership.lost().await;
///     })
///     .await;
/// // As in Go: a process that has lost its lease begins anew.
/// if let Ended::Lost(why, _) = ended {
///     return Err(format!("leads no more: {why:?}").into());
/// }
/// # Ok(()) }
/// ```
pub struct Election {
    pub(super) candidate: Candidate,
    pub(super) identity: String,
    pub(super) leases: Leases,
    pub(super) lease: String,
    pub(super) timing: Timing,
    pub(super) release: bool,
    pub(super) on_new_leader: Option<OnNewLeader>,
    pub(super) standing: Standing,
    pub(super) origin: Instant,
}

/// How an election has ended for a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended<T> {
    /// The work has ended, while it led. This is what it came to.
    Done(T),
    /// Its leadership was lost. What the work came to, if it ended in the time that it had.
    Lost(Lost, Option<T>),
    /// It was told to stop before it led.
    Stopped,
}

// === impl Election ===

impl Election {
    /// The Lease of this name, and who takes part. Of two processes with the same identity, each believes that it is the other: see
    /// [`unique_identity`](super::unique_identity).
    ///
    /// The service account needs `get`, `create` and `update` of `leases` in `coordination.k8s.io`.
    pub fn builder(
        client: Client,
        namespace: &str,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> ElectionBuilder {
        ElectionBuilder::new(client, namespace, name, identity)
    }

    /// How it stands, for who asks from outside.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// The periods.
    #[must_use]
    pub const fn timing(&self) -> Timing {
        self.timing
    }

    /// Campaigns until it leads, then does the work, and renews the lease meanwhile. It ends with the work, or with the leadership; it can run again then.
    ///
    /// The work is told when its leadership is over, by [`Leadership::lost`], and is dropped a [wind-down](Timing::wind_down) later, before others can lead; at
    /// once if another leads already. It is not polled any more from then on, even if its process stood still meanwhile. But a thread that
    /// computes is not interrupted, and tasks that it has spawned are its own: have them end by [`Leadership::lost`]. Nothing in a process can recall
    /// a request that is under way, so the last word has the API server: `resourceVersion`, or an owner in the object.
    ///
    /// A work that blocks its thread keeps its own lease from being renewed, and so loses it.
    ///
    /// # Panics
    /// When the work does; the lease is given away first.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work. The lease is not given away then, as that takes a request: others wait until it has run out. To give it away, let the
    /// work end.
    pub async fn run<T, F>(&mut self, work: impl FnOnce(Leadership) -> F) -> Ended<T>
    where
        F: Future<Output = T>,
    {
        self.run_until(std::future::pending(), work).await
    }

    /// As [`run`](Self::run), until `stop` is done: a candidate ends then at once, and the work of a leader is told to end, by
    /// [`Leadership::lost`]. It leads, and renews its lease, until the work has ended; how long that may take is for the work to know.
    ///
    /// # Panics
    /// When the work or `stop` does; the lease is given away first.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_until<T, F>(
        &mut self,
        stop: impl Future<Output = ()>,
        work: impl FnOnce(Leadership) -> F,
    ) -> Ended<T>
    where
        F: Future<Output = T>,
    {
        let release = self.release;
        let mut driver = Driver::new(self);
        let mut stop = pin!(stop);
        let mut stopped = false;
        let campaign = poll_fn(|context| {
            if stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            driver.poll(context);
            match &driver.term {
                Some(term) => Poll::Ready(Some(term.clone())),
                None => Poll::Pending,
            }
        });
        let Some(term) = campaign.await else { return Ended::Stopped };

        let mut working = pin!(None);
        let mut work = Some(work);
        let ended = poll_fn(|context| {
            // First: what it finds out is what the work may still do.
            driver.poll(context);
            let now = driver.now();
            if !driver.candidate().may_work(now) {
                return Poll::Ready(None);
            }
            caught(|| {
                if !stopped && stop.as_mut().poll(context).is_ready() {
                    stopped = true;
                    term.stop();
                }
                if let Some(work) = work.take() {
                    working.set(Some(work(term.clone())));
                }
                match working.as_mut().as_pin_mut() {
                    Some(work) => work.poll(context).map(Some),
                    None => Poll::Pending,
                }
            })
        })
        .await;
        // A panic of the work also where it is dropped.
        let dropped = catch_unwind(AssertUnwindSafe(|| working.set(None)));
        let ended = match (ended, dropped) {
            (Some(Err(panic)), _) | (_, Err(panic)) => Some(Err(panic)),
            (ended, Ok(())) => ended,
        };
        driver.end_of_work();

        let now = driver.now();
        let leads = term.is_leading();
        term.lose();
        if leads && release {
            driver.candidate().release(now);
            poll_fn(|context| {
                driver.poll(context);
                if driver.candidate().is_over() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        let lost = driver.candidate().lost().cloned();
        match (ended, lost) {
            (Some(Err(panic)), _) => resume_unwind(panic),
            (Some(Ok(output)), None) if leads => Ended::Done(output),
            (Some(Ok(output)), lost) => Ended::Lost(lost.unwrap_or(Lost::NotRenewed), Some(output)),
            (None, lost) => Ended::Lost(lost.unwrap_or(Lost::NotRenewed), None),
        }
    }

    /// What its monotonic clock shows.
    pub(super) fn clock(&self) -> Nanos {
        Nanos::ZERO + self.origin.elapsed()
    }

    pub(super) fn instant(&self, at: Nanos) -> Instant {
        self.origin + at.since(Nanos::ZERO).min(FAR)
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, identity) = (&self.lease, &self.identity);
        f.debug_struct("Election")
            .field("lease", lease)
            .field("identity", identity)
            .field("standing", &self.standing)
            .finish_non_exhaustive()
    }
}

/// A panic ends the work as a value does.
fn caught<T>(poll: impl FnOnce() -> Poll<Option<T>>) -> Poll<Option<Result<T, Box<dyn Any + Send>>>> {
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(poll) => poll.map(|output| output.map(Ok)),
        Err(panic) => Poll::Ready(Some(Err(panic))),
    }
}

/// What tokio's clock can add up; a process does not get so old.
const FAR: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);
