//! The media types in which objects are sent and received.

use serde_json::{Value, json};

use crate::server::{Server, labelled};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A client can request only the metadata of an object, or of the objects of a list.
pub async fn metadata_alone_is_sent_where_it_is_accepted(on: &Server) {
    on.create("v1/configmaps", labelled("a", json!({"app": "x"}))).await;
    let ask = async |path: &str, accept: &str| {
        on.ask_as("GET", path, "application/json", accept, Value::Null).await.ok()
    };
    let one = ask("v1/configmaps/a", METADATA).await;
    assert_eq!(
        (&one["kind"], &one["apiVersion"], one.get("data")),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"), None)
    );
    assert_eq!(one["metadata"]["labels"]["app"], "x");
    let list = ask("v1/configmaps?labelSelector=app", METADATA_LIST).await;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    // If the client accepts several media types, the server sends the first of them that it supports.
    let either =
        ask("v1/configmaps/a", &format!("application/json;as=None;v=v1,{METADATA},application/json")).await;
    assert_eq!(either["kind"], "PartialObjectMetadata");
    for accept in ["*/*", "application/json"] {
        assert_eq!(ask("v1/configmaps/a", accept).await["kind"], "ConfigMap", "{accept}");
    }
}

/// The server refuses a request that accepts only unknown media types, or whose body has an unknown media type.
pub async fn types_that_are_not_there_are_refused(on: &Server) {
    let refused = on.ask_as("GET", "v1/configmaps", "application/json", "text/html", Value::Null).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (406, Some("NotAcceptable")));
    let refused =
        on.ask_as("POST", "v1/configmaps", "text/html", "application/json", labelled("b", json!({}))).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (415, Some("UnsupportedMediaType")));
}

/// The server refuses a body of more than 3 MiB.
pub async fn large_bodies_are_refused(on: &Server) {
    on.create("v1/configmaps", labelled("a", json!({}))).await;
    let here = "v1/configmaps/a";
    let sized = |mut object: Value, size: usize| {
        object["metadata"] = json!({"name": "a", "annotations": {"a": ""}});
        let padding = size - object.to_string().len();
        object["metadata"]["annotations"]["a"] = "x".repeat(padding).into();
        object
    };
    let most = 3 * 1024 * 1024;
    for (method, path, content) in [
        ("POST", "v1/configmaps", "application/json"),
        ("PUT", here, "application/json"),
        ("PATCH", here, "application/merge-patch+json"),
        ("PATCH", &*format!("{here}?fieldManager=one"), "application/apply-patch+yaml"),
    ] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        let ask = async |size: usize| {
            on.ask_as(method, path, content, "application/json", sized(map.clone(), size)).await
        };
        let refused = ask(most + 1).await;
        refused.is_error(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728");
        let refused = ask(most).await;
        assert!(matches!(refused.code, 409 | 422), "{method}: {}", refused.code);
    }
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    let refused = on.ask("DELETE", here, sized(options, most + 1)).await;
    refused.is_error(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728");
    on.get(here).await.ok();
}
