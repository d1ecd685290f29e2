//! Drivers of the controller.

pub mod options;
pub mod simulation;
