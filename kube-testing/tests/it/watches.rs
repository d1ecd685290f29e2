use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

use super::{config_map, config_maps, labelled, server};
use flyball_kube_testing::ApiServer;
use futures_util::{FutureExt, Stream, StreamExt};
use http_body::Body as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use kube::client::Body;
use kube::core::PartialObjectMeta;
use serde_json::json;
use tower_service::Service;

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<ConfigMap>>>>>;

async fn watch(server: &ApiServer, params: &WatchParams, version: &str) -> Events {
    Box::pin(config_maps(server).watch(params, version).await.unwrap())
}

/// Returns all events that are available now, in a short form.
async fn received(events: &mut Events) -> Vec<String> {
    let mut heard = Vec::new();
    loop {
        // The client reads events in a separate task, which must run first.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        match events.next().now_or_never() {
            None => return heard,
            Some(None) => {
                heard.push("end".into());
                return heard;
            }
            Some(Some(event)) => heard.push(line(event)),
        }
    }
}

fn line(event: kube::Result<WatchEvent<ConfigMap>>) -> String {
    let of = |what: &str, object: ConfigMap| {
        let meta = object.metadata;
        format!("{what} {}@{}", meta.name.unwrap(), meta.resource_version.unwrap())
    };
    match event.unwrap_or_else(|error| panic!("{error}")) {
        WatchEvent::Added(object) => of("+", object),
        WatchEvent::Modified(object) => of("~", object),
        WatchEvent::Deleted(object) => of("-", object),
        WatchEvent::Bookmark(mark) => {
            let end = mark.metadata.annotations.contains_key("k8s.io/initial-events-end");
            format!("{} @{}", if end { "all" } else { "at" }, mark.metadata.resource_version)
        }
        WatchEvent::Error(status) => format!("{} {}", status.code, status.reason),
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_sends_the_changes_after_its_version() {
    let server = server();
    let from = server.resource_version().to_string();
    server.put(&config_map("a", "1"));
    let mut events = watch(&server, &WatchParams::default(), &from).await;
    assert_eq!(received(&mut events).await, ["+ a@2"]);
    server.put(&config_map("a", "2"));
    server.put(&config_map("b", "1"));
    server.delete::<ConfigMap>("default", "a");
    // A deletion has a new version.
    assert_eq!(received(&mut events).await, ["~ a@3", "+ b@4", "- a@5"]);
    let mut later = watch(&server, &WatchParams::default(), "4").await;
    assert_eq!(received(&mut later).await, ["- a@5"]);
    assert_eq!(server.open_watches(), 2);
    drop(later);
    assert_eq!((server.open_watches(), server.open_watches_of::<ConfigMap>()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_begins_with_existing_objects() {
    let server = server();
    server.put(&config_map("b", "1"));
    server.put(&config_map("a", "1"));
    let mut events = watch(&server, &WatchParams::default(), "0").await;
    assert_eq!(received(&mut events).await, ["+ a@3", "+ b@2"]);
    server.put(&config_map("a", "2"));
    assert_eq!(received(&mut events).await, ["~ a@4"]);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_ends_with_a_bookmark() {
    let server = server();
    server.put(&config_map("a", "1"));
    server.put(&config_map("b", "1"));
    let params = WatchParams::default().initial_events();
    let mut events = watch(&server, &params, "").await;
    server.put(&config_map("c", "1"));
    assert_eq!(received(&mut events).await, ["+ a@2", "+ b@3", "all @3", "+ c@4"]);
}

#[tokio::test(start_paused = true)]
async fn objects_that_begin_or_cease_to_match_are_added_or_deleted() {
    let server = server();
    let params = WatchParams::default().labels("app=web");
    server.put(&labelled("a", json!({"app": "db"})));
    let mut events = watch(&server, &params, "1").await;
    server.put(&labelled("a", json!({"app": "web"})));
    server.put(&labelled("a", json!({"app": "web", "x": "y"})));
    server.put(&labelled("a", json!({"app": "db"})));
    server.delete::<ConfigMap>("default", "a");
    assert_eq!(received(&mut events).await, ["+ a@3", "~ a@4", "- a@5"]);
}

#[tokio::test(start_paused = true)]
async fn a_compacted_version_is_gone_and_open_watches_go_on() {
    let server = server();
    let mut open = watch(&server, &WatchParams::default(), "1").await;
    server.put(&config_map("a", "1"));
    server.put(&config_map("a", "2"));
    server.compact();
    assert_eq!(
        received(&mut open).await,
        ["+ a@2", "~ a@3"],
        "events that were not sent yet must not be lost"
    );
    let mut old = watch(&server, &WatchParams::default(), "2").await;
    assert_eq!(received(&mut old).await, ["410 Expired", "end"]);
    server.put(&config_map("a", "3"));
    let mut just = watch(&server, &WatchParams::default(), "3").await;
    assert_eq!(received(&mut just).await, ["~ a@4"]);
    assert_eq!(received(&mut open).await, ["~ a@4"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_in_time_with_a_bookmark() {
    let server = server();
    let mut quiet = watch(&server, &WatchParams::default().timeout(30), "1").await;
    let mut plain = watch(&server, &WatchParams::default().timeout(30).disable_bookmarks(), "1").await;
    assert_eq!(received(&mut quiet).await, [""; 0]);
    server.put(&labelled("a", json!({})));
    server.send_bookmarks();
    assert_eq!(received(&mut quiet).await, ["+ a@2", "at @2"]);
    assert_eq!(received(&mut plain).await, ["+ a@2"]);
    tokio::time::advance(Duration::from_secs(29)).await;
    assert_eq!(received(&mut quiet).await, [""; 0]);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(received(&mut quiet).await, ["at @2", "end"]);
    assert_eq!(received(&mut plain).await, ["end"]);
    assert_eq!(server.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn watches_of_metadata_send_metadata_only() {
    let server = server();
    let api = Api::<PartialObjectMeta<ConfigMap>>::default_namespaced(server.client());
    let mut events = Box::pin(api.watch(&WatchParams::default().initial_events(), "0").await.unwrap());
    server.put(&config_map("a", "1"));
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Bookmark(_)))));
    let Some(Ok(WatchEvent::Added(object))) = events.next().await else { panic!("no object") };
    assert_eq!(object.types.unwrap().kind, "PartialObjectMetadata");
}

struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        // Without a message on stderr, unlike `panic!`.
        resume_unwind(Box::new("a waker"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_wakes_all_watches_even_if_a_waker_panics() {
    let server = server();
    let from = server.resource_version().to_string();
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let uri = format!("/api/v1/configmaps?watch=true&resourceVersion={from}");
        let request = http::Request::get(uri).body(Body::empty()).unwrap();
        bodies.push(Service::call(&mut server.clone(), request).await.unwrap().into_body());
    }
    let woken = Arc::new(Counting(AtomicUsize::new(0)));
    for (n, body) in bodies.iter_mut().enumerate() {
        let waker = if n == 0 { Arc::new(Panicking).into() } else { woken.clone().into() };
        assert!(Pin::new(body).poll_frame(&mut Context::from_waker(&waker)).is_pending());
    }
    let change = catch_unwind(AssertUnwindSafe(|| server.put(&config_map("a", "1"))));
    assert_eq!(change.unwrap_err().downcast_ref(), Some(&"a waker"));
    assert_eq!(woken.0.load(Ordering::SeqCst), 2, "the watches whose wakers do not panic");
    assert_eq!(server.list::<ConfigMap>().len(), 1, "the change was made");
}
