//! Watches.

use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Server, config_map, labelled, names, version};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A watch sends the events that follow the requested version, in order, until it times out.
pub async fn a_watch_sends_what_follows_its_version(on: &Server) {
    let made = on.create("v1/configmaps", config_map("a", "1")).await;
    on.merge("v1/configmaps/a", json!({"data": {"value": "2"}})).await.ok();
    on.create("v1/configmaps", config_map("b", "1")).await;
    on.ask("DELETE", "v1/configmaps/a", Value::Null).await.ok();
    let path = format!("v1/configmaps?resourceVersion={}", version(&made));
    assert_eq!(on.watch(&path).await, ["MODIFIED a", "ADDED b", "DELETED a"]);
    let events = on.watch_events(&path, "application/json").await;
    let last = &events[2]["object"];
    // The deletion event contains the last state of the object, with the version of the deletion.
    assert_eq!(last["data"]["value"], "2");
    assert!(version(last).parse::<u64>().unwrap() > version(&events[1]["object"]).parse().unwrap());
    let path = format!("v1/configmaps?fieldSelector=metadata.name%3Db&resourceVersion={}", version(&made));
    assert_eq!(on.watch(&path).await, ["ADDED b"]);
    assert_eq!(on.watch(&format!("v1/configmaps?resourceVersion={}", version(last))).await, [""; 0]);
}

/// A watch without a version first sends the existing objects, in any order, and then their changes.
pub async fn a_watch_without_a_version_begins_with_what_exists(on: &Server) {
    on.create("v1/configmaps", labelled("a", json!({"app": "x"}))).await;
    on.create("v1/configmaps", labelled("b", json!({"app": "x"}))).await;
    for version in ["", "&resourceVersion=0"] {
        let mut events = on.watch(&format!("v1/configmaps?labelSelector=app{version}")).await;
        events.sort_unstable();
        assert_eq!(events, ["ADDED a", "ADDED b"], "{version}");
    }
}

/// With `sendInitialEvents`, a bookmark marks the end of the existing objects. It is sent only if the request allows bookmarks.
pub async fn initial_events_end_with_a_bookmark(on: &Server) {
    on.create("v1/configmaps", labelled("a", json!({"app": "x"}))).await;
    let path = "v1/configmaps?labelSelector=app&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let bookmarked = format!("{path}&allowWatchBookmarks=true");
    assert_eq!(on.watch(&bookmarked).await, ["ADDED a", "BOOKMARK end"]);
    assert_eq!(on.watch(path).await, ["ADDED a"]);
    let events = on.watch_events(&bookmarked, "application/json").await;
    let bookmark = &events[1]["object"];
    assert_eq!((&bookmark["kind"], &bookmark["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert!(version(bookmark).parse::<u64>().unwrap() >= version(&events[0]["object"]).parse().unwrap());
    let path = "v1/configmaps?labelSelector=app&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    assert_eq!(on.watch(&format!("{path}&resourceVersion={}", version(bookmark))).await, [""; 0]);
}

/// A watch with a selector sends an `ADDED` event when an object starts to match. When the object no longer matches, it sends a `DELETED` event with
/// the last state that matched.
pub async fn objects_enter_and_leave_a_selection(on: &Server) {
    let made = on.create("v1/configmaps", labelled("a", json!({"app": "other"}))).await;
    let label = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    let here = "v1/configmaps/a";
    on.merge(here, label("x")).await.ok();
    on.merge(here, json!({"data": {"value": "1"}})).await.ok();
    let left = on.merge(here, label("other")).await.ok();
    on.merge(here, json!({"data": {"value": "2"}})).await.ok();
    on.merge(here, label("x")).await.ok();
    on.ask("DELETE", here, Value::Null).await.ok();
    let path = format!("v1/configmaps?labelSelector=app%3Dx&resourceVersion={}", version(&made));
    assert_eq!(on.watch(&path).await, ["ADDED a", "MODIFIED a", "DELETED a", "ADDED a", "DELETED a"]);
    let events = on.watch_events(&path, "application/json").await;
    let gone = &events[2]["object"];
    assert_eq!((&gone["metadata"]["labels"]["app"], version(gone)), (&json!("x"), version(&left)));
}

/// A watch can request only the metadata of each object.
pub async fn metadata_is_watched(on: &Server) {
    on.create("v1/configmaps", labelled("a", json!({"app": "x"}))).await;
    let path = "v1/configmaps?labelSelector=app&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let events = on.watch_events(path, METADATA).await;
    for event in &events[..2] {
        let object = &event["object"];
        let types = (&object["kind"], &object["apiVersion"], object.get("data"));
        assert_eq!(types, (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"), None), "{event}");
    }
}

/// Invalid parameters are refused. The error names the kind `ListOptions`.
pub async fn parameters_of_watches_are_checked(on: &Server) {
    let requires = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    for (query, why) in [
        ("sendInitialEvents=true", requires),
        (
            "resourceVersionMatch=NotOlderThan&resourceVersion=1",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ] {
        let refused = on.get(&format!("v1/configmaps?watch=true&{query}")).await;
        refused.is_error(422, "Invalid", &format!("ListOptions.meta.k8s.io \"\" is invalid: {why}"));
    }
    assert_eq!(on.get("v1/configmaps?watch=true&fieldSelector=data%3Dx").await.code, 400);
}

/// If the requested version is in the future, a streaming list sends an error event and ends, but a plain watch waits for the version.
pub async fn a_version_that_is_not_reached_yet_is_an_error_or_awaited(on: &Server) {
    let made = on.create("v1/configmaps", config_map("a", "1")).await;
    let future = version(&made).parse::<u64>().unwrap() + 1_000_000;
    assert_eq!(on.watch(&format!("v1/configmaps?resourceVersion={future}")).await, [""; 0]);
    let streamed = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let events = on
        .watch_events(&format!("v1/configmaps?{streamed}&resourceVersion={future}"), "application/json")
        .await;
    let error = &events[0]["object"];
    assert_eq!(
        (&events[0]["type"], &error["code"], &error["reason"]),
        (&json!("ERROR"), &json!(504), &json!("Timeout"))
    );
    assert_eq!(error["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!((&error["kind"], &error["apiVersion"]), (&json!("Status"), &json!("v1")));
    assert_eq!(events.len(), 1);
}

/// With `sendInitialEvents=false`, a watch without a version begins with the next change.
pub async fn a_watch_without_initial_events_begins_with_the_next_change(on: &Server) {
    on.create("v1/configmaps", labelled("a", json!({"app": "x"}))).await;
    let without = "labelSelector=app&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for (version, name) in [("", "b"), ("&resourceVersion=0", "c")] {
        // With the version 0, a real server begins with the state of its cache.
        let cached = |reply: &crate::Reply| names(&reply.body).len() == if name == "b" { 1 } else { 2 };
        on.until("v1/configmaps?labelSelector=app&resourceVersion=0", cached).await;
        let path = format!("v1/configmaps?{without}{version}");
        let create = async {
            // Half a second is long enough for the watch to be opened.
            tokio::time::sleep(Duration::from_millis(500)).await;
            on.create("v1/configmaps", labelled(name, json!({"app": "x"}))).await;
        };
        let (events, ()) = tokio::join!(on.watch_within(2, &path, "application/json"), create);
        let mut events: Vec<_> =
            events.iter().map(|event| (&event["type"], &event["object"]["metadata"]["name"])).collect();
        events.retain(|(kind, _)| *kind != "BOOKMARK");
        assert_eq!(events, [(&json!("ADDED"), &json!(name))], "{version}");
    }
}
