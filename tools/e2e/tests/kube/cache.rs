//! Caches on a real API server. After all faults, each cache must contain the same objects as a direct list.

mod own_cluster;
mod proxy;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use flyball_informer_cache::{Informer, NamespacedName};
use flyball_kube::informer;
use futures_util::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{from_value, json};

use crate::cluster::{Namespace, client, within_limit};

type Cache<K> = Informer<NamespacedName, K>;

fn map(name: &str, value: &str) -> ConfigMap {
    from_value(json!({"metadata": {"name": name, "labels": {"flyball": "cache"}}, "data": {"value": value}}))
        .unwrap()
}

/// Selects the config maps of these tests. The cluster itself creates other config maps in every namespace.
fn test_config() -> Config {
    Config::default().labels("flyball=cache")
}

fn text<K: Resource>(object: &K) -> (String, String) {
    (object.name_any(), object.resource_version().unwrap())
}

fn known<K: Resource + Send + Sync + 'static>(cache: &Cache<K>) -> BTreeMap<String, String> {
    cache.snapshot().objects().map(|object| text(&**object)).collect()
}

async fn truth(api: &Api<ConfigMap>) -> BTreeMap<String, String> {
    let list = api.list(&ListParams::default().labels("flyball=cache")).await.unwrap();
    list.items.iter().map(text).collect()
}

/// Waits until the cache contains the same objects as a direct list. The objects must not change in the meantime.
async fn agreed<K: Resource + Send + Sync + 'static>(cache: &Cache<K>, api: &Api<ConfigMap>) {
    let truth = truth(api).await;
    let mut changes = cache.subscribe();
    within_limit(async {
        while known(cache) != truth {
            changes.next().await.unwrap();
        }
    })
    .await;
}

/// Creates this number of config maps, several at a time.
async fn create(api: &Api<ConfigMap>, count: usize) {
    let made = stream::iter(0..count).map(async |n| {
        api.create(&PostParams::default(), &map(&format!("map-{n}"), "0")).await.unwrap();
    });
    made.buffer_unordered(32).collect::<()>().await;
}

async fn write(api: &Api<ConfigMap>, name: &str, value: &str) -> kube::Result<ConfigMap> {
    let patch = Patch::Merge(json!({"data": {"value": value}}));
    api.patch(name, &PatchParams::default(), &patch).await
}

/// Returns a cache of the namespace that has synced.
async fn synced(client: &Client, namespace: &Namespace, config: Config) -> Cache<ConfigMap> {
    let api = Api::namespaced(client.clone(), &namespace.name);
    let cache = informer(api, config).start().unwrap();
    within_limit(cache.synced()).await.unwrap();
    cache
}

/// An API server whose etcd is older than 3.4.31 or 3.5.13 refuses streaming lists. With such a server, this test checks that the cache falls back to
/// a plain list.
#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn many_pages_a_stream_and_metadata_alone_are_the_same_list() {
    let client = client().await;
    let namespace = Namespace::fresh(&client).await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace.name);
    create(&api, 530).await;
    let pages = synced(&client, &namespace, test_config().page_size(20)).await;
    let page = synced(&client, &namespace, test_config()).await;
    let any = synced(&client, &namespace, test_config().any_semantic()).await;
    let stream = synced(&client, &namespace, test_config().streaming_lists()).await;
    let metadata: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(client.clone(), &namespace.name);
    let metadata = informer(metadata, test_config().streaming_lists().page_size(50)).start().unwrap();
    within_limit(metadata.synced()).await.unwrap();
    assert_eq!(known(&pages).len(), 530);

    // The caches have synced, so the following changes arrive by watches.
    write(&api, "map-7", "1").await.unwrap();
    api.delete("map-8", &DeleteParams::default()).await.unwrap();
    api.create(&PostParams::default(), &map("new", "0")).await.unwrap();
    for cache in [&pages, &page, &any, &stream] {
        agreed(cache, &api).await;
        assert_eq!(cache.status().relists, 0);
    }
    agreed(&metadata, &api).await;
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_selector_follows_labels_and_fields() {
    let client = client().await;
    let namespace = Namespace::fresh(&client).await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace.name);
    create(&api, 3).await;
    let one = synced(&client, &namespace, test_config().fields("metadata.name=map-1")).await;
    let some = synced(&client, &namespace, test_config()).await;
    assert_eq!((known(&one).len(), known(&some).len()), (1, 3));
    let patch = Patch::Merge(json!({"metadata": {"labels": {"flyball": null}}}));
    api.patch("map-1", &PatchParams::default(), &patch).await.unwrap();
    write(&api, "map-2", "1").await.unwrap();
    agreed(&some, &api).await;
    let mut changes = one.subscribe();
    within_limit(async {
        while !known(&one).is_empty() {
            changes.next().await.unwrap();
        }
    })
    .await;
}

/// Each writer reads the cache, increments the counter, and after a conflict waits until the cache has a newer version.
#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn writers_that_read_the_cache_lose_no_write() {
    const WRITERS: usize = 4;
    const WRITES: usize = 25;
    let client = client().await;
    let namespace = Namespace::fresh(&client).await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace.name);
    api.create(&PostParams::default(), &map("counter", "0")).await.unwrap();
    let cache = synced(&client, &namespace, test_config()).await;
    let key = NamespacedName::new(&namespace.name, "counter").unwrap();
    let writers = (0..WRITERS).map(async |_| {
        let (mut written, mut conflicts) = (0, 0);
        while written < WRITES {
            let read = cache.store().get(&key).unwrap();
            let mut next = ConfigMap::clone(&read);
            let data = next.data.as_mut().unwrap();
            data.insert("value".to_owned(), (data["value"].parse::<usize>().unwrap() + 1).to_string());
            match api.replace("counter", &PostParams::default(), &next).await {
                Ok(_) => written += 1,
                Err(kube::Error::Api(status)) if status.code == 409 => conflicts += 1,
                Err(other) => panic!("{other}"),
            }
            let mut changes = cache.subscribe();
            while cache.store().get(&key).unwrap().resource_version() == read.resource_version() {
                within_limit(changes.next()).await.unwrap();
            }
        }
        conflicts
    });
    let conflicts: usize = futures_util::future::join_all(writers).await.into_iter().sum();
    assert!(conflicts > 0);
    agreed(&cache, &api).await;
    let counted = cache.store().get(&key).unwrap().data.as_ref().unwrap()["value"].clone();
    assert_eq!(counted, (WRITERS * WRITES).to_string());
}

/// Measures how long a list of ten thousand objects takes with flyball's cache, and with kube's own watcher and store. The test prints the times; it
/// asserts only that flyball's cache equals a direct list.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn ten_thousand_objects() {
    use kube::runtime::{WatchStreamExt, reflector, watcher};
    const COUNT: usize = 10_000;
    let client = client().await;
    let namespace = Namespace::fresh(&client).await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace.name);
    create(&api, COUNT).await;
    let took = |what: &str, began: Instant| println!("{COUNT} objects, {what}: {:?}", began.elapsed());
    for (name, config) in [("pages", test_config()), ("a stream", test_config().streaming_lists())] {
        for _ in 0..3 {
            let began = now();
            let cache = synced(&client, &namespace, config.clone()).await;
            took(&format!("{name}, flyball"), began);
            assert_eq!(known(&cache).len(), COUNT);
            cache.shut_down();

            let began = now();
            let (reader, writer) = reflector::store();
            let events = reflector(writer, watcher(api.clone(), config.clone())).touched_objects();
            let running = tokio::spawn(events.for_each(async |_| ()));
            // With `streaming_lists`, kube-runtime's store never becomes ready if the server does not support streaming lists.
            match tokio::time::timeout(Duration::from_secs(5), reader.wait_until_ready()).await {
                Ok(_) => took(&format!("{name}, kube-runtime"), began),
                Err(_) => println!("{COUNT} objects, {name}, kube-runtime: not within five seconds"),
            }
            running.abort();
        }
    }
    let cache = synced(&client, &namespace, test_config()).await;
    let changed = stream::iter(0..200).map(async |n| write(&api, &format!("map-{n}"), "1").await.map(drop));
    changed.buffer_unordered(16).collect::<Vec<_>>().await.into_iter().collect::<kube::Result<()>>().unwrap();
    agreed(&cache, &api).await;
}

#[expect(clippy::disallowed_methods, reason = "the measured time is only printed")]
fn now() -> Instant {
    Instant::now()
}
