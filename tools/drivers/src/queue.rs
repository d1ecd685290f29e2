//! Drivers of the work queue.

#![allow(clippy::disallowed_types, reason = "a test's own locks are std's: no model runs here")]

pub mod costs;
pub mod driver;
mod groups;
pub mod hostile;
mod limiters;
pub mod metrics_sink;
pub mod model_answers;
pub mod options;
mod orders;
mod random_operations;
pub mod simulation;
mod step;
pub mod threads;
