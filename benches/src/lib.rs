//! What the benches measure ours against: naive ports.

pub mod naive_cache;
pub mod naive_limiter;
pub mod naive_port;
