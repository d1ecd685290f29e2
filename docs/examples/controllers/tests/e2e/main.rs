//! On a real API server: `cargo xtask e2e` (tools/e2e/README.md). The programs work in all namespaces, so they get a cluster of their own.

#![forbid(unsafe_code)]

mod definition;
mod election;
mod process;
mod website;
mod world;
