//! PURE. The names of the queue metrics, their help texts and the values of their labels.
//!
//! The first seven metrics have the names and meanings of client-go, so that dashboards for client-go work; the others are flyball's own. The book
//! has a table of all metrics.

use flyball_workqueue::AddErrorKind;

/// One metric.
#[derive(Debug)]
pub(crate) struct Metric {
    /// The name of a counter ends in `_total`, the name of a duration in `_seconds`.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
}

const fn metric(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help }
}

pub(crate) const DEPTH: Metric =
    metric("workqueue_depth", "Keys that wait for their hand-out: ready, or dirty while leased.");
pub(crate) const ADDS: Metric = metric(
    "workqueue_adds_total",
    "Keys that became ready or dirty, by adds, passed deadlines and retries; no duplicates.",
);
pub(crate) const QUEUED: Metric = metric(
    "workqueue_queue_duration_seconds",
    "Time from when a key became ready or dirty to its hand-out; for a dirty key it includes the rest of the lease.",
);
pub(crate) const WORK_DURATION: Metric =
    metric("workqueue_work_duration_seconds", "Time from a key's hand-out to the end of its lease.");
pub(crate) const UNFINISHED: Metric = metric(
    "workqueue_unfinished_work_seconds",
    "Sum of the ages of all leases at the scrape; grows by one per second for each stuck worker.",
);
pub(crate) const LONGEST: Metric =
    metric("workqueue_longest_running_processor_seconds", "Age of the oldest lease, at the scrape.");
pub(crate) const DELAYS: Metric = metric(
    "workqueue_retries_total",
    "Accepted delayed adds: adds with a delay, delayed requeues, and backoffs after failures.",
);
pub(crate) const WAITING: Metric = metric("workqueue_waiting", "Keys whose deadline has not passed.");
pub(crate) const LEASED: Metric = metric("workqueue_leased", "Keys held by a lease.");
pub(crate) const OLDEST: Metric =
    metric("workqueue_oldest_ready_seconds", "Age of the oldest ready key at the scrape.");
pub(crate) const CAPACITY_LEFT: Metric =
    metric("workqueue_capacity_left", "Remaining capacity, in keys, of a queue with a capacity.");
pub(crate) const DELAY_LATENCY: Metric =
    metric("workqueue_delay_latency_seconds", "Time from a delayed key's deadline to its hand-out.");
pub(crate) const FAILURES: Metric =
    metric("workqueue_failures_total", "Failures that the limiter counted: one for each backoff.");
pub(crate) const GIVEN_UP: Metric =
    metric("workqueue_dead_letters_total", "Keys given up after too many failures.");
pub(crate) const REFUSED: Metric = metric("workqueue_refused_total", "Adds that were refused, by reason.");
pub(crate) const ENDED: Metric = metric("workqueue_leases_ended_total", "Leases that ended, by outcome.");
pub(crate) const OVERDUE: Metric = metric("workqueue_overdue_total", "Leases that were reported as overdue.");

/// The values of the label `reason`.
pub(crate) const REASONS: [(AddErrorKind, &str); 3] = [
    (AddErrorKind::ShutDown, "shut_down"),
    (AddErrorKind::Full, "full"),
    (AddErrorKind::GivenUp, "exhausted"),
];

/// The values of the label `outcome`.
pub(crate) const OUTCOMES: [(&str, &str); 5] = [
    ("done", "done"),
    ("succeeded", "succeeded"),
    ("requeued", "requeued"),
    ("failed", "failed"),
    ("dropped", "dropped"),
];
