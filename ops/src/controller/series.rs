//! EDGE. The series of one controller.
//!
//! Cancel safety: nothing here waits.

use flyball_controller::FailureClass;
use flyball_sync::locks::AtomicU64;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// A gauge that is never negative, because each decrement follows its increment.
pub(super) type Level = Gauge<u64, AtomicU64>;

pub(super) struct Series {
    pub(super) controller: String,
    pub(super) successes: Counter,
    pub(super) requeues: Counter,
    /// The failed reconciles, including panics and timeouts.
    pub(super) errors: Counter,
    pub(super) panics: Counter,
    pub(super) timeouts: Counter,
    pub(super) took: Histogram,
    pub(super) max_workers: Level,
    pub(super) active: Level,
    pub(super) workers: Level,
    pub(super) failures: ByClass,
    pub(super) given_up: ByClass,
    pub(super) successful_retries: Counter,
    pub(super) dropped: Counter,
    pub(super) batches: Counter,
}

impl Series {
    pub(super) fn new(controller: String, buckets: &[f64]) -> Self {
        Self {
            controller,
            successes: Counter::default(),
            requeues: Counter::default(),
            errors: Counter::default(),
            panics: Counter::default(),
            timeouts: Counter::default(),
            took: Histogram::new(buckets.iter().copied()),
            max_workers: Level::default(),
            active: Level::default(),
            workers: Level::default(),
            failures: ByClass::default(),
            given_up: ByClass::default(),
            successful_retries: Counter::default(),
            dropped: Counter::default(),
            batches: Counter::default(),
        }
    }
}

/// A counter for each class of failures.
#[derive(Default)]
pub(super) struct ByClass {
    pub(super) transient: Counter,
    pub(super) conflict: Counter,
    pub(super) permanent: Counter,
}

impl ByClass {
    pub(super) fn get(&self, class: FailureClass) -> &Counter {
        match class {
            FailureClass::Transient => &self.transient,
            FailureClass::Conflict => &self.conflict,
            FailureClass::Permanent => &self.permanent,
        }
    }
}
