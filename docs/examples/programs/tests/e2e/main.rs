//! The same program on both engines: both leave the same behind. In memory, which `cargo test` runs, and on a real API server, which `cargo xtask e2e` does;
//! one binary for both, so that they share their scenarios.

#![forbid(unsafe_code)]

mod alone;
mod cluster;
mod cost;
mod forbidden;
mod life;
mod memory;
mod reader_scenarios;
mod real;
mod scenarios;
mod table;
