//! EDGE. Queues in a registry of `prometheus-client`.
//!
//! Cancel safety: nothing here waits.

mod page;
mod series;

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use flyball_sync::locks::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;

use self::series::Series;
use super::labels::{InvalidLabel, Labels, labels, named};
use super::{Ended, Metrics, Reading, Watch};
use crate::error::AddErrorKind;

/// From 1 µs to 1000 s, three a decade: 1, 2.5, 5.
const DEFAULT_BUCKETS: [f64; 28] = [
    1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0,
];

/// Queues as series of a `prometheus_client` registry, with client-go's names and ours beside them.
///
/// Register a clone, and give each queue a [`queue`](Self::queue): any number of them are in the same families, told
/// apart by the label `name`. Gauges, adds and retries are read from the queue at each scrape; nothing polls. A queue's
/// series are there as long as the queue is. Queues with the same labels are one series: their sums.
///
/// Names begin with `workqueue_`; give the registry no prefix where dashboards for client-go's are to work. The guide
/// says what each means.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Prometheus, Queue};
/// use prometheus_client::encoding::text::encode;
/// use prometheus_client::registry::Registry;
///
/// let prometheus = Prometheus::new();
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(prometheus.clone()));
///
/// let queue = Queue::builder().metrics(prometheus.queue("pods")).build();
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
pub struct Prometheus {
    buckets: Arc<[f64]>,
    series: Arc<Mutex<Vec<Weak<Series>>>>,
}

impl Prometheus {
    /// With buckets from 1 µs to 1000 s, three for each power of ten.
    #[must_use]
    pub fn new() -> Self {
        Self::of(DEFAULT_BUCKETS.to_vec())
    }

    /// With these upper bounds of buckets, in seconds, for all histograms. The bucket for whatever is longer is added.
    ///
    /// # Errors
    /// [`InvalidBuckets`] unless they rise, are finite, and there is one.
    ///
    /// # Examples
    /// ```
    /// # use flyball_workqueue::Prometheus;
    /// assert!(Prometheus::with_buckets([0.01, 0.1, 1.0, 60.0]).is_ok());
    /// assert!(Prometheus::with_buckets([1.0, 0.1]).is_err());
    /// ```
    pub fn with_buckets(bounds: impl IntoIterator<Item = f64>) -> Result<Self, InvalidBuckets> {
        let bounds: Vec<f64> = bounds.into_iter().collect();
        let rise = bounds.windows(2).all(|pair| pair[0] < pair[1]);
        let finite = bounds.iter().all(|bound| bound.is_finite());
        if rise && finite && !bounds.is_empty() { Ok(Self::of(bounds)) } else { Err(InvalidBuckets) }
    }

    fn of(buckets: Vec<f64>) -> Self {
        Self { buckets: buckets.into(), series: Arc::default() }
    }

    /// The metrics of one queue, under the label `name`.
    pub fn queue(&self, name: impl Into<String>) -> PrometheusQueue {
        self.queue_of(named(name))
    }

    /// The metrics of one queue, under the label `name` and others.
    ///
    /// # Errors
    /// [`InvalidLabel`] where the name of one cannot stand beside ours.
    ///
    /// # Examples
    /// ```
    /// # use flyball_workqueue::Prometheus;
    /// let prometheus = Prometheus::new();
    /// assert!(prometheus.labelled_queue("pods", [("controller", "pods")]).is_ok());
    /// assert!(prometheus.labelled_queue("pods", [("name", "pods")]).is_err());
    /// ```
    pub fn labelled_queue<N, V>(
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
        let own = same.unwrap_or_else(|| {
            let new = Arc::new(Series::new(labels, &self.buckets));
            series.push(Arc::downgrade(&new));
            new
        });
        PrometheusQueue(own)
    }

    /// All series whose queue is there, each read once, so that its figures are of one moment.
    fn read(&self) -> Vec<(Arc<Series>, Reading)> {
        let series: Vec<_> = self.series.lock().iter().filter_map(Weak::upgrade).collect();
        series.into_iter().filter_map(|own| own.gathered.read().map(|read| (own, read))).collect()
    }
}

impl Default for Prometheus {
    fn default() -> Self {
        Self::new()
    }
}

impl Collector for Prometheus {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let series = self.read();
        if series.is_empty() { Ok(()) } else { page::encode(encoder, &series) }
    }
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prometheus").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}

/// The metrics of one queue in a [`Prometheus`]; give it to [`QueueBuilder::metrics`](crate::QueueBuilder::metrics).
pub struct PrometheusQueue(Arc<Series>);

impl Metrics for PrometheusQueue {
    fn watch(&self, queue: Watch) {
        self.0.gathered.watch(queue);
    }

    fn handed_out(&self, queued: Duration, delayed: bool) {
        self.0.queued.observe(queued.as_secs_f64());
        if delayed {
            self.0.late.observe(queued.as_secs_f64());
        }
    }

    fn ended(&self, how: Ended, worked: Duration) {
        self.0.worked.observe(worked.as_secs_f64());
        self.0.ended.get(how).map(Counter::inc);
    }

    fn failed(&self) {
        self.0.failures.inc();
    }

    fn gave_up(&self, _: u32) {
        self.0.dead.inc();
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

/// Bounds of buckets that do not rise, are not finite, or are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBuckets;

impl fmt::Display for InvalidBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bounds of buckets must rise and be finite")
    }
}

impl Error for InvalidBuckets {}
