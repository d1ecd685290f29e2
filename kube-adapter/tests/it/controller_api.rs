//! Controllers of an `Api`, with kube-runtime's helpers, against an in-memory API server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube::{Config, Controller};
use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event as Noted;
use kube::api::Patch;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, Status};
use kube::runtime::controller::{Action, Error as Outcome};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalized, finalizer};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::sleep;

use crate::scripted_server::{Answer, Script};
use crate::world::{Refused, Runs, World, during, fifo_config, logging, map, outcomes, pod};

const SECOND: Duration = Duration::from_secs(1);

fn server() -> ApiServer {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Pod>().register::<Noted>();
    server
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

/// The error type of the reconcilers in these tests.
#[derive(Debug)]
struct Failed(Box<dyn std::error::Error + Send + Sync>);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failed {}

#[tokio::test(start_paused = true)]
async fn finalizers_and_events_of_kube_work_unchanged() {
    struct Context {
        client: Client,
        done: Mutex<Vec<&'static str>>,
    }
    async fn reconcile(map: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Failed> {
        let client = &context.client;
        let recorder = Recorder::new(client.clone(), Reporter::from("test"));
        let reference = map.object_ref(&());
        finalizer(&maps(client), "test/clean-up", map, async |event| {
            let (reason, word) = match event {
                Finalized::Apply(_) => ("Applied", "applied"),
                Finalized::Cleanup(_) => ("Cleaned", "cleaned up"),
            };
            context.done.lock().push(word);
            let event = Event {
                type_: EventType::Normal,
                reason: reason.into(),
                note: None,
                action: "Test".into(),
                secondary: None,
            };
            recorder.publish(&event, &reference).await?;
            Ok::<_, kube::Error>(Action::await_change())
        })
        .await
        .map_err(|error| Failed(Box::new(error)))
    }

    let server = server();
    let client = server.client();
    let context = Arc::new(Context { client: client.clone(), done: Mutex::default() });
    let mut reconciles = Controller::new(maps(&client), watcher::Config::default()).run(
        reconcile,
        |_, error, _| panic!("{error}"),
        context.clone(),
    );
    maps(&client).create(&Default::default(), &map("default/a")).await.unwrap();
    let items = during(&mut reconciles, SECOND * 5).await;
    assert!(items.len() >= 2 && items.iter().all(Result::is_ok), "{items:?}");
    assert_eq!(server.list::<ConfigMap>()[0].finalizers(), ["test/clean-up"]);

    maps(&client).delete("a", &Default::default()).await.unwrap();
    during(&mut reconciles, SECOND * 5).await;
    assert_eq!(server.list::<ConfigMap>(), []);
    let done = context.done.lock().clone();
    assert_eq!((done.first(), done.last()), (Some(&"applied"), Some(&"cleaned up")));
    let mut reasons: Vec<_> = server.list::<Noted>().into_iter().filter_map(|noted| noted.reason).collect();
    reasons.sort();
    reasons.dedup();
    assert_eq!(reasons, ["Applied", "Cleaned"]);
}

#[tokio::test(start_paused = true)]
async fn owned_objects_are_watched_by_metadata_alone() {
    let server = server();
    let client = server.client();
    for name in ["default/a", "default/b"] {
        server.put(&map(name));
    }
    let mut reconciles = Controller::new(maps(&client), watcher::Config::default())
        .with_config(fifo_config())
        .owns(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .run(
            async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
                runs.record(&*map);
                Ok::<_, Refused>(Action::await_change())
            },
            |_, _, _| unreachable!(),
            Runs::new(),
        );
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a", "b"]);
    server.put(&pod("default/p", &["b"]));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["b"]);
    server.delete::<Pod>("default", "p");
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["b"]);
    let of_pods = server.requests_matching(&RequestMatcher::any().resource::<Pod>());
    assert!(!of_pods.is_empty() && of_pods.iter().all(|request| request.metadata_only), "{of_pods:?}");
}

#[tokio::test(start_paused = true)]
async fn objects_that_concern_others_are_watched_as_long_as_it_runs() {
    let server = server();
    let client = server.client();
    for name in ["default/a", "default/b"] {
        server.put(&map(name));
    }
    // Returns the map with the name of the pod.
    let of = |pod: Pod| Some(ObjectRef::<ConfigMap>::new(&pod.name_any()).within("default"));
    let mut reconciles = Controller::new(maps(&client), watcher::Config::default())
        .with_config(fifo_config())
        .watches(Api::<Pod>::all(client.clone()), watcher::Config::default(), of)
        .run(
            async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, Refused>(Action::await_change()),
            |_, _, _| unreachable!(),
            Arc::new(()),
        );
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a", "b"]);
    server.put(&pod("default/b", &[]));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["b"]);
    server.delete::<Pod>("default", "b");
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["b"]);
    drop(reconciles);
    let requests = server.requests_matching(&RequestMatcher::any()).len();
    server.close_watches();
    sleep(SECOND * 60).await;
    assert_eq!(
        server.requests_matching(&RequestMatcher::any()).len(),
        requests,
        "the informers must end with the controller"
    );
}

#[tokio::test(start_paused = true)]
async fn kinds_known_at_run_time_and_streaming_lists() {
    let server = server();
    server.put(&map("default/a"));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let api = Api::<DynamicObject>::all_with(server.client(), &kind);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut reconciles =
        Controller::new_with(api, watcher::Config::default().streaming_lists(), kind.clone()).run(
            async |object: Arc<DynamicObject>, seen: Arc<Mutex<Vec<String>>>| {
                seen.lock().push(object.name_any());
                Ok::<_, Refused>(Action::await_change())
            },
            |_, _, _| unreachable!(),
            seen.clone(),
        );
    let (object, _) = reconciles.next().await.unwrap().unwrap();
    assert_eq!(object.to_string(), "ConfigMap.v1./a.default");
    assert_eq!(*seen.lock(), ["a"]);
    assert_eq!(server.requests_matching(&RequestMatcher::verb(Verb::List)).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn reports_watch_failures_and_delays_no_other_watch() {
    let server = server();
    server.put(&map("default/a"));
    server.fail_next(
        RequestMatcher::verb(Verb::Watch).resource::<Pod>(),
        3,
        Status::failure("no", "Forbidden").with_code(403),
    );
    let client = server.client();
    let mut reconciles = Controller::new(maps(&client), watcher::Config::default())
        .owns(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .run(
            async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, Refused>(Action::await_change()),
            |_, _, _| unreachable!(),
            Arc::new(()),
        );
    let mut items = Vec::new();
    for _ in 0..30 {
        server.put(&map("default/a"));
        items.extend(during(&mut reconciles, SECOND).await);
    }
    let is_forbidden = |item: &Result<_, Outcome<Refused, watcher::Error>>| matches!(item, Err(Outcome::QueueError(watcher::Error::WatchStartFailed(kube::Error::Api(status)))) if status.code == 403);
    assert_eq!(items.iter().filter(|item| is_forbidden(item)).count(), 3);
    // The objects are reconciled every two seconds, although the lists of the other kind fail.
    assert_eq!(items.iter().filter(|item| item.is_ok()).count(), 30);
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_over_when_the_cache_has_caught_up() {
    let server = server();
    let client = server.client();
    for n in 0..10 {
        server.put(&map(&format!("default/{n}")));
    }
    // The reconciles of an object increment a counter in its data up to three, and each write requires the version that was read. Before the first
    // write, the label is changed as if by a different writer, so this write conflicts.
    async fn count(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let api = maps(&client);
        let read = map.data.as_ref().and_then(|data| data.get("n")).map_or(0, |n| n.parse().unwrap());
        if map.labels().is_empty() {
            let label = json!({"metadata": {"labels": {"rival": "yes"}}});
            api.patch(&map.name_any(), &Default::default(), &Patch::Merge(label)).await?;
        }
        if read < 3 {
            let mut next = ConfigMap::clone(&map);
            next.data = Some([("n".to_owned(), (read + 1).to_string())].into());
            api.replace(&map.name_any(), &Default::default(), &next).await?;
        }
        Ok(Action::await_change())
    }
    let mut reconciles = Controller::new(maps(&client), watcher::Config::default())
        .with_config(Config::default().concurrency(4))
        .run(count, |_, _, _| Action::requeue(SECOND * 100), Arc::new(client));
    let items = during(&mut reconciles, SECOND * 5).await;
    assert_eq!(outcomes(&items).iter().filter(|name| name.starts_with('!')).count(), 10);
    let counted = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["n"] == "3");
    assert_eq!(server.list::<ConfigMap>().iter().filter(|map| counted(map)).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_stream_is_send_and_works_with_futures_adapters() {
    let server = server();
    server.put(&map("default/a"));
    // The stream is moved to a different task, and consumed with the adapters of `futures`.
    let reconciles = Controller::new(Api::<ConfigMap>::all(server.client()), watcher::Config::default()).run(
        async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, Refused>(Action::await_change()),
        |_, _, _| Action::await_change(),
        Arc::new(()),
    );
    let first = tokio::spawn(reconciles.map_ok(|(object, _)| object.name).take(1).try_collect::<Vec<_>>());
    assert_eq!(first.await.unwrap().unwrap(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn unreadable_objects_are_counted_and_block_no_other() {
    let meta = |name| json!({"name": name, "namespace": "x", "resourceVersion": "1"});
    let list = json!({"metadata": {"resourceVersion": "7"}, "items": [
        {"metadata": meta("a")},
        {"metadata": meta("b"), "data": 3},
    ]});
    // Both caches get the same list. The answers are in this order, because the first cache has synced before the second cache requests its list.
    let (watch, _open) = Answer::watch();
    let client = Script::of([Answer::json(&list), watch, Answer::json(&list)]).client();
    let api = || Api::<ConfigMap>::all(client.clone());
    let nobody = |_| None::<ObjectRef<ConfigMap>>;
    let controller =
        Controller::new(api(), watcher::Config::default()).watches(api(), watcher::Config::default(), nobody);
    let (monitor, runs) = (controller.monitor(), Runs::new());
    assert_eq!(monitor.unreadable_count(), 0);
    let mut reconciles = logging(controller, &runs);
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
    assert_eq!(monitor.unreadable_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn deletion_of_an_unreadable_object_adds_related_keys() {
    let meta = |version: &str| json!({"name": "o", "namespace": "x", "uid": "u", "resourceVersion": version});
    let list =
        json!({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": meta("1"), "data": {"a": ""}}]});
    let (answer, lines) = Answer::watch();
    let script = Script::of([Answer::json(&list), answer]);
    let others = flyball_kube::informer(Api::<ConfigMap>::all(script.client()), watcher::Config::default());
    let (others, world, runs) = (others.start().unwrap(), World::of([map("x/a")]), Runs::new());
    // The mapper reads names from the data, so it needs more than the metadata.
    let concerned = |other: &Arc<ConfigMap>| {
        let names = other.data.iter().flatten().map(|(name, _)| ObjectRef::new(name).within("x"));
        names.collect::<Vec<_>>()
    };
    let controller =
        Controller::for_shared(&world.informer).with_config(fifo_config()).watches_shared(&others, concerned);
    let mut reconciles = logging(controller, &runs);
    during(&mut reconciles, SECOND * 5).await;
    let before = runs.all().len();
    lines.send("DELETED", &json!({"metadata": meta("8"), "data": 3}));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND * 60).await), ["a"]);
    assert!(others.snapshot().is_empty());
    assert_eq!(runs.all().len(), before + 1);
}
