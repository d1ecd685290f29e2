//! The baselines of the benches: naive ports, and alternative designs of the store.
#![forbid(unsafe_code)]

pub mod designs;
pub mod naive_cache;
pub mod naive_limiter;
pub mod naive_port;
