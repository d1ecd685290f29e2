//! The triggers of a controller: which changes cause a reconcile, when, and in which order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use flyball_kube::{Config, Controller, QueueOrder, predicate};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use kube::core::Expression;
use kube::runtime::controller::{Action, Error as Outcome};
use kube::runtime::reflector::ObjectRef;
use tokio::time::sleep;

use crate::world::{Refused, Runs, World, during, fifo_config, logging, map, outcomes, pod};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn reconciles_initial_new_and_changed_objects() {
    let world = World::of([map("default/a"), map("default/b")]);
    let runs = Runs::new();
    let mut reconciles = logging(Controller::for_shared(&world.informer).with_config(fifo_config()), &runs);
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a", "b"]);

    world.server.put(map("default/c"));
    world.server.put(map("default/a"));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["c", "a"]);
    // As in kube-runtime, a deletion does not reconcile the deleted object.
    world.server.delete(&"default/b".parse().unwrap());
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn filter_changes_accepts_or_drops() {
    let of = |generation| {
        let mut map = map("default/a");
        map.metadata.generation = Some(generation);
        map
    };
    let world = World::of([of(1)]);
    let controller =
        Controller::for_shared(&world.informer).with_config(fifo_config()).filter_changes(predicate::spec());
    let mut reconciles = logging(controller, &Runs::new());
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
    world.server.put(of(1));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), [""; 0]);
    world.server.put(of(2));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
    world.server.delete(&"default/a".parse().unwrap());
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn requeue_delay_counts_from_the_end() {
    let world = World::of([map("default/a")]);
    let runs = Runs::new();
    let mut reconciles = Controller::for_shared(&world.informer).run(
        async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            runs.record(&*map);
            sleep(SECOND).await;
            Ok::<_, Refused>(Action::requeue(Duration::from_millis(500)))
        },
        |_, _, _| unreachable!(),
        runs.clone(),
    );
    during(&mut reconciles, SECOND * 4).await;
    assert_eq!(runs.of("a"), [0, 1500, 3000]);
}

#[tokio::test(start_paused = true)]
async fn owners_of_before_and_after() {
    let world = World::of(["a", "b", "c"].map(|name| map(&format!("default/{name}"))));
    let pods = World::of([pod("default/p", &["a", "b"])]);
    let runs = Runs::new();
    let controller =
        Controller::for_shared(&world.informer).with_config(fifo_config()).owns_shared(&pods.informer);
    let mut reconciles = logging(controller, &runs);
    during(&mut reconciles, SECOND).await;

    pods.server.put(pod("default/p", &["b", "c"]));
    let mut concerned = outcomes(&during(&mut reconciles, SECOND).await);
    concerned.sort();
    assert_eq!(concerned, ["a", "b", "c"]);
    pods.server.delete(&"default/p".parse().unwrap());
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["b", "c"]);
    // The watch misses the deletion, because it is broken while the object is deleted, and the server drops its history.
    pods.server.put(pod("default/q", &["a"]));
    during(&mut reconciles, SECOND).await;
    pods.server.break_watches(flyball_informer_cache::SourceErrorKind::Other);
    pods.server.delete(&"default/q".parse().unwrap());
    pods.server.compact();
    assert_eq!(outcomes(&during(&mut reconciles, SECOND * 60).await), ["a"]);
    assert_eq!(pods.informer.status().relists, 1);
}

#[tokio::test(start_paused = true)]
async fn an_owner_without_a_namespace_has_one_key() {
    let node: Node = serde_json::from_value(serde_json::json!({"metadata": {"name": "n"}})).unwrap();
    let nodes = World::of([node]);
    let mut owned = pod("default/p", &[]);
    owned.metadata.owner_references = serde_json::from_value(
        serde_json::json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "any"}]),
    )
    .unwrap();
    let pods = World::of([owned.clone()]);
    let mut reconciles =
        Controller::for_shared(&nodes.informer).with_config(fifo_config()).owns_shared(&pods.informer).run(
            async |node: Arc<Node>, runs: Arc<Runs>| {
                runs.record(&*node);
                sleep(SECOND).await;
                Ok::<_, Refused>(Action::await_change())
            },
            |_, _, _| unreachable!(),
            Runs::new(),
        );
    // The pod changes while the node is being reconciled. The node must be reconciled once more, but not concurrently under a second key.
    during(&mut reconciles, SECOND / 2).await;
    pods.server.put(owned);
    let items = during(&mut reconciles, SECOND * 5).await;
    assert_eq!(outcomes(&items), ["n", "n"]);
    assert!(items.iter().all(|item| item.as_ref().is_ok_and(|(node, _)| node.namespace.is_none())));
}

/// The pods are listed before the node, so at that time no object has the key to which their references map.
#[tokio::test(start_paused = true)]
async fn an_owner_without_a_namespace_is_not_missed_where_its_pods_are() {
    let nodes = World::of([] as [Node; 0]);
    let owned = |key: &str| {
        let mut pod = pod(key, &["n"]);
        let owner = &mut pod.metadata.owner_references.as_mut().unwrap()[0];
        owner.kind = "Node".into();
        pod
    };
    let pods = World::of(["a/p", "b/p"].map(owned));
    let config = fifo_config().debounce(SECOND);
    let controller = Controller::for_shared(&nodes.informer).with_config(config).owns_shared(&pods.informer);
    let mut reconciles = controller.run(
        async |_: Arc<Node>, _: Arc<()>| Ok::<_, Refused>(Action::await_change()),
        |_, _, _| unreachable!(),
        Arc::new(()),
    );
    assert_eq!(outcomes(&during(&mut reconciles, SECOND * 5).await), ["?n", "?n"], "no such object exists");
    pods.server.put(owned("a/p"));
    nodes.server.put(serde_json::from_value(serde_json::json!({"metadata": {"name": "n"}})).unwrap());
    assert_eq!(outcomes(&during(&mut reconciles, SECOND * 5).await), ["n"]);
}

#[tokio::test(start_paused = true)]
async fn a_mapper_is_called_for_both_states() {
    let world = World::of([map("default/a"), map("default/b")]);
    let pods = World::of([] as [Pod; 0]);
    let runs = Runs::new();
    // Returns the map whose name is in the label of a pod.
    let of = |pod: &Arc<Pod>| {
        let named = pod.metadata.labels.as_ref().and_then(|labels| labels.get("map"));
        named.map(|name| ObjectRef::<ConfigMap>::new(name).within("default"))
    };
    let controller =
        Controller::for_shared(&world.informer).with_config(fifo_config()).watches_shared(&pods.informer, of);
    let mut reconciles = logging(controller, &runs);
    during(&mut reconciles, SECOND).await;
    let labelled = |map: &str| {
        let mut pod = pod("default/p", &[]);
        pod.metadata.labels = Some([("map".to_owned(), map.to_owned())].into());
        pod
    };
    pods.server.put(labelled("a"));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
    pods.server.put(labelled("b"));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_waits_until_it_is_quiet_but_not_for_ever() {
    let world = World::of([map("default/a")]);
    let runs = Runs::new();
    let config = fifo_config().debounce_with_max_wait(SECOND, SECOND * 5);
    let mut reconciles = logging(Controller::for_shared(&world.informer).with_config(config), &runs);
    // Initial objects are not debounced.
    assert_eq!(outcomes(&during(&mut reconciles, SECOND / 10).await), ["a"]);
    // There is one change per half second, for nine seconds. The maximum wait forces a reconcile after 5 s, and the last reconcile follows one second
    // after the last change.
    for _ in 0..18 {
        world.server.put(map("default/a"));
        during(&mut reconciles, SECOND / 2).await;
    }
    during(&mut reconciles, SECOND * 10).await;
    let at = runs.of("a");
    assert_eq!(at.len(), 3, "{at:?}");
    assert!((5_000..5_200).contains(&at[1]) && (9_500..9_800).contains(&at[2]), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn reconciles_requested_objects() {
    let world = World::of([map("default/a"), map("default/b")]);
    let runs = Runs::new();
    let (say, said) = tokio::sync::mpsc::unbounded_channel::<&str>();
    let named = stream::unfold(said, |mut said| async {
        let name = said.recv().await?;
        Some((ObjectRef::new(name).within("default"), said))
    });
    let all = stream::once(sleep(SECOND * 5));
    let controller = Controller::for_shared(&world.informer)
        .with_config(fifo_config())
        .reconcile_on(named)
        .reconcile_all_on(all);
    let mut reconciles = logging(controller, &runs);
    during(&mut reconciles, SECOND).await;
    say.send("b").unwrap();
    say.send("nobody").unwrap();
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["b", "?nobody"]);
    // The end of one stream does not end the controller.
    drop(say);
    let mut rest = outcomes(&during(&mut reconciles, SECOND * 5).await);
    rest.sort();
    assert_eq!(rest, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn debounces_requests_like_changes() {
    let world = World::of([map("default/a")]);
    let runs = Runs::new();
    let named = stream::once(sleep(SECOND * 5)).map(|()| ObjectRef::new("a").within("default"));
    let controller = Controller::for_shared(&world.informer).with_config(fifo_config().debounce(SECOND));
    let mut reconciles = logging(controller.reconcile_on(named), &runs);
    during(&mut reconciles, SECOND * 10).await;
    assert_eq!(runs.of("a"), [0, 6_000]);
}

#[tokio::test(start_paused = true)]
async fn resolves_requests_with_a_wrong_namespace() {
    let node: Node = serde_json::from_value(serde_json::json!({"metadata": {"name": "n"}})).unwrap();
    let nodes = World::of([node]);
    let named = stream::once(sleep(SECOND * 5)).map(|()| ObjectRef::<Node>::new("n").within("default"));
    let mut reconciles = Controller::for_shared(&nodes.informer).reconcile_on(named).run(
        async |_: Arc<Node>, _: Arc<()>| Ok::<_, Refused>(Action::await_change()),
        |_, _, _| unreachable!(),
        Arc::new(()),
    );
    assert_eq!(outcomes(&during(&mut reconciles, SECOND * 10).await), ["n", "n"]);
}

#[tokio::test(start_paused = true)]
async fn a_steady_flow_of_requests_starves_no_waiter() {
    let world = World::of([map("default/a")]);
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    // The stream is finite, so that the test fails instead of hanging.
    let eager = stream::iter(0..1_000_000).map(move |_| {
        count.fetch_add(1, Relaxed);
    });
    let controller =
        Controller::for_shared(&world.informer).with_config(fifo_config()).reconcile_all_on(eager);
    let mut reconciles = logging(controller, &Runs::new());
    assert!(reconciles.next().await.is_some());
    assert!(calls.load(Relaxed) < 10_000);
}

#[tokio::test(start_paused = true)]
async fn initial_objects_have_the_lowest_priority() {
    let world = World::of((0..20).map(|n| map(&format!("default/old-{n}"))));
    let runs = Runs::new();
    let mut reconciles =
        Controller::for_shared(&world.informer).with_config(Config::default().concurrency(1)).run(
            async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
                runs.record(&*map);
                sleep(SECOND).await;
                Ok::<_, Refused>(Action::await_change())
            },
            |_, _, _| unreachable!(),
            runs.clone(),
        );
    during(&mut reconciles, SECOND * 3).await;
    world.server.put(map("default/new"));
    during(&mut reconciles, SECOND * 30).await;
    let names = runs.names();
    assert_eq!(names.len(), 21);
    let at = names.iter().position(|name| name == "new").unwrap();
    assert!((3..=4).contains(&at), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_turns() {
    let world = World::of((0..20).map(|n| map(&format!("big/{n}"))).chain([map("small/x")]));
    let runs = Runs::new();
    let config =
        Config::default().concurrency(4).queue_order(QueueOrder::FairByNamespace { max_in_flight: Some(2) });
    let mut reconciles = Controller::for_shared(&world.informer).with_config(config).run(
        async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            runs.record(&*map);
            sleep(SECOND).await;
            Ok::<_, Refused>(Action::await_change())
        },
        |_, _, _| unreachable!(),
        runs.clone(),
    );
    during(&mut reconciles, SECOND * 30).await;
    assert_eq!(runs.of("x"), [0]);
    // Only two reconciles of the large namespace run at once, although four could: the rest of the concurrency is for other namespaces.
    for second in 0..10 {
        assert_eq!(runs.all().iter().filter(|(name, at)| name != "x" && *at == second * 1000).count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn concurrency_is_a_bound_and_zero_is_none() {
    for (concurrency, at_once) in [(3, 3), (0, 100)] {
        let world = World::of((0..100).map(|n| map(&format!("default/{n}"))));
        let runs = Runs::new();
        let mut reconciles = Controller::for_shared(&world.informer)
            .with_config(Config::default().concurrency(concurrency))
            .run(
                async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
                    runs.record(&*map);
                    sleep(SECOND).await;
                    Ok::<_, Refused>(Action::await_change())
                },
                |_, _, _| unreachable!(),
                runs.clone(),
            );
        during(&mut reconciles, SECOND / 2).await;
        assert_eq!(runs.all().len(), at_once);
    }
}

/// Objects that fail slowly take a part of the concurrency, and a healthy object does not wait for them.
#[tokio::test(start_paused = true)]
async fn slow_failing_objects_leave_room_for_healthy_ones() {
    for (most, delay) in [(2, 0..=500), (0, 1_000..=30_000)] {
        let world = World::of((0..20).map(|n| map(&format!("default/bad-{n}"))));
        let runs = Runs::new();
        let config = Config::default().concurrency(4).max_failing_in_flight(most);
        let mut reconciles = Controller::for_shared(&world.informer).with_config(config).run(
            async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
                runs.record(&*map);
                if map.name_any() == "good" {
                    return Ok(Action::await_change());
                }
                sleep(SECOND * 30).await;
                Err(Refused(None))
            },
            |_, _, _| Action::requeue(SECOND),
            runs.clone(),
        );
        // Each object has failed once.
        during(&mut reconciles, SECOND * 200).await;
        world.server.put(map("default/good"));
        during(&mut reconciles, SECOND * 40).await;
        let waited = runs.of("good")[0] - 200_000;
        assert!(delay.contains(&waited), "{most}: {waited} ms");
    }
}

/// Counts the keys that are dequeued, and the reconciles that start.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicU32>);

impl flyball_controller::ControllerMetrics for Counted {
    fn reconcile_started(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl flyball_workqueue::QueueMetrics for Counted {
    fn dequeued(&self, _: Duration, _: bool) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn reports_metrics() {
    let world = World::of([map("default/a"), map("default/b")]);
    let (of_loop, of_queue) = (Counted::default(), Counted::default());
    let config = fifo_config().controller_metrics(of_loop.clone()).queue_metrics(of_queue.clone());
    during(&mut logging(Controller::for_shared(&world.informer).with_config(config), &Runs::new()), SECOND)
        .await;
    assert_eq!((of_loop.0.load(Relaxed), of_queue.0.load(Relaxed)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn the_store_has_the_names_of_kube() {
    let world = World::of([map("default/a"), map("default/b")]);
    let controller = Controller::for_shared(&world.informer);
    let store = controller.store();
    let waiters: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn({
                let store = store.clone();
                async move { store.wait_until_ready().await }
            })
        })
        .collect();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    assert_eq!((store.len(), store.is_empty(), store.state().len()), (2, false, 2));
    let a = ObjectRef::<ConfigMap>::new("a").within("default");
    assert_eq!(store.get(&a).unwrap().metadata.name.as_deref(), Some("a"));
    assert!(store.get(&ObjectRef::new("a").within("other")).is_none());
    assert!(store.find(|map| map.metadata.name.as_deref() == Some("b")).is_some());
    assert_eq!(store.state_filter(|map| map.metadata.name.as_deref() == Some("c")).len(), 0);
    let selector = Expression::Equal("app".into(), "web".into()).into();
    assert_eq!(store.state_filter_selector(&selector).len(), 0);
    let mut labelled = map("default/b");
    labelled.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
    world.server.put(labelled);
    sleep(SECOND).await;
    assert_eq!(store.state_filter_selector(&selector).len(), 1);
}

/// As in kube-runtime, the references in results identify the object, so that an Event can refer to it.
#[tokio::test(start_paused = true)]
async fn results_name_their_object() {
    let world = World::of([map("default/a"), map("default/b")]);
    let mut reconciles = Controller::for_shared(&world.informer).with_config(fifo_config()).run(
        async |map: Arc<ConfigMap>, _: Arc<()>| match &*map.name_any() {
            "a" => Ok(Action::await_change()),
            _ => Err(Refused(None)),
        },
        |_, _, _| Action::await_change(),
        Arc::new(()),
    );
    let (succeeded, _) = reconciles.next().await.unwrap().unwrap();
    let Some(Err(Outcome::ReconcilerFailed(_, failed))) = reconciles.next().await else { panic!("b fails") };
    let meta = |name: &str| world.informer.store().get(name).unwrap().metadata.clone();
    let [a, b] = ["default/a", "default/b"].map(meta);
    assert!(a.uid.is_some() && a.uid != b.uid);
    assert_eq!((succeeded.extra.uid, succeeded.extra.resource_version), (a.uid, a.resource_version));
    assert_eq!((failed.extra.uid, failed.extra.resource_version), (b.uid, b.resource_version));
}

#[derive(Clone, Default)]
struct Most(Arc<AtomicUsize>);

impl flyball_controller::ControllerMetrics for Most {
    fn max_workers(&self, workers: usize) {
        self.0.store(workers, Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn no_bound_on_reconciles_is_reported_as_the_greatest_number() {
    for (config, expected) in [(Config::default().concurrency(3), 3), (Config::default(), usize::MAX)] {
        let (world, most) = (World::of([map("default/a")]), Most::default());
        let controller =
            Controller::for_shared(&world.informer).with_config(config.controller_metrics(most.clone()));
        during(&mut logging(controller, &Runs::new()), SECOND).await;
        assert_eq!(most.0.load(Relaxed), expected);
    }
}
