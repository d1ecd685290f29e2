//! The status subresource, and generations.

use serde_json::{Value, json};

use crate::definitions::Definition;
use crate::server::{Server, config_map, deployment, pod, version};

/// A write to `/status` does not change the spec, and a write to the object does not change the status.
pub async fn a_status_write_changes_only_the_status(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    let mut with_status = sites.object("s", json!({"color": "red"}));
    with_status["status"] = json!({"ready": true});
    let mut web = deployment("web", 1);
    web["status"] = json!({"replicas": 9});
    for (path, object, field, old, new, status) in [
        (sites.path(), with_status, "/spec/color", json!("red"), json!("blue"), "ready"),
        ("apps/v1/deployments".to_owned(), web, "/spec/replicas", json!(1), json!(2), "replicas"),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let made = on.create(&path, object).await;
        assert_eq!(made.pointer(&format!("/status/{status}")), None, "a new object has no status");
        let (here, field_name) = (format!("{path}/{name}"), field.rsplit('/').next().unwrap());
        let ready = if status == "ready" { json!(true) } else { json!(3) };

        let both = json!({"spec": {field_name: new}, "status": {status: ready}});
        let told = on.merge(&format!("{here}/status"), both.clone()).await.ok();
        assert_eq!((told.pointer(field), &told["status"][status]), (Some(&old), &ready));
        assert_eq!(told["metadata"]["generation"], 1);
        assert_ne!(version(&told), version(&made));

        let both = json!({"spec": {field_name: new}, "status": {status: null}});
        let told = on.merge(&here, both).await.ok();
        assert_eq!((told.pointer(field), &told["status"][status]), (Some(&new), &ready));
        assert_eq!(told["metadata"]["generation"], 2);

        let mut put = told.clone();
        put["status"][status] = if status == "ready" { json!(false) } else { json!(4) };
        *put.pointer_mut(field).unwrap() = old.clone();
        let told = on.ask("PUT", &format!("{here}/status"), put.clone()).await.ok();
        assert_eq!((told.pointer(field), &told["status"][status]), (Some(&new), &put["status"][status]));
        let stale = on.ask("PUT", &format!("{here}/status"), put).await;
        assert_eq!(stale.code, 409);
        let got = on.get(&format!("{here}/status")).await.ok();
        assert_eq!(got["status"], told["status"]);
    }
}

/// A change of the spec raises the generation; a change of the metadata or the status does not. Clients cannot write the generation.
pub async fn generations_rise_with_the_spec(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    let path = sites.path();
    let here = format!("{path}/s");
    on.create(&path, sites.object("s", json!({"color": "red"}))).await;
    for (patch, expected) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), 1),
        (json!({"metadata": {"generation": 77}}), 1),
        (json!({"spec": {"color": "blue"}}), 2),
        (json!({"spec": {"color": "blue"}}), 2),
        (json!({"metadata": {"finalizers": ["flyball.test/a"]}}), 2),
    ] {
        let told = on.merge(&here, patch.clone()).await.ok();
        assert_eq!(told["metadata"]["generation"], expected, "{patch}");
    }
    // The deletion of an object with finalizers raises the generation, too.
    let left = on.ask("DELETE", &here, Value::Null).await.ok();
    assert_eq!(
        (&left["metadata"]["generation"], &left["metadata"]["deletionGracePeriodSeconds"]),
        (&json!(3), &json!(0))
    );
    on.merge(&here, json!({"metadata": {"finalizers": null}})).await.ok();
}

/// Objects of some of Kubernetes' own kinds have a generation; objects of other kinds have none.
pub async fn some_kinds_have_no_generation(on: &Server) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "a"}, "addressType": "IPv4",
        "endpoints": [],
    });
    for (path, object, expected) in [
        ("v1/configmaps", config_map("a", "1"), None),
        ("v1/secrets", secret, None),
        ("v1/serviceaccounts", account, None),
        ("v1/services", service, None),
        ("coordination.k8s.io/v1/leases", lease, None),
        ("v1/pods", pod("a", json!({})), Some(1)),
        ("apps/v1/deployments", deployment("a", 1), Some(1)),
        ("discovery.k8s.io/v1/endpointslices", slice, Some(1)),
    ] {
        let made = on.create(path, object).await;
        assert_eq!(made["metadata"].get("generation").and_then(Value::as_i64), expected, "{path}");
    }
    let told = on.merge("v1/configmaps/a", json!({"data": {"value": "2"}})).await.ok();
    assert_eq!(told["metadata"].get("generation"), None);
}

/// If a custom kind has no status subresource, `status` is an ordinary field: a change of it raises the generation.
pub async fn a_custom_kind_without_the_subresource_has_no_status_apart(on: &Server) {
    let plain = Definition::new(on, "Plain").without_status().create(on).await;
    let mut object = plain.object("p", json!({"color": "red"}));
    object["status"] = json!({"ready": true});
    let made = on.create(&plain.path(), object).await;
    assert_eq!((&made["status"]["ready"], &made["metadata"]["generation"]), (&json!(true), &json!(1)));
    let here = format!("{}/p", plain.path());
    let told = on.merge(&here, json!({"status": {"ready": false}})).await.ok();
    assert_eq!((&told["status"]["ready"], &told["metadata"]["generation"]), (&json!(false), &json!(2)));
    let apart = on.merge(&format!("{here}/status"), json!({"status": {"ready": true}})).await;
    assert_eq!(apart.code, 404);
    assert_eq!(on.merge("v1/configmaps/a/status", json!({})).await.code, 404);
}

/// For some of Kubernetes' own kinds, a write to `/status` also changes labels or annotations. For custom resources it changes neither.
pub async fn metadata_is_written_with_the_status_of_some_kinds(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    on.create(&sites.path(), sites.object("a", json!({}))).await;
    on.create("apps/v1/deployments", deployment("a", 1)).await;
    on.create("v1/pods", pod("a", json!({}))).await;
    let patch = json!({"metadata": {"labels": {"l": "m"}, "annotations": {"x": "y"}}, "status": {}});
    for (path, has_labels, has_annotations) in [
        (sites.path(), false, false),
        ("apps/v1/deployments".to_owned(), false, true),
        ("v1/pods".to_owned(), true, true),
    ] {
        let told = on.merge(&format!("{path}/a/status"), patch.clone()).await.ok();
        let meta = &told["metadata"];
        let written = (meta["labels"]["l"] == "m", meta["annotations"]["x"] == "y", &meta["generation"]);
        assert_eq!(written, (has_labels, has_annotations, &json!(1)), "{path}");
    }
}
