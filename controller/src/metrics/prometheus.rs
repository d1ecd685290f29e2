//! EDGE. Controllers in a registry of `prometheus-client`.
//!
//! Cancel safety: nothing here waits.

mod page;
mod series;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use flyball_sync::locks::{AtomicU64, Mutex, Ordering};
use flyball_workqueue::InvalidBuckets;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use self::series::Series;
use super::Metrics;
use crate::{Class, Outcome};

/// From 5 ms to a minute: controller-runtime's, so that its dashboards work.
const DEFAULT_BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// Controllers as series of a `prometheus_client` registry, with controller-runtime's names and ours beside them.
///
/// Register a clone, and give each controller a [`controller`](Self::controller): any number of them are in the same families, told
/// apart by the label `controller`. The series of a controller are there as long as it is. Controllers of the same name are one series:
/// their sums.
///
/// Names begin with `controller_runtime_`, where what is counted is what controller-runtime counts, and with `flyball_controller_`; give
/// the registry no prefix where dashboards are to work. The guide says what each means. What is queued, and for how long, is in the
/// [queue's metrics](flyball_workqueue::Prometheus).
///
/// # Examples
/// ```
/// use flyball_controller::{Action, Controller, Prometheus};
/// use prometheus_client::encoding::text::encode;
/// use prometheus_client::registry::Registry;
/// # use flyball_controller::TokioTimer;
/// # use flyball_workqueue::Queue;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let queue = Queue::builder().timer(TokioTimer::current()).build();
/// # queue.add_many([1, 2]);
/// # queue.shut_down();
/// let prometheus = Prometheus::new();
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(prometheus.clone()));
///
/// Controller::new(queue)
///     .metrics(prometheus.controller("pods"))
///     .run(move |key, _| {
///         if key == 2 {
///             let mut scrape = String::new();
///             encode(&mut scrape, &registry).unwrap();
///             assert!(scrape.contains("controller_runtime_active_workers{controller=\"pods\"} 1\n"));
///             let well = "controller_runtime_reconcile_total{controller=\"pods\",result=\"success\"} 1\n";
///             assert!(scrape.contains(well));
///         }
///         async { Ok::<_, String>(Action::await_change()) }
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Prometheus {
    buckets: Arc<[f64]>,
    series: Arc<Mutex<Vec<Weak<Series>>>>,
}

impl Prometheus {
    /// With controller-runtime's buckets: from 5 ms to a minute.
    #[must_use]
    pub fn new() -> Self {
        Self::of(DEFAULT_BUCKETS.to_vec())
    }

    /// With these upper bounds of buckets, in seconds, for how long reconciles took. The bucket for whatever is longer is added.
    ///
    /// # Errors
    /// [`InvalidBuckets`] unless they rise, are finite, and there is one.
    pub fn with_buckets(bounds: impl IntoIterator<Item = f64>) -> Result<Self, InvalidBuckets> {
        let bounds: Vec<f64> = bounds.into_iter().collect();
        let rise = bounds.windows(2).all(|pair| pair[0] < pair[1]);
        let finite = bounds.iter().all(|bound| bound.is_finite());
        if rise && finite && !bounds.is_empty() { Ok(Self::of(bounds)) } else { Err(InvalidBuckets) }
    }

    fn of(buckets: Vec<f64>) -> Self {
        Self { buckets: buckets.into(), series: Arc::default() }
    }

    /// The metrics of one controller, under the label `controller`.
    pub fn controller(&self, name: impl Into<String>) -> PrometheusController {
        let name = name.into();
        let mut series = self.series.lock();
        series.retain(|own| own.strong_count() > 0);
        let same = series.iter().filter_map(Weak::upgrade).find(|own| own.controller == name);
        let own = same.unwrap_or_else(|| {
            let new = Arc::new(Series::new(name, &self.buckets));
            series.push(Arc::downgrade(&new));
            new
        });
        PrometheusController { series: own, most: AtomicU64::new(0) }
    }
}

impl Default for Prometheus {
    fn default() -> Self {
        Self::new()
    }
}

impl Collector for Prometheus {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let series: Vec<_> = self.series.lock().iter().filter_map(Weak::upgrade).collect();
        if series.is_empty() { Ok(()) } else { page::encode(encoder, &series) }
    }
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prometheus").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}

/// The metrics of one controller in a [`Prometheus`]; give it to [`Controller::metrics`](crate::Controller::metrics).
pub struct PrometheusController {
    series: Arc<Series>,
    /// The workers it has had at most; they leave the sum with it.
    most: AtomicU64,
}

impl Metrics for PrometheusController {
    fn most_workers(&self, workers: usize) {
        let workers = u64::try_from(workers).unwrap_or(u64::MAX);
        // Ordering: Relaxed, it is read when nobody else has it.
        self.most.fetch_add(workers, Ordering::Relaxed);
        self.series.most.inc_by(workers);
    }

    fn worker_came(&self) {
        self.series.workers.inc();
    }

    fn worker_went(&self) {
        self.series.workers.dec();
    }

    fn started(&self) {
        self.series.active.inc();
    }

    fn batch(&self, _: usize) {
        self.series.batches.inc();
    }

    fn ended(&self, outcome: Outcome, took: Duration) {
        let own = &*self.series;
        own.active.dec();
        own.took.observe(took.as_secs_f64());
        match outcome {
            Outcome::Succeeded => own.successes.inc(),
            Outcome::Requeued => own.requeues.inc(),
            Outcome::Errored(_) => own.errors.inc(),
            Outcome::Panicked(_) => {
                own.panics.inc();
                own.errors.inc()
            }
            Outcome::TimedOut(_) => {
                own.timeouts.inc();
                own.errors.inc()
            }
        };
        if let Some(class) = outcome.class() {
            own.failures.get(class).inc();
        }
    }

    fn dropped(&self) {
        self.series.active.dec();
        self.series.dropped.inc();
    }

    fn recovered(&self, _: u32) {
        self.series.recoveries.inc();
    }

    fn gave_up(&self, class: Class) {
        self.series.given_up.get(class).inc();
    }
}

impl Drop for PrometheusController {
    fn drop(&mut self) {
        // Ordering: Relaxed, nobody else has it.
        self.series.most.dec_by(self.most.load(Ordering::Relaxed));
    }
}

impl fmt::Debug for PrometheusController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrometheusController")
            .field("controller", &self.series.controller)
            .finish_non_exhaustive()
    }
}
