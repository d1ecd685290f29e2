//! EDGE. The series of one controller.
//!
//! Cancel safety: nothing here waits.

use std::fmt;

use flyball_controller::FailureClass;
use flyball_sync::locks::{AtomicU64, Ordering};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A gauge that is never negative, because each decrement follows its increment.
pub(super) type Level = Gauge<u64, AtomicU64>;

/// The sum of the maximum worker counts of controllers; infinite if one of them is unbounded.
#[derive(Debug, Default)]
pub(super) struct MaxWorkers {
    bounded: AtomicU64,
    /// How many controllers have no bound.
    unbounded: AtomicU64,
}

impl MaxWorkers {
    pub(super) fn add(&self, workers: usize) {
        if workers == usize::MAX {
            // Ordering: Relaxed, because each value is a sum that orders nothing else.
            self.unbounded.fetch_add(1, Ordering::Relaxed);
        } else {
            // Ordering: Relaxed, because each value is a sum that orders nothing else.
            self.bounded.fetch_add(u64::try_from(workers).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Subtracts a part that was added.
    pub(super) fn subtract(&self, part: &Self) {
        // Ordering: Relaxed, as in `add`.
        self.bounded.fetch_sub(part.bounded.load(Ordering::Relaxed), Ordering::Relaxed);
        // Ordering: Relaxed, as in `add`.
        self.unbounded.fetch_sub(part.unbounded.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl TypedMetric for MaxWorkers {
    const TYPE: MetricType = MetricType::Gauge;
}

impl EncodeMetric for MaxWorkers {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        // Ordering: Relaxed, as in `add`.
        match self.unbounded.load(Ordering::Relaxed) {
            0 => encoder.encode_gauge(&self.bounded.load(Ordering::Relaxed)),
            _ => encoder.encode_gauge(&f64::INFINITY),
        }
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

pub(super) struct Series {
    pub(super) controller: String,
    pub(super) successes: Counter,
    pub(super) requeues: Counter,
    /// The failed reconciles, including panics and timeouts.
    pub(super) errors: Counter,
    pub(super) panics: Counter,
    pub(super) timeouts: Counter,
    pub(super) took: Histogram,
    pub(super) max_workers: MaxWorkers,
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
            max_workers: MaxWorkers::default(),
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
