//! Requests for versions that the server has already discarded from its history.

use serde_json::json;

use crate::server::{Server, labelled, names, version};

/// Calls `forget`, which must discard the history of the server, and then requests pages and versions that are no longer in the history.
pub async fn all(on: &Server, forget: impl AsyncFnOnce()) {
    let first = on.create("v1/configmaps", labelled("a", json!({"app": "x"}))).await;
    for name in ["b", "c"] {
        on.create("v1/configmaps", labelled(name, json!({"app": "x"}))).await;
    }
    let page = on.get("v1/configmaps?labelSelector=app&limit=1").await.ok();
    let token = page["metadata"]["continue"].as_str().unwrap();
    on.merge("v1/configmaps/b", json!({"data": {"value": "2"}})).await.ok();
    forget().await;

    let more = format!("v1/configmaps?labelSelector=app&limit=5&continue={token}");
    let expired = on.get(&more).await;
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                   without the continue parameter, or use the continue token in this response to retrieve the remainder of \
                   the results. Continuing with the provided token results in an inconsistent list - objects that were \
                   created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    expired.is_error(410, "Expired", message);
    let token = expired.body["metadata"]["continue"].as_str().unwrap();
    let rest = on.get(&format!("v1/configmaps?labelSelector=app&limit=5&continue={token}")).await.ok();
    assert_eq!((names(&rest), &rest["items"][0]["data"]["value"]), (vec!["b", "c"], &json!("2")));

    let old = version(&first);
    let exact = on.get(&format!("v1/configmaps?resourceVersion={old}&resourceVersionMatch=Exact")).await;
    assert_eq!((exact.code, exact.body["reason"].as_str()), (410, Some("Expired")));
    let events = on.watch_events(&format!("v1/configmaps?resourceVersion={old}"), "application/json").await;
    let error = &events[0];
    assert_eq!(
        (&error["type"], &error["object"]["code"], &error["object"]["reason"]),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert_eq!((&error["object"]["kind"], &error["object"]["apiVersion"]), (&json!("Status"), &json!("v1")));
    let message = error["object"]["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("too old resource version: {old} (")), "{message}");
    assert_eq!(events.len(), 1);
}
