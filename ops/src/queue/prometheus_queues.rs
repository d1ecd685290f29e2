//! EDGE. The metrics of all queues of a process in a registry of `prometheus-client`.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::{Arc, Weak};

use flyball_sync::locks::Mutex;
use flyball_workqueue::QueueStats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::encode;
use super::labels::{InvalidLabel, Labels, labels, named};
use super::prometheus_queue::PrometheusQueue;
use super::series::Series;
use crate::buckets::{InvalidBuckets, buckets};

/// From 1 µs to 1000 s, with three bounds per decade: 1, 2.5 and 5.
const DEFAULT_BUCKETS: [f64; 28] = [
    1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0,
];

/// Exports the metrics of queues as series in a registry of [`prometheus_client`].
///
/// Register a clone in the registry, and pass the result of [`queue`](Self::queue) to each queue. All queues share the same metric families and
/// differ by the label `name`. Gauges, adds and retries are read from the queue at each scrape; there is no background task. The series of a queue
/// exist as long as the queue does. Queues with the same labels share their series, whose values are sums over these queues, except for the ages of
/// the oldest key and the oldest lease, which are maxima.
///
/// All names have the prefix `workqueue_`. Seven metrics have the names and meanings of client-go. Do not give the registry a
/// prefix if you use dashboards for client-go. The book documents every name.
///
/// # Examples
/// ```
/// use flyball_ops::PrometheusQueues;
/// use flyball_workqueue::Queue;
/// use prometheus_client::encoding::text::encode;
/// use prometheus_client::registry::Registry;
///
/// let queues = PrometheusQueues::new();
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(queues.clone()));
///
/// let queue = Queue::builder().metrics(queues.queue("pods")).build();
/// queue.add("a")?;
///
/// let mut scrape = String::new();
/// encode(&mut scrape, &registry)?;
/// assert!(scrape.contains("workqueue_depth{name=\"pods\"} 1\n"));
///
/// drop(queue);
/// scrape.clear();
/// encode(&mut scrape, &registry)?;
/// assert_eq!(scrape, "# EOF\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PrometheusQueues {
    buckets: Arc<[f64]>,
    series: Arc<Mutex<Vec<Weak<Series>>>>,
}

impl PrometheusQueues {
    /// Creates the metrics with buckets from 1 µs to 1000 s, three per decade.
    #[must_use]
    pub fn new() -> Self {
        Self::of(DEFAULT_BUCKETS.into())
    }

    /// Creates the metrics with these upper bounds, in seconds, for the buckets of all histograms. A last bucket without an upper bound is added.
    ///
    /// # Errors
    /// Returns [`InvalidBuckets`] unless there is at least one bound, all bounds are finite, and they increase.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ops::PrometheusQueues;
    /// assert!(PrometheusQueues::with_buckets([0.01, 0.1, 1.0, 60.0]).is_ok());
    /// assert!(PrometheusQueues::with_buckets([1.0, 0.1]).is_err());
    /// ```
    pub fn with_buckets(bounds: impl IntoIterator<Item = f64>) -> Result<Self, InvalidBuckets> {
        buckets(bounds).map(Self::of)
    }

    fn of(buckets: Arc<[f64]>) -> Self {
        Self { buckets, series: Arc::default() }
    }

    /// Returns the metrics of one queue, under the label `name`.
    pub fn queue(&self, name: impl Into<String>) -> PrometheusQueue {
        self.queue_of(named(name))
    }

    /// Returns the metrics of one queue, under the label `name` and these further labels.
    ///
    /// # Errors
    /// Returns [`InvalidLabel`] for the first label name that is not valid.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ops::PrometheusQueues;
    /// let queues = PrometheusQueues::new();
    /// assert!(queues.queue_with_labels("pods", [("zone", "a")]).is_ok());
    /// assert!(queues.queue_with_labels("pods", [("le", "a")]).is_err()); // reserved
    /// ```
    pub fn queue_with_labels<N, V>(
        &self,
        name: impl Into<String>,
        more: impl IntoIterator<Item = (N, V)>,
    ) -> Result<PrometheusQueue, InvalidLabel>
    where
        N: Into<String>,
        V: Into<String>,
    {
        Ok(self.queue_of(labels(name, more)?))
    }

    fn queue_of(&self, labels: Labels) -> PrometheusQueue {
        let mut series = self.series.lock();
        series.retain(|own| own.strong_count() > 0);
        let same = series.iter().filter_map(Weak::upgrade).find(|own| own.labels == labels);
        PrometheusQueue::new(same.unwrap_or_else(|| {
            let new = Arc::new(Series::new(labels, &self.buckets));
            series.push(Arc::downgrade(&new));
            new
        }))
    }

    /// Reads the series of all existing queues. Each queue is read once, so its values are consistent.
    fn read(&self) -> Vec<(Arc<Series>, QueueStats)> {
        let series: Vec<_> = self.series.lock().iter().filter_map(Weak::upgrade).collect();
        series.into_iter().filter_map(|own| own.totals.read().map(|read| (own, read))).collect()
    }
}

impl Default for PrometheusQueues {
    fn default() -> Self {
        Self::new()
    }
}

impl Collector for PrometheusQueues {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let series = self.read();
        if series.is_empty() { Ok(()) } else { encode::encode(encoder, &series) }
    }
}

impl fmt::Debug for PrometheusQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrometheusQueues").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}
