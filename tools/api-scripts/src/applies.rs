//! Server-side apply, and how the server records the managers of fields.

use serde_json::{Value, json};

use crate::definitions::Definition;
use crate::server::{Reply, Server, config_map, deployment, uid, version};

pub(crate) const HERE: &str = "v1/configmaps/a";

/// Applies a configuration as `manager`. `manager` may be followed by query parameters, for example `one&force=true`.
pub(crate) async fn apply(on: &Server, path: &str, manager: &str, config: Value) -> Reply {
    let path = format!("{path}?fieldManager={manager}");
    on.ask_as("PATCH", &path, "application/apply-patch+yaml", "application/json", config).await
}

pub(crate) fn empty() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
}

pub(crate) fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

/// Returns the managers of an object and their fields. The `time` of each entry is left out, because it differs from server to server.
pub(crate) fn managers(object: &Value) -> Vec<Value> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let entry = |entry: &Value| {
        assert_eq!(entry["fieldsType"], "FieldsV1");
        json!([entry["manager"], entry["operation"], entry.get("subresource"), entry["fieldsV1"]])
    };
    let mut entries: Vec<_> = entries.map(entry).collect();
    entries.sort_by_key(Value::to_string);
    entries
}

#[track_caller]
pub(crate) fn is_conflict(reply: &Reply, manager: &str, fields: &[&str]) {
    let message = match fields {
        [field] => format!("Apply failed with 1 conflict: conflict with {manager}: {field}"),
        _ => {
            let fields: Vec<_> = fields.iter().map(|field| format!("\n- {field}")).collect();
            format!(
                "Apply failed with {} conflicts: conflicts with {manager}:{}",
                fields.len(),
                fields.concat()
            )
        }
    };
    reply.is_error(409, "Conflict", &message);
    let causes: Vec<_> = fields.iter().map(|field| (*field, "FieldManagerConflict")).collect();
    reply.has_causes(&causes);
    assert_eq!(reply.body["details"]["causes"][0]["message"], format!("conflict with {manager}"));
}

/// An apply creates an object or merges into it. If it changes nothing, nothing is written.
pub async fn an_apply_creates_an_object_or_merges_into_it(on: &Server) {
    let mut config = map(json!({"x": "1"}));
    config["metadata"]["labels"] = json!({"l": "1"});
    let made = apply(on, HERE, "one", config.clone()).await.ok();
    assert_eq!((&made["data"], &made["metadata"]["labels"]), (&json!({"x": "1"}), &json!({"l": "1"})));
    let fields = json!({"f:data": {"f:x": {}}, "f:metadata": {"f:labels": {"f:l": {}}}});
    assert_eq!(managers(&made), [json!(["one", "Apply", null, fields])]);
    assert_eq!(on.get(HERE).await.ok(), made);
    let again = apply(on, HERE, "one", config).await.ok();
    assert_eq!(again, made);

    let merged = apply(on, HERE, "two", map(json!({"y": "2"}))).await.ok();
    assert_eq!(merged["data"], json!({"x": "1", "y": "2"}));
    assert_eq!((uid(&merged), version(&merged) == version(&made)), (uid(&made), false));
    let second = json!(["two", "Apply", null, {"f:data": {"f:y": {}}}]);
    assert_eq!(managers(&merged), [json!(["one", "Apply", null, fields]), second]);
    assert_eq!(on.watch("v1/configmaps?fieldSelector=metadata.name=a").await, ["ADDED a"]);
}

/// An apply that changes a field that a different manager owns is refused, unless the request has `force=true`.
pub async fn an_apply_conflicts_with_other_managers(on: &Server) {
    let mut config = map(json!({"x": "1"}));
    config["metadata"]["labels"] = json!({"l": "1"});
    let made = apply(on, HERE, "one", config.clone()).await.ok();
    is_conflict(&apply(on, HERE, "two", map(json!({"x": "2"}))).await, "\"one\"", &[".data.x"]);
    config["data"]["x"] = json!("2");
    config["metadata"]["labels"]["l"] = json!("2");
    let refused = apply(on, HERE, "two", config.clone()).await;
    is_conflict(&refused, "\"one\"", &[".data.x", ".metadata.labels.l"]);
    assert_eq!(on.get(HERE).await.ok(), made);

    let forced = apply(on, HERE, "two&force=true", map(json!({"x": "2"}))).await.ok();
    assert_eq!(forced["data"]["x"], "2");
    let labels = json!(["one", "Apply", null, {"f:metadata": {"f:labels": {"f:l": {}}}}]);
    assert_eq!(managers(&forced), [labels, json!(["two", "Apply", null, {"f:data": {"f:x": {}}}])]);
}

/// Two managers can apply the same value of a field without force. The field is removed when neither manager applies it any longer.
pub async fn managers_share_a_field_with_one_value(on: &Server) {
    apply(on, HERE, "one", map(json!({"x": "1", "y": "1"}))).await.ok();
    let shared = apply(on, HERE, "two", map(json!({"x": "1"}))).await.ok();
    let fields = json!({"f:data": {"f:x": {}}});
    let both = json!({"f:data": {"f:x": {}, "f:y": {}}});
    assert_eq!(
        managers(&shared),
        [json!(["one", "Apply", null, both]), json!(["two", "Apply", null, fields])]
    );
    // The apply of manager `two` has changed no value, so the entry of `two` has no `time` yet.
    let entries = shared["metadata"]["managedFields"].as_array().unwrap();
    let times: Vec<_> =
        entries.iter().map(|entry| (&entry["manager"], entry.get("time").is_some())).collect();
    assert_eq!(times, [(&json!("two"), false), (&json!("one"), true)]);

    let dropped = apply(on, HERE, "one", empty()).await.ok();
    assert_eq!(dropped["data"], json!({"x": "1"}));
    let refused = apply(on, HERE, "one", map(json!({"x": "2"}))).await;
    is_conflict(&refused, "\"two\"", &[".data.x"]);
    let dropped = apply(on, HERE, "two", empty()).await.ok();
    assert_eq!(dropped["data"].get("x"), None);
}

/// When a manager no longer applies a field, the field is removed, unless a different manager also owns it.
pub async fn a_field_that_is_no_longer_applied_is_removed(on: &Server) {
    let mut config = map(json!({"x": "1", "y": "1"}));
    config["metadata"]["annotations"] = json!({"n": "1"});
    config["metadata"]["finalizers"] = json!(["flyball.test/a"]);
    apply(on, HERE, "one", config).await.ok();
    on.merge(&format!("{HERE}?fieldManager=merging"), json!({"data": {"z": "1"}})).await.ok();
    let left = apply(on, HERE, "one", map(json!({"x": "1"}))).await.ok();
    assert_eq!(left["data"], json!({"x": "1", "z": "1"}));
    let metadata = &left["metadata"];
    assert_eq!((metadata.get("annotations"), metadata.get("finalizers")), (None, None));
    let left = apply(on, HERE, "one", json!({"apiVersion": "v1", "kind": "ConfigMap"})).await.ok();
    assert_eq!(left["data"], json!({"z": "1"}));
    assert_eq!(managers(&left), [json!(["merging", "Update", null, {"f:data": {"f:z": {}}}])]);
}

/// A null in a configuration conflicts with the value of a different manager like any other value. If the apply is forced, the null removes the
/// field.
pub async fn a_null_conflicts_with_the_value_of_another_manager(on: &Server) {
    let here = "apps/v1/deployments/web";
    let mut whole = deployment("web", 1);
    whole["spec"]["minReadySeconds"] = json!(5);
    let made = apply(on, here, "one", whole).await.ok();
    let config = |spec: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    let null = config(json!({"minReadySeconds": null}));
    is_conflict(&apply(on, here, "two", null.clone()).await, "\"one\"", &[".spec.minReadySeconds"]);
    let refused = apply(on, here, "two", config(json!({"selector": null}))).await;
    is_conflict(&refused, "\"one\"", &[".spec.selector"]);
    assert_eq!(on.get(here).await.ok(), made);
    // A null for an object or list that is merged changes nothing, and does not conflict.
    let same = apply(on, here, "two", config(json!({"template": null}))).await.ok();
    assert_eq!(same["spec"], made["spec"]);
    let forced = apply(on, here, "two&force=true", null).await.ok();
    assert_eq!(forced["spec"].get("minReadySeconds"), None);
}

/// The server records a manager for creates, updates and patches, even before the first apply.
pub async fn other_writes_have_managers(on: &Server) {
    on.create("v1/configmaps?fieldManager=creator", config_map("a", "1")).await;
    on.merge(&format!("{HERE}?fieldManager=merging"), json!({"data": {"m": "1", "n": "1"}})).await.ok();
    let json_patch = json!([{"op": "replace", "path": "/data/n", "value": "2"}]);
    let json_type = "application/json-patch+json";
    on.ask_as("PATCH", &format!("{HERE}?fieldManager=editor"), json_type, "application/json", json_patch)
        .await
        .ok();
    let other = map(json!({"value": "2", "m": "2", "n": "3"}));
    let refused = apply(on, HERE, "one", other.clone()).await;
    let message = "Apply failed with 3 conflicts: conflicts with \"creator\" using v1:\n- .data.value\n\
                   conflicts with \"editor\" using v1:\n- .data.n\nconflicts with \"merging\" using v1:\n- .data.m";
    refused.is_error(409, "Conflict", message);
    // The server distinguishes managers by name and operation: `creator` conflicts with its own earlier write, because that was a create and this is
    // an apply.
    let refused = apply(on, HERE, "creator", map(json!({"value": "2"}))).await;
    is_conflict(&refused, "\"creator\" using v1", &[".data.value"]);

    let applied = apply(on, HERE, "one", map(json!({"value": "1"}))).await.ok();
    let fields = |fields: Value| json!({"f:data": fields});
    let expected = [
        json!(["creator", "Update", null, fields(json!({".": {}, "f:value": {}}))]),
        json!(["editor", "Update", null, fields(json!({"f:n": {}}))]),
        json!(["merging", "Update", null, fields(json!({"f:m": {}}))]),
        json!(["one", "Apply", null, fields(json!({"f:value": {}}))]),
    ];
    assert_eq!(managers(&applied), expected);
    let mut put = applied.clone();
    put["data"] = json!({"value": "5", "m": "1"});
    let put = on.ask("PUT", &format!("{HERE}?fieldManager=putter"), put).await.ok();
    let expected = [
        json!(["creator", "Update", null, fields(json!({}))]),
        json!(["merging", "Update", null, fields(json!({"f:m": {}}))]),
        json!(["putter", "Update", null, fields(json!({"f:value": {}}))]),
    ];
    assert_eq!(managers(&put), expected);
    is_conflict(
        &apply(on, HERE, "one", map(json!({"value": "1"}))).await,
        "\"putter\" using v1",
        &[".data.value"],
    );
    let forced = apply(on, HERE, "one&force=true", map(json!({"value": "1"}))).await.ok();
    assert_eq!(forced["data"], json!({"value": "1", "m": "1"}));
    // An update that changes no value does not make its manager the owner of a field.
    let same = on.merge(&format!("{HERE}?fieldManager=idle"), json!({"data": {"value": "1"}})).await.ok();
    assert_eq!(same, forced);
}

/// A client can write `managedFields`: null has no effect, a list replaces the entries, and a list with one empty entry removes all entries.
pub async fn a_client_clears_managers(on: &Server) {
    let made = apply(on, HERE, "one", map(json!({"x": "1"}))).await.ok();
    let without = json!({"metadata": {"managedFields": null}, "data": {"y": "1"}});
    let kept = on.merge(&format!("{HERE}?fieldManager=two"), without).await.ok();
    let two = json!(["two", "Update", null, {"f:data": {"f:y": {}}}]);
    assert_eq!(managers(&kept), [managers(&made)[0].clone(), two]);
    let own = json!([{"manager": "own", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:x": {}}}}]);
    let set = on.merge(HERE, json!({"metadata": {"managedFields": own}})).await.ok();
    assert_eq!(managers(&set), [json!(["own", "Update", null, {"f:data": {"f:x": {}}}])]);
    let cleared = on.merge(HERE, json!({"metadata": {"managedFields": [{}]}})).await.ok();
    assert_eq!(cleared["metadata"].get("managedFields"), None);
    let refused = apply(on, HERE, "one", map(json!({"x": "2"}))).await;
    is_conflict(&refused, "\"before-first-apply\" using v1", &[".data.x"]);
}

/// The managers of the status are recorded in separate entries. An apply to the object ignores its status, and an apply to `/status` ignores all
/// other fields.
pub async fn a_status_is_applied_apart(on: &Server) {
    let sites = Definition::new(on, "Site").property("status", conditions()).create(on).await;
    let here = format!("{}/s", sites.path());
    let status = format!("{here}/status");
    let config = |status: Value| {
        let mut config = sites.object("s", json!({"color": "ignored"}));
        config["status"] = status;
        config
    };
    let condition = |name: &str, status: &str| json!({"conditions": [{"type": name, "status": status}]});
    assert_eq!(apply(on, &status, "one", config(json!({}))).await.code, 404);
    let mut both = sites.object("s", json!({"color": "red"}));
    both["status"] = condition("A", "True");
    let made = apply(on, &here, "one", both).await.ok();
    assert_eq!((&made["spec"]["color"], made.get("status")), (&json!("red"), None));
    let spec = json!(["one", "Apply", null, {"f:spec": {"f:color": {}}}]);
    assert_eq!(managers(&made), std::slice::from_ref(&spec));

    apply(on, &status, "one", config(condition("A", "True"))).await.ok();
    let told = apply(on, &status, "two", config(condition("B", "True"))).await.ok();
    assert_eq!(told["spec"]["color"], "red");
    assert_eq!(told["metadata"]["generation"], 1);
    assert_eq!(told["status"]["conditions"].as_array().unwrap().len(), 2);
    let fields = |name: &str| {
        let key = format!("k:{{\"type\":\"{name}\"}}");
        json!({"f:status": {"f:conditions": {key: {".": {}, "f:status": {}, "f:type": {}}}}})
    };
    let expected = [
        json!(["one", "Apply", "status", fields("A")]),
        spec,
        json!(["two", "Apply", "status", fields("B")]),
    ];
    assert_eq!(managers(&told), expected);
    let refused = apply(on, &status, "one", config(condition("B", "False"))).await;
    is_conflict(&refused, "\"two\" with subresource \"status\"", &[".status.conditions[type=\"B\"].status"]);
    let merged = on
        .merge(&format!("{status}?fieldManager=merging"), json!({"status": condition("C", "True")}))
        .await
        .ok();
    let update = json!(["merging", "Update", "status", fields("C")]);
    assert!(managers(&merged).contains(&update), "{:?}", managers(&merged));

    let web = deployment("web", 1);
    apply(on, "apps/v1/deployments/web", "one", web.clone()).await.ok();
    let mut replicas = web;
    replicas["status"] = json!({"replicas": 3});
    replicas["spec"]["replicas"] = json!(9);
    let told = apply(on, "apps/v1/deployments/web/status", "two", replicas).await.ok();
    assert_eq!((&told["spec"]["replicas"], &told["status"]["replicas"]), (&json!(1), &json!(3)));
    let entry = json!(["two", "Apply", "status", {"f:status": {"f:replicas": {}}}]);
    assert!(managers(&told).contains(&entry), "{:?}", managers(&told));
}

fn conditions() -> Value {
    let condition = json!({"type": "object", "required": ["type"], "properties": {
        "type": {"type": "string"}, "status": {"type": "string"},
    }});
    json!({"type": "object", "properties": {"conditions": {
        "type": "array", "items": condition, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
    }}})
}

/// The server checks whether a configuration is valid before it merges the configuration into the object.
pub async fn configurations_are_checked(on: &Server) {
    let refused = apply(on, HERE, "one", json!({"metadata": {"name": "a"}})).await;
    refused.is_error(400, "BadRequest", "invalid object type: /, Kind=");
    let mut other = empty();
    other["apiVersion"] = json!("v2");
    apply(on, HERE, "one", other).await.is_error(
        400,
        "BadRequest",
        "invalid object type: /v2, Kind=ConfigMap",
    );
    let refused = apply(on, "v1/configmaps/b", "one", empty()).await;
    refused.is_error(400, "BadRequest", "the name of the object (a) does not match the name on the URL (b)");
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let refused = apply(on, HERE, "one", nameless).await;
    let why = "the name of the object (a based on URL) was undeterminable: name must be provided";
    refused.is_error(400, "BadRequest", why);
    for managed in [json!([]), json!([{"manager": "one"}])] {
        let mut config = empty();
        config["metadata"]["managedFields"] = managed;
        let refused = apply(on, HERE, "one", config).await;
        refused.is_error(400, "BadRequest", "metadata.managedFields must be nil");
    }
    let long = "x".repeat(129);
    let refused = apply(on, HERE, &long, empty()).await;
    let why = "fieldManager: Too long: may not be more than 128 bytes";
    refused.is_error(422, "Invalid", &format!("PatchOptions.meta.k8s.io \"\" is invalid: {why}"));
    refused.has_causes(&[("fieldManager", "FieldValueTooLong")]);
    assert_eq!(on.get(HERE).await.code, 404);
}

/// If the configuration contains a version or a uid, it must be that of the stored object.
pub async fn an_apply_has_preconditions(on: &Server) {
    let with = |field: &str, value: &str| {
        let mut config = map(json!({"x": "2"}));
        config["metadata"][field] = json!(value);
        config
    };
    let refused = apply(on, HERE, "one", with("uid", "other")).await;
    let why = "uid mismatch: the provided object specified uid other, and no existing object was found";
    refused.is_error(409, "Conflict", &format!("Operation cannot be fulfilled on configmaps \"a\": {why}"));
    let made = apply(on, HERE, "one", map(json!({"x": "1"}))).await.ok();
    on.merge(HERE, json!({"data": {"y": "1"}})).await.ok();
    let stale = apply(on, HERE, "one", with("resourceVersion", version(&made))).await;
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    stale.is_error(409, "Conflict", &format!("Operation cannot be fulfilled on configmaps \"a\": {why}"));
    let refused = apply(on, HERE, "one", with("uid", "other")).await;
    let why = "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable";
    refused.is_error(422, "Invalid", why);
    let now = on.get(HERE).await.ok();
    let told = apply(on, HERE, "one", with("resourceVersion", version(&now))).await.ok();
    assert_eq!(told["data"]["x"], "2");
    let told = apply(on, HERE, "one", with("uid", uid(&now))).await.ok();
    assert_eq!(told["data"]["x"], "2");
}

/// A dry run stores nothing, even if the apply would create the object.
pub async fn a_dry_run_of_an_apply_stores_nothing(on: &Server) {
    let made = apply(on, HERE, "one&dryRun=All", map(json!({"x": "1"}))).await.ok();
    assert_eq!((&made["data"]["x"], managers(&made).len()), (&json!("1"), 1));
    assert_eq!(on.get(HERE).await.code, 404);
    let made = apply(on, HERE, "one", map(json!({"x": "1"}))).await.ok();
    let told = apply(on, HERE, "two&dryRun=All", map(json!({"y": "1"}))).await.ok();
    assert_eq!((&told["data"], managers(&told).len()), (&json!({"x": "1", "y": "1"}), 2));
    assert_eq!(apply(on, HERE, "two&dryRun=All", map(json!({"x": "2"}))).await.code, 409);
    assert_eq!(on.get(HERE).await.ok(), made);
}

/// If more than ten managers have updated an object, the entries of the oldest ones are merged into one entry.
pub async fn managers_of_updates_are_limited(on: &Server) {
    apply(on, HERE, "one", map(json!({"x": "1"}))).await.ok();
    for number in 10..22 {
        let patch = json!({"data": {format!("n{number}"): "1"}});
        on.merge(&format!("{HERE}?fieldManager=m{number}"), patch).await.ok();
    }
    let object = on.get(HERE).await.ok();
    let names: Vec<_> = managers(&object).iter().map(|entry| entry[0].as_str().unwrap().to_owned()).collect();
    assert_eq!((names.len(), &*names[0]), (11, "ancient-changes"), "{names:?}");
    let ancient = json!({"f:data": {"f:n10": {}, "f:n11": {}, "f:n12": {}}});
    assert_eq!(managers(&object)[0][3], ancient);
}
