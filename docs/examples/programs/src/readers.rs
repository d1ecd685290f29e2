//! Programs without a controller. `versions` answers requests about Deployments from a store, as version-rs does; the other four watch a cluster
//! as kube-rs's `node_watcher`, `event_watcher`, `dynamic_watcher` and `multi_watcher` do, and print lines. The two modules have separate sources,
//! because a watcher stream and an informer have different interfaces.

pub mod flyball;
pub mod kube_runtime;
