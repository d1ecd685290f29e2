//! The caches of a program whose client is that of `Client::try_default()`, which repeats requests after 429, 503 and 504.

use std::sync::Arc;
use std::time::Duration;

use flyball_kube::{Controller, informer};
use flyball_kube_testing::{RequestMatcher, Verb};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::client::Body;
use kube::core::Status;
use kube::runtime::controller::{Action, Error as Outcome};
use kube::runtime::watcher::Config;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, timeout};
use tower::{BoxError, Service, service_fn};
use tracing::subscriber::set_default;

use crate::informer::{agreed, object, requests, server, truth};
use crate::log_capture::Lines;
use crate::scripted_server::{Answer, Script, shipped};

const SECOND: Duration = Duration::from_secs(1);

fn etcd_is_down() -> Status {
    Status::failure("etcd is down", "ServiceUnavailable").with_code(503)
}

/// The versions of the restored server are lower than those of the cache. A watch from the version of the cache would be silent, so the version of the
/// server is requested first. Then the server refuses a list "not older than" the cache with 504 and `Retry-After`: "Too large resource version".
#[tokio::test(start_paused = true)]
async fn recovers_within_seconds_from_a_restore_from_a_backup() {
    for streams in [false, true] {
        let config = if streams { Config::default().streaming_lists() } else { Config::default() };
        let (lost, restored) = (server(30), server(3));
        restored.put(&object("map-0", "from the backup"));
        let current = Arc::new(Mutex::new(lost.clone()));
        let client = shipped({
            let current = current.clone();
            service_fn(move |request: http::Request<Body>| {
                let answer = current.lock().call(request);
                async move { answer.await.map_err(BoxError::from) }
            })
        });
        let cache = informer(Api::<ConfigMap>::all(client), config).start().unwrap();
        cache.synced().await.unwrap();
        lost.put(&object("map-1", "1"));
        agreed(&cache, &truth(&lost)).await;

        *current.lock() = restored.clone();
        lost.break_watches();
        let began = Instant::now();
        agreed(&cache, &truth(&restored)).await;
        assert!(began.elapsed() < 5 * SECOND, "{:?}", began.elapsed());
        // The request of the version, the refused list, and the most recent one.
        let lists = requests(&restored, Verb::List);
        assert_eq!(lists.len(), if streams { 1 } else { 3 }, "{lists:?}");
        cache.shut_down();
    }
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_server_that_refuses_watches_gets_no_list() {
    let server = server(1);
    let cache = informer(Api::<ConfigMap>::all(server.client()), Config::default()).start().unwrap();
    cache.synced().await.unwrap();
    server.put(&object("map-0", "1"));
    agreed(&cache, &truth(&server)).await;
    let busy = Status::failure("too many requests", "TooManyRequests").with_code(429);
    server.fail_next(RequestMatcher::verb(Verb::Watch), 30, busy);
    server.close_watches();
    server.put(&object("map-0", "2"));
    tokio::time::sleep(60 * SECOND).await;
    let error = cache.status().last_error.unwrap().message;
    assert!(error.contains("too many requests"), "{error}");
    agreed(&cache, &truth(&server)).await;
    assert_eq!((cache.status().relists, requests(&server, Verb::List).len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_a_failing_server_reaches_the_log_the_status_and_the_monitor() {
    let lines = Lines::of_flyball();
    let _default = set_default(lines.clone());
    let server = server(1);
    server.fail_next(RequestMatcher::any(), u32::MAX, etcd_is_down());
    let controller = Controller::new(Api::<ConfigMap>::all(server.client()), Config::default());
    let monitor = controller.monitor();
    let mut results = controller.run(
        async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, kube::Error>(Action::await_change()),
        |_, _, _| Action::await_change(),
        Arc::new(()),
    );
    let first = timeout(SECOND, results.next()).await;
    let Ok(Some(Err(Outcome::QueueError(error)))) = first else { panic!("{first:?}") };
    assert!(error.to_string().contains("etcd is down"), "{error}");
    let cache = &monitor.caches()[0];
    let failure = cache.failure.as_ref().unwrap();
    assert!(failure.message.contains("etcd is down"), "{failure:?}");
    let status = cache.informer.as_ref().unwrap();
    assert!(status.last_error.as_ref().unwrap().message.contains("etcd is down"), "{status:?}");
    let warnings = lines.with("etcd is down");
    assert!(warnings.len() == 1 && warnings[0].contains("WARN"), "{warnings:?}");
}

/// The first retries of kube's client follow within 5 ms to 160 ms, and the first wait of a cache is at least 800 ms long.
#[tokio::test(start_paused = true)]
async fn a_refused_list_or_watch_is_sent_once_before_the_backoff_of_the_cache() {
    for (verb, code, reason) in [
        (Verb::List, 429, "TooManyRequests"),
        (Verb::List, 503, "ServiceUnavailable"),
        (Verb::Watch, 429, "TooManyRequests"),
        (Verb::Watch, 503, "ServiceUnavailable"),
    ] {
        let server = server(1);
        server.fail_next(RequestMatcher::verb(verb), u32::MAX, Status::failure("no", reason).with_code(code));
        let cache = informer(Api::<ConfigMap>::all(server.client()), Config::default()).start().unwrap();
        let sent = async |after: Duration| {
            tokio::time::sleep(after).await;
            server.requests_matching(&RequestMatcher::verb(verb)).len()
        };
        assert_eq!(sent(SECOND * 7 / 10).await, 1, "{verb:?} {code}");
        assert!(sent(60 * SECOND).await > 3, "{verb:?} {code}: the cache does not try again");
        cache.shut_down();
    }
}

/// Some clients repeat a refused request without end, so it is never answered.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_not_answered_in_time_is_followed_by_the_most_recent_one() {
    let list = |version: &str| Answer::json(&json!({"metadata": {"resourceVersion": version}, "items": []}));
    let broken = json!({"status": "Failure", "code": 500, "reason": "InternalError", "message": "broken"});
    let (watch, _lines) = Answer::watch();
    let script = Script::of([list("7"), Answer::status(&broken), Answer::Hangs, list("5"), watch]);
    let cache = informer(Api::<ConfigMap>::all(script.client()), Config::default()).start().unwrap();
    cache.synced().await.unwrap();
    tokio::time::sleep(130 * SECOND).await;
    let requests = script.requests();
    let lists =
        requests.iter().filter(|uri| !uri.contains("watch=")).map(|uri| uri.split_once('?').unwrap().1);
    assert_eq!(lists.collect::<Vec<_>>(), ["limit=500", "resourceVersion=7", "limit=500"]);
    assert_eq!((cache.status().relists, cache.status().version.get()), (1, 5));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_not_opened_in_time_is_opened_again() {
    let list = || Answer::json(&json!({"metadata": {"resourceVersion": "7"}, "items": []}));
    for (hanging, lists) in [(1, 1), (2, 1), (3, 2)] {
        let mut answers = vec![list()];
        answers.extend(std::iter::repeat_with(|| Answer::Hangs).take(hanging));
        // Behind a proxy that holds back the answers to watches, the cache must not stay as it is for ever.
        answers.extend((lists > 1).then(list));
        let (watch, _lines) = Answer::watch();
        answers.push(watch);
        let script = Script::of(answers);
        let cache = informer(Api::<ConfigMap>::all(script.client()), Config::default()).start().unwrap();
        tokio::time::sleep(hanging as u32 * 140 * SECOND).await;
        let requests = script.requests();
        let watches = requests.iter().filter(|uri| uri.contains("watch=")).count();
        assert_eq!((watches, requests.len() - watches), (hanging + 1, lists), "{requests:?}");
        assert_eq!(cache.status().last_error, None);
    }
}
