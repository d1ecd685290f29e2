//! SHELL. One term of a leader, shared by the leader's work and by all tasks that wait for the start or the end of the term.
//!
//! | guarded by | |
//! |---|---|
//! | start, end, loss and token of the term | a `watch` channel: written by the election, and by `is_leader` and `is_over` when their deadline has passed |
//!
//! Two decisions are made under the lock of the channel: whether a deadline has passed, and whether a renewal is in time. So a term that was
//! reported as over is never extended, and once one handle has reported the end of the term, all handles report it.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The term during which a candidate leads. The election passes it to the work. Clones share the term.
///
/// The work of a [standby](crate::ElectionBuilder::standby) starts before the term does. With `Controller::with_leadership`, a controller of
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
/// let outcome = election.run(sleep(Duration::from_secs(25)), work).await;
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
    /// How long after `until` the work may continue.
    stop_grace: Duration,
    /// Whether the work must not continue, whatever the time is.
    over: bool,
    token: Option<u64>,
    /// Whether the election was stopped.
    stop: bool,
}

// === impl Leadership ===

impl Leadership {
    /// Creates a term that has not started.
    pub(crate) fn new(stop_grace: Duration) -> Self {
        let term = Term { until: None, lost: false, stop_grace, over: false, token: None, stop: false };
        Self { term: Arc::new(watch::Sender::new(term)) }
    }

    /// Completes when this candidate leads: immediately, unless the work has started as a [standby](crate::ElectionBuilder::standby). Never completes if the
    /// term is over when the future is polled.
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

    /// Completes when the work must end: the Lease was overwritten or deleted, the lease was not renewed in time, or the election was
    /// [stopped](crate::Election::run), even if the candidate has not led yet. If the lease was not renewed in time, the work has the [stop
    /// grace](crate::ElectionBuilder::stop_grace) to end gracefully, and is then dropped. If the Lease was overwritten or deleted, the work is dropped
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

    /// Returns whether this candidate leads now, according to the local clock. A request that is sent now may still arrive after the end of the term; see
    /// [what a lease cannot prevent](crate#what-a-lease-cannot-prevent).
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

    /// Returns the fencing token of this term: a later term of this Lease has a greater one. Send it with every write to a system outside the cluster.
    /// That system stores the greatest token that it has received, and rejects a write with a smaller one, so a late write of an earlier leader changes
    /// nothing.
    ///
    /// The token is the `resourceVersion` of the Lease after the write that began the term. Renewals do not change it. Do not use the number of transitions
    /// in the Lease instead: it starts again at 0 when the Lease is deleted.
    ///
    /// Returns `None` before the term begins, and if the `resourceVersion` is not a decimal number that fits into a `u64`. Kubernetes uses such numbers,
    /// and increases them with each write. **After a restore of the cluster from a backup they may be smaller than before**: then the system outside
    /// rejects the new leader until its stored token is reset.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube_testing::ApiServer;
    /// # use k8s_openapi::api::coordination::v1::Lease;
    /// use flyball_kube_lease::{Election, ElectionOutcome};
    /// use std::future::pending;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = ApiServer::new();
    /// # server.register::<Lease>();
    /// let mut election = Election::builder(server.client(), "default", "example", "a").build()?;
    /// let ElectionOutcome::Done(first) = election.run(pending(), async |term| term.token()).await else { panic!() };
    /// let ElectionOutcome::Done(second) = election.run(pending(), async |term| term.token()).await else { panic!() };
    /// assert!(first.is_some() && first < second);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "fencing")]
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.term.borrow().token
    }

    /// Wraps a future so that it is polled only while the work of this term may continue: until the term and its [stop
    /// grace](crate::ElectionBuilder::stop_grace) are over, or until the Lease was overwritten or deleted, or the election has ended. The clock is read
    /// immediately before each poll. When the time is over, the future is dropped instead of polled, and the wrapper returns `None`.
    ///
    /// The work of [`run`](crate::Election::run) and the reconciles of a controller with `Controller::with_leadership` are polled in this way. Use this
    /// method for tasks that the work spawns. It matters when a process is stopped (SIGSTOP, a frozen container) and continues after another candidate
    /// has become the leader: the wake-ups of all its timers are then due, and without this check the tasks run before they learn that the term is over.
    ///
    /// The wrapper checks the time only when it is polled, and has no timer. To end a future that waits for long, use [`lost`](Self::lost), too. Before
    /// the term begins, the future is polled. [What a lease cannot prevent](crate#what-a-lease-cannot-prevent) lists the rest.
    ///
    /// # Cancel safety
    /// Dropping the wrapper drops the future.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube_lease::Leadership;
    ///
    /// # async fn upload() -> u64 { 7 }
    /// async fn work(leadership: Leadership) {
    ///     let task = tokio::spawn(leadership.guard(upload()));
    ///     match task.await {
    ///         Ok(Some(bytes)) => println!("{bytes} bytes"),
    ///         Ok(None) => println!("dropped, because the term is over"),
    ///         Err(panicked) => println!("{panicked}"),
    ///     }
    /// }
    /// ```
    pub fn guard<F: Future>(&self, future: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        let this = self.clone();
        async move {
            let mut future = pin!(Some(future));
            poll_fn(|context| {
                if this.is_over() {
                    future.set(None);
                }
                match future.as_mut().as_pin_mut() {
                    Some(running) => running.poll(context).map(Some),
                    None => Poll::Ready(None),
                }
            })
            .await
        }
    }

    /// Returns whether the work must not continue: the term and its stop grace are over.
    pub(crate) fn is_over(&self) -> bool {
        let term = *self.term.borrow();
        let Some(until) = term.until.filter(|_| !term.over) else { return term.over };
        // The clock is read last, so the process can stop unnoticed only between this line and the end of the poll. A renewal that is made after the
        // term was read only extends it.
        if Instant::now() < until + term.stop_grace {
            return false;
        }
        self.term.send_if_modified(|term| {
            let now = Instant::now();
            let passed = !term.over && term.until.is_some_and(|until| until + term.stop_grace <= now);
            (term.over, term.lost) = (term.over || passed, term.lost || passed);
            passed
        });
        self.term.borrow().over
    }

    /// Returns whether the term has started.
    pub(crate) fn has_begun(&self) -> bool {
        self.term.borrow().until.is_some()
    }

    /// Starts the term with a token, or extends it to `until`. Returns `false` if the term is already over, or if the time `until` has already passed.
    pub(crate) fn prolong(&self, until: Instant, token: Option<u64>) -> bool {
        let in_time = self.is_leader() || !self.has_begun();
        self.term.send_if_modified(|term| {
            let later = !term.lost && term.until != Some(until);
            if later {
                (term.until, term.token) = (Some(until), token);
            }
            later
        });
        in_time && self.is_leader()
    }

    pub(crate) fn stop(&self) {
        self.term.send_if_modified(|term| !std::mem::replace(&mut term.stop, true));
    }

    /// Ends the leadership. The work may continue until the stop grace is over.
    pub(crate) fn lose(&self) {
        self.term.send_if_modified(|term| !std::mem::replace(&mut term.lost, true));
    }

    /// Ends the leadership and the work.
    pub(crate) fn end(&self) {
        self.term.send_if_modified(|term| {
            let changed = !(term.lost && term.over);
            (term.lost, term.over) = (true, true);
            changed
        });
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let term = *self.term.borrow();
        f.debug_struct("Leadership")
            .field("begun", &term.until.is_some())
            .field("lost", &term.lost)
            .field("over", &term.over)
            .field("stop", &term.stop)
            .finish_non_exhaustive()
    }
}
