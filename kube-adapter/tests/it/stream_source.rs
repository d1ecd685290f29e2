//! An informer whose source is a stream of kube's watcher.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flyball_informer_cache::{
    Informer, ListRequest, ListVersion, NamespacedName, Source, SourceErrorKind, Version,
    WatchEvent as SubscriptionEvent, WatchRequest, WatchStream,
};
use flyball_kube::{StreamSource, informer_from_stream};
use flyball_kube_testing::ApiServer;
use futures_util::{Stream, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::{from_value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

type Events = UnboundedSender<watcher::Result<Event<ConfigMap>>>;

const LIST: ListRequest = ListRequest { min_version: ListVersion::Any, limit: None, continuation: None };
const WATCH: WatchRequest =
    WatchRequest { from_version: Version::ZERO, streaming_list: false, timeout: Duration::from_secs(300) };

fn object(name: &str, version: u64) -> ConfigMap {
    let version = version.to_string();
    from_value(json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": version}}))
        .unwrap()
}

fn events() -> (Events, impl Stream<Item = watcher::Result<Event<ConfigMap>>> + Send + 'static) {
    let (sender, receiver) = unbounded_channel();
    (sender, stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))))
}

fn source() -> (Events, StreamSource<ConfigMap>) {
    let (sender, events) = events();
    (sender, StreamSource::new(events))
}

fn send_all(events: &Events, items: impl IntoIterator<Item = Event<ConfigMap>>) {
    items.into_iter().for_each(|event| events.send(Ok(event)).unwrap());
}

fn fail(events: &Events, code: u16) {
    let status = kube::core::Status::failure("no", "").with_code(code).boxed();
    events.send(Err(watcher::Error::WatchError(status))).unwrap();
}

/// Polls the future once, and returns `None` if it is pending.
fn now<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn versions(cache: &Informer<NamespacedName, ConfigMap>) -> Vec<String> {
    let version =
        |object: &ConfigMap| format!("{}@{}", object.name_any(), object.resource_version().unwrap());
    let mut versions: Vec<_> = cache.snapshot().objects().map(|object| version(object)).collect();
    versions.sort();
    versions
}

async fn settled(cache: &Informer<NamespacedName, ConfigMap>, expected: &[&str]) {
    let mut changes = cache.subscribe();
    while versions(cache) != expected {
        let change = tokio::time::timeout(Duration::from_secs(3600), changes.next()).await;
        assert!(change.is_ok_and(|change| change.is_some()), "{:?} and not {expected:?}", versions(cache));
    }
}

#[test]
fn a_list_goes_from_init_to_its_end_and_has_the_version_of_its_newest_object() {
    let (events, source) = source();
    let listed = || now(source.list(LIST)).map(|page| page.unwrap());
    send_all(&events, [Event::Init, Event::InitApply(object("a", 7))]);
    assert!(listed().is_none());
    // The incomplete list is kept, although the list request was dropped.
    send_all(
        &events,
        [Event::InitApply(object("b", 5)), Event::InitApply(ConfigMap::default()), Event::InitDone],
    );
    let page = listed().unwrap();
    assert_eq!((page.items, page.version), (vec![object("a", 7), object("b", 5)], Version::new(7)));

    // A second `Init` discards the incomplete list.
    send_all(&events, [Event::Init, Event::InitApply(object("a", 7)), Event::Init]);
    send_all(
        &events,
        [Event::InitApply(object("c", 6)), Event::Apply(object("d", 5)), Event::InitApply(object("e", 5))],
    );
    send_all(&events, [Event::Delete(object("e", 8)), Event::InitDone]);
    let page = listed().unwrap();
    // The list's version may be lower than that of the previous list, because the server may have been restored to an earlier state.
    assert_eq!((page.items, page.version), (vec![object("c", 6), object("d", 5)], Version::new(6)));

    send_all(&events, [Event::Init, Event::InitDone]);
    assert_eq!(listed().unwrap().version, Version::new(1));
}

#[test]
fn a_watch_yields_changes_until_the_stream_lists_again() {
    let (events, source) = source();
    let open = || now(source.watch(WATCH)).unwrap().unwrap();
    let mut watch = open();
    assert!(now(watch.next()).is_none());
    drop(watch);
    send_all(&events, [Event::Apply(object("a", 7)), Event::Apply(ConfigMap::default())]);
    send_all(
        &events,
        [Event::Delete(object("a", 8)), Event::Init, Event::InitApply(object("b", 5)), Event::InitDone],
    );
    let mut watch = open();
    assert_eq!(now(watch.next()).unwrap().unwrap().unwrap(), SubscriptionEvent::Modified(object("a", 7)));
    assert_eq!(now(watch.next()).unwrap().unwrap().unwrap(), SubscriptionEvent::Deleted(object("a", 8)));
    assert_eq!(now(watch.next()).unwrap().unwrap().unwrap_err().kind(), SourceErrorKind::Expired);
    // The watch has already consumed the `Init`, so the list must not wait for a second one.
    assert_eq!(now(source.list(LIST)).unwrap().unwrap().items, [object("b", 5)]);
}

#[test]
fn an_error_within_a_watch_means_a_list_only_if_the_stream_will_give_one() {
    let (events, source) = source();
    let mut watch = now(source.watch(WATCH)).unwrap().unwrap();
    let mut kind = |code| {
        fail(&events, code);
        now(watch.next()).unwrap().unwrap().unwrap_err().kind()
    };
    assert_eq!(kind(410), SourceErrorKind::Expired);
    assert_eq!(kind(403), SourceErrorKind::Internal);
    assert_eq!(kind(429), SourceErrorKind::TooManyRequests { retry_after: None });
    let expired = kube::core::Status::failure("old", "Expired").with_code(410).boxed();
    events.send(Err(watcher::Error::WatchStartFailed(kube::Error::Api(expired)))).unwrap();
    assert_eq!(now(watch.next()).unwrap().unwrap().unwrap_err().kind(), SourceErrorKind::Internal);
    drop(events);
    assert_eq!(now(watch.next()).unwrap().unwrap().unwrap_err().kind(), SourceErrorKind::Other);
    assert!(now(source.list(LIST)).unwrap().unwrap_err().to_string().contains("is over"));
}

#[tokio::test(start_paused = true)]
async fn an_informer_goes_on_with_the_same_stream_after_errors() {
    let (events, stream) = events();
    let (report, mut reports) = unbounded_channel();
    let cache = informer_from_stream(stream)
        .on_error(move |failure| report.send(failure.to_string()).unwrap())
        .start()
        .unwrap();
    fail(&events, 403);
    send_all(&events, [Event::Init, Event::InitApply(object("a", 7)), Event::InitDone]);
    cache.synced().await.unwrap();
    // None of these errors makes the informer request a list. A list would wait forever.
    for version in 8..20 {
        fail(&events, 500);
        send_all(&events, [Event::Apply(object("a", version))]);
        settled(&cache, &[&format!("a@{version}")]).await;
    }
    fail(&events, 410);
    send_all(
        &events,
        [Event::Init, Event::InitApply(object("b", 5)), Event::InitDone, Event::Apply(object("b", 6))],
    );
    settled(&cache, &["b@6"]).await;
    // The stream lists again without a preceding error.
    send_all(&events, [Event::Init, Event::InitDone, Event::Apply(object("c", 3))]);
    settled(&cache, &["c@3"]).await;
    assert_eq!(cache.status().relists, 2);
    drop(events);
    let mut last = None;
    while last.as_ref().is_none_or(|error: &String| !error.contains("is over")) {
        last = reports.recv().await;
    }
    assert_eq!(versions(&cache), ["c@3"]);
}

#[tokio::test(start_paused = true)]
async fn kubes_watcher_and_a_server_that_forgets_its_history() {
    for config in [Config::default().page_size(2), Config::default().streaming_lists()] {
        let server = ApiServer::new();
        server.register::<ConfigMap>();
        for name in ["a", "b", "c", "d", "e"] {
            server.put(&object(name, 0));
        }
        let events =
            watcher(Api::<ConfigMap>::all(server.client()), config).modify(|object| object.data = None);
        let cache = informer_from_stream(events).start().unwrap();
        cache.synced().await.unwrap();
        for round in 0..5 {
            server.put(&object(&format!("round-{round}"), 0));
            server.delete::<ConfigMap>("default", ["a", "b", "c", "d", "e"][round]);
            server.close_watches();
            server.put(&object("last", 0));
            if round % 2 == 0 {
                server.compact();
            }
            let truth: Vec<_> = server.list::<ConfigMap>();
            let truth: Vec<_> = truth
                .iter()
                .map(|object| format!("{}@{}", object.name_any(), object.resource_version().unwrap()))
                .collect();
            settled(&cache, &truth.iter().map(|text| &**text).collect::<Vec<_>>()).await;
        }
        assert!(cache.status().relists >= 1);
        cache.shut_down();
    }
}
