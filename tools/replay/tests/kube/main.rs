//! Tests of `--kube` on a real API server, together with Kubernetes' own versions of the two controllers: `cargo xtask e2e`.
//!
//! Each test has its own cluster, because it starts and stops a controller manager.

#![forbid(unsafe_code)]

mod own_cluster;
