//! A real Kubernetes API server for tests: etcd, kube-apiserver and, where wanted, kube-controller-manager as child processes
//! on loopback, which tests start, kill, restart and make forget their history.
//!
//! `cargo xtask e2e` builds the servers, says where they are ([`Given`]) and runs the tests that need them. Nothing here is
//! asynchronous: what a test asks for has happened when the call returns.

#![forbid(unsafe_code)]

mod api_server;
mod cluster;
mod controller_manager;
mod credentials;
mod etcd;
mod front;
mod given;
mod http;
mod leash;
mod patience;
mod ports;

pub use crate::cluster::Cluster;
pub use crate::front::Front;
pub use crate::given::{Given, shared_kubeconfig};
pub use crate::http::Reply;
pub use crate::patience::eventually;
