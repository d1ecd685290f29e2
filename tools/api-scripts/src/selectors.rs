//! Label selectors and field selectors.

use serde_json::{Value, json};

use crate::definitions::Definition;
use crate::server::{Server, config_map, labelled, names, pod};

async fn selected(on: &Server, path: &str, kind: &str, selector: &str) -> Vec<String> {
    let selector = selector
        .replace('!', "%21")
        .replace('=', "%3D")
        .replace(' ', "+")
        .replace(',', "%2C")
        .replace('\\', "%5C");
    let list = on.get(&format!("{path}?{kind}Selector={selector}")).await.ok();
    let mut names: Vec<_> = names(&list).into_iter().map(str::to_owned).collect();
    // Names of the objects that a cluster creates in every namespace.
    names.retain(|name| !matches!(&**name, "kube-root-ca.crt" | "default"));
    names
}

/// Label selectors test equality, membership in a set, and presence.
pub async fn labels_select(on: &Server) {
    on.create("v1/configmaps", labelled("a", json!({"app": "x", "tier": "1"}))).await;
    on.create("v1/configmaps", labelled("b", json!({"app": "y"}))).await;
    on.create("v1/configmaps", labelled("c", json!({}))).await;
    for (selector, expected) in [
        ("app=x", &["a"][..]),
        ("app==x", &["a"]),
        ("app!=x", &["b", "c"]),
        ("app", &["a", "b"]),
        ("!app", &["c"]),
        ("app in (x,y),!tier", &["b"]),
        ("app notin (x)", &["b", "c"]),
    ] {
        assert_eq!(selected(on, "v1/configmaps", "label", selector).await, expected, "{selector}");
    }
    let refused = on.get("v1/configmaps?labelSelector=a+b").await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (400, Some("BadRequest")));
}

/// Each of Kubernetes' own kinds has its own list of fields that a field selector can contain.
pub async fn each_kind_has_its_fields(on: &Server) {
    on.create("v1/configmaps", config_map("a", "1")).await;
    on.create("v1/configmaps", config_map("b", "1")).await;
    on.create("v1/pods", pod("a", json!({"nodeName": "one", "restartPolicy": "Never"}))).await;
    on.create("v1/pods", pod("b", json!({"nodeName": "two", "restartPolicy": "OnFailure"}))).await;
    on.merge(
        "v1/pods/b/status",
        json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}),
    )
    .await
    .ok();
    let secret = |name: &str, kind: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind});
    on.create("v1/secrets", secret("a", "example.com/a")).await;
    on.create("v1/secrets", secret("b", "example.com/b")).await;
    let event = |name: &str, of: &str, reason: &str, component: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": reason, "type": "Normal",
            "involvedObject": {"kind": "Pod", "name": of, "namespace": on.namespace, "uid": of},
            "source": {"component": component},
        })
    };
    on.create("v1/events", event("a", "a", "Started", "kubelet")).await;
    on.create("v1/events", event("b", "b", "Killed", "other")).await;
    for (path, selector, expected) in [
        ("v1/configmaps", "metadata.name=b", &["b"][..]),
        ("v1/configmaps", "metadata.name!=b,metadata.name!=kube-root-ca.crt", &["a"]),
        ("v1/configmaps", "metadata.namespace=none", &[]),
        ("v1/pods", "spec.nodeName=one", &["a"]),
        ("v1/pods", "spec.nodeName!=one", &["b"]),
        ("v1/pods", "status.phase=Running", &["b"]),
        ("v1/pods", "status.phase==Pending", &["a"]),
        ("v1/pods", "spec.restartPolicy=Never", &["a"]),
        ("v1/pods", "status.podIP=10.0.0.1", &["b"]),
        ("v1/pods", "spec.hostNetwork=false", &["a", "b"]),
        ("v1/pods", "status.nominatedNodeName=", &["a", "b"]),
        ("v1/secrets", "type=example.com/b", &["b"]),
        ("v1/events", "involvedObject.name=a", &["a"]),
        ("v1/events", "involvedObject.uid=b,type=Normal", &["b"]),
        ("v1/events", "involvedObject.kind=Pod,reason=Killed", &["b"]),
        ("v1/events", "source=kubelet", &["a"]),
    ] {
        assert_eq!(selected(on, path, "field", selector).await, expected, "{path} {selector}");
    }
}

/// A field selector with a field that is not selectable is refused. The error message depends on the kind.
pub async fn fields_that_a_kind_has_not_are_refused(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    let default =
        "\"data.value\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    for (path, field, message) in [
        ("v1/configmaps".to_owned(), "data.value", default),
        ("v1/pods".to_owned(), "spec.none", "field label not supported: spec.none"),
        ("v1/secrets".to_owned(), "data", "field label not supported: data"),
        (
            "/api/v1/namespaces".to_owned(),
            "metadata.namespace",
            "field label not supported: metadata.namespace",
        ),
        (sites.path(), "spec.color", "field label not supported: spec.color"),
        ("batch/v1/jobs".to_owned(), "status.active", "field label \"status.active\" not supported for Job"),
    ] {
        let refused = on.get(&format!("{path}?fieldSelector={field}%3Dx")).await;
        refused.is_error(400, "BadRequest", message);
        let refused = on.ask("DELETE", &format!("{path}?fieldSelector={field}%3Dx"), Value::Null).await;
        assert!(matches!(refused.code, 400 | 405), "{refused:?}");
    }
    assert_eq!(on.get("v1/configmaps?fieldSelector=name").await.code, 400);
}

/// For custom resources, a field selector can contain the fields that the definition declares as selectable.
pub async fn custom_resources_are_selected_by_declared_fields(on: &Server) {
    let sites = Definition::new(on, "Site").selectable(".spec.color").create(on).await;
    let made = on.create(&sites.path(), sites.object("a", json!({"color": "red"}))).await;
    on.create(&sites.path(), sites.object("b", json!({"color": "blue"}))).await;
    assert_eq!(selected(on, &sites.path(), "field", "spec.color=red").await, ["a"]);
    assert_eq!(selected(on, &sites.path(), "field", "metadata.name=b").await, ["b"]);
    on.merge(&format!("{}/a", sites.path()), json!({"spec": {"color": "blue"}})).await.ok();
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{}?fieldSelector=spec.color%3Dblue&resourceVersion={version}", sites.path());
    assert_eq!(on.watch(&path).await, ["ADDED b", "ADDED a"]);
    let refused = on.get(&format!("{}?fieldSelector=spec.size%3D1", sites.path())).await;
    refused.is_error(400, "BadRequest", "field label not supported: spec.size");
}

/// In the value of a field selector, a comma, an equals sign and a backslash follow a backslash.
pub async fn special_characters_in_values_of_fields_are_escaped(on: &Server) {
    let sites = Definition::new(on, "Site").selectable(".spec.color").create(on).await;
    for (name, color) in [("a", "x,y"), ("b", "x=y"), ("c", "x\\y"), ("d", "x"), ("e", "x!=y")] {
        on.create(&sites.path(), sites.object(name, json!({"color": color}))).await;
    }
    for (selector, expected) in [
        ("spec.color=x\\,y", &["a"][..]),
        ("spec.color==x\\=y", &["b"]),
        ("spec.color=x\\\\y", &["c"]),
        ("spec.color=x!\\=y", &["e"]),
        ("spec.color!=x\\,y,metadata.name!=d", &["b", "c", "e"]),
        ("spec.color=x,,", &["d"]),
        ("spec.color= x", &[]),
    ] {
        assert_eq!(selected(on, &sites.path(), "field", selector).await, expected, "{selector}");
    }
    for (selector, message) in [
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("metadata.name=a%5Cb", "invalid field selector: invalid escape sequence: \\b"),
        ("metadata.name=a%5C", "invalid field selector: invalid escape sequence: \\"),
        ("metadata.name=a,b", "invalid selector: 'metadata.name=a,b'; can't understand 'b'"),
    ] {
        on.get(&format!("v1/configmaps?fieldSelector={selector}")).await.is_error(400, "BadRequest", message);
    }
    let spaced = on.get("v1/configmaps?fieldSelector=metadata.name=a,+metadata.name=a").await;
    assert_eq!((spaced.code, spaced.body["reason"].as_str()), (400, Some("BadRequest")), "{spaced:?}");
}
