//! Tests of the API server in memory through kube's own `Api` and `watcher`.

mod applies;
mod faults;
mod kinds;
mod not_implemented;
mod reads;
mod scripts;
mod watcher;
mod watches;
mod writes;

use std::fmt::Debug;

use flyball_kube_testing::ApiServer;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::core::Status;
use kube::{Api, Error};
use serde_json::{Value, from_value, json};

fn server() -> ApiServer {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Pod>().register::<Deployment>().register::<Namespace>();
    server
}

/// Returns a client that passes on every answer, including those after which kube repeats a request.
fn client_without_retries(server: &ApiServer) -> kube::Client {
    kube::Client::new(server.clone(), "default")
}

fn config_maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::default_namespaced(server.client())
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    from_value(json!({"metadata": {"name": name, "namespace": "default"}, "data": {"value": value}})).unwrap()
}

fn labelled(name: &str, labels: Value) -> ConfigMap {
    from_value(json!({"metadata": {"name": name, "namespace": "default", "labels": labels}})).unwrap()
}

fn deployment(replicas: i32) -> Deployment {
    from_value(json!({
        "metadata": {"name": "a"},
        "spec": {
            "replicas": replicas,
            "selector": {},
            "template": {},
        },
    }))
    .unwrap()
}

/// Returns the status of a refused request.
#[track_caller]
fn refused<T: Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(Error::Api(status)) => *status,
        other => panic!("the request must be refused: {other:?}"),
    }
}

fn names(objects: &[ConfigMap]) -> Vec<&str> {
    objects.iter().map(|object| object.metadata.name.as_deref().unwrap()).collect()
}
