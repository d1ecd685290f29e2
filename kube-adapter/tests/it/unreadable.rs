//! Objects that become unreadable: the cache keeps their metadata current, and `unreadable_reason` returns the reason.

use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{Informer, NamespacedName};
use flyball_kube::{ApiSource, Controller, predicate, unreadable_reason};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::{Action, Error as Outcome};
use kube::runtime::watcher::Config;
use kube::{Api, Resource, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::scripted_server::{Answer, Lines, Script};

const SECOND: Duration = Duration::from_secs(1);

fn object(version: u64, data: Value) -> Value {
    let meta = json!({"name": "a", "namespace": "x", "uid": "u", "resourceVersion": version.to_string(),
        "labels": {"at": version.to_string()}, "generation": version});
    json!({"metadata": meta, "data": data})
}

fn good(version: u64) -> Value {
    object(version, json!({"size": version.to_string()}))
}

fn bad(version: u64) -> Value {
    object(version, json!(3))
}

fn ending(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    object
}

fn list(version: u64, items: &[Value]) -> Answer {
    Answer::json(&json!({"metadata": {"resourceVersion": version.to_string()}, "items": items}))
}

fn expired(lines: &Lines) {
    let status =
        json!({"kind": "Status", "code": 410, "reason": "Expired", "status": "Failure", "message": "old"});
    lines.send("ERROR", &status);
}

fn informer(
    answers: impl IntoIterator<Item = Answer>,
    config: Config,
) -> Informer<NamespacedName, ConfigMap> {
    flyball_kube::informer(Api::all(Script::of(answers).client()), config).start().unwrap()
}

/// The version of the metadata, the version of the data, and whether the object is marked as unreadable.
type State = Option<(u64, u64, bool)>;

fn state(maps: &Informer<NamespacedName, ConfigMap>) -> State {
    let map = maps.store().get("x/a")?;
    let at: u64 = map.labels()["at"].parse().unwrap();
    let size = map.data.as_ref().map_or(0, |data| data["size"].parse().unwrap());
    Some((at, size, unreadable_reason(&*map).is_some()))
}

async fn settles(maps: &Informer<NamespacedName, ConfigMap>, wanted: State) {
    let settled = async {
        while state(maps) != wanted {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let settled = timeout(SECOND * 600, settled).await;
    settled.unwrap_or_else(|_| panic!("{:?} and not {wanted:?}", state(maps)));
}

#[tokio::test(start_paused = true)]
async fn a_watch_keeps_the_metadata_of_an_unreadable_object_current() {
    let (watch, lines) = Answer::watch();
    let maps = informer([list(1, &[good(1)]), watch], Config::default());
    settles(&maps, Some((1, 1, false))).await;
    // Both events are read together, but each must be compared with the state that the previous event left.
    lines.send("MODIFIED", &good(2));
    lines.send("MODIFIED", &bad(3));
    settles(&maps, Some((3, 2, true))).await;
    let held = maps.store().get("x/a").unwrap();
    assert!(unreadable_reason(&*held).unwrap().starts_with("invalid type: integer `3`"));
    assert_eq!((held.resource_version().as_deref(), held.meta().generation), (Some("3"), Some(3)));
    lines.send("MODIFIED", &ending(bad(4)));
    settles(&maps, Some((4, 2, true))).await;
    assert!(maps.store().get("x/a").unwrap().metadata.deletion_timestamp.is_some());
    // A second event with the same state is not a change.
    lines.send("MODIFIED", &ending(bad(4)));
    lines.send("MODIFIED", &good(5));
    settles(&maps, Some((5, 5, false))).await;
    assert!(unreadable_reason(&*held).is_some(), "the old state keeps its mark");
    lines.send("MODIFIED", &bad(7));
    lines.send("DELETED", &bad(8));
    settles(&maps, None).await;
    lines.send("ADDED", &bad(9));
    lines.send("ADDED", &good(10));
    settles(&maps, Some((10, 10, false))).await;
}

fn ends(version: u64) -> Value {
    let marks = json!({"k8s.io/initial-events-end": "true"});
    let meta = json!({"resourceVersion": version.to_string(), "annotations": marks});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
}

#[tokio::test(start_paused = true)]
async fn a_list_does_and_so_does_a_streaming_one() {
    let [(first, one), (second, two), (third, three)] = [(); 3].map(|()| Answer::watch());
    let answers = [list(1, &[good(1)]), first, list(3, &[bad(3)]), second, list(5, &[good(5)]), third];
    let maps = informer(answers, Config::default());
    settles(&maps, Some((1, 1, false))).await;
    expired(&one);
    settles(&maps, Some((3, 1, true))).await;
    expired(&two);
    settles(&maps, Some((5, 5, false))).await;
    drop(three);

    let [(first, one), (second, two), (third, three)] = [(); 3].map(|()| Answer::watch());
    let maps = informer([first, second, third], Config::default().streaming_lists());
    one.send("ADDED", &good(1));
    // The object is readable at first, and becomes unreadable before the list is complete.
    one.send("MODIFIED", &bad(2));
    one.send("BOOKMARK", &ends(2));
    settles(&maps, Some((2, 1, true))).await;
    expired(&one);
    two.send("ADDED", &bad(4));
    two.send("BOOKMARK", &ends(4));
    settles(&maps, Some((4, 1, true))).await;
    expired(&two);
    // The object is unreadable at first, and becomes readable before the list is complete.
    three.send("ADDED", &bad(5));
    three.send("MODIFIED", &good(6));
    three.send("BOOKMARK", &ends(6));
    settles(&maps, Some((6, 6, false))).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(state(&maps), Some((6, 6, false)));
}

/// An overloaded server answers 429. The last event was that of an unreadable object, which the watch does not return again.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_interrupted_after_an_unreadable_object_causes_no_list() {
    let [(first, one), (second, two)] = [(); 2].map(|()| Answer::watch());
    let script = Script::of([list(1, &[good(1)]), first, second]);
    let maps = flyball_kube::informer(Api::all(script.client()), Config::default()).start().unwrap();
    settles(&maps, Some((1, 1, false))).await;
    one.send("MODIFIED", &bad(3));
    settles(&maps, Some((3, 1, true))).await;
    let busy = json!({"kind": "Status", "code": 429, "reason": "TooManyRequests", "status": "Failure", "message": "busy"});
    one.send("ERROR", &busy);
    two.send("MODIFIED", &bad(3));
    // Shorter than the shortest watch: half of 290 s. A watch that ends by itself would be a third request.
    tokio::time::sleep(140 * SECOND).await;
    two.send("MODIFIED", &bad(5));
    settles(&maps, Some((5, 1, true))).await;
    let requests = script.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
}

/// This happens, for example, if the definition of a custom resource gets a new default: the server then returns a different object at the same
/// version.
#[tokio::test(start_paused = true)]
async fn an_object_that_becomes_readable_at_the_same_version_is_stored() {
    let [(first, one), (second, two)] = [(); 2].map(|()| Answer::watch());
    let maps = informer([list(1, &[good(1)]), first, list(3, &[good(2)]), second], Config::default());
    one.send("MODIFIED", &bad(2));
    settles(&maps, Some((2, 1, true))).await;
    expired(&one);
    settles(&maps, Some((2, 2, false))).await;
    drop(two);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_goes_on_and_a_list_without_the_object() {
    let [(first, one), (second, two), (third, three)] = [(); 3].map(|()| Answer::watch());
    let maps = informer([list(1, &[good(1)]), first, second, list(9, &[]), third], Config::default());
    one.send("MODIFIED", &bad(2));
    settles(&maps, Some((2, 1, true))).await;
    drop(one);
    two.send("MODIFIED", &bad(3));
    settles(&maps, Some((3, 1, true))).await;
    expired(&two);
    settles(&maps, None).await;
    drop(three);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_uid_does_not_change_metadata() {
    let (watch, lines) = Answer::watch();
    let maps = informer([list(1, &[good(1)]), watch], Config::default());
    let mut other = bad(2);
    other["metadata"]["uid"] = "v".into();
    lines.send("MODIFIED", &other);
    tokio::time::sleep(SECOND).await;
    settles(&maps, Some((1, 1, false))).await;
}

#[tokio::test(start_paused = true)]
async fn unreadable_metadata_marks_the_object() {
    let (watch, lines) = Answer::watch();
    let maps = informer([list(1, &[good(1)]), watch], Config::default());
    let mut odd = bad(2);
    odd["metadata"]["labels"] = json!(7);
    lines.send("MODIFIED", &odd);
    settles(&maps, Some((1, 1, true))).await;
    assert_eq!(maps.store().get("x/a").unwrap().resource_version().as_deref(), Some("2"));
    lines.send("MODIFIED", &good(3));
    settles(&maps, Some((3, 3, false))).await;
}

#[tokio::test(start_paused = true)]
async fn on_build_keeps_the_function_of_the_source() {
    let (watch, lines) = Answer::watch();
    let api = Api::<ConfigMap>::all(Script::of([list(1, &[good(1)]), watch]).client());
    let maps = flyball_kube::informer(api, Config::default()).on_build(|_| {}).start().unwrap();
    lines.send("MODIFIED", &bad(2));
    settles(&maps, Some((2, 1, true))).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_under_another_one_leaves_an_unreadable_object_as_it_was() {
    let (watch, lines) = Answer::watch();
    let source =
        ApiSource::new(Api::all(Script::of([list(1, &[good(1)]), watch]).client()), Config::default());
    let maps = Informer::builder(flyball_kube::schema(), source).start().unwrap();
    lines.send("MODIFIED", &bad(2));
    tokio::time::sleep(SECOND).await;
    settles(&maps, Some((1, 1, false))).await;
    assert_eq!(maps.store().version().get(), 2);
}

/// The log of a controller: for each reconcile, the versions of the object's metadata and data; and the errors in the stream of results.
type Seen = Arc<Mutex<Vec<String>>>;

fn noting(controller: Controller<ConfigMap>) -> (Seen, tokio::task::JoinHandle<()>) {
    let seen = Seen::default();
    let noted = seen.clone();
    let reconcile = move |map: Arc<ConfigMap>, _: Arc<()>| {
        let size = map.data.as_ref().map_or("none", |data| &data["size"]).to_owned();
        let marked = if unreadable_reason(&*map).is_some() { ", unreadable" } else { "" };
        noted.lock().push(format!("{}/{size}{marked}", map.labels()["at"]));
        async { Ok::<_, std::convert::Infallible>(Action::await_change()) }
    };
    let own_seen = seen.clone();
    let results = controller.run(reconcile, |_, error, _| match *error {}, Arc::new(()));
    let running = tokio::spawn(results.for_each(move |result| {
        if let Err(error) = result {
            let Outcome::QueueError(error) = error else { panic!("{error}") };
            own_seen.lock().push(format!("{:?}", kube_message(&error)));
        }
        async {}
    }));
    (seen, running)
}

fn kube_message(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}

async fn seen(seen: &Seen) -> Vec<String> {
    tokio::time::sleep(SECOND * 5).await;
    std::mem::take(&mut seen.lock())
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_is_reported_and_reconciled_only_to_be_deleted() {
    let (watch, lines) = Answer::watch();
    let client = Script::of([list(1, &[good(1)]), watch]).client();
    let controller = Controller::new(Api::<ConfigMap>::all(client), Config::default());
    let (noted, running) = noting(controller);
    assert_eq!(seen(&noted).await, ["1/1"]);
    lines.send("MODIFIED", &bad(2));
    let reported = seen(&noted).await;
    assert_eq!(reported.len(), 1);
    let expected = "\"ConfigMap.v1./a.x cannot be read: invalid type: integer `3`";
    assert!(reported[0].starts_with(expected), "{reported:?}");
    lines.send("MODIFIED", &good(3));
    assert_eq!(seen(&noted).await, ["3/3"]);
    lines.send("MODIFIED", &bad(4));
    assert_eq!(seen(&noted).await.len(), 1);
    lines.send("MODIFIED", &ending(bad(5)));
    assert_eq!(seen(&noted).await, ["5/3, unreadable"]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn unreadable_objects_pass_every_filter_and_missed_changes_are_delivered() {
    let (watch, lines) = Answer::watch();
    let client = Script::of([list(1, &[good(1)]), watch]).client();
    let controller =
        Controller::new(Api::<ConfigMap>::all(client), Config::default()).filter_changes(predicate::spec());
    let (noted, running) = noting(controller);
    let same = |mut object: Value| {
        object["metadata"]["generation"] = json!(1);
        object
    };
    assert_eq!(seen(&noted).await, ["1/1"]);
    lines.send("MODIFIED", &same(good(2)));
    assert_eq!(seen(&noted).await.len(), 0);
    lines.send("MODIFIED", &same(bad(3)));
    assert_eq!(seen(&noted).await.len(), 1);
    lines.send("MODIFIED", &same(good(4)));
    assert_eq!(seen(&noted).await, ["4/4"]);
    lines.send("MODIFIED", &ending(bad(5)));
    assert_eq!(seen(&noted).await, ["5/4, unreadable"]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn so_does_a_controller_over_a_shared_informer() {
    let (watch, lines) = Answer::watch();
    let maps = informer([list(1, &[good(1)]), watch], Config::default());
    let (noted, running) = noting(Controller::for_shared(&maps));
    assert_eq!(seen(&noted).await, ["1/1"]);
    lines.send("MODIFIED", &bad(2));
    let reported = seen(&noted).await;
    assert!(reported.len() == 1 && reported[0].contains("cannot be read"), "{reported:?}");
    running.abort();
}
