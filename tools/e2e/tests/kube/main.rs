//! Tests on a real API server: `cargo xtask e2e` (tools/e2e/README.md). All tests are in one binary, so that they share one cluster.
//!
//! Each test has its own namespace ([`cluster::Namespace`]) on the shared cluster, which may be the user's own cluster. A test that kills servers, or
//! that needs a feature of its own cluster, is in a module `own_cluster` and starts a [`cluster::Cluster`]. The methods of `Cluster` block. So a test
//! that calls them has `#[tokio::test(flavor = "multi_thread")]`, and wraps the calls in `tokio::task::block_in_place` if other tasks must run
//! meanwhile.

#![forbid(unsafe_code)]

mod cache;
mod cluster;
mod cluster_assumptions;
mod controller;
mod examples;
mod leader;
mod scripts;
