//! EDGE. The series of one queue: those that are told. The others are read at the scrape.
//!
//! Cancel safety: nothing here waits.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use crate::error::AddErrorKind;
use crate::metrics::Ended;
use crate::metrics::catalogue::{By, OUTCOMES, REASONS};
use crate::metrics::gathered::Gathered;
use crate::metrics::labels::Labels;

pub(super) struct Series {
    pub(super) labels: Labels,
    pub(super) gathered: Gathered,
    pub(super) queued: Histogram,
    pub(super) late: Histogram,
    pub(super) worked: Histogram,
    pub(super) failures: Counter,
    pub(super) dead: Counter,
    pub(super) overdue: Counter,
    pub(super) refused: By<AddErrorKind, Counter, 3>,
    pub(super) ended: By<Ended, Counter, 5>,
}

impl Series {
    pub(super) fn new(labels: Labels, buckets: &[f64]) -> Self {
        let histogram = || Histogram::new(buckets.iter().copied());
        Self {
            labels,
            gathered: Gathered::default(),
            queued: histogram(),
            late: histogram(),
            worked: histogram(),
            failures: Counter::default(),
            dead: Counter::default(),
            overdue: Counter::default(),
            refused: By::new(REASONS, |_| Counter::default()),
            ended: By::new(OUTCOMES, |_| Counter::default()),
        }
    }
}
