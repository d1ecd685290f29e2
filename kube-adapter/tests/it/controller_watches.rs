//! Watched objects: which objects are reconciled when a watched object changes, and which data of the watched objects the cache keeps.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use flyball_kube::{Config, Controller, ReconcileStream};
use flyball_kube_testing::ApiServer;
use futures_util::{StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::ObjectMeta;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Resource, ResourceExt};
use serde::{Deserialize, Deserializer};
use tokio::time::sleep;

use crate::world::{Refused, Runs, SECOND, World, during, fifo_config, map, outcomes, pod};

fn server() -> ApiServer {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Pod>();
    for name in ["default/a", "default/b", "default/c"] {
        server.put(&map(name));
    }
    server
}

fn controller(server: &ApiServer) -> Controller<ConfigMap> {
    Controller::new(Api::all(server.client()), watcher::Config::default()).with_config(fifo_config())
}

fn run(controller: Controller<ConfigMap>) -> ReconcileStream<ConfigMap, Refused> {
    controller.run(
        async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, Refused>(Action::await_change()),
        |_, _, _| unreachable!(),
        Arc::new(()),
    )
}

/// Returns the names of the objects that are reconciled within ten minutes, which is longer than any backoff.
async fn reconciled(reconciles: &mut ReconcileStream<ConfigMap, Refused>) -> Vec<String> {
    let mut names = outcomes(&during(reconciles, SECOND * 600).await);
    names.retain(|name| name != "!!");
    names.sort();
    names.dedup();
    names
}

/// A pod type whose live instances are counted.
#[derive(Debug)]
struct Counted(ObjectMeta);

static ALIVE: AtomicUsize = AtomicUsize::new(0);

impl Counted {
    fn new(meta: ObjectMeta) -> Self {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        Self(meta)
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Pod::deserialize(from).map(|pod| Self::new(pod.metadata))
    }
}

impl Resource for Counted {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(dyntype: &()) -> Cow<'_, str> {
        Pod::kind(dyntype)
    }

    fn group(dyntype: &()) -> Cow<'_, str> {
        Pod::group(dyntype)
    }

    fn version(dyntype: &()) -> Cow<'_, str> {
        Pod::version(dyntype)
    }

    fn plural(dyntype: &()) -> Cow<'_, str> {
        Pod::plural(dyntype)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0
    }
}

/// Returns the maps whose names are in a label of the pod.
fn about<P: Resource>(pod: &P) -> Vec<ObjectRef<ConfigMap>> {
    let names = pod.labels().get("about").cloned().unwrap_or_default();
    names
        .split('.')
        .filter(|name| !name.is_empty())
        .map(|name| ObjectRef::new(name).within("default"))
        .collect()
}

fn about_maps(name: &str, maps: &str) -> Pod {
    let mut pod = pod(name, &[]);
    pod.labels_mut().insert("about".to_owned(), maps.to_owned());
    pod
}

#[tokio::test(start_paused = true)]
async fn keeps_no_object_that_only_maps_to_others() {
    let server = server();
    for number in 0..1000 {
        server.put(&about_maps(&format!("default/{number}"), "a"));
    }
    let watched = controller(&server).watches(
        Api::<Counted>::all(server.client()),
        watcher::Config::default(),
        |pod| about(&pod),
    );
    let mut reconciles = run(watched);
    assert_eq!(reconciled(&mut reconciles).await, ["a", "b", "c"]);
    assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
    server.put(&about_maps("default/1", "a.c"));
    assert_eq!(reconciled(&mut reconciles).await, ["a", "c"]);
    assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
}

/// Changes a watched object several times, so that it maps to different ConfigMaps. Some changes arrive by a watch, the others by a relist.
async fn reconciles_before_and_after(
    watched: Controller<ConfigMap>,
    server: &ApiServer,
    concerning: impl Fn(&[&str]) -> Pod,
) {
    server.put(&concerning(&["a"]));
    let mut reconciles = run(watched);
    assert_eq!(reconciled(&mut reconciles).await, ["a", "b", "c"]);
    server.put(&concerning(&["b"]));
    assert_eq!(reconciled(&mut reconciles).await, ["a", "b"]);
    server.put(&concerning(&["b", "c"]));
    assert_eq!(reconciled(&mut reconciles).await, ["b", "c"]);
    let unseen = |change: &dyn Fn()| {
        server.close_watches_of::<Pod>();
        change();
        server.compact();
    };
    unseen(&|| drop(server.put(&concerning(&["a"]))));
    assert_eq!(reconciled(&mut reconciles).await, ["a", "b", "c"]);
    // A new pod with the same name replaces the pod.
    unseen(&|| {
        server.delete::<Pod>("default", "p");
        server.put(&concerning(&["b"]));
    });
    assert_eq!(reconciled(&mut reconciles).await, ["a", "b"]);
    unseen(&|| assert!(server.delete::<Pod>("default", "p")));
    assert_eq!(reconciled(&mut reconciles).await, ["b"]);
    server.put(&concerning(&["c"]));
    assert_eq!(reconciled(&mut reconciles).await, ["c"]);
    server.delete::<Pod>("default", "p");
    assert_eq!(reconciled(&mut reconciles).await, ["c"]);
}

#[tokio::test(start_paused = true)]
async fn reconciles_owners_from_before_and_after_a_change() {
    let server = server();
    let pods = Api::<Pod>::all(server.client());
    let watched = controller(&server).owns(pods, watcher::Config::default());
    reconciles_before_and_after(watched, &server, |owners| pod("default/p", owners)).await;
}

#[tokio::test(start_paused = true)]
async fn reconciles_the_keys_from_before_and_after_a_change() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let server = server();
        let pods = Api::<Pod>::all(server.client());
        let watched = controller(&server).watches(pods, config, |pod| about(&pod));
        reconciles_before_and_after(watched, &server, |maps| about_maps("default/p", &maps.join("."))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_mapper_finds_the_objects_of_the_controller_from_the_first_list_on() {
    let server = server();
    server.set_latency(flyball_kube_testing::RequestMatcher::any().resource::<ConfigMap>(), SECOND * 5);
    server.put(&pod("default/p", &[]));
    let controller = controller(&server);
    let store = controller.store();
    let seen = Arc::new(AtomicUsize::new(usize::MAX));
    let noted = seen.clone();
    let watched =
        controller.watches(Api::<Pod>::all(server.client()), watcher::Config::default(), move |_| {
            noted.store(store.len(), Ordering::SeqCst);
            None
        });
    assert_eq!(reconciled(&mut run(watched)).await, ["a", "b", "c"]);
    assert_eq!(seen.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_mapper_loses_no_related_key() {
    let server = server();
    for name in ["default/p", "default/q"] {
        server.put(&about_maps(name, "a"));
    }
    let mapper = |pod: Pod| {
        assert!(!pod.labels()["about"].contains("bomb"), "a bug in the mapper");
        about(&pod)
    };
    let pods = Api::<Pod>::all(server.client());
    let mut reconciles = run(controller(&server).watches(pods, watcher::Config::default(), mapper));
    assert_eq!(reconciled(&mut reconciles).await, ["a", "b", "c"]);
    server.put(&about_maps("default/p", "bomb"));
    assert_eq!(reconciled(&mut reconciles).await, ["a"]);
    server.put(&about_maps("default/q", "b"));
    assert_eq!(reconciled(&mut reconciles).await, ["a", "b"]);
    // `a` is reconciled, too, because the cache kept the keys of the previous state when the mapper panicked.
    server.put(&about_maps("default/p", "c"));
    assert_eq!(reconciled(&mut reconciles).await, ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_mapper_that_panics_at_a_deletion_loses_no_key() {
    for changes_first in [false, true] {
        let server = server();
        server.put(&about_maps("default/p", "a"));
        let broken = Arc::new(AtomicBool::new(false));
        let panics = broken.clone();
        let mapper = move |pod: Pod| {
            assert!(!panics.load(Ordering::SeqCst), "a bug in the mapper");
            about(&pod)
        };
        let pods = Api::<Pod>::all(server.client());
        let mut reconciles = run(controller(&server).watches(pods, watcher::Config::default(), mapper));
        assert_eq!(reconciled(&mut reconciles).await, ["a", "b", "c"]);
        broken.store(true, Ordering::SeqCst);
        if changes_first {
            server.put(&about_maps("default/p", "b"));
            assert_eq!(reconciled(&mut reconciles).await, ["a"]);
        }
        assert!(server.delete::<Pod>("default", "p"));
        assert_eq!(reconciled(&mut reconciles).await, ["a"]);
    }
}

/// All objects are requested, and then a new object is created. As after the initial list, its reconcile comes before those of the other objects.
#[tokio::test(start_paused = true)]
async fn a_change_is_reconciled_before_a_request_for_all_objects() {
    let world = World::of((0..100).map(|number| map(&format!("default/{number}"))));
    let runs = Runs::new();
    let all = stream::iter([()]).chain(stream::pending()).then(async |()| sleep(200 * SECOND).await);
    let mut reconciles = Controller::for_shared(&world.informer)
        .with_config(Config::default().concurrency(1))
        .reconcile_all_on(all)
        .run(
            async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
                runs.record(&*map);
                sleep(SECOND).await;
                Ok::<_, Refused>(Action::await_change())
            },
            |_, _, _| unreachable!(),
            runs.clone(),
        );
    during(&mut reconciles, 205 * SECOND + SECOND / 2).await;
    world.server.put(map("default/new"));
    during(&mut reconciles, 200 * SECOND).await;
    assert_eq!(runs.all().len(), 201);
    assert_eq!(runs.of("new"), [206_000]);
}

/// Returns a pod whose owner reference names the ConfigMap "a" with this group and version.
fn pod_of(api_version: &str) -> Pod {
    let mut pod = pod("default/p", &["a"]);
    pod.owner_references_mut()[0].api_version = api_version.to_owned();
    pod
}

#[tokio::test(start_paused = true)]
async fn an_owner_reference_in_another_version_names_the_owner() {
    for (api_version, owned) in
        [("v1", true), ("v2alpha1", true), ("apps/v1", false), ("example.com/v2", false), ("", true)]
    {
        let (server, pods) = (server(), World::of([]));
        let from_api = Api::<Pod>::all(server.client());
        let later = stream::iter([Ok(pod_of(api_version))]).then(async |pod| {
            sleep(SECOND).await;
            pod
        });
        let controllers = [
            controller(&server).owns(from_api, watcher::Config::default()),
            controller(&server).owns_shared(&pods.informer),
            controller(&server).owns_stream(later.chain(stream::pending())),
        ];
        for (number, controller) in controllers.into_iter().enumerate() {
            let mut reconciles = run(controller);
            assert_eq!(during(&mut reconciles, SECOND / 2).await.len(), 3);
            server.put(&pod_of(api_version));
            pods.server.put(pod_of(api_version));
            let names = outcomes(&during(&mut reconciles, SECOND).await);
            let expected: &[&str] = if owned { &["a"] } else { &[] };
            assert_eq!(names, expected, "{api_version:?}, {number}");
        }
    }
}
