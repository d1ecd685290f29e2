//! What the benches measure ours against: naive ports, and designs of the store that were weighed against each other.
#![forbid(unsafe_code)]

pub mod designs;
pub mod naive_cache;
pub mod naive_limiter;
pub mod naive_port;
