//! Uses kube-runtime stores as the store of a controller, and informers as kube-runtime stores.

use std::sync::Arc;

use flyball_informer_cache::testing::TestServer;
use flyball_informer_cache::{Informer, Stopped};
use flyball_kube::{Controller, ControllerStore, NamespacedName, schema};
use flyball_kube_testing::{ApiServer, RequestMatcher};
use flyball_sync::TokioTimer;
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::core::{ApiResource, DynamicObject, Expression, GroupVersionKind, Selector};
use kube::runtime::controller::Action;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use testkit::random::Random;
use tokio::time::{sleep, timeout};

use crate::world::{Refused, Runs, SECOND, World, during, logging, map, outcomes, pod};

fn names(store: &Store<ConfigMap>) -> Vec<String> {
    let mut names: Vec<_> = store.state().iter().map(|map| map.name_any()).collect();
    names.sort();
    names
}

/// Returns the name and the version of each object.
fn contents(objects: Vec<Arc<ConfigMap>>) -> Vec<(String, Option<String>)> {
    let mut contents: Vec<_> = objects.iter().map(|map| (map.name_any(), map.resource_version())).collect();
    contents.sort();
    contents
}

#[tokio::test(start_paused = true)]
async fn a_store_filled_by_hand_answers_as_an_informer_does() {
    let (store, mut writer) = reflector::store();
    let mut labelled = map("default/b");
    labelled.labels_mut().insert("app".to_owned(), "web".to_owned());
    let objects = [map("default/a"), labelled];
    objects.iter().for_each(|object| writer.apply_watcher_event(&Event::Apply(object.clone())));
    let world = World::of(objects);
    world.informer.synced().await.unwrap();
    let web: Selector = Expression::Equal("app".to_owned(), "web".to_owned()).into();
    for store in [ControllerStore::from(store.clone()), ControllerStore::from(world.informer.clone())] {
        let found = |object: Option<Arc<ConfigMap>>| object.map(|map| map.name_any());
        assert_eq!((store.len(), store.is_empty(), store.state().len()), (2, false, 2));
        assert_eq!(found(store.get(&ObjectRef::new("a").within("default"))), Some("a".to_owned()));
        assert_eq!(found(store.get(&ObjectRef::new("a").within("other"))), None);
        assert_eq!(found(store.find(|map| !map.labels().is_empty())), Some("b".to_owned()));
        assert_eq!(store.state_filter(|map| map.labels().is_empty()).len(), 1);
        assert_eq!(store.state_filter_selector(&web).len(), 1);
    }
    assert!(ControllerStore::from(store).informer().is_none());
    assert!(ControllerStore::from(world.informer.clone()).informer().is_some());
}

#[test]
fn a_cluster_scoped_store_ignores_the_namespace() {
    let (store, mut writer) = reflector::store::<Namespace>();
    let object = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}})).unwrap();
    writer.apply_watcher_event(&Event::Apply(object));
    let store = ControllerStore::from(store);
    assert!(store.get(&ObjectRef::new("a")).is_some());
    assert!(store.get(&ObjectRef::new("a").within("any")).is_some());
}

#[tokio::test(start_paused = true)]
async fn all_waiters_for_a_kube_store_are_woken() {
    let (store, mut writer) = reflector::store::<ConfigMap>();
    let store = ControllerStore::from(store);
    let waits: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.wait_until_ready().await })
        })
        .collect();
    sleep(SECOND).await;
    writer.apply_watcher_event(&Event::Init);
    writer.apply_watcher_event(&Event::InitDone);
    for wait in waits {
        assert_eq!(timeout(2 * SECOND, wait).await.expect("every waiter must be woken").unwrap(), Ok(()));
    }
    let (gone, writer) = reflector::store::<ConfigMap>();
    let gone = ControllerStore::from(gone);
    let wait = tokio::spawn(async move { gone.wait_until_ready().await });
    sleep(SECOND).await;
    drop(writer);
    assert_eq!(wait.await.unwrap(), Err(Stopped));
}

#[tokio::test(start_paused = true)]
async fn there_and_back_is_the_same_store() {
    let (store, mut writer) = reflector::store();
    let back = ControllerStore::from(store).to_kube();
    writer.apply_watcher_event(&Event::Apply(map("default/a")));
    assert_eq!(names(&back), ["a"]);
    // If a controller was created over a stream and a kube-runtime store, `to_kube` of its store returns that kube-runtime store.
    let (store, mut writer) = reflector::store();
    let controller = Controller::for_stream(futures_util::stream::pending(), store);
    writer.apply_watcher_event(&Event::Apply(map("default/a")));
    assert_eq!(names(&controller.store().to_kube()), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_mirror_has_what_the_informer_has_and_is_made_once() {
    let server = ApiServer::new();
    server.register::<ConfigMap>();
    server.put(&map("default/a"));
    let controller = Controller::new(Api::<ConfigMap>::all(server.client()), watcher::Config::default());
    let (first, second) = (controller.store().to_kube(), controller.store().clone().to_kube());
    let mut reconciles = logging(controller, &Runs::new());
    assert!(timeout(SECOND, first.wait_until_ready()).await.is_err(), "the controller does not run yet");
    during(&mut reconciles, SECOND).await;
    first.wait_until_ready().await.unwrap();
    let shared = |a: &Store<ConfigMap>, b: &Store<ConfigMap>| Arc::ptr_eq(&a.state()[0], &b.state()[0]);
    assert!(shared(&first, &second));
    server.put(&map("default/b"));
    during(&mut reconciles, SECOND).await;
    assert_eq!(names(&first), ["a", "b"]);
    assert!(server.delete::<ConfigMap>("default", "a"));
    during(&mut reconciles, SECOND).await;
    assert_eq!(names(&first), ["b"]);
    // The watch misses the deletion, and a new object with the same name is created.
    server.close_watches();
    assert!(server.delete::<ConfigMap>("default", "b"));
    server.put(&map("default/b"));
    server.put(&map("default/c"));
    server.compact();
    during(&mut reconciles, 60 * SECOND).await;
    assert_eq!(
        contents(first.state()),
        contents(server.list::<ConfigMap>().into_iter().map(Arc::new).collect())
    );
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_finds_in_the_mirror_what_it_is_called_for() {
    let server = ApiServer::new();
    server.register::<ConfigMap>();
    (0..300).for_each(|number| drop(server.put(&map(&format!("default/{number}")))));
    let controller = Controller::new(Api::<ConfigMap>::all(server.client()), watcher::Config::default());
    let context = Arc::new((controller.store().to_kube(), Mutex::new(Vec::new())));
    let reconcile = async |map: Arc<ConfigMap>, context: Arc<(Store<ConfigMap>, Mutex<Vec<bool>>)>| {
        let (store, agrees) = &*context;
        let mirrored = store.get(&ObjectRef::from_obj(&*map)).and_then(|map| map.resource_version());
        let complete = store.len() >= 300;
        agrees.lock().push(complete && mirrored >= map.resource_version());
        Ok::<_, Refused>(Action::await_change())
    };
    let mut reconciles = controller.run(reconcile, |_, _, _| unreachable!(), context.clone());
    during(&mut reconciles, SECOND).await;
    for number in 0..100 {
        server.put(&map(&format!("default/{number}")));
    }
    during(&mut reconciles, SECOND).await;
    let agrees = context.1.lock().clone();
    assert!(agrees.len() >= 400 && agrees.iter().all(|agrees| *agrees), "{} reconciles", agrees.len());
}

#[tokio::test(start_paused = true)]
async fn the_mirror_of_an_informer_that_has_synced_is_ready_at_once() {
    let world = World::of(["default/a", "default/b"].map(map));
    world.informer.synced().await.unwrap();
    let kube = ControllerStore::from(world.informer.clone()).to_kube();
    assert_eq!(names(&kube), ["a", "b"]);
    assert!(kube.wait_until_ready().now_or_never().is_some());
    // A first list without objects also makes the mirror ready.
    let empty = World::<ConfigMap>::of([]);
    let kube = ControllerStore::from(empty.informer.clone()).to_kube();
    timeout(SECOND, kube.wait_until_ready()).await.expect("the store must be ready").unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_mirror_of_an_informer_that_never_synced_fails() {
    let server = TestServer::new(schema::<ConfigMap>(), |_: &mut ConfigMap, _, _| {});
    let (informer, run) =
        Informer::builder(schema::<ConfigMap>(), server).timer(TokioTimer::current()).build().unwrap();
    let kube = ControllerStore::from(informer).to_kube();
    drop(run);
    assert!(timeout(SECOND, kube.wait_until_ready()).await.expect("the wait must end").is_err());
}

/// Once `ControllerStore::wait_until_ready` has returned, the mirror has all objects, even if the task that completes the mirror has not run.
#[tokio::test]
async fn a_store_that_is_ready_has_a_complete_mirror() {
    let server = TestServer::new(schema::<ConfigMap>(), |_: &mut ConfigMap, _, _| {});
    server.put(map("default/a"));
    let (informer, run) =
        Informer::builder(schema::<ConfigMap>(), server).timer(TokioTimer::current()).build().unwrap();
    let store = ControllerStore::from(informer);
    let (kube, mut run) = (store.to_kube(), std::pin::pin!(run));
    // This task does not yield, so no other task runs.
    while store.informer().is_some_and(|informer| !informer.is_synced()) {
        assert!(futures_util::poll!(run.as_mut()).is_pending());
    }
    assert!(kube.is_empty(), "the mirror must be empty until the list is complete");
    assert_eq!(store.wait_until_ready().now_or_never(), Some(Ok(())));
    assert_eq!(names(&kube), ["a"]);
}

/// The observer that fills the mirror holds objects. The observer is dropped when the informer's store is dropped.
#[tokio::test(start_paused = true)]
async fn a_mirror_outlives_its_handles_and_leaks_nothing() {
    let world = World::of([map("default/a")]);
    world.informer.synced().await.unwrap();
    let kube = ControllerStore::from(world.informer.clone()).to_kube();
    world.server.put(map("default/b"));
    sleep(SECOND).await;
    assert_eq!(names(&kube), ["a", "b"], "the mirror must outlive its handle");
    let object = Arc::downgrade(&kube.state()[0]);
    world.informer.shut_down();
    world.informer.stopped().await;
    sleep(SECOND).await;
    drop(world);
    assert!(object.upgrade().is_some());
    drop(kube);
    assert!(object.upgrade().is_none());
}

/// Creates mirrors while other threads write.
#[test]
fn a_mirror_never_goes_back() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for seed in 0..10 {
            let world = World::of(["default/a", "default/b", "default/c"].map(map));
            world.informer.synced().await.unwrap();
            let server = world.server.clone();
            let writer = tokio::spawn(async move {
                let mut random = Random::new(seed);
                for _ in 0..300 {
                    let name = ["default/a", "default/b", "default/c"][random.below(3) as usize];
                    match random.below(4) {
                        0 => _ = server.delete(&name.parse::<NamespacedName>().unwrap()),
                        _ => _ = server.put(map(name)),
                    }
                    tokio::task::yield_now().await;
                }
            });
            let mut mirrors = Vec::new();
            while !writer.is_finished() && mirrors.len() < 10 {
                mirrors.push(ControllerStore::from(world.informer.clone()).to_kube());
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
            }
            writer.await.unwrap();
            let truth = contents(world.server.objects().into_iter().map(Arc::new).collect());
            let settled = async {
                let mut equal = 0;
                // A mirror that is up to date by chance, and still has older changes to apply, differs again soon.
                while equal < 20 {
                    sleep(SECOND / 500).await;
                    let same = mirrors.iter().all(|mirror| contents(mirror.state()) == truth);
                    equal = if same { equal + 1 } else { 0 };
                }
            };
            if timeout(30 * SECOND, settled).await.is_err() {
                mirrors.iter().for_each(|mirror| assert_eq!(contents(mirror.state()), truth, "seed {seed}"));
            }
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_a_dynamic_kind_provides_a_mirror() {
    let server = ApiServer::new();
    server.register::<ConfigMap>();
    server.put(&map("default/a"));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let api = Api::<DynamicObject>::all_with(server.client(), &kind);
    let controller = Controller::new_with(api, watcher::Config::default(), kind.clone());
    let store = controller.store().to_kube();
    let mut reconciles = controller.run(
        async |_: Arc<DynamicObject>, _: Arc<()>| Ok::<_, Refused>(Action::await_change()),
        |_, _, _| unreachable!(),
        Arc::new(()),
    );
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
    assert!(store.get(&ObjectRef::new_with("a", kind).within("default")).is_some());
}

/// The most common case: reconciles look up the objects of a second informer through a kube-runtime store.
#[tokio::test(start_paused = true)]
async fn a_mirror_of_a_shared_informer_is_awaited_as_kubes_store_is() {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Pod>();
    server.set_latency(RequestMatcher::any().resource::<Pod>(), 5 * SECOND);
    server.put(&map("default/a"));
    server.put(&pod("default/p", &["a"]));
    let pods =
        flyball_kube::informer(Api::<Pod>::all(server.client()), watcher::Config::default()).start().unwrap();
    let store = ControllerStore::from(pods.clone()).to_kube();
    let controller = Controller::new(Api::<ConfigMap>::all(server.client()), watcher::Config::default());
    let seen = Arc::new((store.clone(), Mutex::new(Vec::new())));
    let reconcile = async |_: Arc<ConfigMap>, context: Arc<(Store<Pod>, Mutex<Vec<usize>>)>| {
        context.0.wait_until_ready().await.map_err(|_| Refused(None))?;
        context.1.lock().push(context.0.len());
        Ok::<_, Refused>(Action::await_change())
    };
    let reconciles =
        controller.owns_shared(&pods).run(reconcile, |_, _: &Refused, _| unreachable!(), seen.clone());
    timeout(60 * SECOND, reconciles.take(1).for_each(async |_| {})).await.unwrap();
    assert_eq!(seen.1.lock()[0], 1);
}
