//! SHELL. The report of a run.
//!
//! | guarded by | |
//! |---|---|
//! | each [`Counter`] | a single atomic, which publishes no other memory |
//!
//! The report is created after all workers have been joined. Only a mapper that was running at the shutdown may still increment a counter after that.

use flyball_sync::locks::{AtomicU64, Ordering};
use flyball_workqueue::Leftovers;

use crate::{FailureClass, ReconcileOutcome};

/// The report of a controller's run, from its start until its end.
///
/// # Examples
/// ```
/// # use flyball_controller::{Action, Controller, RunReport, TokioTimer};
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
///     .graceful_shutdown_on(tokio::time::sleep(Duration::from_secs(4)))
///     .run(|key, _| async move {
///         tokio::time::sleep(Duration::from_secs(1)).await;
///         if key == "good" { Ok(Action::await_change()) } else { Err("no luck") }
///     })
///     .await?;
/// assert_eq!((report.reconciles, report.failures(), report.retries()), (2, 1, 1));
/// assert_eq!(report.leftovers.waiting, ["bad"]); // its backoff was not over
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
    /// failures here. Conflicts whose count was [reset](crate::ControllerConfig::conflict_backoff_initial) because they were long ago may not count.
    pub successful_retries: u64,
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

    fn read(&self) -> u64 {
        // Ordering: Relaxed, because the workers that write the counter were joined before this read.
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of the report, shared by the workers and mappers of a controller.
#[derive(Debug, Default)]
pub(crate) struct ReportCounters {
    pub(crate) keys_added: Counter,
    pub(crate) filtered_keys: Counter,
    pub(crate) batches: Counter,
    successes: Counter,
    requeues: Counter,
    errors: Counter,
    panics: Counter,
    timeouts: Counter,
    conflicts: Counter,
    pub(crate) given_up: Counter,
    pub(crate) finally_failures: Counter,
    pub(crate) successful_retries: Counter,
    pub(crate) callback_panics: Counter,
    pub(crate) mapper_failures: Counter,
}

impl ReportCounters {
    /// Counts the outcome of a reconcile.
    pub(crate) fn record(&self, outcome: ReconcileOutcome) {
        let ends = match outcome {
            ReconcileOutcome::Succeeded => &self.successes,
            ReconcileOutcome::Requeued => &self.requeues,
            ReconcileOutcome::Failed(_) => &self.errors,
            ReconcileOutcome::Panicked(_) => &self.panics,
            ReconcileOutcome::TimedOut(_) => &self.timeouts,
        };
        ends.count();
        if outcome.class() == Some(FailureClass::Conflict) {
            self.conflicts.count();
        }
    }

    /// Creates the report. `unmapped` changes are still not mapped, in addition to those that were given up.
    pub(crate) fn report<K>(&self, leftovers: Leftovers<K>, unmapped: u64) -> RunReport<K> {
        let ends = [&self.successes, &self.requeues, &self.errors, &self.panics, &self.timeouts];
        let [_, requeues, errors, panics, timeouts] = ends.map(Counter::read);
        RunReport {
            keys_added: self.keys_added.read(),
            filtered_keys: self.filtered_keys.read(),
            reconciles: ends.iter().map(|ends| ends.read()).sum(),
            batches: self.batches.read(),
            requeues,
            errors,
            panics,
            timeouts,
            conflicts: self.conflicts.read(),
            given_up: self.given_up.read(),
            finally_failures: self.finally_failures.read(),
            successful_retries: self.successful_retries.read(),
            callback_panics: self.callback_panics.read(),
            mapper_failures: self.mapper_failures.read() + unmapped,
            leftovers,
        }
    }
}
