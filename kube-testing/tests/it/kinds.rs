use super::{config_map, refused, server};
use flyball_kube_testing::{ApiServer, Registration, RequestMatcher, Verb};
use k8s_openapi::api::autoscaling::{v1, v2};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;

fn site(version: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", version, "Site"))
}

fn sites(server: &ApiServer, version: &str) -> Api<DynamicObject> {
    Api::default_namespaced_with(server.client(), &site(version))
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_registered_with_its_status_and_fields() {
    let server = ApiServer::new();
    server
        .register_as(Registration::dynamic(site("v1"), true).without_status().selectable_field("spec.color"));
    let api = sites(&server, "v1");
    let red = DynamicObject::new("a", &site("v1"))
        .data(json!({"spec": {"color": "red"}, "status": {"ready": true}}));
    let made = api.create(&PostParams::default(), &red).await.unwrap();
    assert_eq!(made.data["status"]["ready"], true);
    let patch = Patch::Merge(json!({"status": {"ready": false}}));
    assert_eq!(refused(api.patch_status("a", &PatchParams::default(), &patch).await).code, 404);
    let told = api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(told.metadata.generation, Some(2));
    for (color, expected) in [("red", 1), ("blue", 0)] {
        let list = api.list(&ListParams::default().fields(&format!("spec.color={color}"))).await.unwrap();
        assert_eq!(list.items.len(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn versions_of_a_custom_kind_share_their_objects() {
    let server = ApiServer::new();
    server.register_dynamic(site("v1"), true).register_dynamic(site("v2"), true);
    let object = DynamicObject::new("a", &site("v2"));
    sites(&server, "v2").create(&PostParams::default(), &object).await.unwrap();
    for version in ["v1", "v2"] {
        let got = sites(&server, version).get("a").await.unwrap();
        assert_eq!(got.types.unwrap().api_version, format!("example.com/{version}"));
    }
    let mismatched =
        sites(&server, "v1").create(&PostParams::default(), &DynamicObject::new("b", &site("v2"))).await;
    assert_eq!(refused(mismatched).code, 400);
}

#[test]
#[should_panic(expected = "versions of Kubernetes' own kinds are not converted")]
fn a_second_version_of_a_kind_of_kubernetes_is_refused() {
    ApiServer::new().register::<v1::HorizontalPodAutoscaler>().register::<v2::HorizontalPodAutoscaler>();
}

#[tokio::test(start_paused = true)]
async fn dependents_of_a_kind_that_is_registered_later_are_looked_at_again() {
    let server = server();
    let mut child = config_map("child", "1");
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Site", "name": "never", "uid": "never"}]);
    child.metadata.owner_references = serde_json::from_value(owner).unwrap();
    server.put(&child);
    assert_eq!(server.list::<ConfigMap>().len(), 1);
    server.register_dynamic(site("v1"), true);
    server.put(&config_map("other", "1"));
    assert_eq!(super::names(&server.list::<ConfigMap>()), ["other"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_put_keeps_its_uid_and_may_be_an_owner() {
    let server = server();
    let mut owner = config_map("owner", "1");
    owner.metadata.uid = Some("mine".into());
    assert_eq!(server.put(&owner).metadata.uid.as_deref(), Some("mine"));
    let mut child = config_map("child", "1");
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "mine"}]);
    child.metadata.owner_references = serde_json::from_value(reference).unwrap();
    server.put(&child);
    assert_eq!(super::names(&server.list::<ConfigMap>()), ["child", "owner"]);
    server.delete::<ConfigMap>("default", "owner");
    assert!(server.list::<ConfigMap>().is_empty());
}

#[tokio::test(start_paused = true)]
async fn faults_and_the_log_see_requests_of_discovery() {
    let server = server();
    let busy = kube::core::Status::failure("busy", "ServiceUnavailable").with_code(503);
    server.fail_next(RequestMatcher::verb(Verb::Get), 1, busy);
    let client = super::client_without_retries(&server);
    assert_eq!(refused(client.apiserver_version().await).code, 503);
    assert_eq!(server.client().apiserver_version().await.unwrap().minor, "37");
    let log = server.requests();
    assert_eq!((log.len(), log[0].verb, log[0].plural.as_str()), (2, Verb::Get, ""));
}

#[tokio::test(start_paused = true)]
async fn a_pod_in_its_grace_period_is_watched_and_then_deleted() {
    use futures_util::StreamExt;
    use kube::api::{DeleteParams, WatchEvent};

    let server = server();
    let pods = Api::<Pod>::default_namespaced(server.client());
    let spec = json!({"nodeName": "node", "containers": []});
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
    let made = pods.create(&PostParams::default(), &pod).await.unwrap();
    let version = made.metadata.resource_version.unwrap();
    let mut events = Box::pin(pods.watch(&WatchParams::default(), &version).await.unwrap());
    let left = pods.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(left.metadata.deletion_grace_period_seconds, Some(30), "the default grace period must apply");
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Modified(_)))));
    pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Deleted(_)))));
}
