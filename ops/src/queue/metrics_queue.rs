//! EDGE. The metrics of a queue, through the facade crate `metrics`.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, Label, describe_counter, describe_gauge, describe_histogram};
use flyball_sync::locks::Mutex;
use flyball_workqueue::{AddErrorKind, LeaseOutcome, QueueMetrics, QueueStats, StatsReader};

use super::by_label::ByLabel;
use super::labels::{InvalidLabel, Labels, labels, named};
use super::names::{self, Metric, OUTCOMES, REASONS};
use super::outcome_label::outcome_label;
use super::totals::Totals;

/// Exports the metrics of one queue through the facade [`metrics`](::metrics).
///
/// All names have the prefix `workqueue_`. Seven metrics have the names and meanings of client-go; the book (docs/book)
/// documents every name.
///
/// Gauges, adds and retries are recorded by [`record`](Self::record): call it before each scrape, because there is no background task. All other
/// metrics are recorded as the events happen. Clones are handles to the same metrics: pass one clone to the queue, and keep another to call `record`.
///
/// Install the recorder first, because handles that are created without a recorder never record anything. The facade cannot
/// remove a series, so once the queue is dropped, `record` sets its gauges to zero and returns `false`.
///
/// # Examples
/// ```
/// use flyball_ops::MetricsQueue;
/// use flyball_workqueue::Queue;
///
/// let metrics = MetricsQueue::new("pods");
/// let queue = Queue::builder().metrics(metrics.clone()).build();
/// queue.add("a")?;
/// assert!(metrics.record()); // before each scrape
/// drop(queue);
/// assert!(!metrics.record()); // the queue is gone: all gauges are zero
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MetricsQueue(Arc<Inner>);

struct Inner {
    labels: Labels,
    totals: Totals,
    /// The numbers of adds and delays that have already been passed to the recorder.
    recorded: Mutex<(u64, u64)>,
    adds: Counter,
    delays: Counter,
    depth: Gauge,
    waiting: Gauge,
    leased: Gauge,
    unfinished: Gauge,
    longest: Gauge,
    oldest: Gauge,
    /// The gauge of the remaining capacity. It is registered when `record` first reads a queue with a capacity, so a
    /// queue without a capacity has no such series.
    capacity_left: Mutex<Option<Gauge>>,
    queued: Histogram,
    delay_latency: Histogram,
    work_duration: Histogram,
    failures: Counter,
    given_up: Counter,
    overdue: Counter,
    refused: ByLabel<AddErrorKind, Counter, 3>,
    ended: ByLabel<&'static str, Counter, 5>,
}

impl MetricsQueue {
    /// Creates the metrics of one queue, under the label `name`, in the recorder that is currently installed.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self::of(named(name))
    }

    /// Creates the metrics of one queue, under the label `name` and these further labels.
    ///
    /// # Errors
    /// Returns [`InvalidLabel`] for the first label name that is not valid.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ops::MetricsQueue;
    /// assert!(MetricsQueue::with_labels("pods", [("zone", "a")]).is_ok());
    /// assert!(MetricsQueue::with_labels("pods", [("le", "a")]).is_err()); // reserved
    /// ```
    pub fn with_labels<N, V>(
        name: impl Into<String>,
        more: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidLabel>
    where
        N: Into<String>,
        V: Into<String>,
    {
        Ok(Self::of(labels(name, more)?))
    }

    fn of(labels: Labels) -> Self {
        let own = || labels.iter().map(|(name, value)| Label::new(name.clone(), value.clone())).collect();
        let by = |metric: &Metric, label: &'static str, value: &'static str| {
            let mut labels: Vec<Label> = own();
            labels.push(Label::from_static_parts(label, value));
            describe_counter!(metric.name, metric.help);
            ::metrics::counter!(metric.name, labels)
        };
        let count = |metric: &Metric| {
            describe_counter!(metric.name, metric.help);
            ::metrics::counter!(metric.name, own())
        };
        let time = |metric: &Metric| {
            describe_histogram!(metric.name, ::metrics::Unit::Seconds, metric.help);
            ::metrics::histogram!(metric.name, own())
        };
        Self(Arc::new(Inner {
            totals: Totals::default(),
            recorded: Mutex::new((0, 0)),
            adds: count(&names::ADDS),
            delays: count(&names::DELAYS),
            depth: gauge(&names::DEPTH, &labels),
            waiting: gauge(&names::WAITING, &labels),
            leased: gauge(&names::LEASED, &labels),
            unfinished: gauge(&names::UNFINISHED, &labels),
            longest: gauge(&names::LONGEST, &labels),
            oldest: gauge(&names::OLDEST, &labels),
            capacity_left: Mutex::new(None),
            queued: time(&names::QUEUED),
            delay_latency: time(&names::DELAY_LATENCY),
            work_duration: time(&names::WORK_DURATION),
            failures: count(&names::FAILURES),
            given_up: count(&names::GIVEN_UP),
            overdue: count(&names::OVERDUE),
            refused: ByLabel::new(REASONS, |value| by(&names::REFUSED, "reason", value)),
            ended: ByLabel::new(OUTCOMES, |value| by(&names::ENDED, "outcome", value)),
            labels,
        }))
    }

    /// Reads the queue and records its metrics. Returns `false` if the queue does not exist yet, or was dropped; in that
    /// case all gauges are set to zero.
    ///
    /// Adds and retries between the last `record` and the drop of the queue are missing in `workqueue_adds_total` and `workqueue_retries_total`.
    ///
    /// # Panics
    /// Panics if the queue's clock or the recorder panics.
    pub fn record(&self) -> bool {
        let inner = &*self.0;
        let read = inner.totals.read();
        if let Some(read) = read {
            // Concurrent calls must not count an add twice.
            let mut recorded = inner.recorded.lock();
            let new = (read.adds.saturating_sub(recorded.0), read.delayed_adds.saturating_sub(recorded.1));
            *recorded = (recorded.0 + new.0, recorded.1 + new.1);
            drop(recorded);
            inner.adds.increment(new.0);
            inner.delays.increment(new.1);
        }
        inner.set(&read.unwrap_or_default());
        read.is_some()
    }
}

impl Inner {
    fn set(&self, read: &QueueStats) {
        self.depth.set(read.depth() as f64);
        self.waiting.set((read.waiting + read.leased_waiting) as f64);
        self.leased.set(read.leased as f64);
        self.unfinished.set(read.unfinished_work.as_secs_f64());
        self.longest.set(read.oldest_lease.unwrap_or_default().as_secs_f64());
        self.oldest.set(read.oldest_ready.unwrap_or_default().as_secs_f64());
        let made = self.capacity_left.lock().clone();
        let gauge = match (made, read.capacity_left) {
            (None, Some(_)) => {
                // If two threads register the gauge at the same time, the recorder returns the same gauge to both.
                let made = gauge(&names::CAPACITY_LEFT, &self.labels);
                *self.capacity_left.lock() = Some(made.clone());
                Some(made)
            }
            (made, _) => made,
        };
        if let Some(gauge) = gauge {
            gauge.set(read.capacity_left.unwrap_or(0) as f64);
        }
    }
}

fn gauge(metric: &Metric, labels: &Labels) -> Gauge {
    let labels: Vec<Label> =
        labels.iter().map(|(name, value)| Label::new(name.clone(), value.clone())).collect();
    if metric.name.ends_with("_seconds") {
        describe_gauge!(metric.name, ::metrics::Unit::Seconds, metric.help);
    } else {
        describe_gauge!(metric.name, metric.help);
    }
    ::metrics::gauge!(metric.name, labels)
}

impl QueueMetrics for MetricsQueue {
    fn register(&self, queue: StatsReader) {
        self.0.totals.register(queue);
    }

    fn dequeued(&self, queued: Duration, delayed: bool) {
        self.0.queued.record(queued);
        if delayed {
            self.0.delay_latency.record(queued);
        }
    }

    fn lease_ended(&self, outcome: LeaseOutcome, work_duration: Duration) {
        self.0.work_duration.record(work_duration);
        if let Some(counter) = self.0.ended.get(outcome_label(outcome)) {
            counter.increment(1);
        }
    }

    fn failure_counted(&self) {
        self.0.failures.increment(1);
    }

    fn gave_up(&self, _: u32) {
        self.0.given_up.increment(1);
    }

    fn add_refused(&self, reason: AddErrorKind) {
        if let Some(counter) = self.0.refused.get(reason) {
            counter.increment(1);
        }
    }

    fn lease_overdue(&self, _: Duration) {
        self.0.overdue.increment(1);
    }
}

impl fmt::Debug for MetricsQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsQueue").field("labels", &self.0.labels).finish_non_exhaustive()
    }
}
