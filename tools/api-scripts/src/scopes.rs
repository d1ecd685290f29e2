//! Kinds whose objects are in a namespace, and kinds whose objects are in none.

use serde_json::{Value, json};

use crate::definitions::Definition;
use crate::server::{Server, config_map, names};

/// Sends each kind of request to the collection at `path` and to its object `name`, and returns the status codes: of a list, a watch, a creation and the
/// deletion of the collection, then of a get, an update, a patch and a deletion.
async fn codes(on: &Server, path: &str, name: &str, object: &Value) -> [u16; 8] {
    let here = format!("{path}/{name}");
    let mut new = object.clone();
    new["metadata"] = json!({"name": "new"});
    [
        on.get(path).await.code,
        on.get(&format!("{path}?watch=true&timeoutSeconds=1")).await.code,
        on.ask("POST", path, new).await.code,
        on.ask("DELETE", path, Value::Null).await.code,
        on.get(&here).await.code,
        on.ask("PUT", &here, object.clone()).await.code,
        on.merge(&here, json!({"metadata": {"labels": {"a": "b"}}})).await.code,
        on.ask("DELETE", &here, Value::Null).await.code,
    ]
}

/// A path with a namespace does not exist for a kind without namespaces, even if it names an object that exists.
pub async fn kinds_without_namespaces_have_no_path_in_one(on: &Server) {
    let sites = Definition::new(on, "Site").without_namespaces().create(on).await;
    let site = on.create(&sites.path(), sites.object("s", json!({"color": "red"}))).await;
    let in_namespace = sites.path().replacen("/v1/", &format!("/v1/namespaces/{}/", on.namespace), 1);
    assert_eq!(codes(on, &in_namespace, "s", &site).await, [404; 8]);

    let name = format!("{}-a", on.namespace);
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": []});
    let role = on.create(roles, role).await;
    assert_eq!(codes(on, "rbac.authorization.k8s.io/v1/clusterroles", &name, &role).await, [404; 8]);

    for here in [format!("{}/s", sites.path()), format!("{roles}/{name}")] {
        let left = on.get(&here).await.ok();
        assert_eq!(left["metadata"].get("labels"), None, "{here}");
        on.ask("DELETE", &here, Value::Null).await.ok();
    }
}

/// The objects of a kind with namespaces can be listed and watched in all namespaces. Every other request names a namespace.
pub async fn objects_in_a_namespace_are_only_listed_without_one(on: &Server) {
    let map = on.create("v1/configmaps", config_map("a", "1")).await;
    assert_eq!(codes(on, "/api/v1/configmaps", "a", &map).await, [200, 200, 405, 405, 404, 404, 404, 404]);
    let sites = Definition::new(on, "Site").create(on).await;
    let site = on.create(&sites.path(), sites.object("s", json!({"color": "red"}))).await;
    let all = sites.path_in_all_namespaces("v1");
    assert_eq!(codes(on, &all, "s", &site).await, [200, 200, 404, 404, 404, 404, 404, 404]);
    assert_eq!(names(&on.get(&sites.path()).await.ok()), ["s"]);
    on.get("v1/configmaps/a").await.ok();
}
