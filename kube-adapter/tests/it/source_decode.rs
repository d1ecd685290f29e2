//! Objects that cannot be decoded, and the thread on which pages are decoded.

use std::borrow::Cow;
use std::sync::mpsc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use flyball_informer_cache::{
    ChangeKind, ListRequest, ListVersion, Source, SourceErrorKind, Version, WatchEvent, WatchRequest,
    WatchStream,
};
use flyball_kube::ApiSource;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::scripted_server::{Answer, Script};

const LIST: ListRequest = ListRequest { min_version: ListVersion::Any, limit: None, continuation: None };

fn watch(from: u64) -> WatchRequest {
    WatchRequest {
        from_version: Version::new(from),
        streaming_list: false,
        timeout: Duration::from_secs(300),
    }
}

fn object(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "x", "resourceVersion": version.to_string()}, "data": {"a": "b"}})
}

fn bad(name: &str, version: u64) -> Value {
    let mut bad = object(name, version);
    bad["data"] = json!({"a": 1});
    bad
}

fn list(items: &[Value]) -> Value {
    json!({"metadata": {"resourceVersion": "7", "continue": "more"}, "items": items})
}

fn source<K>(answers: impl IntoIterator<Item = Answer>) -> ApiSource<K>
where
    K: Resource<DynamicType = ()> + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    ApiSource::new(Api::all(Script::of(answers).client()), Config::default())
}

#[tokio::test]
async fn objects_of_a_list_that_cannot_be_read_are_left_out_and_counted() {
    let mut nameless = object("", 3);
    let mut slash = object("a/b", 3);
    nameless["metadata"].as_object_mut().unwrap().remove("name");
    slash["metadata"]["namespace"] = "x".into();
    let items =
        [object("a", 1), bad("b", 2), nameless.clone(), slash, json!(null), json!("text"), object("c", 3)];
    let read = list(&[object("a", 1), nameless]);
    let source = source::<ConfigMap>([Answer::json(&list(&items)), Answer::json(&read)]);
    let skipped = source.unreadable_counter();
    let page = source.list(LIST).await.unwrap();
    let names: Vec<_> = page.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!((names, page.version), (vec!["a".to_owned(), "c".to_owned()], Version::new(7)));
    assert_eq!(page.continuation.as_deref(), Some("more"));
    assert_eq!(skipped.get(), 5);
    // An object without a name is skipped even if all objects of the page can be decoded.
    assert_eq!(source.list(LIST).await.unwrap().items.len(), 1);
    assert_eq!(skipped.get(), 6);
}

#[tokio::test]
async fn an_object_keeps_no_room_in_its_metadata() {
    let mut object = object("a", 1);
    object["metadata"]["managedFields"] = json!([{"manager": "test"}]);
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u"}]);
    object["metadata"]["finalizers"] = json!(["test/a"]);
    let (answer, lines) = Answer::watch();
    lines.send("ADDED", &object);
    let source = source::<ConfigMap>([Answer::json(&list(&[object])), answer]);
    let listed = source.list(LIST).await.unwrap().items.pop().unwrap();
    let event = source.watch(watch(0)).await.unwrap().next().await.unwrap().unwrap();
    for object in [&listed, event.object().unwrap()] {
        let meta = &object.metadata;
        assert_eq!(meta.managed_fields.as_ref().unwrap().capacity(), 1);
        assert_eq!(meta.owner_references.as_ref().unwrap().capacity(), 1);
        assert_eq!(meta.finalizers.as_ref().unwrap().capacity(), 1);
    }
}

/// Returns the events that a watch from this version yields for these lines, and how many objects could not be read.
async fn received<K>(from: u64, lines: &[Value]) -> (Vec<Result<WatchEvent<String>, SourceErrorKind>>, u64)
where
    K: Resource<DynamicType = ()> + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let (answer, end) = Answer::watch();
    let source = source::<K>([answer]);
    let mut watch = source.watch(watch(from)).await.unwrap();
    lines.iter().for_each(|line| end.raw(&format!("{line}\n")));
    drop(end);
    let mut events = Vec::new();
    while let Some(event) = watch.next().await {
        let failed = event.is_err();
        events.push(event.map(|event| event.map(|object| object.name_any())).map_err(|error| error.kind()));
        if failed {
            break;
        }
    }
    (events, source.unreadable_counter().get())
}

fn line(event: &str, object: Value) -> Value {
    json!({"type": event, "object": object})
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_skipped_and_its_version_is_not() {
    let nameless = json!({"metadata": {"resourceVersion": "10"}});
    let lines = [
        line("ADDED", bad("a", 8)),
        line("MODIFIED", bad("a", 9)),
        line("MODIFIED", nameless),
        line("ADDED", json!(3)),
        line("RENAMED", object("b", 11)),
        json!("text"),
        line("ADDED", object("c", 12)),
    ];
    let at = |version| Ok(WatchEvent::Bookmark(Version::new(version)));
    let added = || Ok(WatchEvent::Added("c".to_owned()));
    assert_eq!(received::<ConfigMap>(7, &lines).await, (vec![at(8), at(9), at(10), at(11), added()], 6));
    // A watch without a version starts with all objects in unspecified order. If the watch returned a bookmark with the version of an unreadable
    // object, the next watch could miss objects with lower versions.
    assert_eq!(received::<ConfigMap>(0, &lines).await, (vec![added()], 6));
}

/// An object type that cannot be decoded without the field `data`.
#[derive(serde::Deserialize)]
struct Strict {
    metadata: ObjectMeta,
    #[serde(rename = "data")]
    _data: std::collections::BTreeMap<String, String>,
}

impl Resource for Strict {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;
    fn kind((): &()) -> Cow<'_, str> {
        "Strict".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "example.com".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "stricts".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[tokio::test]
async fn the_deletion_of_an_unreadable_object_is_found_by_name_or_by_a_list() {
    let lines = [line("DELETED", bad("a", 8)), line("ADDED", object("c", 12))];
    let added = Ok(WatchEvent::Added("c".to_owned()));
    let gone = Ok(WatchEvent::Deleted("a".to_owned()));
    assert_eq!(received::<ConfigMap>(7, &lines).await, (vec![gone, added], 1));
    assert_eq!(received::<Strict>(7, &lines).await, (vec![Err(SourceErrorKind::Other)], 1));
}

#[tokio::test]
async fn a_deletion_delivers_the_metadata_of_an_unreadable_object() {
    let (answer, end) = Answer::watch();
    let mut gone = with_uid(bad("a", 8), "u");
    gone["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "u"}]);
    gone["metadata"]["labels"] = json!({"app": "web"});
    end.send("DELETED", &gone);
    // If the metadata of a deleted object cannot be decoded, the cache has to relist.
    gone["metadata"]["labels"] = json!(["app"]);
    end.send("DELETED", &gone);
    let mut watch = source::<ConfigMap>([answer]).watch(watch(7)).await.unwrap();
    let Some(Ok(WatchEvent::Deleted(map))) = watch.next().await else {
        panic!("the deletion was not delivered")
    };
    assert_eq!((&*map.owner_references()[0].name, &*map.labels()["app"]), ("owner", "web"));
    assert_eq!(map.uid(), None, "the uid is cleared, so that the cache delivers its stored state");
    assert_eq!(watch.next().await.unwrap().unwrap_err().kind(), SourceErrorKind::Other);
}

/// An object that records the thread on which it is decoded. Its decoding waits until the gate opens.
struct Watched(ConfigMap);

static THREADS: parking_lot::Mutex<Vec<ThreadId>> = parking_lot::Mutex::new(Vec::new());
static GATE: parking_lot::Mutex<Option<mpsc::Receiver<()>>> = parking_lot::Mutex::new(None);

impl<'de> Deserialize<'de> for Watched {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let gate = GATE.lock().take();
        if let Some(gate) = gate {
            gate.recv_timeout(Duration::from_secs(20)).expect("another task must run meanwhile");
        }
        THREADS.lock().push(thread::current().id());
        ConfigMap::deserialize(from).map(Self)
    }
}

impl Resource for Watched {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;
    fn kind((): &()) -> Cow<'_, str> {
        "ConfigMap".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "configmaps".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_large_page_is_decoded_on_a_blocking_thread() {
    let mut large = object("large", 1);
    large["data"]["a"] = "x".repeat(10 << 20).into();
    let answers =
        [&large, &object("small", 1)].map(|object| Answer::json(&list(std::slice::from_ref(object))));
    let source = source::<Watched>(answers);
    let (open, gate) = mpsc::channel();
    *GATE.lock() = Some(gate);
    // This task runs only while the only thread of the runtime is not blocked.
    let other = tokio::spawn(async move {
        while GATE.lock().is_some() {
            tokio::task::yield_now().await;
        }
        open.send(()).unwrap();
    });
    assert_eq!(source.list(LIST).await.unwrap().items.len(), 1);
    other.await.unwrap();
    assert_ne!(THREADS.lock().drain(..).collect::<Vec<_>>(), [thread::current().id()]);
    // A small page is decoded inline.
    assert_eq!(source.list(LIST).await.unwrap().items.len(), 1);
    assert_eq!(THREADS.lock().drain(..).collect::<Vec<_>>(), [thread::current().id()]);
}

/// Returns how many times a second task on the same thread runs while the first task reads a watch that always has more data.
async fn turns(events: usize, size: usize) -> usize {
    let (answer, lines) = Answer::watch();
    let mut watch = source::<ConfigMap>([answer]).watch(watch(7)).await.unwrap();
    let mut object = object("a", 8);
    object["data"]["a"] = "x".repeat(size).into();
    (0..events).for_each(|_| lines.send("MODIFIED", &object));
    drop(lines);
    let reading = tokio::spawn(async move { while watch.next().await.is_some() {} });
    let mut turns = 0;
    while !reading.is_finished() {
        turns += 1;
        tokio::task::yield_now().await;
    }
    turns
}

#[tokio::test(flavor = "current_thread")]
async fn a_watch_that_always_has_more_gives_way_the_sooner_the_larger_its_events() {
    // Two of the runs do not count: one is before the first task starts to read, the other after it has finished.
    assert!((8..20).contains(&(turns(1000, 10).await - 2)));
    assert!((36..60).contains(&(turns(200, 100_000).await - 2)));
}

fn with_uid(mut object: Value, uid: &str) -> Value {
    object["metadata"]["uid"] = uid.into();
    object
}

fn stored(name: &str, uid: &str) -> ConfigMap {
    serde_json::from_value(with_uid(object(name, 1), uid)).unwrap()
}

/// Returns which stored objects the source reports as unreadable. The stored objects include `b` with two uids.
fn unread(source: &ApiSource<ConfigMap>) -> Vec<String> {
    let stored_objects = [("a", "u"), ("b", "u"), ("b", "v"), ("c", "u"), ("d", "u")];
    let there = stored_objects.iter().filter(|(name, uid)| source.is_unreadable(&stored(name, uid)));
    there.map(|(name, uid)| format!("{name} {uid}")).collect()
}

#[tokio::test]
async fn unreadable_objects_of_a_list_stay_until_the_next_list() {
    let first = list(&[object("a", 1), with_uid(bad("b", 2), "u")]);
    let mut last = list(&[with_uid(bad("c", 3), "v"), with_uid(bad("d", 3), "u")]);
    last["metadata"]["continue"] = "".into();
    let other = list(&[object("a", 1), with_uid(bad("b", 4), "v")]);
    let source = source::<ConfigMap>([first, last, other].each_ref().map(Answer::json));
    source.list(LIST).await.unwrap();
    source.list(ListRequest { continuation: Some("more".to_owned()), ..LIST }).await.unwrap();
    assert_eq!(unread(&source), ["b u", "d u"], "objects of both pages; `c` has another uid");
    source.list(LIST).await.unwrap();
    assert_eq!(unread(&source), ["b v"], "the object with the old uid is gone");
}

#[tokio::test]
async fn unreadable_objects_of_a_streaming_list_stay_unless_they_are_deleted() {
    let (answer, lines) = Answer::watch();
    let source = source::<ConfigMap>([Answer::json(&list(&[with_uid(bad("a", 1), "u")])), answer]);
    source.list(LIST).await.unwrap();
    assert_eq!(unread(&source), ["a u"]);
    let request = WatchRequest { streaming_list: true, ..watch(0) };
    let mut watch = source.watch(request).await.unwrap();
    assert!(unread(&source).is_empty(), "a new list starts empty");
    for name in ["b", "c", "d"] {
        lines.send("ADDED", &with_uid(bad(name, 2), "u"));
    }
    // The first deletion event has an unreadable object, the second a readable one.
    lines.send("DELETED", &with_uid(bad("c", 3), "u"));
    lines.send("DELETED", &with_uid(object("d", 4), "u"));
    let ends = json!({"k8s.io/initial-events-end": "true"});
    let meta = json!({"resourceVersion": "5", "annotations": ends});
    lines.send("BOOKMARK", &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}));
    // The events are: three unreadable objects, two deletions, and the end of the list.
    for at in 0..6 {
        let event = watch.next().await.unwrap().unwrap();
        assert_eq!(matches!(event, WatchEvent::Deleted(_)), (3..5).contains(&at), "{at}");
        assert_eq!(matches!(event, WatchEvent::InitialListEnd(_)), at == 5, "{at}");
    }
    assert_eq!(unread(&source), ["b u"]);
    // After the list is complete, `is_unreadable` still reports only objects of the list, not an unreadable object in a later event.
    lines.send("MODIFIED", &with_uid(bad("a", 6), "u"));
    assert!(watch.next().await.unwrap().is_ok());
    assert_eq!(unread(&source), ["b u"]);
}

#[tokio::test(start_paused = true)]
async fn a_listed_unreadable_object_stays_until_it_is_deleted() {
    let all = |items: &[Value]| {
        let mut list = list(items);
        list["metadata"]["continue"] = "".into();
        Answer::json(&list)
    };
    let (first, expired) = Answer::watch();
    let (second, lines) = Answer::watch();
    let known = ["a", "b", "c"].map(|name| with_uid(object(name, 1), "u"));
    let relisted = [with_uid(object("a", 8), "u"), with_uid(bad("b", 8), "u"), with_uid(bad("c", 8), "v")];
    let source = source::<ConfigMap>([all(&known), first, all(&relisted), second]);
    let (informer, skipped) = {
        let skipped = source.unreadable_counter();
        (source.into_informer().start().unwrap(), skipped)
    };
    informer.synced().await.unwrap();
    let gone =
        json!({"kind": "Status", "code": 410, "reason": "Expired", "status": "Failure", "message": "old"});
    expired.send("ERROR", &gone);
    let versions = || {
        let snapshot = informer.snapshot();
        let mut versions: Vec<_> = snapshot
            .objects()
            .map(|map| format!("{}@{}", map.name_any(), map.resource_version().unwrap()))
            .collect();
        versions.sort();
        versions
    };
    let mut changes = informer.subscribe();
    while versions() != ["a@8", "b@8"] {
        let change = tokio::time::timeout(Duration::from_secs(600), changes.next()).await;
        assert!(change.is_ok_and(|change| change.is_some()), "{:?}", versions());
    }
    assert_eq!(skipped.get(), 2);
    lines.send("DELETED", &with_uid(bad("b", 9), "u"));
    let change = loop {
        let change = tokio::time::timeout(Duration::from_secs(600), changes.next()).await;
        let change = change.ok().flatten().expect("the deletion must be delivered");
        if change.key().as_str() == "x/b" && change.kind().is_deletion() {
            break change;
        }
    };
    assert_eq!(change.kind(), ChangeKind::Missed);
    let last = change.object();
    assert_eq!(
        (last.data.as_ref().unwrap().len(), &*last.resource_version().unwrap()),
        (1, "8"),
        "the last readable state"
    );
    assert_eq!(versions(), ["a@8"]);
}

/// Returns an object as JSON text. Its metadata and its spec are nested deeper than the decoder accepts.
fn deep(name: &str) -> String {
    let deep = format!("{}1{}", r#"{"f:a":"#.repeat(200), "}".repeat(200));
    let meta = r#""namespace":"x","uid":"u","resourceVersion":"6","managedFields":"#;
    format!(
        r#"{{"apiVersion":"v1","kind":"K","metadata":{{"name":"{name}",{meta}[{{"fieldsV1":{deep}}}]}},"spec":{deep}}}"#
    )
}

async fn reads_what_is_beside_a_deep_one<K>(source: impl FnOnce(Client, Config) -> ApiSource<K>)
where
    K: Resource + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let items = format!("{},{}", deep("deep"), object("a", 1));
    let text = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#);
    let script = Script::of([Answer::Text(200, Default::default(), text)]);
    let source = source(script.client(), Config::default());
    let page = source.list(LIST).await.unwrap();
    assert_eq!(page.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a"]);
    assert!(source.has_unreadable(&"x/deep".parse().unwrap(), Some("u")));
}

#[tokio::test]
async fn an_object_that_is_too_deep_to_be_read_stops_no_list() {
    reads_what_is_beside_a_deep_one(|client, config| ApiSource::new(Api::<ConfigMap>::all(client), config))
        .await;
    reads_what_is_beside_a_deep_one(|client, config| {
        ApiSource::metadata_only(Api::<ConfigMap>::all(client), config)
    })
    .await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "K"));
    reads_what_is_beside_a_deep_one(|client, config| {
        ApiSource::new(Api::<DynamicObject>::all_with(client, &kind), config)
    })
    .await;
}

#[tokio::test]
async fn the_deletion_of_an_object_nested_too_deeply_is_found_by_a_list() {
    let (answer, lines) = Answer::watch();
    let mut watch = source::<ConfigMap>([answer]).watch(watch(1)).await.unwrap();
    for event in ["MODIFIED", "DELETED"] {
        lines.raw(&format!("{{\"type\":\"{event}\",\"object\":{}}}\n", deep("a")));
    }
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::Bookmark(Version::new(6)));
    assert_eq!(watch.next().await.unwrap().unwrap_err().kind(), SourceErrorKind::Other);
}

#[tokio::test]
async fn an_object_without_a_uid_keeps_its_identity() {
    let source = source::<ConfigMap>([Answer::json(&list(&[with_uid(bad("a", 1), "u")]))]);
    source.list(LIST).await.unwrap();
    let mut stored = stored("a", "u");
    stored.metadata.uid = None;
    assert!(source.is_unreadable(&stored), "a transformation may remove the uid");
    stored.metadata.uid = Some("v".to_owned());
    assert!(!source.is_unreadable(&stored));
}

#[tokio::test]
async fn a_namespace_without_a_name_is_none() {
    let mut bad = with_uid(bad("a", 1), "u");
    bad["metadata"]["namespace"] = "".into();
    let source = source::<ConfigMap>([Answer::json(&list(&[bad]))]);
    source.list(LIST).await.unwrap();
    assert!(source.has_unreadable(&"a".parse().unwrap(), Some("u")));
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_keep_what_the_last_of_them_could_not_read() {
    let [(first, one), (second, two), (third, three)] = [(); 3].map(|()| Answer::watch());
    let ends = |version: &str| {
        let meta = json!({"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    };
    let api = Api::<ConfigMap>::all(Script::of([first, second, third]).client());
    let informer = ApiSource::new(api, Config::default().streaming_lists()).into_informer().start().unwrap();
    ["a", "b", "c"].iter().for_each(|name| one.send("ADDED", &with_uid(object(name, 1), "u")));
    one.send("BOOKMARK", &ends("5"));
    informer.synced().await.unwrap();
    one.send(
        "ERROR",
        &json!({"kind": "Status", "code": 410, "reason": "Expired", "status": "Failure", "message": "old"}),
    );
    // This list fails before it is complete, so its unreadable objects are no longer recorded. After this error, a streaming list is requested again.
    two.send("ADDED", &with_uid(bad("a", 6), "u"));
    two.send(
        "ERROR",
        &json!({"kind": "Status", "code": 429, "reason": "TooManyRequests", "status": "Failure", "message": "busy"}),
    );
    three.send("ADDED", &with_uid(bad("b", 7), "u"));
    three.send("ADDED", &with_uid(bad("c", 7), "u"));
    three.send("DELETED", &with_uid(bad("c", 8), "u"));
    three.send("ADDED", &with_uid(object("d", 7), "u"));
    three.send("BOOKMARK", &ends("9"));
    let mut changes = informer.subscribe();
    while informer.store().get("x/d").is_none() {
        let change = tokio::time::timeout(Duration::from_secs(600), changes.next()).await;
        assert!(change.is_ok_and(|change| change.is_some()));
    }
    let mut names: Vec<_> = informer.snapshot().objects().map(|map| map.name_any()).collect();
    names.sort();
    assert_eq!(names, ["b", "d"]);
}
