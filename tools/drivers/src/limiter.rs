//! Drivers of failure limiters and of the adaptive concurrency limit.

pub mod aimd;
pub mod limiter_ops;
pub mod loaded_server;
pub mod policies;
