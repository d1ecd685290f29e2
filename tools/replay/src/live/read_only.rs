//! EDGE. A client that can only list and watch objects of four kinds, in the cluster of the current context.
//!
//! Cancel safety: a dropped request ends with its connection.

use anyhow::Context;
use http::{Method, Request, header};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::BoxError;
use tower::filter::FilterLayer;

/// The paths of the allowed requests. Requests with other paths are not sent.
const ASKED: [&str; 4] = [
    "/api/v1/pods",
    "/api/v1/services",
    "/apis/apps/v1/replicasets",
    "/apis/discovery.k8s.io/v1/endpointslices",
];

/// The message that is printed if the user does not have the required permissions.
pub(super) const NEEDED: &str = "--kube needs the verbs `list` and `watch`, in all namespaces, of the kinds pods, services, \
    replicasets.apps and endpointslices.discovery.k8s.io";

/// Creates a client for the current context of the kubeconfig or, without a kubeconfig, for the cluster in which the program runs.
pub(crate) async fn client() -> anyhow::Result<Client> {
    let config = Config::infer().await.context("no cluster: neither a kubeconfig nor a service account")?;
    let builder = ClientBuilder::try_from(config).context("the current context cannot be used")?;
    Ok(builder.with_layer(&FilterLayer::new(check_read_only)).build())
}

/// Returns an error for all requests that are not lists or watches. It also refuses most GET requests, because an upgraded GET request can open a
/// shell in a pod.
fn check_read_only(request: Request<Body>) -> Result<Request<Body>, BoxError> {
    let asked = ASKED.contains(&request.uri().path());
    let upgraded =
        [header::UPGRADE, header::CONNECTION].iter().any(|name| request.headers().contains_key(name));
    if request.method() == Method::GET && asked && !upgraded {
        return Ok(request);
    }
    Err(format!(
        "{} {} is not sent: this program only lists and watches",
        request.method(),
        request.uri().path()
    )
    .into())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::{Pod, Secret, Service};
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
    use kube::core::Request as Call;
    use kube::core::request::Error;
    use kube::{Resource, core};

    use super::*;

    fn passes(call: Result<Request<Vec<u8>>, Error>) -> bool {
        check_read_only(call.unwrap().map(Body::from)).is_ok()
    }

    fn calls<K: Resource<DynamicType = ()>>() -> Call {
        Call::new(K::url_path(&(), None))
    }

    #[test]
    fn the_four_kinds_are_listed_and_watched() {
        for call in [calls::<Pod>(), calls::<Service>(), calls::<ReplicaSet>(), calls::<EndpointSlice>()] {
            assert!(passes(call.list(&ListParams::default().limit(500))), "{}", call.url_path);
            assert!(passes(call.watch(&WatchParams::default(), "7")), "{}", call.url_path);
        }
    }

    #[test]
    fn nothing_is_written_and_nothing_else_is_read() {
        let pods = calls::<Pod>();
        assert!(!passes(pods.create(&PostParams::default(), Vec::new())));
        assert!(!passes(pods.replace("a", &PostParams::default(), Vec::new())));
        assert!(!passes(pods.replace_subresource("status", "a", &PostParams::default(), Vec::new())));
        assert!(!passes(pods.patch("a", &PatchParams::default(), &Patch::Merge(()))));
        assert!(!passes(pods.delete("a", &DeleteParams::default())));
        assert!(!passes(pods.delete_collection(&DeleteParams::default(), &ListParams::default())));
        assert!(!passes(pods.get("a", &core::params::GetParams::default())));
        assert!(!passes(calls::<Secret>().list(&ListParams::default())));
        let upgraded = pods.list(&ListParams::default()).map(|mut call| {
            call.headers_mut().insert(header::UPGRADE, header::HeaderValue::from_static("websocket"));
            call
        });
        assert!(!passes(upgraded));
    }
}
