//! On a real API server: `cargo xtask e2e` (tools/e2e/README.md). One binary for all tests, so that they share one cluster.
//!
//! A test has a namespace of its own on the shared cluster ([`cluster::Namespace`]), which may be somebody's. One that kills
//! servers, or needs what only a cluster of its own has, is in a module `own_cluster` and starts a [`cluster::Cluster`]; what that
//! does to servers blocks, so where something has to run meanwhile such a test has
//! `#[tokio::test(flavor = "multi_thread")]` and calls it in `tokio::task::block_in_place`.

#![forbid(unsafe_code)]

mod cache;
mod cluster;
mod cluster_assumptions;
mod controller;
mod examples;
mod leader;
mod scripts;
