//! Tests on a real API server: `cargo xtask e2e` (tools/e2e/README.md). The programs work in all namespaces, so the tests use a separate
//! cluster.

#![forbid(unsafe_code)]

mod definition;
mod election;
mod process;
mod website;
mod world;
