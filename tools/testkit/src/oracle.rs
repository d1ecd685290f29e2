//! The oracles of the tests and fuzz targets: slow, simple reference implementations.

pub mod aimd;
pub mod backoff;
pub mod keyed_rate_limiter;
pub mod limiter;
pub mod order;
pub mod queue;
pub mod rate;
pub mod retry_budget;
pub mod selector;
pub mod store;
pub mod subscription;
pub mod wait_queue;
