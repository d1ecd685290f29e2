//! SHELL. The report of a run.
//!
//! | guarded by | |
//! |---|---|
//! | each [`Counter`] | a single atomic, which publishes no other memory |
//!
//! The report is created after all workers have been joined. Only a mapper that was running at the shutdown may still increment a counter after that.

use std::time::Duration;

use flyball_sync::locks::{AtomicU64, Ordering};
use flyball_workqueue::Leftovers;

use crate::{FailureClass, ReconcileOutcome};

/// The report of a controller's run, from its start until its end.
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
///     .metrics(()) // without metrics, durations are not measured
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
    /// Keys that were added to the queue because of changes, including keys that were coalesced with a queued key.
    pub keys_added: u64,
    /// Keys that were removed from the queue because the [key filter](crate::Controller::filter_keys) rejected them.
    pub filtered_keys: u64,
    /// Reconciles that ended, successful or not.
    pub reconciles: u64,
    /// Batches that were [reconciled](crate::Controller::run_batches). Each key of a batch also counts as a reconcile.
    pub batches: u64,
    /// Successful reconciles that requested a requeue.
    pub requeues: u64,
    /// Reconciles that returned an error.
    pub errors: u64,
    /// Reconciles that panicked.
    pub panics: u64,
    /// Reconciles that timed out.
    pub timeouts: u64,
    /// Failures that were conflicts; each conflict is also counted in `errors`, `panics` or `timeouts`.
    pub conflicts: u64,
    /// Failures after which the key was given up.
    pub given_up: u64,
    /// Failures of the [`finally`](crate::Controller::finally) function. If the reconcile itself had succeeded, the failure
    /// is also counted in `errors`, `panics` or `timeouts`.
    pub finally_failures: u64,
    /// Successful reconciles of keys that had failed since their last success. Without a limiter that counts failures, only conflicts count as
    /// failures here.
    pub successful_retries: u64,
    /// The total durations of reconciles. They are zero without [metrics](crate::Controller::metrics), because then the clock is not read.
    pub durations: ReconcileDurations,
    /// Panics in mappers and in other functions that were passed to the controller, except for the reconcile function and `finally`. The
    /// result of such a call is lost, but a change whose mapper panicked is mapped again.
    pub callback_panics: u64,
    /// Changes that were never mapped, because their [mapper](crate::Controller::watches) panicked at each attempt: those that were given up, and those
    /// that would have been mapped again after the end of the run.
    pub mapper_failures: u64,
    /// The keys that were in the queue at the end of the run: `ready` and `waiting` are the queued keys; `leased` are the keys whose reconciles
    /// were [dropped](crate::ControllerConfig::abort_after), and the keys that other users of the queue have leased.
    pub leftovers: Leftovers<K>,
}

/// The total durations of reconciles, by outcome. Each sum saturates at 584 years, which ten thousand workers reach in
/// three weeks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReconcileDurations {
    /// Reconciles that succeeded without a requeue.
    pub successes: Duration,
    /// Reconciles that succeeded and requested a requeue.
    pub requeues: Duration,
    /// Reconciles that returned an error.
    pub errors: Duration,
    /// Reconciles that panicked.
    pub panics: Duration,
    /// Reconciles that timed out.
    pub timeouts: Duration,
}

impl<K> RunReport<K> {
    /// Returns the number of failures after which the controller did not give the key up.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.failures() - self.given_up
    }

    /// Returns the number of reconciles that failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.errors + self.panics + self.timeouts
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn count(&self) {
        // Ordering: Relaxed, because the counter publishes no other memory.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds to the counter, which saturates at its maximum.
    fn add(&self, amount: u64) {
        // Ordering: Relaxed, because the counter publishes no other memory.
        let _ =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| Some(sum.saturating_add(amount)));
    }

    fn read(&self) -> u64 {
        // Ordering: Relaxed, because the workers that write the counter were joined before this read.
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one outcome.
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

/// The counters of the report, shared by the workers and mappers of a controller.
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
    pub(crate) mapper_failures: Counter,
}

impl ReportCounters {
    /// Counts the outcome of a reconcile, and adds its duration to the total of that outcome.
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

    /// Creates the report. `unmapped` changes are still not mapped, in addition to those that were given up.
    pub(crate) fn report<K>(&self, leftovers: Leftovers<K>, unmapped: u64) -> RunReport<K> {
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
            mapper_failures: self.mapper_failures.read() + unmapped,
            leftovers,
        }
    }
}
