//! Three controllers of Kubernetes, and the controller of one application, on `flyball-kube`.
//!
//! Each controller has a pure core, which computes the wanted state, and a shell, which reads caches and writes to the API server. `README.md`
//! describes the controllers.
#![forbid(unsafe_code)]

pub mod deployment;
pub mod endpointslice;
pub mod error;
pub mod own_writes;
pub mod owner;
pub mod pods;
pub mod program;
pub mod replicaset;
pub mod website;
