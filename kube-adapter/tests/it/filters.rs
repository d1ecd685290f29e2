//! Predicates that filter the changes of owned, watched and reconciled objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flyball_kube::{Change, Controller, NamespacedName, ReconcileStream, predicate};
use flyball_kube_testing::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::Patch;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Predicate, predicates, watcher};
use kube::{Api, Resource, ResourceExt};

use crate::world::{Refused, SECOND, World, during, fifo_config, map, outcomes, pod};

fn server() -> ApiServer {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Pod>();
    for name in ["default/a", "default/b"] {
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

async fn reconciled(reconciles: &mut ReconcileStream<ConfigMap, Refused>) -> Vec<String> {
    let mut names = outcomes(&during(reconciles, SECOND * 600).await);
    // In tests that let versions expire, the stream also yields errors, which are removed here.
    names.retain(|name| name != "!!");
    names.sort();
    names.dedup();
    names
}

fn labelled(owner: &str, label: &str, annotation: &str) -> Pod {
    let mut pod = pod("default/p", &[owner]);
    pod.labels_mut().insert("l".to_owned(), label.to_owned());
    pod.annotations_mut().insert("a".to_owned(), annotation.to_owned());
    pod
}

const NONE: [&str; 0] = [];

/// Makes the same sequence of changes to a pod, which the controller owns or watches. The predicate of the controller depends only on labels.
async fn changes_of_a_pod(controller: Controller<ConfigMap>, server: &ApiServer) {
    let mut reconciles = run(controller);
    assert_eq!(reconciled(&mut reconciles).await, ["a", "b"]);
    let put = |label, annotation| drop(server.put(&labelled("a", label, annotation)));
    put("1", "1");
    assert_eq!(reconciled(&mut reconciles).await, ["a"], "a new object passes the filter");
    put("1", "2");
    assert_eq!(reconciled(&mut reconciles).await, NONE);
    put("2", "2");
    assert_eq!(reconciled(&mut reconciles).await, ["a"]);
    // After two hours the filter still has the hash of the object; kube-runtime's filter drops it after an hour.
    during(&mut reconciles, 7_200 * SECOND).await;
    put("2", "3");
    assert_eq!(reconciled(&mut reconciles).await, NONE);
    // A change and its reversal are two changes, so the object is reconciled even if they arrive together.
    put("3", "3");
    put("2", "3");
    assert_eq!(reconciled(&mut reconciles).await, ["a"]);
    // The watch misses the following changes; a relist reports them.
    server.close_watches_of::<Pod>();
    put("2", "4");
    server.compact();
    assert_eq!(reconciled(&mut reconciles).await, NONE);
    server.close_watches_of::<Pod>();
    put("4", "4");
    server.compact();
    assert_eq!(reconciled(&mut reconciles).await, ["a"]);
    // The object is deleted twice, and each time a new object of the same name is created. The watch receives the first deletion and
    // misses the second one.
    assert!(server.delete::<Pod>("default", "p"));
    assert_eq!(reconciled(&mut reconciles).await, ["a"]);
    put("4", "4");
    assert_eq!(reconciled(&mut reconciles).await, ["a"]);
    server.close_watches_of::<Pod>();
    assert!(server.delete::<Pod>("default", "p"));
    put("4", "4");
    server.compact();
    assert_eq!(reconciled(&mut reconciles).await, ["a"], "another uid");
    server.close_watches_of::<Pod>();
    assert!(server.delete::<Pod>("default", "p"));
    server.compact();
    assert_eq!(reconciled(&mut reconciles).await, ["a"], "a missed deletion passes the filter");
}

#[tokio::test(start_paused = true)]
async fn owned_objects_are_compared_by_the_predicate() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let server = server();
        let pods = Api::<Pod>::all(server.client());
        changes_of_a_pod(controller(&server).owns_filtered(pods, config, predicates::labels), &server).await;
    }
}

#[tokio::test(start_paused = true)]
async fn watched_objects_are_compared_by_the_predicate() {
    let server = server();
    let pods = Api::<Pod>::all(server.client());
    let owner = |pod: Pod| {
        let owners = pod.owner_references().to_vec();
        owners.into_iter().map(|owner| ObjectRef::new(&owner.name).within("default"))
    };
    // The predicate depends only on labels, which the server does not change.
    let labels = predicates::labels.combine(|_: &Pod| None);
    let config = watcher::Config::default();
    changes_of_a_pod(controller(&server).watches_filtered(pods, config, labels, owner), &server).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_predicate_has_no_answer_for_passes() {
    let server = server();
    let pods = Api::<Pod>::all(server.client());
    let sometimes = |pod: &PartialObjectMeta<Pod>| pod.labels().get("l").filter(|l| !l.is_empty()).map(|_| 7);
    let mut reconciles = run(controller(&server).owns_filtered(pods, watcher::Config::default(), sometimes));
    reconciled(&mut reconciles).await;
    let changes_of_a_pod = [("1", true), ("2", false), ("", true), ("", true), ("3", true), ("4", false)];
    for (number, (label, passes)) in changes_of_a_pod.into_iter().enumerate() {
        server.put(&labelled("b", label, &number.to_string()));
        let expected: &[&str] = if passes { &["b"] } else { &[] };
        assert_eq!(reconciled(&mut reconciles).await, expected, "{number}: {label:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_predicate_that_panics_lets_the_change_through() {
    let server = server();
    let broken = Arc::new(AtomicBool::new(false));
    let panics = broken.clone();
    let predicate = move |_: &PartialObjectMeta<Pod>| {
        assert!(!panics.load(Ordering::Relaxed), "a bug in the predicate");
        Some(7)
    };
    let pods = Api::<Pod>::all(server.client());
    let mut reconciles = run(controller(&server).owns_filtered(pods, watcher::Config::default(), predicate));
    server.put(&labelled("a", "1", ""));
    assert_eq!(reconciled(&mut reconciles).await, ["a", "b"]);
    server.put(&labelled("a", "2", ""));
    assert_eq!(reconciled(&mut reconciles).await, NONE);
    for (label, panics, passes) in
        [("3", true, true), ("4", false, true), ("5", false, false), ("6", true, true)]
    {
        broken.store(panics, Ordering::Relaxed);
        server.put(&labelled("a", label, ""));
        let expected: &[&str] = if passes { &["a"] } else { &[] };
        assert_eq!(reconciled(&mut reconciles).await, expected, "{label}");
    }
}

/// kube-runtime's filter and flyball's filter have the same predicate, and receive the same changes. flyball's filter accepts the changes
/// that kube-runtime's filter accepts, and also deletions and requests for deletions.
#[test]
fn a_predicate_of_kubes_judges_changes_as_its_filter_does() {
    type Judge = fn(&Pod) -> Option<u64>;
    let generation: Judge = predicates::generation;
    let worth = predicate::from_kube::<NamespacedName, Pod>(generation.combine(predicates::labels));
    let none = predicate::from_kube::<NamespacedName, Pod>(|_: &Pod| None);
    let key: NamespacedName = "default/p".parse().unwrap();
    let object = |generation: Option<i64>, label: &str| {
        let mut pod = labelled("a", label, "");
        pod.meta_mut().generation = generation;
        Arc::new(pod)
    };
    let deleting = |mut pod: Arc<Pod>| {
        let now = serde_json::from_value("2024-01-01T00:00:00Z".into()).unwrap();
        Arc::make_mut(&mut pod).meta_mut().deletion_timestamp = Some(now);
        pod
    };
    let updated = |old, new| Change::updated(key.clone(), old, new);
    let changes = [
        (updated(object(Some(1), "x"), object(Some(1), "x")), false),
        (updated(object(Some(1), "x"), object(Some(2), "x")), true),
        (updated(object(Some(1), "x"), object(Some(1), "y")), true),
        (updated(object(None, "x"), object(None, "x")), false),
        (updated(object(None, "x"), object(Some(1), "x")), true),
        (updated(object(None, "x"), deleting(object(None, "x"))), true),
        (updated(object(Some(1), "x"), deleting(object(Some(1), "x"))), true),
        (updated(deleting(object(None, "x")), deleting(object(None, "x"))), false),
        (Change::added(key.clone(), object(Some(1), "x"), true), true),
        (Change::replaced(key.clone(), object(Some(1), "x"), object(Some(1), "x")), true),
        (Change::deleted(key.clone(), object(Some(1), "x"), true), true),
    ];
    for (change, passes) in changes {
        assert_eq!(worth(&change), passes, "{change:?}");
        assert!(none(&change), "{change:?}");
    }
}

/// The usual predicate drops changes of the status alone. A predicate of the generation would also drop the request to delete a pod, whose
/// generation does not change, and the changes of the finalizers of every object.
#[test]
fn spec_passes_generation_deletion_and_finalizers() {
    let spec = predicate::spec::<NamespacedName, Pod>();
    let key: NamespacedName = "default/p".parse().unwrap();
    let object = |generation: Option<i64>, deleting: bool, finalizers: &[&str]| {
        let mut pod = labelled("a", "", "");
        let meta = pod.meta_mut();
        meta.generation = generation;
        meta.deletion_timestamp =
            deleting.then(|| serde_json::from_value("2024-01-01T00:00:00Z".into()).unwrap());
        meta.finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
        Arc::new(pod)
    };
    let old = || object(Some(1), false, &["a"]);
    let updates = [
        (old(), old(), false),
        (old(), object(Some(2), false, &["a"]), true),
        (old(), object(Some(1), true, &["a"]), true),
        (old(), object(Some(1), false, &["a", "b"]), true),
        (old(), object(Some(1), false, &[]), true),
        (object(None, false, &[]), object(None, false, &[]), true),
    ];
    for (old, new, passes) in updates {
        let change = Change::updated(key.clone(), old, new);
        assert_eq!(spec(&change), passes, "{change:?}");
    }
    assert!(spec(&Change::deleted(key.clone(), old(), false)) && spec(&Change::added(key, old(), true)));
}

#[tokio::test(start_paused = true)]
async fn own_objects_are_filtered_by_a_predicate_of_kubes() {
    let world = World::of([map("default/a")]);
    let controller = Controller::for_shared(&world.informer)
        .filter_changes(predicate::from_kube(predicates::labels.combine(predicates::finalizers)));
    let mut reconciles = run(controller);
    assert_eq!(reconciled(&mut reconciles).await, ["a"]);
    world.server.put(map("default/a"));
    assert_eq!(reconciled(&mut reconciles).await, NONE);
    let mut finalized = map("default/a");
    finalized.finalizers_mut().push("test/f".to_owned());
    world.server.put(finalized);
    assert_eq!(reconciled(&mut reconciles).await, ["a"]);
}

/// A ConfigMap has no generation, so the request to delete it changes only the `deletionTimestamp`.
#[tokio::test(start_paused = true)]
async fn an_object_without_a_generation_is_finalized() {
    let all: [fn(Controller<ConfigMap>) -> Controller<ConfigMap>; 3] = [
        |controller| controller.filter_changes(predicate::spec()),
        |controller| controller.filter_changes(predicate::from_kube(predicates::generation)),
        |controller| {
            let worth = predicates::generation.combine(predicates::labels);
            controller.filter_changes(predicate::from_kube(worth))
        },
    ];
    for (number, filtered) in all.into_iter().enumerate() {
        let server = server();
        let mut finalized = map("default/a");
        finalized.finalizers_mut().push("test/f".to_owned());
        server.put(&finalized);
        let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
        let mut reconciles = filtered(controller(&server)).run(
            async |map: Arc<ConfigMap>, maps: Arc<Api<ConfigMap>>| {
                if map.metadata.deletion_timestamp.is_some() {
                    let patch = serde_json::json!({"metadata": {"finalizers": null}});
                    maps.patch(&map.name_any(), &Default::default(), &Patch::Merge(patch)).await.unwrap();
                }
                Ok::<_, Refused>(Action::await_change())
            },
            |_, _, _| unreachable!(),
            Arc::new(maps.clone()),
        );
        during(&mut reconciles, SECOND).await;
        maps.delete("a", &Default::default()).await.unwrap();
        during(&mut reconciles, SECOND).await;
        assert!(server.get::<ConfigMap>("default", "a").is_none(), "filter {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mapper_of_changes_sees_both_states_and_what_happened() {
    let world = World::of(["default/a", "default/b"].map(map));
    let pods = World::of([labelled("a", "1", "")]);
    let mapper = |change: &Change<NamespacedName, Pod>| {
        let label = |pod: &Arc<Pod>| pod.labels().get("l").cloned();
        let owners = |pod: &Arc<Pod>| pod.owner_references()[0].name.clone();
        let differs = change.old().and_then(label) != change.new().and_then(label);
        differs.then(|| ObjectRef::new(&owners(change.object())).within("default"))
    };
    let controller = Controller::for_shared(&world.informer)
        .with_config(fifo_config())
        .watches_shared_changes(&pods.informer, mapper);
    let mut reconciles = run(controller);
    assert_eq!(reconciled(&mut reconciles).await, ["a", "b"]);
    pods.server.put(labelled("a", "1", "2"));
    assert_eq!(reconciled(&mut reconciles).await, NONE);
    pods.server.put(labelled("b", "2", "2"));
    assert_eq!(reconciled(&mut reconciles).await, ["b"]);
    pods.server.delete(&"default/p".parse().unwrap());
    assert_eq!(reconciled(&mut reconciles).await, ["b"]);
}
