//! Programs without a controller. `versions` answers requests about Deployments from a store, as version-rs does. The other four watch a cluster and
//! print lines, as kube-rs's `node_watcher`, `event_watcher`, `dynamic_watcher` and `multi_watcher` do. The modules for the two engines have separate
//! sources, because a watcher stream and an informer have different interfaces.

pub mod flyball;
pub mod kube_runtime;
