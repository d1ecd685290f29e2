//! The implementations with which the benches compare flyball: naive ports of client-go, and alternative designs of the store.
#![forbid(unsafe_code)]

pub mod designs;
pub mod naive_cache;
pub mod naive_limiter;
pub mod naive_port;
