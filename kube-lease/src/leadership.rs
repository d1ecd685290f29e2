//! SHELL. One term of a leader, shared by the leader's work and by all tasks that wait for the start or the end of the term.
//!
//! | guarded by | |
//! |---|---|
//! | start, end and loss of the term | a `watch` channel: written by the election, and by `is_leader` when the deadline has passed |
//!
//! Two decisions are made under the lock of the channel: whether the deadline has passed, and whether a renewal is in time. So a term that was
//! reported as over is never extended, and once one handle has reported the end of the term, all handles report it.

use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The term during which a candidate leads. The election passes it to the work. Clones share the term.
///
/// The work of [`run_as_standby`](crate::Election::run_as_standby) starts before the term does. With `Controller::with_leadership`, a controller of
/// flyball-kube reconciles only during the term.
///
/// # Examples
/// Work that waits for its election, and stops gracefully:
/// ```
/// # use flyball_kube_testing::ApiServer;
/// # use k8s_openapi::api::coordination::v1::Lease;
/// use flyball_kube_lease::{Election, ElectionOutcome, Leadership};
/// use std::time::Duration;
/// use tokio::time::{interval, sleep};
///
/// async fn work(leadership: Leadership) -> u32 {
///     leadership.elected().await; // completes immediately, unless this is a standby
///     let (mut ticks, mut timer) = (0, interval(Duration::from_secs(10)));
///     loop {
///         tokio::select! {
///             _ = timer.tick() => {
///                 assert!(leadership.is_leader());
///                 ticks += 1;
///             }
///             () = leadership.lost() => return ticks,
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = ApiServer::new();
/// # server.register::<Lease>();
/// let mut election = Election::builder(server.client(), "default", "example", "a").build()?;
/// let outcome = election.run_as_standby(sleep(Duration::from_secs(25)), work).await;
/// assert_eq!(outcome, ElectionOutcome::Done(3)); // after 0, 10 and 20 s
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Leadership {
    term: Arc<watch::Sender<Term>>,
}

#[derive(Clone, Copy)]
struct Term {
    /// When the term ends unless the lease is renewed; `None` before the candidate is elected.
    until: Option<Instant>,
    lost: bool,
    /// Whether the election was stopped.
    stop: bool,
}

// === impl Leadership ===

impl Leadership {
    /// Creates a term that has not started.
    pub(crate) fn new() -> Self {
        Self { term: Arc::new(watch::Sender::new(Term { until: None, lost: false, stop: false })) }
    }

    /// Completes when this candidate leads. In the work of [`run`](crate::Election::run) and [`run_until`](crate::Election::run_until), it completes
    /// immediately. Never completes if the term is over when the future is polled.
    ///
    /// # Cancel safety
    /// Cancel-safe: dropping the future has no effect other than ending the wait.
    pub fn elected(&self) -> impl Future<Output = ()> + Send + use<> + 'static {
        let this = self.clone();
        async move {
            let mut changes = this.term.subscribe();
            while !this.is_leader() {
                // The wait cannot fail, because `self` holds the sender.
                let _ = changes.changed().await;
            }
        }
    }

    /// Completes when the work must end: the Lease was overwritten, the lease was not renewed in time, or the election was
    /// [stopped](crate::Election::run_until), even if the candidate has not led yet. If the lease was not renewed in time, the work has the [stop
    /// grace](crate::ElectionBuilder::stop_grace) to end gracefully, and is then dropped. If the Lease was overwritten, the work is dropped
    /// immediately. After a stop, the work may continue as long as the candidate leads.
    ///
    /// Pass the future to a controller's `graceful_shutdown_on`. The future has a timer of its own: if it is awaited in another task, it completes in
    /// time even while the task of the election is blocked.
    ///
    /// # Cancel safety
    /// Cancel-safe: dropping the future has no effect other than ending the wait.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> + 'static {
        let this = self.clone();
        async move {
            let mut changes = this.term.subscribe();
            loop {
                let term = *changes.borrow_and_update();
                if term.stop || term.lost || term.until.is_some() && !this.is_leader() {
                    return;
                }
                let passed = async {
                    match term.until {
                        Some(until) => sleep_until(until).await,
                        None => pending().await,
                    }
                };
                tokio::select! {
                    () = passed => {}
                    _ = changes.changed() => {}
                }
            }
        }
    }

    /// Returns whether this candidate leads now, according to the local clock. A request that is sent now may still arrive after the end of
    /// the term.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        let now = Instant::now();
        self.term.send_if_modified(|term| {
            let passed = !term.lost && term.until.is_some_and(|until| until <= now);
            term.lost |= passed;
            passed
        });
        let term = self.term.borrow();
        term.until.is_some() && !term.lost
    }

    /// Returns whether the term has started.
    pub(crate) fn has_begun(&self) -> bool {
        self.term.borrow().until.is_some()
    }

    /// Starts the term, or extends it to `until`. Returns `false` if the term is already over, or if the time `until` has already passed.
    pub(crate) fn prolong(&self, until: Instant) -> bool {
        let in_time = self.is_leader() || !self.has_begun();
        self.term.send_if_modified(|term| {
            let later = !term.lost && term.until != Some(until);
            if later {
                term.until = Some(until);
            }
            later
        });
        in_time && self.is_leader()
    }

    pub(crate) fn stop(&self) {
        self.term.send_if_modified(|term| !std::mem::replace(&mut term.stop, true));
    }

    pub(crate) fn lose(&self) {
        self.term.send_if_modified(|term| !std::mem::replace(&mut term.lost, true));
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let term = *self.term.borrow();
        f.debug_struct("Leadership")
            .field("begun", &term.until.is_some())
            .field("lost", &term.lost)
            .field("stop", &term.stop)
            .finish_non_exhaustive()
    }
}
