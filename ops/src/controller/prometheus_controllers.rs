//! EDGE. The metrics of all controllers of a process in a registry of `prometheus-client`.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::{Arc, Weak};

use flyball_sync::locks::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::encode;
use super::prometheus_controller::PrometheusController;
use super::series::Series;
use crate::buckets::{InvalidBuckets, buckets};

/// The buckets of controller-runtime, from 5 ms to a minute, so that dashboards for controller-runtime work.
const DEFAULT_BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// Exports the metrics of controllers as series in a registry of [`prometheus_client`].
///
/// Register a clone in the registry, and pass the result of [`controller`](Self::controller) to each controller. All controllers share the
/// same metric families and differ by the label `controller`. The series of a controller exist as long as the controller does. Controllers
/// with the same name share their series, whose values are sums over these controllers.
///
/// Metrics with the prefix `controller_runtime_` have the names and meanings of controller-runtime; metrics with the prefix
/// `flyball_controller_` are flyball's own. Do not give the registry a prefix if you use dashboards for controller-runtime. The
/// book documents every name. The depth of the queue and the waiting times of keys are in the [queue's
/// metrics](crate::PrometheusQueues).
///
/// # Examples
/// ```
/// use flyball_controller::{Action, Controller};
/// use flyball_ops::PrometheusControllers;
/// use prometheus_client::encoding::text::encode;
/// use prometheus_client::registry::Registry;
/// # use flyball_controller::TokioTimer;
/// # use flyball_workqueue::Queue;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
/// # queue.add_many([1, 2]);
/// # queue.shut_down();
/// let controllers = PrometheusControllers::new();
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(controllers.clone()));
///
/// Controller::new(queue)
///     .metrics(controllers.controller("pods"))
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
pub struct PrometheusControllers {
    buckets: Arc<[f64]>,
    series: Arc<Mutex<Vec<Weak<Series>>>>,
}

impl PrometheusControllers {
    /// Creates the metrics with controller-runtime's buckets, from 5 ms to a minute.
    #[must_use]
    pub fn new() -> Self {
        Self::of(DEFAULT_BUCKETS.into())
    }

    /// Creates the metrics with these upper bounds, in seconds, for the buckets of reconcile durations. A last bucket without an upper bound is
    /// added.
    ///
    /// # Errors
    /// Returns [`InvalidBuckets`] unless there is at least one bound, all bounds are finite, and they increase.
    ///
    /// # Examples
    /// ```
    /// # use flyball_ops::PrometheusControllers;
    /// assert!(PrometheusControllers::with_buckets([0.1, 1.0, 60.0]).is_ok());
    /// assert!(PrometheusControllers::with_buckets([1.0, 0.1]).is_err());
    /// ```
    pub fn with_buckets(bounds: impl IntoIterator<Item = f64>) -> Result<Self, InvalidBuckets> {
        buckets(bounds).map(Self::of)
    }

    fn of(buckets: Arc<[f64]>) -> Self {
        Self { buckets, series: Arc::default() }
    }

    /// Returns the metrics of one controller, under the label `controller`.
    pub fn controller(&self, name: impl Into<String>) -> PrometheusController {
        let name = name.into();
        let mut series = self.series.lock();
        series.retain(|own| own.strong_count() > 0);
        let same = series.iter().filter_map(Weak::upgrade).find(|own| own.controller == name);
        PrometheusController::new(same.unwrap_or_else(|| {
            let new = Arc::new(Series::new(name, &self.buckets));
            series.push(Arc::downgrade(&new));
            new
        }))
    }
}

impl Default for PrometheusControllers {
    fn default() -> Self {
        Self::new()
    }
}

impl Collector for PrometheusControllers {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let series: Vec<_> = self.series.lock().iter().filter_map(Weak::upgrade).collect();
        if series.is_empty() { Ok(()) } else { encode::encode(encoder, &series) }
    }
}

impl fmt::Debug for PrometheusControllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrometheusControllers").field("buckets", &self.buckets).finish_non_exhaustive()
    }
}
