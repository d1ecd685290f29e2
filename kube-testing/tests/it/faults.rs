use std::io;
use std::time::Duration;

use super::{client_without_retries, config_map, config_maps, refused, server};
use flyball_kube_testing::{RequestMatcher, Verb};
use futures_util::{StreamExt, poll};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams, WatchParams};
use kube::core::Status;

#[tokio::test(start_paused = true)]
async fn fail_next_fails_requests_without_carrying_them_out() {
    let server = server();
    let api: Api<ConfigMap> = Api::default_namespaced(client_without_retries(&server));
    let busy = Status::failure("busy", "TooManyRequests").with_code(429);
    server.fail_next(RequestMatcher::verb(Verb::Create).resource::<ConfigMap>(), 2, busy);
    assert!(api.list(&ListParams::default()).await.is_ok(), "another verb");
    for _ in 0..2 {
        assert_eq!(refused(api.create(&PostParams::default(), &config_map("a", "1")).await).code, 429);
    }
    assert!(server.list::<ConfigMap>().is_empty());
    assert!(api.create(&PostParams::default(), &config_map("a", "1")).await.is_ok());

    let lost = Status::failure("timed out", "Timeout").with_code(504);
    server.fail_response_next(RequestMatcher::any().name("a"), 1, lost);
    assert_eq!(refused(api.delete("a", &Default::default()).await).code, 504);
    assert!(server.list::<ConfigMap>().is_empty(), "the request must be carried out nevertheless");
}

/// The client is that of `Client::try_default()`: it repeats a request after 429, 503 and 504, and waits as long as `Retry-After` says.
#[tokio::test(start_paused = true)]
async fn a_client_repeats_refused_requests_like_kubes_default_client() {
    let server = server();
    let api = config_maps(&server);
    let creates = RequestMatcher::verb(Verb::Create);
    let elapsed = async |status: Status, times, name| {
        server.clear_requests();
        server.fail_next(creates.clone(), times, status);
        let began = tokio::time::Instant::now();
        let created = api.create(&PostParams::default(), &config_map(name, "1")).await;
        (created.map(drop), server.requests().len(), began.elapsed())
    };
    let busy = |code| Status::failure("busy", "").with_code(code);
    for (code, name) in [(429, "a"), (503, "b"), (504, "c")] {
        let (created, attempts, waited) = elapsed(busy(code), 2, name).await;
        assert!(created.is_ok() && attempts == 3 && waited < Duration::from_secs(1), "{code}: {waited:?}");
    }
    let (refused_at_once, attempts, _) = elapsed(busy(500), 1, "d").await;
    assert_eq!((refused(refused_at_once).code, attempts), (500, 1));
    let mut asked_to_wait = busy(429);
    asked_to_wait.details = serde_json::from_value(serde_json::json!({"retryAfterSeconds": 7})).unwrap();
    let (created, attempts, waited) = elapsed(asked_to_wait, 1, "d").await;
    assert!(created.is_ok() && attempts == 2 && waited.as_secs() == 7, "{waited:?}");
    let (gives_up, attempts, waited) = elapsed(busy(503), 16, "e").await;
    assert_eq!((refused(gives_up).code, attempts), (503, 16));
    assert!((120..600).contains(&waited.as_secs()), "{waited:?}");
}

/// A real server sends the header `Retry-After` with each status that has `retryAfterSeconds`, and with no other.
#[tokio::test(start_paused = true)]
async fn an_error_has_the_header_retry_after_if_its_status_has_the_delay() {
    let server = server();
    let client = client_without_retries(&server);
    let header = async |query: &str| {
        let request =
            http::Request::get(format!("/api/v1/configmaps?{query}")).body(kube::client::Body::empty());
        let answer = client.send(request.unwrap()).await.unwrap();
        let header = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        (answer.status().as_u16(), header)
    };
    assert_eq!(header("resourceVersion=1000").await, (504, Some("1".to_owned())));
    assert_eq!(header("resourceVersion=nonsense").await, (400, None));
    assert_eq!(header("").await, (200, None));
}

#[tokio::test(start_paused = true)]
async fn hanging_requests_are_answered_after_resume() {
    let server = server();
    let api = config_maps(&server);
    server.hang(RequestMatcher::verb(Verb::List).resource::<ConfigMap>());
    let mut list = Box::pin(async { api.list(&ListParams::default()).await });
    for _ in 0..20 {
        assert!(poll!(&mut list).is_pending());
        tokio::task::yield_now().await;
    }
    assert!(
        Api::<Pod>::all(server.client()).list(&ListParams::default()).await.is_ok(),
        "requests for other kinds must not hang"
    );
    server.put(&config_map("a", "1"));
    server.resume();
    assert_eq!(
        list.await.unwrap().items.len(),
        1,
        "the response must have the state at the time of the response"
    );
}

#[tokio::test(start_paused = true)]
async fn latency_delays_matching_requests() {
    let server = server();
    let api = config_maps(&server);
    server.set_latency(RequestMatcher::verb(Verb::List), Duration::from_secs(3));
    let began = tokio::time::Instant::now();
    api.list(&ListParams::default()).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    server.set_latency(RequestMatcher::verb(Verb::List), Duration::ZERO);
    api.list(&ListParams::default()).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn refused_connections_lose_no_object() {
    let server = server();
    let api = config_maps(&server);
    server.put(&config_map("a", "1"));
    let mut events = Box::pin(api.watch(&WatchParams::default(), "2").await.unwrap());
    server.refuse_connections();
    assert!(events.next().await.unwrap().is_err(), "the watch must fail with its connection");
    assert!(events.next().await.is_none());
    let error = api.list(&ListParams::default()).await.unwrap_err();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let refused = cause.downcast_ref::<io::Error>().map(io::Error::kind);
    assert_eq!(refused, Some(io::ErrorKind::ConnectionRefused), "{error:?}");
    server.accept_connections();
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn close_watches_of_ends_the_watches_of_one_kind() {
    let server = server();
    let maps = config_maps(&server);
    let pods = Api::<Pod>::all(server.client());
    let mut of_maps = Box::pin(maps.watch(&WatchParams::default(), "1").await.unwrap());
    let mut of_pods = Box::pin(pods.watch(&WatchParams::default(), "1").await.unwrap());
    server.close_watches_of::<Pod>();
    assert!(of_pods.next().await.is_none());
    server.put(&config_map("a", "1"));
    assert!(of_maps.next().await.unwrap().is_ok());
    assert_eq!((server.open_watches_of::<Pod>(), server.open_watches()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn stalled_watches_get_no_events_and_new_watches_do() {
    let server = server();
    let api = config_maps(&server);
    let params = WatchParams::default().timeout(30);
    let mut dead = Box::pin(api.watch(&params, "1").await.unwrap());
    assert!(poll!(dead.next()).is_pending());
    server.stall_watches();
    assert_eq!(server.open_watches(), 0);
    server.put(&config_map("a", "1"));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(poll!(dead.next()).is_pending(), "a stalled watch must not end");
    let mut sound = Box::pin(api.watch(&params, "1").await.unwrap());
    assert!(sound.next().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_log_has_every_request() {
    let server = server();
    let api = config_maps(&server);
    let _ = api.get("a").await;
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let _ = api.watch(&WatchParams::default(), "1").await;
    let log = server.requests();
    let verbs: Vec<_> = log.iter().map(|request| request.verb).collect();
    assert_eq!(verbs, [Verb::Get, Verb::Create, Verb::Watch]);
    assert_eq!((log[0].plural.as_str(), log[0].name.as_deref()), ("configmaps", Some("a")));
    assert_eq!(log[2].query_param("resourceVersion"), Some("1"));
    assert_eq!(server.requests_matching(&RequestMatcher::verb(Verb::Get).resource::<Pod>()), []);
    server.clear_requests();
    assert!(server.requests().is_empty());
}

#[test]
#[should_panic(expected = "register::<Pod>() comes first")]
fn panics_with_the_name_of_an_unregistered_kind() {
    let _ = flyball_kube_testing::ApiServer::new().list::<Pod>();
}
