//! Creates and updates that the server refuses because of a version, a uid or a name.

use serde_json::{Value, json};

use crate::definitions::Definition;
use crate::server::{Server, config_map, deployment, uid, version};

const STALE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// An update that contains a version is refused if the object has changed since that version (optimistic concurrency). An update without a version is
/// never refused for this reason.
pub async fn a_stale_update_is_a_conflict_and_one_without_a_version_is_not(on: &Server) {
    let first = on.create("v1/configmaps", config_map("a", "1")).await;
    let mut next = first.clone();
    next["data"]["value"] = json!("2");
    let second = on.ask("PUT", "v1/configmaps/a", next.clone()).await.ok();
    assert_ne!(version(&second), version(&first));
    assert_eq!(uid(&second), uid(&first));
    next["data"]["value"] = json!("3");
    let refused = on.ask("PUT", "v1/configmaps/a", next).await;
    refused.is_error(409, "Conflict", &format!("Operation cannot be fulfilled on configmaps \"a\": {STALE}"));
    assert_eq!(refused.body["details"], json!({"name": "a", "kind": "configmaps"}));

    let web = on.create("apps/v1/deployments", deployment("web", 1)).await;
    on.merge("apps/v1/deployments/web", json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    let refused = on.ask("PUT", "apps/v1/deployments/web", web).await;
    let message = format!("Operation cannot be fulfilled on deployments.apps \"web\": {STALE}");
    refused.is_error(409, "Conflict", &message);

    let third = on.ask("PUT", "v1/configmaps/a", config_map("a", "4")).await.ok();
    assert_eq!((&third["data"]["value"], uid(&third)), (&json!("4"), uid(&first)));
    // If a write changes nothing, the version of the object stays the same.
    let again = on.ask("PUT", "v1/configmaps/a", third.clone()).await.ok();
    assert_eq!(version(&again), version(&third));
}

/// The server refuses to create an object whose name is taken, or that contains a version.
pub async fn a_create_is_refused_with_a_version_or_a_name_that_is_taken(on: &Server) {
    let made = on.create("v1/configmaps", config_map("a", "1")).await;
    let refused = on.ask("POST", "v1/configmaps", config_map("a", "2")).await;
    refused.is_error(409, "AlreadyExists", "configmaps \"a\" already exists");
    assert_eq!(refused.body["details"], json!({"name": "a", "kind": "configmaps"}));
    let mut versioned = config_map("b", "1");
    versioned["metadata"]["resourceVersion"] = json!(version(&made));
    let refused = on.ask("POST", "v1/configmaps", versioned).await;
    assert_eq!(refused.body["message"], "resourceVersion should not be set on objects to be created");
    assert_eq!(on.get("v1/configmaps/b").await.code, 404);
    // Clients cannot set the fields that the server sets.
    let mut wished = config_map("c", "1");
    wished["metadata"]["uid"] = json!("mine");
    wished["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    wished["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    wished["metadata"]["selfLink"] = json!("mine");
    let made = on.create("v1/configmaps", wished).await;
    assert_ne!(uid(&made), "mine");
    assert_ne!(made["metadata"]["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert_eq!((made["metadata"].get("deletionTimestamp"), made["metadata"].get("selfLink")), (None, None));
}

/// The name, namespace, uid, kind and API version of the object must match the path and the stored object.
pub async fn an_update_is_of_the_object_that_the_path_names(on: &Server) {
    let made = on.create("v1/configmaps", config_map("a", "1")).await;
    let here = "v1/configmaps/a";
    let missing = on.ask("PUT", "v1/configmaps/none", config_map("none", "1")).await;
    missing.is_error(404, "NotFound", "configmaps \"none\" not found");
    let other = on.ask("PUT", here, config_map("b", "1")).await;
    other.is_error(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)");
    let mut object = made.clone();
    object["metadata"]["uid"] = json!("other");
    let refused = on.ask("PUT", here, object).await;
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/configmaps/{}/a, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: other, UID in object meta: {}",
        on.namespace,
        uid(&made)
    );
    refused.is_error(409, "Conflict", &format!("Operation cannot be fulfilled on configmaps \"a\": {why}"));
    let mut object = made.clone();
    object["metadata"]["namespace"] = json!("elsewhere");
    let refused = on.ask("PUT", here, object).await;
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    refused.is_error(400, "BadRequest", why);
    let mut object = made.clone();
    object["apiVersion"] = json!("v2");
    assert_eq!(on.ask("PUT", here, object).await.code, 400);
    let mut object = made;
    object["kind"] = json!("Secret");
    assert_eq!(on.ask("PUT", here, object).await.code, 400);
}

/// An update of an existing custom resource or lease must contain a version.
pub async fn custom_resources_and_leases_are_updated_with_a_version(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    let site = sites.object("s", json!({"color": "red"}));
    let made = on.create(&sites.path(), site.clone()).await;
    let here = format!("{}/s", sites.path());
    let refused = on.ask("PUT", &here, site).await;
    let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    refused.is_error(422, "Invalid", &format!("{} \"s\" is invalid: {why}", sites.title()));
    refused.has_causes(&[("metadata.resourceVersion", "FieldValueInvalid")]);
    on.ask("PUT", &here, made).await.ok();

    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    on.create("coordination.k8s.io/v1/leases", lease.clone()).await;
    let refused = on.ask("PUT", "coordination.k8s.io/v1/leases/l", lease).await;
    refused.is_error(422, "Invalid", &format!("leases.coordination.k8s.io \"l\" is invalid: {why}"));
}

/// For some of Kubernetes' own kinds, an update (PUT) of an object that does not exist creates the object.
pub async fn leases_and_roles_are_created_by_an_update(on: &Server) {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    let made = on.ask("PUT", "coordination.k8s.io/v1/leases/l", lease).await.ok();
    assert!(!uid(&made).is_empty());
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": []});
    on.ask("PUT", "rbac.authorization.k8s.io/v1/roles/r", role).await.ok();
    assert_eq!(on.ask("PUT", "apps/v1/deployments/web", deployment("web", 1)).await.code, 404);
}

/// The server generates a name by appending five characters to `generateName`.
pub async fn names_are_generated(on: &Server) {
    let stem =
        |stem: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": stem}});
    let (one, two) =
        (on.create("v1/configmaps", stem("made-")).await, on.create("v1/configmaps", stem("made-")).await);
    let [one, two] = [one, two].map(|made| made["metadata"]["name"].as_str().unwrap().to_owned());
    assert!(one.starts_with("made-") && one.len() == 10 && one != two, "{one} {two}");
    // If the object has a name, `generateName` is ignored.
    let mut named = stem("made-");
    named["metadata"]["name"] = json!("a");
    assert_eq!(on.create("v1/configmaps", named).await["metadata"]["name"], "a");
}

/// A name must be a DNS subdomain, a DNS label or a path segment, depending on the kind.
pub async fn names_are_validated(on: &Server) {
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    let refused = on.ask("POST", "v1/configmaps", nameless).await;
    let why = "metadata.name: Required value: name or generateName is required";
    refused.is_error(422, "Invalid", &format!("ConfigMap \"\" is invalid: {why}"));
    refused.has_causes(&[("metadata.name", "FieldValueRequired")]);

    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                     start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
                 with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let refused = on.ask("POST", "v1/configmaps", config_map("A_", "1")).await;
    let why = format!("metadata.name: Invalid value: \"A_\": {subdomain}");
    refused.is_error(422, "Invalid", &format!("ConfigMap \"A_\" is invalid: {why}"));
    assert_eq!(refused.body["details"]["kind"], "ConfigMap");
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    for (name, why) in [("A", label), ("a.b", "must not contain dots")] {
        let refused = on.ask("POST", "/api/v1/namespaces", namespace(name)).await;
        let why = format!("metadata.name: Invalid value: {name:?}: {why}");
        refused.is_error(422, "Invalid", &format!("Namespace {name:?} is invalid: {why}"));
    }
    let long = "a".repeat(254);
    let refused = on.ask("POST", "v1/configmaps", config_map(&long, "1")).await;
    let why = format!("metadata.name: Invalid value: {long:?}: must be no more than 253 characters");
    refused.is_error(422, "Invalid", &format!("ConfigMap {long:?} is invalid: {why}"));
    let role = |name: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": []});
    on.create("rbac.authorization.k8s.io/v1/roles", role("System:A_")).await;
    let refused = on.ask("POST", "rbac.authorization.k8s.io/v1/roles", role("a/b")).await;
    let why = "metadata.name: Invalid value: \"a/b\": may not contain '/'";
    refused.is_error(422, "Invalid", &format!("Role.rbac.authorization.k8s.io \"a/b\" is invalid: {why}"));
    let mut mismatched: Value = config_map("a", "1");
    mismatched["metadata"]["namespace"] = json!("elsewhere");
    assert_eq!(on.ask("POST", "v1/configmaps", mismatched).await.code, 400);
}

/// The server validates labels, owner references and finalizers. Only an object of one of Kubernetes' own kinds needs finalizers that are standard
/// names or fully qualified.
pub async fn other_metadata_is_validated(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    let with = |field: &str, value: &Value| {
        let mut map = config_map("a", "1");
        map["metadata"][field] = value.clone();
        map
    };
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "", "controller": true});
    let mut other = owner.clone();
    other["uid"] = json!("y");
    let mut two = other.clone();
    two["uid"] = json!("z");
    let mut no_version = other.clone();
    no_version["apiVersion"] = json!("a/");
    const INVALID: &str = "FieldValueInvalid";
    for (field, value, causes) in [
        ("labels", json!({"a b": "c d"}), &[("metadata.labels", INVALID), ("metadata.labels", INVALID)][..]),
        ("ownerReferences", json!([owner]), &[("metadata.ownerReferences[0].uid", "FieldValueRequired")]),
        ("ownerReferences", json!([no_version]), &[("metadata.ownerReferences[0].apiVersion", INVALID)]),
        ("ownerReferences", json!([other, two]), &[("metadata.ownerReferences", INVALID)]),
    ] {
        let refused = on.ask("POST", "v1/configmaps", with(field, &value)).await;
        assert_eq!((refused.code, refused.body["reason"].as_str()), (422, Some("Invalid")), "{field}");
        refused.has_causes(causes);
    }
    let named = json!(["noslash"]);
    let refused = on.ask("POST", "v1/configmaps", with("finalizers", &named)).await;
    let why =
        "Invalid value: \"noslash\": name is neither a standard finalizer name nor is it fully qualified";
    refused.is_error(422, "Invalid", &format!("ConfigMap \"a\" is invalid: metadata.finalizers[0]: {why}"));
    let mut site = sites.object("a", json!({}));
    site["metadata"]["finalizers"] = named;
    on.create(&sites.path(), site).await;
    on.merge(&format!("{}/a", sites.path()), json!({"metadata": {"finalizers": null}})).await.ok();

    on.create("v1/configmaps", config_map("a", "1")).await;
    let refused = on.merge("v1/configmaps/a", json!({"metadata": {"labels": {"a": "c d"}}})).await;
    let why = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and \
               end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
               '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let why = format!("metadata.labels: Invalid value: \"c d\": {why}");
    // The error of an update may contain the same cause several times, depending on the kind. For a ConfigMap it contains the cause once.
    refused.is_error(422, "Invalid", &format!("ConfigMap \"a\" is invalid: {why}"));
}

/// The version 0 means any version: an update with it is one without a version, and a creation with it is possible.
pub async fn the_version_zero_is_no_version(on: &Server) {
    let mut map = config_map("a", "1");
    map["metadata"]["resourceVersion"] = json!("0");
    let made = on.create("v1/configmaps", map.clone()).await;
    assert_ne!(version(&made), "0");
    map["data"]["value"] = json!("2");
    let changed = on.ask("PUT", "v1/configmaps/a", map).await.ok();
    assert_eq!((&changed["data"]["value"], uid(&changed)), (&json!("2"), uid(&made)));
    let patch = json!({"metadata": {"resourceVersion": "0"}, "data": {"value": "3"}});
    assert_eq!(on.merge("v1/configmaps/a", patch.clone()).await.ok()["data"]["value"], "3");

    let sites = Definition::new(on, "Site").create(on).await;
    let mut site = sites.object("s", json!({"color": "red"}));
    site["metadata"]["resourceVersion"] = json!("0");
    on.create(&sites.path(), site.clone()).await;
    let here = format!("{}/s", sites.path());
    let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    for refused in [on.ask("PUT", &here, site).await, on.merge(&here, patch).await] {
        refused.is_error(422, "Invalid", &format!("{} \"s\" is invalid: {why}", sites.title()));
    }
}
