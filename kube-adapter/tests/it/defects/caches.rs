//! Defects of caches and of their subscribers.

use std::cell::Cell;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use flyball_informer_cache::{Index, Informer, NamespacedName};
use flyball_kube::informer;
use flyball_kube::{Controller, object_key};
use flyball_kube_testing::{RequestMatcher, Verb};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::watcher::Config;

use super::leak_counter::{self, CountedMap};
use super::{SECOND, idle, map, maps, pass, run, server, value};

fn key(name: &str) -> NamespacedName {
    NamespacedName::new("default", name).unwrap()
}

fn cache(server: &flyball_kube_testing::ApiServer) -> Informer<NamespacedName, ConfigMap> {
    informer(maps(server), Config::default()).start().unwrap()
}

/// D4: with kube-runtime, a subscriber hangs when it receives an object that was deleted in the meantime, even if more events follow.
#[tokio::test(start_paused = true)]
async fn d4_a_quick_deletion_blocks_no_subscriber() {
    let server = server();
    let cache = cache(&server);
    cache.synced().await.unwrap();
    let mut subscription = cache.subscribe();
    let log = run(Controller::for_shared(&cache), idle);
    server.put(&map("a", ""));
    server.delete::<ConfigMap>("default", "a");
    pass(SECOND).await;
    server.put(&map("z", ""));
    pass(SECOND).await;
    server.delete::<ConfigMap>("default", "z");
    pass(SECOND).await;
    log.runs();

    for later in ["b", "c"] {
        server.put(&map(later, later));
        loop {
            let change = subscription.next().await.unwrap();
            if *change.key() == key(later) {
                break;
            }
        }
        pass(SECOND).await;
        assert_eq!(log.seen(), [(later.to_owned(), later.to_owned())]);
    }
}

/// D5: with kube-runtime, a subscriber that does not poll stops the cache and all other subscribers, once its buffer is full.
#[tokio::test(start_paused = true)]
async fn d5_an_idle_subscriber_blocks_no_other() {
    const OBJECTS: usize = 1_000;
    let server = server();
    let cache = cache(&server);
    let idle_one = cache.subscribe();
    let log = run(Controller::for_shared(&cache), idle);
    for round in ["1", "2", "3"] {
        for number in 0..OBJECTS {
            server.put(&map(&format!("a{number}"), round));
        }
        pass(10 * SECOND).await;
        assert_eq!(cache.store().len(), OBJECTS);
        let seen = log.seen();
        assert_eq!(seen.iter().filter(|(_, value)| value == round).count(), OBJECTS, "round {round}");
    }
    assert_eq!(idle_one.pending(), OBJECTS, "pending changes are bounded by objects, not by events");
}

/// D6: with kube-runtime, only one of the tasks that wait for the first list is woken.
#[tokio::test(start_paused = true)]
async fn d6_wakes_all_waiters_of_the_first_list() {
    let server = server();
    server.put(&map("a", ""));
    server.hang(RequestMatcher::verb(Verb::List));
    let cache = cache(&server);
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let cache = cache.clone();
            tokio::spawn(async move { cache.synced().await })
        })
        .collect();
    let logs: Vec<_> = (0..4).map(|_| run(Controller::for_shared(&cache), idle)).collect();
    pass(5 * SECOND).await;
    assert!(waiting.iter().all(|task| !task.is_finished()));
    server.resume();
    pass(SECOND).await;
    assert_eq!(waiting.iter().filter(|task| task.is_finished()).count(), 8);
    assert!(logs.iter().all(|log| log.names() == ["a"]), "controllers must be woken, too");
}

/// D13: during a relist, kube-runtime holds two copies of all objects, and then drops the old objects under the lock of the store.
#[tokio::test(start_paused = true)]
async fn d13_a_relist_blocks_no_reader_and_keeps_what_stayed() {
    const OBJECTS: usize = 1_000;
    let server = server();
    for number in 0..OBJECTS {
        let value = if number % 100 == 0 { "old" } else { "" };
        server.put(&map(&format!("a{number:03}"), value));
    }
    let api = Api::<CountedMap>::all(server.client());
    let cache = informer(api, Config::default().page_size(100)).start().unwrap();
    cache.synced().await.unwrap();
    leak_counter::reset();

    let (reader, (answered, answer)) = (cache.clone(), mpsc::channel());
    leak_counter::on_drop("old", move || {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(reader.store().get(&key("a001")).is_some()));
        // This timeout is far longer than a read takes. It expires only if the reader is blocked.
        answered.send(receiver.recv_timeout(Duration::from_secs(10))).unwrap();
    });
    server.close_watches();
    for number in (0..OBJECTS).step_by(100) {
        server.put(&map(&format!("a{number:03}"), "new"));
    }
    server.compact();
    pass(300 * SECOND).await;
    assert_eq!(cache.status().relists, 1);
    assert_eq!(answer.try_recv().expect("an old object was dropped"), Ok(true));
    // The limit is the number of stored objects, plus one page that is compared with them, plus the changed objects and a margin.
    assert!(leak_counter::most() <= OBJECTS + 150, "{} at one time", leak_counter::most());
}

/// D14: kube-runtime copies the object at every event.
#[tokio::test(start_paused = true)]
async fn d14_nothing_is_copied_on_the_way_to_a_reconcile() {
    let server = server();
    server.put(&map("first", ""));
    let cache = informer(Api::<CountedMap>::all(server.client()), Config::default()).start().unwrap();
    let mut subscription = cache.subscribe();
    cache.synced().await.unwrap();
    for round in 0..3 {
        for number in 0..100 {
            server.put(&map(&format!("a{number}"), &round.to_string()));
        }
        pass(SECOND).await;
    }
    server.close_watches();
    server.put(&map("first", "again"));
    server.compact();
    pass(300 * SECOND).await;
    while subscription.try_next().is_some() {}
    assert_eq!((cache.store().len(), cache.status().relists), (101, 1));
    assert_eq!(leak_counter::copies(), 0);
}

thread_local! {
    static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
}

static BY_NODE: Index<ConfigMap, String> = Index::many("node", |map| {
    LOOKED_AT.set(LOOKED_AT.get() + 1);
    vec![value(map)]
});

/// D15: with kube-runtime, every query scans all objects.
#[tokio::test(start_paused = true)]
async fn d15_a_question_to_an_index_looks_at_its_hits_only() {
    let server = server();
    for number in 0..1_000 {
        server.put(&map(&format!("a{number}"), &format!("node-{}", number % 100)));
    }
    let cache = informer(maps(&server), Config::default()).index(&BY_NODE).start().unwrap();
    cache.synced().await.unwrap();
    LOOKED_AT.set(0);
    assert_eq!(cache.store().by_index(&BY_NODE, "node-7").unwrap().len(), 10);
    assert_eq!(LOOKED_AT.get(), 0);
    // The index is updated with each change: its function is called once, for the changed object.
    server.put(&map("a7", "node-8"));
    pass(SECOND).await;
    assert_eq!(cache.store().by_index(&BY_NODE, "node-7").unwrap().len(), 9);
    assert_eq!(LOOKED_AT.get(), 1);
}

/// D16: in kube-runtime, the key of a store entry contains copies of four strings of the object. One of them, the version, is not updated when the
/// object changes.
#[tokio::test(start_paused = true)]
async fn d16_a_key_is_one_shared_string() {
    assert!(size_of::<NamespacedName>() <= 24);
    let server = server();
    server.put(&map("a", "1"));
    let cache = cache(&server);
    let mut subscription = cache.subscribe();
    cache.synced().await.unwrap();
    let first = subscription.next().await.unwrap();
    let kept = |name| cache.snapshot().keys().find(|key| key.name() == name).unwrap().as_str().as_ptr();
    assert_eq!(first.key().as_str().as_ptr(), kept("a"), "the store and the change must share one string");

    server.put(&map("a", "2"));
    let second = subscription.next().await.unwrap();
    assert_eq!(second.key(), first.key(), "the key must not contain the version");
    assert_eq!(second.key().as_str().as_ptr(), kept("a"));
    assert_eq!(object_key(&**second.object()).unwrap(), *second.key());
}
