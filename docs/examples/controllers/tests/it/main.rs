//! Whole controllers, against an API server in memory.

#[path = "../common/kubelet.rs"]
mod kubelet;

mod cluster;
mod deployment;
mod election;
mod endpointslice;
mod replicaset;
mod rollout;
mod website;
