//! Programs without a controller. `versions` answers requests about Deployments from a store, as version-rs does; the other four follow a cluster as kube-rs's
//! `node_watcher`, `event_watcher`, `dynamic_watcher` and `multi_watcher` do, and print lines. The two modules are apart, as a stream of a watcher's and an
//! informer are no one text.

pub mod flyball;
pub mod kube_runtime;
