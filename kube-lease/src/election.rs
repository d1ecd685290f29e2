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

use flyball_sync::Nanos;
use kube::Client;
use tokio::time::Instant;

use crate::builder::{ElectionBuilder, OnNewLeader};
use crate::candidate::Candidate;
use crate::driver::Driver;
use crate::leadership::Leadership;
use crate::lease_api::Leases;
use crate::lease_request::Lost;
use crate::status::Standing;
use crate::timing::Timing;

/// An election by a Lease: of all processes that take part, one at a time does the work.
///
/// With client-go's record and periods, so that it can take part with processes in Go in one election: see the [crate](crate) for what
/// differs. Everything happens in the future of [`run`](Self::run): no task is spawned, and nothing is done before or after.
///
/// # Examples
/// ```
/// use flyball_kube_lease::{Election, Ended, unique_identity};
///
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let identity = unique_identity(&std::env::var("HOSTNAME").unwrap_or_default());
/// let mut election = Election::builder(client, "kube-system", "my-controller", identity).build()?;
/// let standing = election.standing(); // for probes and metrics
/// let ended = election
///     .run(|leadership| async move {
///         // What only one process may do. For a controller see `run_standby`.
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
    pub(crate) candidate: Candidate,
    pub(crate) identity: String,
    pub(crate) leases: Leases,
    pub(crate) lease: String,
    pub(crate) timing: Timing,
    pub(crate) release: bool,
    pub(crate) on_new_leader: Option<OnNewLeader>,
    pub(crate) standing: Standing,
    pub(crate) origin: Instant,
}

/// How an election has ended for a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended<T> {
    /// The work has ended, while it led, or before as a [standby](Election::run_standby). This is what it came to.
    Done(T),
    /// Its leadership was lost. What the work came to, if it ended in the time that it had.
    Lost(Lost, Option<T>),
    /// It was told to stop before it led.
    Stopped,
}

// === impl Election ===

impl Election {
    /// The Lease of this name, and who takes part. Of two processes with the same identity, each believes that it is the other: see
    /// [`unique_identity`](crate::unique_identity).
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

    /// As [`run`](Self::run), until `stop` is done: a candidate ends then, and the work of a leader is asked to end, by
    /// [`Leadership::lost`]. It leads, and renews its lease, until the work has ended; how long that may take is for the work to know.
    ///
    /// A candidate ends at once, unless it is just taking the lease: then it waits for the answer, for half of the [renew deadline](Timing::renew_deadline) at
    /// most, and gives the lease away if it was taken.
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
        self.take_part(false, stop, work).await
    }

    /// As [`run_until`](Self::run_until), but the work begins at once, as that of a standby: it fills its caches, and changes nothing before it
    /// [is elected](Leadership::elected). A replica with warm caches is ready, so that a rolling update goes on, and takes over without a list.
    ///
    /// **The work itself has to wait.** A controller of flyball-kube does, with
    /// `Controller::with_leadership`; other work awaits [`Leadership::elected`], or uses `run_until`.
    ///
    /// It is dropped when `stop` is done before it has led. From when it leads, everything is as in `run_until`.
    ///
    /// # Panics
    /// When the work or `stop` does; the lease is given away first.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube_lease::Election;
    /// # struct Caches;
    /// # impl Caches {
    /// #     async fn fill() -> Self { Self }
    /// #     async fn reconcile(self) {}
    /// # }
    /// # async fn sigterm() {}
    /// # async fn example(mut election: Election) {
    /// let ended = election
    ///     .run_standby(sigterm(), async |leadership| {
    ///         let caches = Caches::fill().await;
    ///         leadership.elected().await;
    ///         tokio::select! {
    ///             () = caches.reconcile() => {}
    ///             () = leadership.lost() => {}
    ///         }
    ///     })
    ///     .await;
    /// # }
    /// ```
    pub async fn run_standby<T, F>(
        &mut self,
        stop: impl Future<Output = ()>,
        work: impl FnOnce(Leadership) -> F,
    ) -> Ended<T>
    where
        F: Future<Output = T>,
    {
        self.take_part(true, stop, work).await
    }

    /// `standby`: the work begins before it leads.
    async fn take_part<T, F>(
        &mut self,
        standby: bool,
        stop: impl Future<Output = ()>,
        work: impl FnOnce(Leadership) -> F,
    ) -> Ended<T>
    where
        F: Future<Output = T>,
    {
        let release = self.release;
        let mut driver = Driver::new(self);
        let term = driver.term.clone();
        let mut stop = pin!(stop);
        let mut stopped = false;
        let mut working = pin!(None);
        let mut work = Some(work);
        let ended = poll_fn(|context| {
            // A signal that is there already lets nothing begin.
            if !stopped {
                match caught(|| stop.as_mut().poll(context).map(Some)) {
                    Poll::Ready(Some(Err(panic))) => return Poll::Ready(Some(Err(panic))),
                    Poll::Ready(_) => {
                        stopped = true;
                        term.stop();
                    }
                    Poll::Pending => {}
                }
            }
            if stopped && !term.has_begun() {
                return Poll::Ready(None);
            }
            // Before the work: what it finds out is what the work may still do.
            driver.poll(context);
            let now = driver.now();
            if term.has_begun() && !driver.candidate().may_work(now) {
                return Poll::Ready(None);
            }
            caught(|| {
                if (standby || term.has_begun())
                    && let Some(work) = work.take()
                {
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
        let led = term.has_begun();
        let leads = term.is_leading();
        term.lose();
        if release && (leads || !led) {
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
            (None, _) if !led => Ended::Stopped,
            (Some(Ok(output)), None) if leads || !led => Ended::Done(output),
            (Some(Ok(output)), lost) => Ended::Lost(lost.unwrap_or(Lost::NotRenewed), Some(output)),
            (None, lost) => Ended::Lost(lost.unwrap_or(Lost::NotRenewed), None),
        }
    }

    /// What its monotonic clock shows.
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
