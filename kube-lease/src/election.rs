//! EDGE. The election: campaigns for the lease, and runs the work of the leader.
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
use crate::candidate::{Candidate, ElectionTiming, LossReason};
use crate::driver::Driver;
use crate::leadership::Leadership;
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
///
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let identity = unique_identity(&std::env::var("HOSTNAME").unwrap_or_default());
/// let mut election = Election::builder(client, "kube-system", "my-controller", identity).build()?;
/// let status = election.status(); // for probes and metrics
/// let outcome = election
///     .run(|leadership| async move {
///         // The work of the leader. To fill caches before the election, use `run_as_standby`.
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
    pub(crate) release: bool,
    pub(crate) on_new_leader: Option<OnNewLeader>,
    pub(crate) status: LeaderStatus,
    pub(crate) origin: Instant,
}

/// The outcome of [`Election::run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionOutcome<T> {
    /// The work ended with this result, either while this candidate led or, with [`run_as_standby`](Election::run_as_standby), before it led.
    Done(T),
    /// The leadership was lost. Contains the result of the work, if the work ended within the stop grace.
    Lost(LossReason, Option<T>),
    /// The election was stopped before this candidate led.
    Stopped,
}

// === impl Election ===

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
        ElectionBuilder::new(client, namespace, name, identity)
    }

    /// Returns the status of the election, for probes and metrics.
    #[must_use]
    pub fn status(&self) -> LeaderStatus {
        self.status.clone()
    }

    /// Campaigns until this candidate leads, then runs the work, and renews the lease while the work runs. The future
    /// completes when the work or the leadership ends. After that, the election can be run again.
    ///
    /// [`Leadership::lost`] completes when the leadership is over. The work is dropped a [stop grace](ElectionBuilder::stop_grace) later, before
    /// other candidates can lead, or immediately if the Lease no longer names this candidate. The clock is read immediately before each poll of the work,
    /// so no poll starts after the stop grace, even if the process was stopped in the meantime. [What a lease cannot
    /// prevent](crate#what-a-lease-cannot-prevent) lists the rest, such as requests that were sent and tasks that the work spawned.
    ///
    /// Work that blocks its thread also blocks the renewal of the lease, so the leadership is lost if the work blocks for too long.
    ///
    /// # Panics
    /// Panics if the work panics; the lease is released first.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work. The lease is then not released, because a release needs a request, so other candidates wait until the
    /// lease has expired. To release the lease, let the work end instead.
    pub async fn run<T, F>(&mut self, work: impl FnOnce(Leadership) -> F) -> ElectionOutcome<T>
    where
        F: Future<Output = T>,
    {
        self.run_until(std::future::pending(), work).await
    }

    /// Like [`run`](Self::run), but ends when `stop` completes. If this candidate leads at that time, [`Leadership::lost`] completes, and the
    /// candidate continues to lead and to renew its lease until the work has ended, without a time limit.
    ///
    /// A candidate that does not lead ends immediately, unless it may hold the lease, for example because a request that acquires it is open. In that
    /// case it waits for the response or reads the Lease, and releases the lease if it holds it. Each request may take half of the [renew
    /// deadline](ElectionBuilder::renew_deadline); a failed release is retried twice.
    ///
    /// # Panics
    /// Panics if the work or `stop` panics; the lease is released first.
    ///
    /// # Cancel safety
    /// Like [`run`](Self::run).
    pub async fn run_until<T, F>(
        &mut self,
        stop: impl Future<Output = ()>,
        work: impl FnOnce(Leadership) -> F,
    ) -> ElectionOutcome<T>
    where
        F: Future<Output = T>,
    {
        self.take_part(false, stop, work).await
    }

    /// Like [`run_until`](Self::run_until), but the work starts immediately: it can fill its caches, but must change nothing before this candidate
    /// [is elected](Leadership::elected). A replica whose caches are filled can report ready, so a rolling update proceeds. When the replica is
    /// elected, its caches need no new list.
    ///
    /// **The work itself has to wait for the leadership.** A controller of flyball-kube does so with
    /// `Controller::with_leadership`. In other work, await [`Leadership::elected`] first, or call `run_until` instead of this method.
    ///
    /// The work is dropped if `stop` completes before this candidate has led. Once the candidate leads, this method behaves like
    /// `run_until`.
    ///
    /// # Panics
    /// Panics if the work or `stop` panics; the lease is released first.
    ///
    /// # Cancel safety
    /// Like [`run`](Self::run).
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
    /// let outcome = election
    ///     .run_as_standby(sigterm(), async |leadership| {
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
    pub async fn run_as_standby<T, F>(
        &mut self,
        stop: impl Future<Output = ()>,
        work: impl FnOnce(Leadership) -> F,
    ) -> ElectionOutcome<T>
    where
        F: Future<Output = T>,
    {
        self.take_part(true, stop, work).await
    }

    /// Takes part in the election. If `standby` is set, the work starts before the candidate leads.
    async fn take_part<T, F>(
        &mut self,
        standby: bool,
        stop: impl Future<Output = ()>,
        work: impl FnOnce(Leadership) -> F,
    ) -> ElectionOutcome<T>
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
            // `stop` is polled first: if it has already completed, no request is sent and the work does not start.
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
            // The driver is polled before the work, because the driver determines whether the work may continue.
            driver.poll(context);
            // The clock is read again, immediately before the work is polled.
            if term.is_over() {
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
        // Dropping the work may panic, too.
        let dropped = catch_unwind(AssertUnwindSafe(|| working.set(None)));
        let ended = match (ended, dropped) {
            (Some(Err(panic)), _) | (_, Err(panic)) => Some(Err(panic)),
            (ended, Ok(())) => ended,
        };
        driver.end_of_work();

        let now = driver.now();
        let led = term.has_begun();
        let leads = term.is_leader();
        term.end();
        if release && (leads || !led) {
            driver.candidate().release(now);
            poll_fn(|context| {
                driver.poll(context);
                if driver.candidate().has_ended() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        let lost = driver.candidate().lost().cloned();
        match (ended, lost) {
            (Some(Err(panic)), _) => resume_unwind(panic),
            (None, _) if !led => ElectionOutcome::Stopped,
            (Some(Ok(output)), None) if leads || !led => ElectionOutcome::Done(output),
            (Some(Ok(output)), lost) => {
                ElectionOutcome::Lost(lost.unwrap_or(LossReason::NotRenewed), Some(output))
            }
            (None, lost) => ElectionOutcome::Lost(lost.unwrap_or(LossReason::NotRenewed), None),
        }
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

/// Converts a panic to a value, because a panic ends the work in the same way as an output.
fn caught<T>(poll: impl FnOnce() -> Poll<Option<T>>) -> Poll<Option<Result<T, Box<dyn Any + Send>>>> {
    match catch_unwind(AssertUnwindSafe(poll)) {
        Ok(poll) => poll.map(|output| output.map(Ok)),
        Err(panic) => Poll::Ready(Some(Err(panic))),
    }
}

/// The maximum time from `origin` to a deadline. No process runs for that long, and adding it to an `Instant` does not overflow.
const FAR: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);
