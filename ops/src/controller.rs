//! EDGE. Adapters that implement `flyball_controller::ControllerMetrics`, for all controllers of a process.
//!
//! Cancel safety: nothing here waits.

mod encode;
mod prometheus_controller;
mod prometheus_controllers;
mod series;

pub use self::prometheus_controller::PrometheusController;
pub use self::prometheus_controllers::PrometheusControllers;
