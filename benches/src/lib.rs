//! The implementations with which the benches compare flyball: naive ports of client-go.
#![forbid(unsafe_code)]

pub mod naive_limiter;
pub mod naive_port;
