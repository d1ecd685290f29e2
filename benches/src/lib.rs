//! What the benches measure ours against: naive ports.

pub mod naive_port;
