//! Tests of whole controllers with an API server in memory.

mod cluster;
mod deployment;
mod election;
mod endpointslice;
mod replicaset;
mod rollout;
mod website;
