//! Deletions: finalizers, preconditions, grace periods, collections, dry runs.

use serde_json::{Value, json};

use crate::server::{Server, config_map, labelled, names, pod, uid, version};

fn held(name: &str, finalizers: &[&str]) -> Value {
    let mut map = config_map(name, "1");
    map["metadata"]["finalizers"] = json!(finalizers);
    map
}

/// If an object has finalizers, its deletion only sets the deletion timestamp. The object can still be written, but no finalizer can be added.
pub async fn an_object_stays_until_its_last_finalizer_is_removed(on: &Server) {
    on.create("v1/configmaps", held("a", &["flyball.test/a", "flyball.test/b"])).await;
    let here = "v1/configmaps/a";
    let first = on.ask("DELETE", here, Value::Null).await.ok();
    assert_eq!(
        (&first["kind"], &first["metadata"]["deletionGracePeriodSeconds"]),
        (&json!("ConfigMap"), &json!(0))
    );
    let deleted_at = &first["metadata"]["deletionTimestamp"];
    assert!(deleted_at.is_string());
    let again = on.ask("DELETE", here, Value::Null).await.ok();
    assert_eq!((&again["metadata"]["deletionTimestamp"], version(&again)), (deleted_at, version(&first)));

    let set = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    let refused = on.merge(here, set(json!(["flyball.test/a", "flyball.test/c"]))).await;
    let why = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
               finalizers []string{\"flyball.test/c\"}";
    assert_eq!((refused.code, refused.body["reason"].as_str()), (422, Some("Invalid")));
    assert!(refused.body["message"].as_str().unwrap().contains(why), "{}", refused.body);
    // A patch cannot remove the deletion timestamp, but can still change the data.
    let told =
        on.merge(here, json!({"metadata": {"deletionTimestamp": null}, "data": {"value": "2"}})).await.ok();
    assert_eq!((&told["metadata"]["deletionTimestamp"], &told["data"]["value"]), (deleted_at, &json!("2")));
    let fewer = on.merge(here, set(json!(["flyball.test/b"]))).await.ok();
    assert_eq!(fewer["metadata"]["finalizers"], json!(["flyball.test/b"]));
    let last = on.merge(here, set(json!([]))).await.ok();
    assert_eq!((last["kind"].as_str(), last["metadata"].get("finalizers")), (Some("ConfigMap"), None));
    on.get(here).await.is_error(404, "NotFound", "configmaps \"a\" not found");
    on.ask("DELETE", here, Value::Null).await.is_error(404, "NotFound", "configmaps \"a\" not found");
    let events = on.watch(&format!("v1/configmaps?resourceVersion={}", version(&fewer))).await;
    assert_eq!(events, ["DELETED a"]);
}

/// A deletion can have a uid and a version as preconditions.
pub async fn a_deletion_has_preconditions(on: &Server) {
    let made = on.create("v1/configmaps", config_map("a", "1")).await;
    let here = "v1/configmaps/a";
    let options = |preconditions: Value| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});
    let refused = on.ask("DELETE", here, options(json!({"uid": "other"}))).await;
    let why = format!(
        "the UID in the precondition (other) does not match the UID in record ({}). The object might have been deleted and then recreated",
        uid(&made)
    );
    refused.is_error(409, "Conflict", &format!("Operation cannot be fulfilled on ConfigMap \"a\": {why}"));
    let refused = on.ask("DELETE", here, options(json!({"resourceVersion": "1"}))).await;
    let why = format!(
        "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({}). The object might have been modified",
        version(&made)
    );
    refused.is_error(409, "Conflict", &format!("Operation cannot be fulfilled on ConfigMap \"a\": {why}"));
    let both = json!({"uid": uid(&made), "resourceVersion": version(&made)});
    on.ask("DELETE", here, options(both)).await.ok();
}

/// Deletions of pods and service accounts return the object; deletions of other kinds return a status.
pub async fn some_deletions_answer_with_the_object(on: &Server) {
    let made = on.create("v1/configmaps", config_map("a", "1")).await;
    let told = on.ask("DELETE", "v1/configmaps/a", Value::Null).await.ok();
    assert_eq!((&told["kind"], &told["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(told["details"], json!({"name": "a", "kind": "configmaps", "uid": uid(&made)}));
    on.create("v1/pods", pod("a", json!({}))).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
    on.create("v1/serviceaccounts", account).await;
    for (path, kind) in [("v1/pods/a", "Pod"), ("v1/serviceaccounts/a", "ServiceAccount")] {
        assert_eq!(on.ask("DELETE", path, Value::Null).await.ok()["kind"], kind);
        assert_eq!(on.get(path).await.code, 404);
    }
}

/// Only a pod that is bound to a node and has not ended has a grace period.
pub async fn a_pod_has_a_grace_period(on: &Server) {
    let bound = on.create("v1/pods", pod("a", json!({"nodeName": "node"}))).await;
    let here = "v1/pods/a";
    assert_eq!(bound["status"]["phase"], "Pending");
    let grace = |object: &Value| object["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let left = on.ask("DELETE", here, Value::Null).await.ok();
    assert_eq!((grace(&left), &left["metadata"]["generation"]), (Some(30), &json!(2)));
    // A later deletion can only shorten the grace period.
    let longer = on.ask("DELETE", here, json!({"gracePeriodSeconds": 60})).await.ok();
    assert_eq!((grace(&longer), version(&longer)), (Some(30), version(&left)));
    let shorter = on.ask("DELETE", here, json!({"gracePeriodSeconds": 5})).await.ok();
    assert_eq!((grace(&shorter), &shorter["metadata"]["generation"]), (Some(5), &json!(2)));
    assert!(
        shorter["metadata"]["deletionTimestamp"].as_str() < left["metadata"]["deletionTimestamp"].as_str()
    );
    // The pod has no finalizers; nevertheless, a write during its grace period does not remove it.
    on.merge(here, json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    assert_eq!(on.ask("DELETE", here, json!({"gracePeriodSeconds": 0})).await.ok()["kind"], "Pod");
    assert_eq!(on.get(here).await.code, 404);

    on.create("v1/pods", pod("b", json!({"nodeName": "node"}))).await;
    on.merge("v1/pods/b/status", json!({"status": {"phase": "Succeeded"}})).await.ok();
    on.ask("DELETE", "v1/pods/b", Value::Null).await.ok();
    assert_eq!(on.get("v1/pods/b").await.code, 404);
    on.create("v1/pods", pod("c", json!({}))).await;
    on.ask("DELETE", "v1/pods/c", Value::Null).await.ok();
    assert_eq!(on.get("v1/pods/c").await.code, 404);
}

/// A deletion with the propagation policy `Foreground` or `Orphan` adds a finalizer, which the garbage collector removes. With `Background`, no
/// finalizer is added.
pub async fn policies_are_finalizers(on: &Server) {
    for (policy, finalizers) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        let path = "v1/configmaps/owner";
        let made = on.create("v1/configmaps", held("owner", &["flyball.test/a"])).await;
        let left = on.ask("DELETE", path, json!({"propagationPolicy": policy})).await.ok();
        assert_eq!(left["metadata"]["finalizers"], json!(["flyball.test/a", finalizers]), "{policy}");
        let free = json!({"metadata": {"finalizers": null}, "uid": uid(&made)});
        on.merge(path, free).await.ok();
        assert_eq!(on.get(path).await.code, 404);
    }
    on.create("v1/configmaps", held("owner", &["flyball.test/a"])).await;
    let left = on.ask("DELETE", "v1/configmaps/owner?propagationPolicy=Background", Value::Null).await.ok();
    assert_eq!(left["metadata"]["finalizers"], json!(["flyball.test/a"]));
    on.merge("v1/configmaps/owner", json!({"metadata": {"finalizers": null}})).await.ok();
}

/// `batch/v1` jobs have the default policy `Orphan`, for compatibility.
pub async fn jobs_orphan_their_pods_by_default(on: &Server) {
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "image"}]}});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "finalizers": ["flyball.test/a"]},
        "spec": {"template": template},
    });
    on.create("batch/v1/jobs", job).await;
    let left = on.ask("DELETE", "batch/v1/jobs/a", Value::Null).await.ok();
    assert_eq!(left["metadata"]["finalizers"], json!(["flyball.test/a", "orphan"]));
    let left = on.ask("DELETE", "batch/v1/jobs/a", json!({"propagationPolicy": "Background"})).await.ok();
    assert_eq!(left["metadata"]["finalizers"], json!(["flyball.test/a"]));
    on.merge("batch/v1/jobs/a", json!({"metadata": {"finalizers": null}})).await.ok();
}

/// The deletion of a collection deletes the objects that match its label and field selectors. Objects with finalizers stay.
pub async fn a_collection_is_deleted_by_selectors(on: &Server) {
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        on.create("v1/configmaps", labelled(name, json!({"app": app}))).await;
    }
    let mut kept = held("d", &["flyball.test/a"]);
    kept["metadata"]["labels"] = json!({"app": "x"});
    on.create("v1/configmaps", kept).await;
    let deleted = on.ask("DELETE", "v1/configmaps?labelSelector=app%3Dx", Value::Null).await.ok();
    assert_eq!((&deleted["kind"], names(&deleted)), (&json!("ConfigMapList"), vec!["a", "c", "d"]));
    let left = on.get("v1/configmaps?labelSelector=app").await.ok();
    assert_eq!(names(&left), ["b", "d"]);
    assert!(left["items"][1]["metadata"]["deletionTimestamp"].is_string());
    on.ask("DELETE", "v1/configmaps?fieldSelector=metadata.name%3Db", Value::Null).await.ok();
    assert_eq!(names(&on.get("v1/configmaps?labelSelector=app").await.ok()), ["d"]);
    on.merge("v1/configmaps/d", json!({"metadata": {"finalizers": null}})).await.ok();
}

/// A dry run stores nothing. Its response contains the object that the real request would return, but without a new version.
pub async fn a_dry_run_stores_nothing(on: &Server) {
    let made = on.ask("POST", "v1/configmaps?dryRun=All", config_map("dry", "1")).await.ok();
    assert_eq!((made["metadata"].get("resourceVersion"), made["metadata"]["uid"].is_string()), (None, true));
    assert_eq!(on.get("v1/configmaps/dry").await.code, 404);
    let kept = on.create("v1/configmaps", held("a", &["flyball.test/a"])).await;
    let here = "v1/configmaps/a?dryRun=All";
    let put = on.ask("PUT", here, config_map("a", "2")).await.ok();
    assert_eq!((&put["data"]["value"], version(&put)), (&json!("2"), version(&kept)));
    let patched = on.merge(here, json!({"data": {"value": "3"}})).await.ok();
    assert_eq!((&patched["data"]["value"], version(&patched)), (&json!("3"), version(&kept)));
    let deleted = on.ask("DELETE", "v1/configmaps/a", json!({"dryRun": ["All"]})).await.ok();
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(on.ask("POST", "v1/configmaps?dryRun=All", config_map("a", "1")).await.code, 409);
    assert_eq!(on.get("v1/configmaps/a").await.ok(), kept);
    on.merge("v1/configmaps/a", json!({"metadata": {"finalizers": null}})).await.ok();
}

/// An unknown option is refused. The error names the kind of the options, such as `CreateOptions`.
pub async fn unknown_options_are_refused(on: &Server) {
    on.create("v1/configmaps", config_map("a", "1")).await;
    let dry = "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"";
    let validation =
        "fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
    let object = || config_map("a", "1");
    for (method, path, body, expected) in [
        ("POST", "v1/configmaps?dryRun=x", object(), format!("CreateOptions.meta.k8s.io \"\" is invalid: {dry}")),
        ("PUT", "v1/configmaps/a?dryRun=x", object(), format!("UpdateOptions.meta.k8s.io \"\" is invalid: {dry}")),
        ("PUT", "v1/configmaps/a?fieldValidation=x", object(), format!("UpdateOptions.meta.k8s.io \"\" is invalid: {validation}")),
        ("DELETE", "v1/configmaps/a?dryRun=x", Value::Null, format!("DeleteOptions.meta.k8s.io \"\" is invalid: {dry}")),
        (
            "DELETE",
            "v1/configmaps/a?propagationPolicy=x",
            Value::Null,
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"x\": supported values: \
             \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                .to_owned(),
        ),
    ] {
        let refused = on.ask(method, path, body).await;
        refused.is_error(422, "Invalid", &expected);
    }
    on.get("v1/configmaps/a").await.ok();
}

/// A write cannot begin a deletion, and cannot change one.
pub async fn a_write_neither_begins_nor_changes_a_deletion(on: &Server) {
    let here = "v1/configmaps/a";
    let made = on.create("v1/configmaps", held("a", &["flyball.test/a"])).await;
    let time = json!("2001-01-01T00:00:00Z");
    for (field, value) in [("deletionTimestamp", &time), ("deletionGracePeriodSeconds", &json!(5))] {
        let why = format!("metadata.{field}: Invalid value: {value}: field is immutable");
        let mut changed = made.clone();
        changed["metadata"][field] = value.clone();
        for refused in
            [on.ask("PUT", here, changed).await, on.merge(here, json!({"metadata": {field: value}})).await]
        {
            refused.is_error(422, "Invalid", &format!("ConfigMap \"a\" is invalid: {why}"));
        }
    }
    assert_eq!(version(&on.get(here).await.ok()), version(&made));

    let first = on.ask("DELETE", here, Value::Null).await.ok();
    for value in [time, Value::Null] {
        let told = on.merge(here, json!({"metadata": {"deletionTimestamp": value}})).await.ok();
        assert_eq!(told["metadata"]["deletionTimestamp"], first["metadata"]["deletionTimestamp"]);
    }
    let told = on.merge(here, json!({"metadata": {"deletionGracePeriodSeconds": null}})).await.ok();
    assert_eq!(told["metadata"]["deletionGracePeriodSeconds"], 0);
    let refused = on.merge(here, json!({"metadata": {"deletionGracePeriodSeconds": 5}})).await;
    let why = "metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable";
    refused.is_error(422, "Invalid", &format!("ConfigMap \"a\" is invalid: {why}"));
    on.merge(here, json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(on.get(here).await.code, 404);
    // A write to the status of a pod keeps the field, whatever the object contains.
    on.create("v1/pods", pod("a", json!({}))).await;
    let patch =
        json!({"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}, "status": {"phase": "Running"}});
    let told = on.merge("v1/pods/a/status", patch).await.ok();
    assert_eq!(
        (told["metadata"].get("deletionTimestamp"), &told["status"]["phase"]),
        (None, &json!("Running"))
    );
}
