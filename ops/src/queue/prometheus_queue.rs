//! EDGE. One queue in a registry of `prometheus-client`.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_workqueue::{AddErrorKind, LeaseOutcome, Metrics, Watch};
use prometheus_client::metrics::counter::Counter;

use super::outcome_label::outcome_label;
use super::series::Series;

/// The metrics of one queue in a [`PrometheusQueues`](crate::PrometheusQueues).
///
/// Pass it to [`QueueBuilder::metrics`](flyball_workqueue::QueueBuilder::metrics).
pub struct PrometheusQueue(Arc<Series>);

impl PrometheusQueue {
    pub(super) fn new(series: Arc<Series>) -> Self {
        Self(series)
    }
}

impl Metrics for PrometheusQueue {
    fn watch(&self, queue: Watch) {
        self.0.totals.watch(queue);
    }

    fn handed_out(&self, queued: Duration, delayed: bool) {
        self.0.queued.observe(queued.as_secs_f64());
        if delayed {
            self.0.late.observe(queued.as_secs_f64());
        }
    }

    fn ended(&self, outcome: LeaseOutcome, worked: Duration) {
        self.0.worked.observe(worked.as_secs_f64());
        self.0.ended.get(outcome_label(outcome)).map(Counter::inc);
    }

    fn failed(&self) {
        self.0.failures.inc();
    }

    fn gave_up(&self, _: u32) {
        self.0.given_up.inc();
    }

    fn refused(&self, reason: AddErrorKind) {
        self.0.refused.get(reason).map(Counter::inc);
    }

    fn overdue(&self, _: Duration) {
        self.0.overdue.inc();
    }
}

impl fmt::Debug for PrometheusQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrometheusQueue").field("labels", &self.0.labels).finish_non_exhaustive()
    }
}
