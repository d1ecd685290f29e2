//! Informers of an `Api`, against an in-memory API server: their requests, and the final contents of their caches.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{Index, Informer, NamespacedName, ReflectorConfig};
use flyball_kube::{informer, reflector_config};
use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
use flyball_sync::TokioTimer;
use futures_util::StreamExt;
use http::HeaderMap;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::PartialObjectMeta;
use kube::core::Status;
use kube::runtime::controller::{Action, Error as Outcome};
use kube::runtime::watcher::Config;
use kube::{Api, Resource, ResourceExt};
use serde_json::{from_value, json};
use testkit::random::Random;

use crate::scripted_server::{Answer, Script};

pub(crate) fn server(objects: usize) -> ApiServer {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Namespace>();
    (0..objects).for_each(|n| drop(server.put(&object(&format!("map-{n}"), "0"))));
    server
}

pub(crate) fn object(name: &str, value: &str) -> ConfigMap {
    from_value(json!({"metadata": {"name": name, "namespace": "default", "labels": {"a": value}}, "data": {"a": value}}))
        .unwrap()
}

fn text<K: Resource>(object: &K) -> String {
    format!("{}@{}", object.name_any(), object.resource_version().unwrap())
}

fn known<K: Resource + Send + Sync + 'static>(cache: &Informer<NamespacedName, K>) -> Vec<String> {
    let mut known: Vec<_> = cache.snapshot().objects().map(|object| text(&**object)).collect();
    known.sort();
    known
}

pub(crate) fn truth(server: &ApiServer) -> Vec<String> {
    let mut truth: Vec<_> = server.list::<ConfigMap>().iter().map(text).collect();
    truth.sort();
    truth
}

/// Waits until the cache has the objects of the server.
pub(crate) async fn agreed<K: Resource + Send + Sync + 'static>(
    cache: &Informer<NamespacedName, K>,
    truth: &[String],
) {
    let mut changes = cache.subscribe();
    while known(cache) != truth {
        let change = tokio::time::timeout(Duration::from_secs(3600), changes.next()).await;
        assert!(change.is_ok_and(|change| change.is_some()), "{:?} and not {truth:?}", known(cache));
    }
}

/// Returns the query strings of the requests, without the parameters that every watch request has.
pub(crate) fn requests(server: &ApiServer, verb: Verb) -> Vec<String> {
    let short = |(name, value): (&String, &String)| match &**name {
        "timeoutSeconds" | "watch" | "allowWatchBookmarks" => None,
        "continue" => Some("continue".to_owned()),
        _ => Some(format!("{name}={value}")),
    };
    let requests = server.requests_matching(&RequestMatcher::verb(verb));
    requests
        .iter()
        .map(|request| request.query.iter().filter_map(short).collect::<Vec<_>>().join("&"))
        .collect()
}

static BY_VALUE: Index<ConfigMap, String> =
    Index::many("value", |map| map.data.iter().flat_map(|data| data.values().cloned()).collect());

#[tokio::test(start_paused = true)]
async fn a_cache_of_a_server_is_listed_once_and_then_watched() {
    let server = server(3);
    let cache =
        informer(Api::<ConfigMap>::all(server.client()), Config::default()).index(&BY_VALUE).start().unwrap();
    cache.synced().await.unwrap();
    assert_eq!(known(&cache), truth(&server));
    server.put(&object("map-0", "1"));
    server.delete::<ConfigMap>("default", "map-1");
    server.put(&object("new", "1"));
    agreed(&cache, &truth(&server)).await;
    assert_eq!(cache.store().by_index(&BY_VALUE, "1").unwrap().len(), 2);
    assert_eq!((cache.status().relists, requests(&server, Verb::List).len()), (0, 1));
    // After a connection has been closed or broken, the next watch continues from the last version.
    for end in [ApiServer::close_watches, ApiServer::break_watches] {
        tokio::time::advance(Duration::from_secs(5)).await;
        end(&server);
        server.put(&object("new", "2"));
        agreed(&cache, &truth(&server)).await;
    }
    // After the broken connection, the version of the server is requested.
    assert_eq!(requests(&server, Verb::List), ["limit=500", "limit=1"]);
    assert_eq!(cache.status().relists, 0);
    cache.shut_down();
    cache.stopped().await;
    tokio::task::yield_now().await;
    assert_eq!(server.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_pages_of_a_list_are_of_one_version() {
    let server = server(5);
    let config = Config::default().page_size(2);
    let cache = informer(Api::<ConfigMap>::all(server.client()), config).start().unwrap();
    cache.synced().await.unwrap();
    assert_eq!(known(&cache), truth(&server));
    assert_eq!(requests(&server, Verb::List), ["limit=2", "continue&limit=2", "continue&limit=2"]);
    assert_eq!(requests(&server, Verb::Watch), ["resourceVersion=6"]);
}

#[tokio::test(start_paused = true)]
async fn a_continuation_that_expires_is_followed_by_the_whole_list() {
    let item = |name: &str| json!({"metadata": {"name": name, "namespace": "x", "resourceVersion": "3"}});
    let page =
        |token: &str, item| json!({"metadata": {"resourceVersion": "7", "continue": token}, "items": [item]});
    let gone =
        json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "old"});
    let whole = json!({"metadata": {"resourceVersion": "9"}, "items": [item("b"), item("c")]});
    let script = Script::of([
        Answer::json(&page("token", item("a"))),
        Answer::status(&gone),
        Answer::json(&whole),
        Answer::watch().0,
    ]);
    let cache = informer(Api::<ConfigMap>::all(script.client()), Config::default()).start().unwrap();
    cache.synced().await.unwrap();
    assert_eq!(known(&cache), ["b@3", "c@3"]);
    let requests: Vec<_> =
        script.requests().into_iter().map(|uri| uri.replace("/api/v1/configmaps", "")).collect();
    assert_eq!(requests[..3], ["?limit=500", "?limit=500&continue=token", ""]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_history_is_followed_by_a_list_no_older_than_the_cache() {
    let server = server(2);
    let cache = informer(Api::<ConfigMap>::all(server.client()), Config::default()).start().unwrap();
    cache.synced().await.unwrap();
    server.put(&object("map-0", "1"));
    agreed(&cache, &truth(&server)).await;
    server.close_watches();
    server.delete::<ConfigMap>("default", "map-1");
    server.compact();
    agreed(&cache, &truth(&server)).await;
    assert_eq!(requests(&server, Verb::List), ["limit=500", "resourceVersion=4"]);
    assert_eq!(cache.status().relists, 1);
}

/// Returns the list requests of a cache whose objects do not fit into one page: those of the first list, and those of a relist after the server has
/// dropped its history.
async fn first_list_and_relist(config: Config, page_size: Option<u32>) -> Vec<String> {
    let server = server(501);
    let mut builder = informer(Api::<ConfigMap>::all(server.client()), config);
    if let Some(size) = page_size.and_then(NonZeroU32::new) {
        builder = builder.page_size(size);
    }
    let cache = builder.start().unwrap();
    cache.synced().await.unwrap();
    server.close_watches();
    server.delete::<ConfigMap>("default", "map-1");
    server.compact();
    agreed(&cache, &truth(&server)).await;
    requests(&server, Verb::List)
}

#[tokio::test(start_paused = true)]
async fn relists_from_the_cache_of_the_server_after_a_paged_first_list() {
    // The relist has no limit, because servers before KEP-4988 read a list with a limit from etcd.
    let lists = first_list_and_relist(Config::default(), None).await;
    assert_eq!(lists, ["limit=500", "continue&limit=500", "resourceVersion=502"]);
    let lists = first_list_and_relist(Config::default().any_semantic(), None).await;
    assert_eq!(lists, ["limit=500&resourceVersion=0", "resourceVersion=502"]);
}

#[tokio::test(start_paused = true)]
async fn an_explicit_page_size_holds_for_every_list() {
    let unpaged = || Config { page_size: None, ..Config::default() };
    let relist = |size| format!("limit={size}&resourceVersion=502&resourceVersionMatch=NotOlderThan");
    for (config, page_size) in [
        (Config::default().page_size(300), None),
        (Config::default(), Some(300)),
        (unpaged(), Some(300)),
        (Config::default().page_size(0), Some(300)),
    ] {
        let lists = first_list_and_relist(config, page_size).await;
        assert_eq!(lists[..3], ["limit=300", "continue&limit=300", &relist(300)]);
    }
    let lists = first_list_and_relist(Config::default(), Some(500)).await;
    assert_eq!(lists[..3], ["limit=500", "continue&limit=500", &relist(500)]);
    assert_eq!(first_list_and_relist(unpaged(), None).await, ["", "resourceVersion=502"]);
}

fn two_maps() -> String {
    let item = |name: &str| json!({"metadata": {"name": name, "namespace": "x", "resourceVersion": "3"}});
    json!({"metadata": {"resourceVersion": "7"}, "items": [item("a"), item("b")]}).to_string()
}

#[tokio::test(start_paused = true)]
async fn a_list_goes_on_as_long_as_its_body_arrives() {
    let [(list, body), (watch, _open)] = [(); 2].map(|()| Answer::watch());
    let script = Script::of([list, watch]);
    let api = Api::<ConfigMap>::all(script.client());
    let (cache, run) = informer(api, Config::default()).timer(TokioTimer::current()).build().unwrap();
    // The time before the informer starts does not count towards the timeout.
    tokio::time::sleep(Duration::from_secs(300)).await;
    let running = tokio::spawn(run);
    for piece in two_maps().as_bytes().chunks(16) {
        tokio::time::sleep(Duration::from_secs(100)).await;
        body.raw(str::from_utf8(piece).unwrap());
    }
    drop(body);
    cache.synced().await.unwrap();
    assert_eq!(known(&cache), ["a@3", "b@3"]);
    assert_eq!(cache.status().last_error, None);
    tokio::task::yield_now().await;
    let requests: Vec<_> = script.requests();
    assert!(requests.len() == 2 && requests[1].contains("watch=true"), "{requests:?}");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stalled_list_is_requested_again() {
    let (list, body) = Answer::watch();
    let script = Script::of([list, Answer::Text(200, HeaderMap::new(), two_maps()), Answer::watch().0]);
    let cache = informer(Api::<ConfigMap>::all(script.client()), Config::default()).start().unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    body.raw(&two_maps()[..20]);
    let before = tokio::time::Instant::now();
    cache.synced().await.unwrap();
    let waited = before.elapsed();
    assert!((120..123).contains(&waited.as_secs()), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_controller_sets_the_timeout_and_the_pages_of_its_own_lists() {
    // No request is answered.
    let script = Script::default();
    let config = flyball_kube::Config::default()
        .request_timeout(Duration::from_secs(600))
        .page_size(NonZeroU32::new(50).unwrap());
    let controller = flyball_kube::Controller::new(Api::<ConfigMap>::all(script.client()), Config::default())
        .owns(Api::<ConfigMap>::all(script.client()), Config::default())
        .with_config(config);
    let mut reconciles = controller.run(
        async |_, _| Ok::<_, kube::Error>(Action::await_change()),
        |_, _, _| Action::await_change(),
        Arc::new(()),
    );
    let before = tokio::time::Instant::now();
    assert!(matches!(reconciles.next().await, Some(Err(Outcome::QueueError(_)))));
    assert_eq!(before.elapsed().as_secs(), 600);
    let requests = script.requests();
    assert!(requests[..2].iter().all(|list| list.contains("limit=50")), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_version_the_server_has_not_reached_is_given_up_for_the_most_recent_one() {
    let server = server(1);
    let cache = informer(Api::<ConfigMap>::all(server.client()), Config::default()).start().unwrap();
    cache.synced().await.unwrap();
    let large = Status::failure("Too large resource version: 9, current: 8", "Timeout").with_code(504);
    let gone = Status::failure("old", "Expired").with_code(410);
    server.fail_next(RequestMatcher::verb(Verb::Watch), 1, gone);
    server.fail_next(RequestMatcher::verb(Verb::List), 1, large);
    server.close_watches();
    server.put(&object("map-0", "1"));
    server.compact();
    agreed(&cache, &truth(&server)).await;
    let lists = requests(&server, Verb::List);
    assert_eq!(lists.last().unwrap(), "limit=500", "{lists:?}");
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_is_one_watch_and_no_list() {
    let server = server(5);
    let config = Config::default().streaming_lists();
    let cache = informer(Api::<ConfigMap>::all(server.client()), config).start().unwrap();
    cache.synced().await.unwrap();
    assert_eq!(known(&cache), truth(&server));
    server.put(&object("new", "1"));
    agreed(&cache, &truth(&server)).await;
    let initial = "resourceVersion=&resourceVersionMatch=NotOlderThan&sendInitialEvents=true";
    assert_eq!(
        (requests(&server, Verb::List).len(), requests(&server, Verb::Watch)),
        (0, vec![initial.to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn falls_back_to_a_plain_list_without_streaming_lists() {
    let server = server(5);
    let unknown = Status::failure("sendInitialEvents is forbidden for watch", "Invalid").with_code(422);
    server.fail_next(RequestMatcher::verb(Verb::Watch), 1, unknown);
    let config = Config::default().streaming_lists();
    let cache = informer(Api::<ConfigMap>::all(server.client()), config).start().unwrap();
    cache.synced().await.unwrap();
    assert_eq!(known(&cache), truth(&server));
    assert_eq!(requests(&server, Verb::List), ["limit=500"]);
}

#[tokio::test(start_paused = true)]
async fn selectors_namespaces_and_metadata_alone() {
    let server = server(3);
    server.put(&object("map-1", "1"));
    let elsewhere = json!({"metadata": {"name": "other", "namespace": "elsewhere"}});
    server.put::<ConfigMap>(&from_value(elsewhere).unwrap());
    let namespace: Namespace = from_value(json!({"metadata": {"name": "ns"}})).unwrap();
    server.put(&namespace);

    let some =
        informer(Api::<ConfigMap>::all(server.client()), Config::default().labels("a=0")).start().unwrap();
    let other = informer(Api::<ConfigMap>::namespaced(server.client(), "elsewhere"), Config::default())
        .start()
        .unwrap();
    let meta = informer(Api::<PartialObjectMeta<ConfigMap>>::all(server.client()), Config::default())
        .start()
        .unwrap();
    let namespaces = informer(Api::<Namespace>::all(server.client()), Config::default()).start().unwrap();
    some.synced().await.unwrap();
    other.synced().await.unwrap();
    meta.synced().await.unwrap();
    namespaces.synced().await.unwrap();
    assert_eq!(known(&some), ["map-0@2", "map-2@4"]);
    assert_eq!(known(&other), ["other@6"]);
    assert_eq!(known(&meta), truth(&server));
    assert!(namespaces.store().get("ns").is_some());

    // An object that no longer matches the selector is removed from the cache.
    server.put(&object("map-0", "1"));
    agreed(&some, &["map-2@4".to_owned()]).await;
    agreed(&meta, &truth(&server)).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_given_up() {
    let server = server(1);
    let cache = informer(Api::<ConfigMap>::all(server.client()), Config::default()).start().unwrap();
    cache.synced().await.unwrap();
    server.put(&object("map-0", "1"));
    agreed(&cache, &truth(&server)).await;
    server.stall_watches();
    server.put(&object("map-0", "2"));
    // While this call waits, the paused clock advances to the deadline of the stalled watch.
    agreed(&cache, &truth(&server)).await;
    assert_eq!((cache.status().relists, requests(&server, Verb::Watch).len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn flow_control_is_obeyed_and_does_not_cost_a_list() {
    let server = server(1);
    let cache = informer(Api::<ConfigMap>::all(server.client()), Config::default()).start().unwrap();
    cache.synced().await.unwrap();
    server.put(&object("map-0", "1"));
    agreed(&cache, &truth(&server)).await;
    let busy = json!({"status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "busy",
        "details": {"retryAfterSeconds": 40}});
    server.fail_next(RequestMatcher::verb(Verb::Watch), 1, from_value(busy).unwrap());
    server.close_watches();
    server.put(&object("map-0", "2"));
    let before = tokio::time::Instant::now();
    agreed(&cache, &truth(&server)).await;
    assert!(before.elapsed() >= Duration::from_secs(40), "{:?}", before.elapsed());
    assert_eq!((cache.status().relists, requests(&server, Verb::List).len()), (0, 1));
}

/// Injects a random number of random faults. In the end the cache contains the objects of the server.
#[tokio::test(start_paused = true)]
async fn converges_under_any_mixture_of_faults() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let server = server(random.below(8) as usize);
        let mut config = Config::default().page_size(1 + random.below(4) as u32);
        if random.below(2) == 0 {
            config = config.streaming_lists();
        }
        if random.below(2) == 0 {
            config = config.any_semantic();
        }
        let cache = informer(Api::<ConfigMap>::all(server.client()), config).seed(seed).start().unwrap();
        for _ in 0..40 {
            let name = format!("map-{}", random.below(8));
            match random.below(14) {
                0..4 => drop(server.put(&object(&name, &random.below(9).to_string()))),
                4..6 => drop(server.delete::<ConfigMap>("default", &name)),
                6 => server.close_watches(),
                7 => server.break_watches(),
                8 => server.compact(),
                9 => server.send_bookmarks(),
                10 => {
                    let code = [410, 429, 500, 403, 504][random.below(5) as usize];
                    let call = RequestMatcher::verb([Verb::List, Verb::Watch][random.below(2) as usize]);
                    server.fail_next(call, 1, Status::failure("fault", "").with_code(code));
                }
                11 => tokio::time::sleep(Duration::from_secs(random.below(400))).await,
                12 => server.stall_watches(),
                _ => {
                    for _ in 0..random.below(40) {
                        tokio::task::yield_now().await;
                    }
                }
            }
            tokio::task::yield_now().await;
        }
        agreed(&cache, &truth(&server)).await;
        cache.shut_down();
    }
}

#[test]
fn a_configuration_means_the_same_to_a_reflector() {
    let default = ReflectorConfig::default();
    let config = reflector_config(&Config::default());
    let min_watch_timeout = Duration::from_secs(145);
    assert_eq!(config, ReflectorConfig { min_watch_timeout, initial_list_most_recent: true, ..default });
    assert!(!reflector_config(&Config::default().any_semantic()).initial_list_most_recent);
    let unpaged = |size| reflector_config(&Config { page_size: size, ..Config::default() }).unpaged;
    assert_eq!([None, Some(0), Some(500), Some(20)].map(unpaged), [true, true, false, false]);
    let min_watch_timeout = |timeout| reflector_config(&Config::default().timeout(timeout)).min_watch_timeout;
    assert_eq!([60, 1, 0].map(min_watch_timeout), [30, 1, 1800].map(Duration::from_secs));
    let page_size = |size| reflector_config(&Config { page_size: size, ..Config::default() }).page_size;
    assert_eq!([None, Some(0), Some(500), Some(20)].map(page_size), [None, None, None, NonZeroU32::new(20)]);
    assert!(reflector_config(&Config::default().streaming_lists()).streaming_lists);
}
