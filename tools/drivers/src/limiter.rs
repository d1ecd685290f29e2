//! Drivers of the limiters of failures, and of the adaptive limit on concurrency.

pub mod aimd;
pub mod limiter_ops;
pub mod loaded_server;
pub mod policies;
pub mod simulation;
