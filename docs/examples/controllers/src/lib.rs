//! Controllers of Kubernetes itself, and one of an application, on `flyball-kube`.
//!
//! Each is a pure core, which says what should be, and a shell, which reads caches and writes to the API server. `README.md` has the rest.
#![forbid(unsafe_code)]

pub mod deployment;
pub mod endpointslice;
pub mod error;
pub mod holder;
pub mod own_writes;
pub mod pods;
pub mod program;
pub mod replicaset;
pub mod website;
