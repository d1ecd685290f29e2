//! `--kube` on a real API server, where the originals of the two controllers run: `cargo xtask e2e`.
//!
//! Each test has a cluster of its own, as it needs a controller manager, and to stop it.

#![forbid(unsafe_code)]

mod own_cluster;
