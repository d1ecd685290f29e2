//! The adapters from outside, on virtual time: what they export of queues and controllers.

#![allow(clippy::disallowed_types, reason = "a test's own locks are std's: no model runs here")]

#[cfg(feature = "metrics")]
mod metrics_queue;
#[cfg(all(feature = "controller", feature = "prometheus-client"))]
mod prometheus_controllers;
#[cfg(feature = "prometheus-client")]
mod prometheus_queues;
#[cfg(all(feature = "controller", feature = "prometheus-client"))]
mod support;
mod surface;
#[cfg(feature = "tracing")]
mod tracing_queue;
