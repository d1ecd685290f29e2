//! kube-runtime's watcher as a client of the server.

use std::pin::Pin;
use std::time::Duration;

use super::{config_map, config_maps, server};
use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::Status;
use kube::runtime::watcher::{Config, Event, Result, watcher};

struct Received(Pin<Box<dyn Stream<Item = Result<Event<ConfigMap>>>>>);

impl Received {
    fn new(server: &ApiServer, config: Config) -> Self {
        Self(watcher(config_maps(server), config).boxed_local())
    }

    async fn next(&mut self) -> String {
        let name = |object: ConfigMap| {
            format!("{}={}", object.metadata.name.unwrap(), object.data.unwrap_or_default()["value"])
        };
        match self.0.next().await.expect("a watcher does not end") {
            Ok(Event::Init) => "init".into(),
            Ok(Event::InitApply(object)) => format!("there {}", name(object)),
            Ok(Event::InitDone) => "done".into(),
            Ok(Event::Apply(object)) => format!("apply {}", name(object)),
            Ok(Event::Delete(object)) => format!("delete {}", name(object)),
            Err(error) => format!("error {error}"),
        }
    }

    async fn receives<const N: usize>(&mut self, expected: [&str; N]) {
        for expected in expected {
            assert_eq!(self.next().await, expected);
        }
    }
}

async fn follows_through_closed_watches_and_compactions(config: Config) {
    let server = server();
    for name in ["a", "b", "c"] {
        server.put(&config_map(name, "1"));
    }
    let mut watcher = Received::new(&server, config);
    watcher.receives(["init", "there a=1", "there b=1", "there c=1", "done"]).await;
    server.put(&config_map("a", "2"));
    server.delete::<ConfigMap>("default", "b");
    watcher.receives(["apply a=2", "delete b=1"]).await;

    // After its watch was closed, the watcher continues from the last version that it has received.
    server.close_watches();
    server.put(&config_map("d", "1"));
    watcher.receives(["apply d=1"]).await;
    assert_eq!(server.open_watches(), 1);

    // After its watch was closed and the history was dropped, the watcher lists again.
    server.close_watches();
    server.put(&config_map("a", "3"));
    server.delete::<ConfigMap>("default", "c");
    server.compact();
    let gone = watcher.next().await;
    assert!(gone.contains("too old resource version"), "{gone}");
    watcher.receives(["init", "there a=3", "there d=1", "done"]).await;
    server.put(&config_map("a", "4"));
    watcher.receives(["apply a=4"]).await;
}

#[tokio::test(start_paused = true)]
async fn kubes_watcher_lists_and_watches() {
    follows_through_closed_watches_and_compactions(Config::default().page_size(2)).await;
}

#[tokio::test(start_paused = true)]
async fn kubes_watcher_streams_lists() {
    follows_through_closed_watches_and_compactions(Config::default().streaming_lists()).await;
}

#[tokio::test(start_paused = true)]
async fn kubes_watcher_recovers_from_stalled_watches_and_refused_connections() {
    let server = server();
    server.put(&config_map("a", "1"));
    let mut watcher = Received::new(&server, Config::default().timeout(30));
    watcher.receives(["init", "there a=1", "done"]).await;
    server.put(&config_map("a", "2"));
    watcher.receives(["apply a=2"]).await;
    server.stall_watches();
    server.put(&config_map("a", "3"));
    let began = tokio::time::Instant::now();
    watcher.receives(["apply a=3"]).await;
    assert_eq!(
        began.elapsed(),
        Duration::from_secs(35),
        "the watcher must notice a stalled watch after its own timeout"
    );

    server.refuse_connections();
    assert!(watcher.next().await.starts_with("error"));
    server.put(&config_map("a", "4"));
    server.accept_connections();
    watcher.receives(["apply a=4"]).await;
}

#[tokio::test(start_paused = true)]
async fn kubes_watcher_restarts_a_list_that_fails_between_pages() {
    let server = server();
    for name in ["a", "b", "c"] {
        server.put(&config_map(name, "1"));
    }
    let mut watcher = Received::new(&server, Config::default().page_size(2));
    watcher.receives(["init", "there a=1", "there b=1"]).await;
    let broken = Status::failure("etcd is away", "InternalError").with_code(500);
    server.fail_next(RequestMatcher::verb(Verb::List), 1, broken);
    assert!(watcher.next().await.starts_with("error"));
    watcher.receives(["init", "there a=1", "there b=1", "there c=1", "done"]).await;
}
