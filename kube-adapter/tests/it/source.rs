//! The requests of a source, and how it decodes the answers.

use std::io;
use std::time::Duration;

use flyball_informer_cache::{
    ListRequest, ListVersion, Source, SourceError, SourceErrorKind, Version, WatchEvent, WatchRequest,
    WatchStream,
};
use flyball_kube::{ApiError, ApiSource};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Config};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::scripted_server::{Answer, Script};

fn any(limit: Option<u32>) -> ListRequest {
    ListRequest { min_version: ListVersion::Any, limit, continuation: None }
}

fn from(version: u64) -> WatchRequest {
    WatchRequest {
        from_version: Version::new(version),
        streaming_list: false,
        timeout: Duration::from_secs(300),
    }
}

fn object(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": version.to_string()}})
}

fn list(items: &[Value], version: u64) -> Value {
    json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}, "items": items})
}

fn source(script: &Script, config: Config) -> ApiSource<ConfigMap> {
    ApiSource::new(Api::all(script.client()), config)
}

fn names<K: Resource>(items: &[K]) -> Vec<String> {
    items.iter().map(ResourceExt::name_any).collect()
}

fn api_error(error: &SourceError) -> &ApiError {
    error.cause().and_then(|cause| cause.downcast_ref()).unwrap()
}

/// Sends these list requests, and returns the query of each HTTP request.
async fn list_requests(config: Config, requests: Vec<ListRequest>) -> Vec<String> {
    let script = Script::of(requests.iter().map(|_| Answer::json(&list(&[], 7))));
    let source = source(&script, config);
    for request in requests {
        source.list(request).await.unwrap();
    }
    script.requests().into_iter().map(|uri| uri.replace("/api/v1/configmaps", "")).collect()
}

#[tokio::test]
async fn list_requests_equal_those_of_client_go() {
    let next = ListRequest {
        min_version: ListVersion::MostRecent,
        limit: Some(500),
        continuation: Some("a b".to_owned()),
    };
    let at = |limit| ListRequest {
        min_version: ListVersion::NotOlderThan(Version::new(9)),
        limit,
        continuation: None,
    };
    let recent = ListRequest { min_version: ListVersion::MostRecent, limit: Some(500), continuation: None };
    let requests = vec![any(Some(500)), any(None), at(None), at(Some(20)), recent, next];
    let sent = list_requests(Config::default(), requests).await;
    let expected = [
        "?limit=500&resourceVersion=0",
        "?resourceVersion=0",
        "?resourceVersion=9",
        "?limit=20&resourceVersion=9&resourceVersionMatch=NotOlderThan",
        "?limit=500",
        "?limit=500&continue=a+b",
    ];
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn watch_requests_equal_those_of_client_go() {
    let watches = [
        (from(7), Config::default(), "&allowWatchBookmarks=true&resourceVersion=7"),
        (from(0), Config::default().disable_bookmarks(), "&resourceVersion=0"),
        (
            WatchRequest { streaming_list: true, ..from(0) },
            Config::default().disable_bookmarks(),
            "&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=",
        ),
        (
            WatchRequest { streaming_list: true, ..from(8) },
            Config::default().labels("a=b").fields("metadata.name=c"),
            "&fieldSelector=metadata.name%3Dc&labelSelector=a%3Db&allowWatchBookmarks=true\
             &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=8",
        ),
    ];
    for (request, config, expected) in watches {
        let script = Script::of([Answer::watch().0]);
        source(&script, config).watch(request).await.unwrap();
        assert_eq!(
            script.requests(),
            [format!("/api/v1/configmaps?watch=true&timeoutSeconds=300{expected}")]
        );
        assert_eq!(script.header("accept-encoding").as_deref(), Some("identity"));
    }
}

#[tokio::test]
async fn a_namespace_a_dynamic_kind_and_metadata_alone_have_their_own_requests() {
    let script = Script::of([0; 6].map(|_| Answer::json(&list(&[object("a", 3)], 7))));
    let client = || script.client();
    let config = || Config::default().labels("a=b");

    let one = ApiSource::new(Api::<ConfigMap>::namespaced(client(), "x"), config());
    assert_eq!(names(&one.list(any(None)).await.unwrap().items), ["a"]);
    assert_eq!(
        script.requests().pop().unwrap(),
        "/api/v1/namespaces/x/configmaps?labelSelector=a%3Db&resourceVersion=0"
    );
    assert_eq!(script.header("accept"), None);

    let nodes = ApiSource::new(Api::<Node>::all(client()), config());
    assert_eq!(names(&nodes.list(any(None)).await.unwrap().items), ["a"]);
    assert_eq!(script.requests().pop().unwrap(), "/api/v1/nodes?labelSelector=a%3Db&resourceVersion=0");

    let kind = ApiResource::erase::<ConfigMap>(&());
    let dynamic = ApiSource::new(Api::<DynamicObject>::all_with(client(), &kind), config());
    assert_eq!(names(&dynamic.list(any(None)).await.unwrap().items), ["a"]);

    let metadata = ApiSource::new(Api::<PartialObjectMeta<ConfigMap>>::all(client()), config());
    assert_eq!(names(&metadata.list(any(None)).await.unwrap().items), ["a"]);
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    assert_eq!(script.header("accept").as_deref(), Some(accept));
    metadata.watch(from(7)).await.unwrap();
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert_eq!(script.header("accept").as_deref(), Some(accept));
}

#[tokio::test]
async fn a_page_has_the_version_of_the_list_and_its_continuation() {
    let mut first = list(&[object("a", 3), object("b", 5)], 7);
    first["metadata"]["continue"] = "token".into();
    let script = Script::of([Answer::json(&first), Answer::json(&list(&[], 8))]);
    let source = source(&script, Config::default());
    let page = source.list(any(Some(2))).await.unwrap();
    assert_eq!((names(&page.items), page.version), (vec!["a".to_owned(), "b".to_owned()], Version::new(7)));
    assert_eq!(page.continuation.as_deref(), Some("token"));
    let page = source.list(any(Some(2))).await.unwrap();
    assert_eq!((page.items.len(), page.version, page.continuation), (0, Version::new(8), None));
}

#[tokio::test]
async fn a_watch_yields_events_bookmarks_and_the_end_of_the_initial_events() {
    let (answer, lines) = Answer::watch();
    let script = Script::of([answer]);
    let mut watch = source(&script, Config::default()).watch(from(7)).await.unwrap();
    lines.send("ADDED", &object("a", 8));
    lines.send("MODIFIED", &object("a", 9));
    let line = format!("{}\n", json!({"type": "DELETED", "object": object("a", 10)}));
    let (first, second) = line.split_at(40);
    lines.raw(first);
    lines.raw(second);
    let mut bookmark = object("", 11);
    bookmark["kind"] = "ConfigMap".into();
    bookmark["apiVersion"] = "v1".into();
    lines.send("BOOKMARK", &bookmark);
    bookmark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    lines.send("BOOKMARK", &bookmark);
    lines.raw("{\"type\":\"ADDED\",\"obj");
    drop(lines);

    let mut events = Vec::new();
    while let Some(event) = watch.next().await {
        let object =
            |object: ConfigMap| format!("{} {}", object.name_any(), object.resource_version().unwrap());
        events.push(event.unwrap().map(object));
    }
    let a = |version: u64| format!("a {version}");
    let (bookmark, end) =
        (WatchEvent::Bookmark(Version::new(11)), WatchEvent::InitialListEnd(Version::new(11)));
    assert_eq!(
        events,
        [WatchEvent::Added(a(8)), WatchEvent::Modified(a(9)), WatchEvent::Deleted(a(10)), bookmark, end]
    );
}

#[tokio::test]
async fn a_connection_that_is_lost_ends_a_watch_and_anything_else_fails_it() {
    use io::ErrorKind::{ConnectionReset, InvalidData, TimedOut, UnexpectedEof};
    for kind in [ConnectionReset, TimedOut, UnexpectedEof] {
        let (answer, lines) = Answer::watch();
        let mut watch = source(&Script::of([answer]), Config::default()).watch(from(7)).await.unwrap();
        // TLS libraries wrap an I/O error in a second I/O error.
        lines.fail(io::Error::other(io::Error::from(kind)));
        assert!(watch.next().await.is_none(), "{kind}");
    }
    let (answer, lines) = Answer::watch();
    let mut watch = source(&Script::of([answer]), Config::default()).watch(from(7)).await.unwrap();
    lines.fail(InvalidData.into());
    let error = watch.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Other);
    assert!(matches!(
        api_error(&error).watcher_error(),
        watcher::Error::WatchFailed(kube::Error::ReadEvents(_))
    ));
}
