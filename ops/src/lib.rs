// The example of the readme needs the feature `http`.
#![cfg_attr(any(feature = "http", not(doctest)), doc = include_str!("../README.md"))]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// The readme links to the items of all features.
#![cfg_attr(
    not(all(feature = "kube", feature = "metrics", feature = "tracing")),
    allow(rustdoc::broken_intra_doc_links)
)]

#[cfg(feature = "prometheus-client")]
mod buckets;
#[cfg(all(feature = "controller", feature = "prometheus-client"))]
mod controller;
mod queue;
#[cfg(feature = "http")]
mod server;
#[cfg(feature = "prometheus-client")]
mod unit;

#[cfg(feature = "prometheus-client")]
pub use crate::buckets::InvalidBuckets;
#[cfg(all(feature = "controller", feature = "prometheus-client"))]
pub use crate::controller::{PrometheusController, PrometheusControllers};
#[cfg(any(feature = "metrics", feature = "prometheus-client"))]
pub use crate::queue::InvalidLabel;
#[cfg(feature = "metrics")]
pub use crate::queue::MetricsQueue;
#[cfg(feature = "tracing")]
pub use crate::queue::TracingQueue;
#[cfg(feature = "prometheus-client")]
pub use crate::queue::{PrometheusQueue, PrometheusQueues};
#[cfg(feature = "http")]
pub use crate::server::OpsServer;

#[cfg(feature = "metrics")]
#[doc(no_inline)]
pub use metrics;
#[cfg(feature = "prometheus-client")]
#[doc(no_inline)]
pub use prometheus_client;
#[cfg(feature = "tracing")]
#[doc(no_inline)]
pub use tracing;
