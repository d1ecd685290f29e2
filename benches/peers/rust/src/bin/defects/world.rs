//! An in-memory cluster on paused time: the clock advances when all tasks are idle.

use std::sync::Arc;
use std::time::Duration;

use flyball_kube_testing::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::runtime::watcher;
use parking_lot::Mutex;
use serde_json::{from_value, json};
use tokio::runtime::Builder;
use tokio::time::sleep;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

/// Runs a program on one thread and on paused time.
pub(crate) fn paused<R>(program: impl Future<Output = R>) -> R {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime").block_on(program)
}

pub(crate) fn server() -> ApiServer {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Pod>();
    server
}

pub(crate) fn config_maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::all(server.client())
}

pub(crate) fn config_map(name: &str, value: &str) -> ConfigMap {
    from_value(json!({"metadata": {"name": name, "namespace": "default"}, "data": {"value": value}}))
        .expect("not a config map")
}

/// A pod that a config map owns.
pub(crate) fn pod_of(owner: &ConfigMap, name: &str) -> Pod {
    let owner = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": true,
    });
    from_value(json!({"metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]}}))
        .expect("not a pod")
}

pub(crate) fn name(object: &ConfigMap) -> String {
    object.metadata.name.clone().expect("the object has no name")
}

pub(crate) fn value(object: &ConfigMap) -> String {
    object.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default()
}

/// Returns a configuration that lists in pages of the given size.
pub(crate) fn in_pages(of: u32) -> watcher::Config {
    watcher::Config::default().page_size(of)
}

/// Advances the clock by `time`, and runs the tasks that become ready before that time has passed.
pub(crate) async fn pass(time: Duration) {
    sleep(time).await;
}

/// The events that a program noted, in order.
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Log<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())))
    }

    pub(crate) fn note(&self, what: T) {
        self.0.lock().push(what);
    }

    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock())
    }
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
