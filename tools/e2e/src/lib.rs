//! Runs a real Kubernetes API server for tests: etcd, kube-apiserver and optionally kube-controller-manager, as child
//! processes on the loopback interface. Tests can start, kill, suspend and restart the servers, restore a backup, and compact the history.
//! `cargo xtask e2e` builds the servers, passes their location to the tests ([`Given`]) and runs the tests. All
//! functions are synchronous: when a call returns, its operation is complete.

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
mod process;

pub use crate::cluster::{Backup, Cluster};
pub use crate::front::Front;
pub use crate::given::{Given, shared_kubeconfig};
pub use crate::http::Reply;
pub use crate::patience::eventually;
pub use crate::process::Process;
