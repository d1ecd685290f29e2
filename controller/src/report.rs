//! SHELL. What a controller did.
//!
//! | guarded by | |
//! |---|---|
//! | each [`Counter`] | an atomic, for itself; nothing is published by it. The report is made after all workers were joined; only a change that was being mapped when the events stopped may be counted too late for it |

use std::time::Duration;

use flyball_sync::locks::{AtomicU64, Ordering};
use flyball_workqueue::Leftovers;

use crate::{FailureClass, ReconcileOutcome};

/// What a controller did from its start until its end.
///
/// # Examples
/// ```
/// # use flyball_controller::{Action, Controller, ReconcileDurations, RunReport, TokioTimer};
/// # use flyball_ratelimit::Exponential;
/// # use flyball_workqueue::Queue;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let backoff = Exponential::new(Duration::from_secs(5)..=Duration::from_secs(1000));
/// # let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
/// queue.add_many(["good", "bad"]);
/// let report: RunReport<&str> = Controller::new(queue)
///     .metrics(()) // without it no reconcile is timed
///     .graceful_shutdown_on(tokio::time::sleep(Duration::from_secs(4)))
///     .run(|key, _| async move {
///         tokio::time::sleep(Duration::from_secs(1)).await;
///         if key == "good" { Ok(Action::await_change()) } else { Err("no luck") }
///     })
///     .await?;
/// assert_eq!((report.reconciles, report.failures(), report.retries()), (2, 1, 1));
/// assert_eq!(report.leftovers.waiting, ["bad"]); // its backoff was not over
/// let ReconcileDurations { successes, errors, .. } = report.durations;
/// assert_eq!((successes, errors), (Duration::from_secs(1), Duration::from_secs(1)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunReport<K> {
    /// Keys that changes were mapped to and that the queue took, those merged with a waiting one included.
    pub keys_added: u64,
    /// Keys that were taken out of the queue, as they are not [this controller's](crate::Controller::filter_keys).
    pub filtered_keys: u64,
    /// Reconciles that ended, well or not.
    pub reconciles: u64,
    /// Batches that were [reconciled](crate::Controller::run_batches). Each of their keys counts as a reconcile of its own.
    pub batches: u64,
    /// Reconciles that ended well and asked to come back.
    pub requeues: u64,
    /// Reconciles that returned an error.
    pub errors: u64,
    /// Reconciles that panicked.
    pub panics: u64,
    /// Reconciles that took too long.
    pub timeouts: u64,
    /// Failures that were conflicts; they are among the three above, too.
    pub conflicts: u64,
    /// Failures after which the key was given up.
    pub given_up: u64,
    /// Failures of what is called [finally](crate::Controller::finally). Of a reconcile that had ended well it counts as one of the
    /// kinds of failure above, too.
    pub finally_failures: u64,
    /// Reconciles that ended well of keys that had failed before: retries that were worth it.
    pub successful_retries: u64,
    /// How long reconciles took. Zero without [metrics](crate::Controller::metrics), as the clock is not read then.
    pub durations: ReconcileDurations,
    /// Panics in mappers and other functions that were given to the controller; what they were called for was left out, but a change is
    /// mapped again.
    pub callback_panics: u64,
    /// Changes whose mapper panicked each time, so that their keys are not known.
    pub mapper_failures: u64,
    /// What the queue still held. `ready` and `waiting` were left queued; `leased` are the keys whose reconciles were
    /// [dropped](crate::Controller::abort_after), and those that others hold who share the queue.
    pub leftovers: Leftovers<K>,
}

/// How long reconciles took, all together, by how they ended: up to 584 years each, which ten thousand workers fill in three weeks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReconcileDurations {
    /// Those that ended well, and asked for nothing.
    pub successes: Duration,
    /// Those that asked to come back.
    pub requeues: Duration,
    /// Those that returned an error.
    pub errors: Duration,
    /// Those that panicked.
    pub panics: Duration,
    /// Those that took too long.
    pub timeouts: Duration,
}

impl<K> RunReport<K> {
    /// Failures that were answered by a retry.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.failures() - self.given_up
    }

    /// Reconciles that failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.errors + self.panics + self.timeouts
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn count(&self) {
        // Ordering: Relaxed, it counts and publishes nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Stays at the highest number there is.
    fn add(&self, amount: u64) {
        // Ordering: Relaxed, it counts and publishes nothing.
        let _ =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| Some(sum.saturating_add(amount)));
    }

    fn read(&self) -> u64 {
        // Ordering: Relaxed, the workers that count were joined before.
        self.0.load(Ordering::Relaxed)
    }
}

/// Reconciles that ended in one way.
#[derive(Debug, Default)]
struct OutcomeCounters {
    count: Counter,
    nanos: Counter,
}

impl OutcomeCounters {
    fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos.read())
    }
}

/// The report in the making, shared by the workers and mappers of a controller.
#[derive(Debug, Default)]
pub(crate) struct ReportCounters {
    pub(crate) keys_added: Counter,
    pub(crate) filtered_keys: Counter,
    pub(crate) batches: Counter,
    successes: OutcomeCounters,
    requeues: OutcomeCounters,
    errors: OutcomeCounters,
    panics: OutcomeCounters,
    timeouts: OutcomeCounters,
    conflicts: Counter,
    pub(crate) given_up: Counter,
    pub(crate) finally_failures: Counter,
    pub(crate) successful_retries: Counter,
    pub(crate) callback_panics: Counter,
}

impl ReportCounters {
    /// A reconcile has ended.
    pub(crate) fn record(&self, outcome: ReconcileOutcome, took: Duration) {
        let ends = match outcome {
            ReconcileOutcome::Succeeded => &self.successes,
            ReconcileOutcome::Requeued => &self.requeues,
            ReconcileOutcome::Failed(_) => &self.errors,
            ReconcileOutcome::Panicked(_) => &self.panics,
            ReconcileOutcome::TimedOut(_) => &self.timeouts,
        };
        ends.count.count();
        if !took.is_zero() {
            ends.nanos.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
        if outcome.class() == Some(FailureClass::Conflict) {
            self.conflicts.count();
        }
    }

    pub(crate) fn report<K>(&self, leftovers: Leftovers<K>, mapper_failures: u64) -> RunReport<K> {
        let ends = [&self.successes, &self.requeues, &self.errors, &self.panics, &self.timeouts];
        let [_, requeues, errors, panics, timeouts] = ends.map(|ends| ends.count.read());
        RunReport {
            keys_added: self.keys_added.read(),
            filtered_keys: self.filtered_keys.read(),
            reconciles: ends.iter().map(|ends| ends.count.read()).sum(),
            batches: self.batches.read(),
            requeues,
            errors,
            panics,
            timeouts,
            conflicts: self.conflicts.read(),
            given_up: self.given_up.read(),
            finally_failures: self.finally_failures.read(),
            successful_retries: self.successful_retries.read(),
            durations: ReconcileDurations {
                successes: self.successes.time(),
                requeues: self.requeues.time(),
                errors: self.errors.time(),
                panics: self.panics.time(),
                timeouts: self.timeouts.time(),
            },
            callback_panics: self.callback_panics.read(),
            mapper_failures,
            leftovers,
        }
    }
}
