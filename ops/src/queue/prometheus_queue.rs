//! EDGE. The metrics of one queue in a registry of `prometheus-client`.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_workqueue::{AddErrorKind, LeaseOutcome, QueueMetrics, StatsReader};
use prometheus_client::metrics::counter::Counter;

use super::outcome_label::outcome_label;
use super::series::Series;

/// The metrics of one queue in a [`PrometheusQueues`](crate::PrometheusQueues).
///
/// Pass it to [`QueueBuilder::metrics`](flyball_workqueue::QueueBuilder::metrics).
///
/// # Examples
/// ```
/// use flyball_ops::{PrometheusQueue, PrometheusQueues};
/// use flyball_workqueue::Queue;
/// use prometheus_client::{encoding::text::encode, registry::Registry};
///
/// let queues = PrometheusQueues::new();
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(queues.clone()));
///
/// let pods: PrometheusQueue = queues.queue_with_labels("pods", [("shard", "2")])?;
/// let queue = Queue::builder().metrics(pods).build();
/// queue.add("a")?;
/// let mut scrape = String::new();
/// encode(&mut scrape, &registry)?;
/// assert!(scrape.contains("workqueue_adds_total{name=\"pods\",shard=\"2\"} 1\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PrometheusQueue(Arc<Series>);

impl PrometheusQueue {
    pub(super) fn new(series: Arc<Series>) -> Self {
        Self(series)
    }
}

impl QueueMetrics for PrometheusQueue {
    fn register(&self, queue: StatsReader) {
        self.0.totals.register(queue);
    }

    fn dequeued(&self, queued: Duration, delayed: bool) {
        self.0.queued.observe(queued.as_secs_f64());
        if delayed {
            self.0.delay_latency.observe(queued.as_secs_f64());
        }
    }

    fn lease_ended(&self, outcome: LeaseOutcome, work_duration: Duration) {
        self.0.work_duration.observe(work_duration.as_secs_f64());
        self.0.ended.get(outcome_label(outcome)).map(Counter::inc);
    }

    fn failure_counted(&self) {
        self.0.failures.inc();
    }

    fn gave_up(&self, _: u32) {
        self.0.given_up.inc();
    }

    fn add_refused(&self, reason: AddErrorKind) {
        self.0.refused.get(reason).map(Counter::inc);
    }

    fn lease_overdue(&self, _: Duration) {
        self.0.overdue.inc();
    }
}

impl fmt::Debug for PrometheusQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrometheusQueue").field("labels", &self.0.labels).finish_non_exhaustive()
    }
}
