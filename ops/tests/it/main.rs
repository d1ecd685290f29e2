//! Tests of the adapters and the server through the public API.

#![allow(clippy::disallowed_types, reason = "a test's own locks are std's: no model runs here")]

#[cfg(feature = "http")]
mod http_client;
#[cfg(feature = "metrics")]
mod metrics_queue;
#[cfg(feature = "http")]
mod ops_server;
#[cfg(feature = "kube")]
mod ops_server_kube;
#[cfg(all(feature = "controller", feature = "prometheus-client"))]
mod prometheus_controllers;
#[cfg(feature = "prometheus-client")]
mod prometheus_queues;
#[cfg(all(feature = "controller", feature = "prometheus-client"))]
mod support;
mod surface;
#[cfg(feature = "tracing")]
mod tracing_queue;
