//! Limiters of failures, and the adaptive limit.

pub mod aimd;
pub mod limiter_ops;
pub mod loaded_server;
pub mod policies;
