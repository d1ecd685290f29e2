//! Patches.

use serde_json::{Value, json};

use crate::definitions::Definition;
use crate::server::{Reply, Server, config_map, deployment, version};

const STRATEGIC: &str = "application/strategic-merge-patch+json";

async fn patch(on: &Server, path: &str, kind: &str, patch: Value) -> Reply {
    on.ask_as("PATCH", path, kind, "application/json", patch).await
}

/// The operations of a JSON patch are applied in order; if one of them fails, none is applied.
pub async fn a_json_patch_edits_or_is_refused(on: &Server) {
    on.create("v1/configmaps", config_map("a", "1")).await;
    let edit =
        async |operations| patch(on, "v1/configmaps/a", "application/json-patch+json", operations).await;
    let good = edit(json!([
        {"op": "test", "path": "/data/value", "value": "1"},
        {"op": "replace", "path": "/data/value", "value": "2"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "test", "path": "/data/none", "value": null},
    ]))
    .await
    .ok();
    assert_eq!((&good["data"]["value"], &good["metadata"]["labels"]["a"]), (&json!("2"), &json!("b")));
    let message = "the server rejected our request due to an error in our request";
    for operations in [
        json!([{"op": "replace", "path": "/data/value", "value": "3"}, {"op": "test", "path": "/data/value", "value": "1"}]),
        json!([{"op": "remove", "path": "/data/none"}]),
        json!([{"op": "replace", "path": "/none/none", "value": "1"}]),
    ] {
        edit(operations).await.is_error(422, "Invalid", message);
    }
    assert_eq!(edit(json!({"op": "remove"})).await.code, 400);
    let unchanged = on.get("v1/configmaps/a").await.ok();
    assert_eq!(version(&unchanged), version(&good));
}

/// A null value removes a field, and a list is replaced as a whole.
pub async fn a_merge_patch_merges(on: &Server) {
    on.create("v1/configmaps", config_map("a", "1")).await;
    let told = on.merge("v1/configmaps/a", json!({"data": {"value": null, "other": "2"}})).await.ok();
    assert_eq!(told["data"], json!({"other": "2"}));
    let again = on.merge("v1/configmaps/a", json!({"data": {"other": "2"}})).await.ok();
    assert_eq!(version(&again), version(&told), "a patch that changes nothing is none");
    on.merge("v1/configmaps/none", json!({})).await.is_error(
        404,
        "NotFound",
        "configmaps \"none\" not found",
    );
    on.create("apps/v1/deployments", deployment("web", 1)).await;
    let sidecar = json!([{"name": "side", "image": "image"}]);
    let told = on
        .merge("apps/v1/deployments/web", json!({"spec": {"template": {"spec": {"containers": sidecar}}}}))
        .await
        .ok();
    assert_eq!(told["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
    let renamed = on.merge("v1/configmaps/a", json!({"metadata": {"name": "b"}})).await;
    renamed.is_error(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)");
}

/// If a patch contains a version, it is refused if the object has a different version.
pub async fn a_patch_with_a_stale_version_is_a_conflict(on: &Server) {
    let first = on.create("v1/configmaps", config_map("a", "1")).await;
    on.merge("v1/configmaps/a", json!({"data": {"value": "2"}})).await.ok();
    let stale = json!({"metadata": {"resourceVersion": version(&first)}, "data": {"value": "3"}});
    let refused = on.merge("v1/configmaps/a", stale).await;
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    refused.is_error(409, "Conflict", &format!("Operation cannot be fulfilled on configmaps \"a\": {why}"));
    let other = on.merge("v1/configmaps/a", json!({"metadata": {"uid": "other"}})).await;
    let why = "metadata.uid: Invalid value: \"other\": field is immutable";
    other.is_error(422, "Invalid", &format!("ConfigMap \"a\" is invalid: {why}"));
}

/// A strategic merge patch merges lists by the keys that Kubernetes' types declare for them.
pub async fn a_strategic_merge_patch_merges_lists_by_their_keys(on: &Server) {
    on.create("apps/v1/deployments", deployment("web", 1)).await;
    let here = "apps/v1/deployments/web";
    let containers = |object: &Value| -> Vec<(String, String)> {
        let containers = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        containers.iter().map(|it| (text(&it["name"]), text(&it["image"]))).collect()
    };
    let of = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let pair = |name: &str, image: &str| (name.to_owned(), image.to_owned());
    let told = patch(on, here, STRATEGIC, of(json!([{"name": "side", "image": "other"}]))).await.ok();
    assert_eq!(containers(&told), [pair("side", "other"), pair("main", "image")]);
    let env = json!([{"name": "main", "env": [{"name": "A", "value": "1"}]}]);
    patch(on, here, STRATEGIC, of(env)).await.ok();
    let env = json!([{"name": "main", "image": "new", "env": [{"name": "B", "value": "2"}]}]);
    let told = patch(on, here, STRATEGIC, of(env)).await.ok();
    assert_eq!(containers(&told), [pair("side", "other"), pair("main", "new")]);
    let main = &told["spec"]["template"]["spec"]["containers"][1];
    assert_eq!(main["env"], json!([{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]));
    let told = patch(on, here, STRATEGIC, of(json!([{"name": "side", "$patch": "delete"}]))).await.ok();
    assert_eq!(containers(&told), [pair("main", "new")]);
    let keyless = patch(on, here, STRATEGIC, of(json!([{"image": "new"}]))).await;
    assert!(keyless.code >= 400, "{keyless:?}");

    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    on.create("v1/configmaps", config_map("a", "1")).await;
    let here = "v1/configmaps/a";
    patch(on, here, STRATEGIC, finalizers(json!(["flyball.test/a", "flyball.test/b"]))).await.ok();
    let told = patch(on, here, STRATEGIC, finalizers(json!(["flyball.test/b", "flyball.test/c"]))).await.ok();
    let all = json!(["flyball.test/a", "flyball.test/b", "flyball.test/c"]);
    assert_eq!(told["metadata"]["finalizers"], all);
    let removed =
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["flyball.test/a", "flyball.test/b"]}});
    let told = patch(on, here, STRATEGIC, removed).await.ok();
    assert_eq!(told["metadata"]["finalizers"], json!(["flyball.test/c"]));
    let replaced =
        patch(on, here, STRATEGIC, json!({"data": {"$patch": "replace", "other": "2"}})).await.ok();
    assert_eq!(replaced["data"], json!({"other": "2"}));
    on.merge(here, finalizers(Value::Null)).await.ok();
}

/// A strategic merge patch needs list keys. Kubernetes' own types declare them, but custom resources do not, so the patch is refused for these.
pub async fn custom_resources_have_no_strategic_merge_patch(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    on.create(&sites.path(), sites.object("s", json!({}))).await;
    let here = format!("{}/s", sites.path());
    let refused = patch(on, &here, STRATEGIC, json!({"spec": {"color": "red"}})).await;
    let message = "the body of the request was in an unknown format - accepted media types include: \
                   application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    refused.is_error(415, "UnsupportedMediaType", message);
    on.create("v1/configmaps", config_map("a", "1")).await;
    let refused = patch(on, "v1/configmaps/a", "application/json", json!({})).await;
    assert_eq!(refused.code, 415);
}

/// The server checks the options of a patch request before it applies the patch.
pub async fn options_of_patches_are_checked(on: &Server) {
    on.create("v1/configmaps", config_map("a", "1")).await;
    let refused = on.merge("v1/configmaps/a?force=true", json!({})).await;
    let why = "force: Forbidden: may not be specified for non-apply patch";
    refused.is_error(422, "Invalid", &format!("PatchOptions.meta.k8s.io \"\" is invalid: {why}"));
    let apply = "application/apply-patch+yaml";
    let refused = patch(on, "v1/configmaps/a", apply, config_map("a", "1")).await;
    let why = "fieldManager: Required value: is required for apply patch";
    refused.is_error(422, "Invalid", &format!("PatchOptions.meta.k8s.io \"\" is invalid: {why}"));
}
