//! EDGE. The series with one set of labels. They contain the histograms and counters that are updated as events happen. All other values are read at
//! the scrape.
//!
//! Cancel safety: nothing here waits.

use flyball_workqueue::AddErrorKind;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use super::by_label::ByLabel;
use super::labels::Labels;
use super::names::{OUTCOMES, REASONS};
use super::totals::Totals;

pub(super) struct Series {
    pub(super) labels: Labels,
    pub(super) totals: Totals,
    pub(super) queued: Histogram,
    pub(super) delay_latency: Histogram,
    pub(super) work_duration: Histogram,
    pub(super) failures: Counter,
    pub(super) given_up: Counter,
    pub(super) overdue: Counter,
    pub(super) refused: ByLabel<AddErrorKind, Counter, 3>,
    pub(super) ended: ByLabel<&'static str, Counter, 5>,
}

impl Series {
    pub(super) fn new(labels: Labels, buckets: &[f64]) -> Self {
        let histogram = || Histogram::new(buckets.iter().copied());
        Self {
            labels,
            totals: Totals::default(),
            queued: histogram(),
            delay_latency: histogram(),
            work_duration: histogram(),
            failures: Counter::default(),
            given_up: Counter::default(),
            overdue: Counter::default(),
            refused: ByLabel::new(REASONS, |_| Counter::default()),
            ended: ByLabel::new(OUTCOMES, |_| Counter::default()),
        }
    }
}
