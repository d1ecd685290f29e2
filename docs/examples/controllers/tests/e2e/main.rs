//! Tests on a real API server: `cargo xtask e2e` (tools/e2e/README.md). The programs reconcile the objects of all namespaces, so these tests use a
//! cluster of their own.

#![forbid(unsafe_code)]

mod definition;
mod election;
mod process;
mod website;
mod world;
