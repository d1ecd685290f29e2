//! EDGE. Adapters that implement `flyball_workqueue::QueueMetrics`, for one queue or for all queues of a process.
//!
//! Cancel safety: nothing here waits.

#[cfg(any(feature = "metrics", feature = "prometheus-client"))]
mod by_label;
#[cfg(feature = "prometheus-client")]
mod encode;
#[cfg(any(feature = "metrics", feature = "prometheus-client"))]
mod labels;
#[cfg(feature = "metrics")]
mod metrics_queue;
#[cfg(any(feature = "metrics", feature = "prometheus-client"))]
mod names;
#[cfg(any(feature = "metrics", feature = "prometheus-client", feature = "tracing"))]
mod outcome_label;
#[cfg(feature = "prometheus-client")]
mod prometheus_queue;
#[cfg(feature = "prometheus-client")]
mod prometheus_queues;
#[cfg(feature = "prometheus-client")]
mod series;
#[cfg(any(feature = "metrics", feature = "prometheus-client"))]
mod totals;
#[cfg(feature = "tracing")]
mod tracing_queue;

#[cfg(any(feature = "metrics", feature = "prometheus-client"))]
pub use self::labels::InvalidLabel;
#[cfg(feature = "metrics")]
pub use self::metrics_queue::MetricsQueue;
#[cfg(feature = "prometheus-client")]
pub use self::prometheus_queue::PrometheusQueue;
#[cfg(feature = "prometheus-client")]
pub use self::prometheus_queues::PrometheusQueues;
#[cfg(feature = "tracing")]
pub use self::tracing_queue::TracingQueue;
