//! Defects of controllers.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use flyball_kube::{Config, Controller};
use flyball_kube_testing::{RequestMatcher, Verb};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::ResourceExt;
use kube::core::Status;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use serde_json::{from_value, json};
use tokio::time::{Instant, sleep};

use super::{SECOND, controller, idle, map, maps, pass, run, server, value};

/// Returns the only child of an owner.
fn child(owner: &ConfigMap) -> Pod {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(), "controller": true});
    from_value(json!({"metadata": {"name": "child", "namespace": "default", "ownerReferences": [owner]}}))
        .unwrap()
}

/// D1: kube-runtime keeps the keys that wait for a free slot in a hash table, and takes them in arbitrary order, so under overload some keys are
/// never reconciled.
#[tokio::test(start_paused = true)]
async fn d1_under_overload_every_object_has_its_turn() {
    const OBJECTS: usize = 2_000;
    let server = server();
    for number in 0..OBJECTS {
        server.put(&map(&format!("a{number}"), ""));
    }
    let log = run(controller(&server, watcher::Config::default()), async |_| {
        sleep(Duration::from_millis(49)).await;
        Action::requeue(5 * SECOND)
    });
    pass(60 * SECOND).await;
    let mut runs = BTreeMap::<String, u32>::new();
    log.names().into_iter().for_each(|name| *runs.entry(name).or_default() += 1);
    assert_eq!(runs.len(), OBJECTS, "every object must run");
    // Ten concurrent reconciles of 49 ms each allow about 12200 reconciles in a minute, which is about six for each of the 2000 objects.
    assert!(runs.values().all(|runs| (5..=7).contains(runs)), "{runs:?}");
}

/// D2: with kube-runtime, a reconcile that a relist causes reads the old contents of the store if the list has more than one page, or is a streaming
/// list.
#[tokio::test(start_paused = true)]
async fn d2_a_relist_of_pages_or_a_stream_loses_no_update() {
    for config in [watcher::Config::default().page_size(2), watcher::Config::default().streaming_lists()] {
        let server = server();
        for name in ["a", "b", "c", "d"] {
            server.put(&map(name, "old"));
        }
        server.set_latency(RequestMatcher::verb(Verb::List), Duration::from_millis(20));
        let log = run(controller(&server, config), idle);
        pass(5 * SECOND).await;
        assert_eq!(log.names().len(), 4);

        server.close_watches();
        server.put(&map("b", "new"));
        server.put(&map("e", "new"));
        server.compact();
        pass(300 * SECOND).await;
        let mut seen = log.seen();
        seen.sort();
        let new = |name: &str| (name.to_owned(), "new".to_owned());
        assert_eq!(
            seen,
            [new("b"), new("e")],
            "each changed object once, in its newest state, and no unchanged object"
        );
        assert!(
            log.results().iter().all(|results| !results.starts_with('?')),
            "no reconciled object may be missing in the store"
        );
    }
}

/// D3: with kube-runtime, no event reports an object that was deleted while the watch was broken, so an owner is not reconciled after the loss of its
/// only child.
#[tokio::test(start_paused = true)]
async fn d3_a_missed_deletion_adds_the_owner() {
    let server = server();
    let owner = server.put(&map("a", ""));
    server.put(&map("b", ""));
    server.put(&child(&owner));
    let pods = Api::<Pod>::all(server.client());
    let config = watcher::Config::default();
    let log = run(controller(&server, config.clone()).owns(pods, config), idle);
    pass(5 * SECOND).await;
    log.runs();

    server.close_watches_of::<Pod>();
    server.delete::<Pod>("default", "child");
    server.compact();
    pass(300 * SECOND).await;
    assert_eq!(log.names(), ["a"]);
}

/// D7: with kube-runtime, while one failed watch of a controller backs off, the controller does not poll its other watches.
#[tokio::test(start_paused = true)]
async fn d7_a_watch_that_fails_delays_no_other_one() {
    let server = server();
    let pods = Api::<Pod>::all(server.client());
    let config = watcher::Config::default();
    let log = run(controller(&server, config.clone()).owns(pods, config), idle);
    pass(5 * SECOND).await;
    let forbidden = Status::failure("pods is forbidden", "Forbidden").with_code(403);
    server.fail_next(RequestMatcher::any().resource::<Pod>(), u32::MAX, forbidden);
    server.close_watches_of::<Pod>();
    pass(60 * SECOND).await;
    assert!(log.results().contains(&"!!".to_owned()), "the stream must report the failure");

    for change in 0..100_u64 {
        pass(SECOND * 7 + Duration::from_millis(change * 37)).await;
        let put = Instant::now();
        server.put(&map("a", &change.to_string()));
        pass(SECOND).await;
        let runs = log.runs();
        assert_eq!(runs, [("a".to_owned(), change.to_string(), put)], "one reconcile without a delay");
    }
}

/// D8: with kube-runtime, a panic in one reconcile ends the stream.
#[tokio::test(start_paused = true)]
async fn d8_a_panic_is_a_failure_of_its_object_alone() {
    let server = server();
    server.put(&map("a", "poison"));
    let log = run(controller(&server, watcher::Config::default()), async |map| {
        assert_ne!(value(&map), "poison", "a bug in the reconciler");
        Action::await_change()
    });
    pass(SECOND).await;
    assert!(log.names().len() > 1, "the object must be retried");
    for number in 0..10 {
        server.put(&map(&format!("b{number}"), ""));
    }
    server.put(&map("a", "cured"));
    pass(60 * SECOND).await;
    let results = log.results();
    assert_eq!(results.len(), 11, "all other objects, and the failing one once it succeeds: {results:?}");
}

/// D9: with kube-runtime, even a key without a delay waits for a timer before it is reconciled.
#[tokio::test(start_paused = true)]
async fn d9_ready_objects_run_immediately() {
    let server = server();
    let log = run(controller(&server, watcher::Config::default()), idle);
    for change in 0..50 {
        pass(SECOND + Duration::from_micros(change * 137)).await;
        let put = Instant::now();
        server.put(&map("a", &change.to_string()));
        pass(SECOND).await;
        assert_eq!(log.runs(), [("a".to_owned(), change.to_string(), put)]);
    }
}

/// D10: with kube-runtime, keys that are added within one millisecond are reconciled in reverse order, or in the order of a hash table.
#[tokio::test(start_paused = true)]
async fn d10_what_comes_first_is_reconciled_first() {
    for concurrency in [0, 1, 3] {
        let server = server();
        let config = Config::default().concurrency(concurrency);
        let log =
            run(Controller::new(maps(&server), watcher::Config::default()).with_config(config), async |_| {
                tokio::task::yield_now().await;
                Action::await_change()
            });
        pass(SECOND).await;
        let names: Vec<String> = (0..50).map(|number| format!("a{}", number * 7 % 50)).collect();
        names.iter().for_each(|name| drop(server.put(&map(name, ""))));
        pass(SECOND).await;
        assert_eq!(log.names(), names, "with {concurrency} at once");
    }
}

/// D11: with kube-runtime and a debounce, an object that changes continuously is never reconciled, and requeues are delayed, too.
#[tokio::test(start_paused = true)]
async fn d11_a_debounce_has_an_end_and_delays_changes_only() {
    let server = server();
    let config =
        Config::default().debounce_with_max_wait(Duration::from_millis(100), Duration::from_millis(500));
    let log =
        run(Controller::new(maps(&server), watcher::Config::default()).with_config(config), async |map| {
            if value(&map) == "again" { Action::requeue(SECOND) } else { Action::await_change() }
        });
    pass(SECOND).await;
    let begun = Instant::now();
    for change in 0..60 {
        server.put(&map("a", &change.to_string()));
        pass(Duration::from_millis(50)).await;
    }
    let runs = log.runs();
    assert_eq!(runs[0].2 - begun, Duration::from_millis(500));
    assert!((5..=6).contains(&runs.len()), "one run per half second: {runs:?}");

    pass(SECOND).await;
    log.runs();
    server.put(&map("b", "again"));
    pass(Duration::from_millis(3_500)).await;
    let times: Vec<Instant> = log.runs().into_iter().map(|(.., at)| at).collect();
    let waits: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits, [SECOND; 3]);
}

/// A future that counts its polls.
struct Counting<F>(Pin<Box<F>>, Arc<AtomicUsize>);

impl<F: Future> Future for Counting<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.as_mut().poll(context)
    }
}

/// D12: with kube-runtime, whenever one reconcile ends, all reconciles in flight are polled.
#[tokio::test(start_paused = true)]
async fn d12_the_end_of_a_reconcile_is_looked_for_where_it_is() {
    const OBJECTS: u32 = 1_000;
    let server = server();
    for number in 0..OBJECTS {
        server.put(&map(&number.to_string(), ""));
    }
    let polls = Arc::new(AtomicUsize::new(0));
    let (counted, begun) = (polls.clone(), Arc::new(OnceLock::new()));
    let config = Config::default().concurrency(0);
    let controller = Controller::new(maps(&server), watcher::Config::default()).with_config(config);
    let log = run(controller, move |map| {
        let begun = *begun.get_or_init(Instant::now);
        let turn = map.name_any().parse::<u32>().unwrap() * 7_919 % OBJECTS;
        let work = async move {
            tokio::time::sleep_until(begun + SECOND + turn * Duration::from_millis(1)).await;
            Action::await_change()
        };
        Counting(Box::pin(work), counted.clone())
    });
    pass(60 * SECOND).await;
    assert_eq!(log.results().len(), OBJECTS as usize);
    // Each reconcile is polled at its start, at its end, and possibly once or twice in between.
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 4 * OBJECTS as usize, "{polls} polls of {OBJECTS} reconciles");
}
