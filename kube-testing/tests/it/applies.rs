use super::{config_map, config_maps, refused, server};
use futures_util::StreamExt;
use http::{Request, header};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, from_value, json};

fn configuration(value: &str) -> Patch<Value> {
    let data = json!({"value": value});
    Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}))
}

fn managers(object: &impl ResourceExt) -> Vec<&str> {
    object.managed_fields().iter().map(|entry| entry.manager.as_deref().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_never_applied_have_no_managed_fields() {
    let server = server();
    let api = config_maps(&server);
    let made = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(made.metadata.managed_fields, None);
    let patch = Patch::Merge(json!({"data": {"other": "1"}, "metadata": {"managedFields": []}}));
    let patched = api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.metadata.managed_fields, None);
    let stored = api.get_metadata("a").await.unwrap();
    assert_eq!(stored.metadata.managed_fields, None);
}

#[tokio::test(start_paused = true)]
async fn a_typed_object_is_applied_and_watched() {
    let server = server();
    let api = config_maps(&server);
    let params = PatchParams::apply("one");
    let config = |value| Patch::Apply(config_map("a", value));
    let made = api.patch("a", &params, &config("1")).await.unwrap();
    let mut events = watcher(api.clone(), Config::default()).touched_objects().boxed();
    assert_eq!(events.next().await.unwrap().unwrap(), made);
    api.patch("a", &params, &config("1")).await.unwrap();
    let changed = api.patch("a", &params, &config("2")).await.unwrap();
    // An apply that changes nothing causes no event.
    assert_eq!(events.next().await.unwrap().unwrap(), changed);
    assert_eq!(managers(&changed), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn managers_of_a_compacted_history_are_before_the_first_apply() {
    let server = server();
    let api = config_maps(&server);
    let params =
        |manager: &str| PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    api.create(&params("creator"), &config_map("a", "1")).await.unwrap();
    server.compact();
    let conflict = refused(api.patch("a", &PatchParams::apply("one"), &configuration("2")).await);
    let message = "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.value";
    assert_eq!((conflict.code, &*conflict.message), (409, message));

    let other = PatchParams { field_manager: Some("other".to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"data": {"more": "1"}}));
    api.patch("a", &other, &patch).await.unwrap();
    let applied = api.patch("a", &PatchParams::apply("one"), &configuration("1")).await.unwrap();
    assert_eq!(managers(&applied), ["one", "before-first-apply", "other"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_created_again_has_only_its_own_managers() {
    let server = server();
    let api = config_maps(&server);
    api.patch("a", &PatchParams::apply("one"), &configuration("1")).await.unwrap();
    server.delete::<ConfigMap>("default", "a");
    let params = PostParams { field_manager: Some("creator".to_owned()), ..PostParams::default() };
    api.create(&params, &config_map("a", "1")).await.unwrap();
    let applied = api.patch("a", &PatchParams::apply("two"), &configuration("1")).await.unwrap();
    assert_eq!(managers(&applied), ["two", "creator"]);
}

#[tokio::test(start_paused = true)]
async fn a_put_takes_fields_as_a_manager_of_its_own() {
    let server = server();
    let api = config_maps(&server);
    let one = PatchParams::apply("one");
    server.put(&config_map("a", "1"));
    assert!(refused(api.patch("a", &one, &configuration("2")).await).is_conflict());
    api.patch("a", &one.clone().force(), &configuration("2")).await.unwrap();
    let put = server.put(&config_map("a", "3"));
    assert_eq!(managers(&put), ["flyball-kube-testing"]);
    let conflict = refused(api.patch("a", &one, &configuration("2")).await);
    let message =
        "Apply failed with 1 conflict: conflict with \"flyball-kube-testing\" using v1: .data.value";
    assert_eq!(conflict.message, message);
}

#[tokio::test(start_paused = true)]
async fn the_user_agent_is_the_manager_of_a_write_without_one() {
    let server = server();
    let api = config_maps(&server);
    let body = serde_json::to_vec(&config_map("a", "1")).unwrap();
    let create = Request::post("/api/v1/namespaces/default/configmaps")
        .header(header::USER_AGENT, "some operator/1.2");
    server.client().request_text(create.body(body).unwrap()).await.unwrap();
    let conflict = refused(api.patch("a", &PatchParams::apply("one"), &configuration("2")).await);
    let message = "Apply failed with 1 conflict: conflict with \"some operator\" using v1: .data.value";
    assert_eq!(conflict.message, message);
}

/// Without a definition there is no schema, so lists are replaced.
#[tokio::test(start_paused = true)]
async fn a_registered_custom_kind_merges_objects_and_replaces_lists() {
    let server = server();
    let custom = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Site"));
    server.register_dynamic(custom.clone(), true);
    let api = Api::<DynamicObject>::default_namespaced_with(server.client(), &custom);
    let apply = async |manager: &str, spec: Value| {
        let config =
            json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "s"}, "spec": spec});
        api.patch("s", &PatchParams::apply(manager), &Patch::Apply(config)).await
    };
    apply("one", json!({"a": {"b": 1}, "list": [{"name": "x"}]})).await.unwrap();
    let merged = apply("two", json!({"a": {"c": 2}})).await.unwrap();
    assert_eq!(merged.data["spec"], json!({"a": {"b": 1, "c": 2}, "list": [{"name": "x"}]}));
    assert!(refused(apply("two", json!({"list": [{"name": "y"}]})).await).is_conflict());
    let left = apply("one", json!({})).await.unwrap();
    assert_eq!(left.data["spec"], json!({"a": {"c": 2}}));
}

/// Operators apply their custom resource definitions when they start, with server-side apply.
#[tokio::test(start_paused = true)]
async fn an_applied_definition_serves_its_kind() {
    let server = server();
    server.register::<CustomResourceDefinition>();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "sites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Site", "plural": "sites"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let params = PatchParams::apply("operator").force();
    let definition: CustomResourceDefinition = from_value(definition).unwrap();
    for _ in 0..2 {
        definitions.patch("sites.example.com", &params, &Patch::Apply(&definition)).await.unwrap();
    }
    let custom = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Site"));
    let api = Api::<DynamicObject>::default_namespaced_with(server.client(), &custom);
    api.create(&PostParams::default(), &DynamicObject::new("s", &custom)).await.unwrap();
}
