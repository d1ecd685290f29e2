//! Compares flyball's `applier` with kube-runtime's: the same program runs on both.

use std::sync::Arc;
use std::time::Duration;

use flyball_kube::{ReconcileReason, ReconcileRequest, applier, trigger_owners, trigger_self, trigger_with};
use futures_util::stream::{self, BoxStream, select};
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::controller::{self, Action, Error as Outcome, RunnerError};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Event;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use crate::log_capture::Lines;
use crate::world::{Refused, Runs, SECOND, during, map, outcomes, pod};

type Request = Result<ReconcileRequest<ConfigMap>, std::io::Error>;
type Item = Result<(ObjectRef<ConfigMap>, Action), Outcome<Refused, std::io::Error>>;

fn stored(names: &[&str]) -> (Store<ConfigMap>, Writer<ConfigMap>) {
    let (store, mut writer) = reflector::store();
    let maps = names.iter().map(|name| Event::InitApply(map(&format!("default/{name}"))));
    let events = [Event::Init].into_iter().chain(maps).chain([Event::InitDone]);
    events.for_each(|event| writer.apply_watcher_event(&event));
    (store, writer)
}

fn request(name: &str) -> Request {
    Ok(ObjectRef::new(name).within("default").into())
}

fn queue() -> (UnboundedSender<Request>, BoxStream<'static, Request>) {
    let (sender, receiver) = unbounded_channel();
    (sender, stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))).boxed())
}

/// Reconciles an object. The first reconcile of "bad" fails, and the first three reconciles of "often" request a requeue. Each reconcile takes 10 ms.
async fn reconcile(map: Arc<ConfigMap>, runs: Arc<Runs>) -> Result<Action, Refused> {
    let calls = runs.record(&*map);
    sleep(Duration::from_millis(10)).await;
    match &*map.name_any() {
        "bad" if calls == 1 => Err(Refused(None)),
        "often" if calls < 4 => Ok(Action::requeue(5 * SECOND)),
        _ => Ok(Action::await_change()),
    }
}

fn policy(_: Arc<ConfigMap>, _: &Refused, _: Arc<Runs>) -> Action {
    Action::requeue(2 * SECOND)
}

/// Calls flyball's or kube-runtime's `applier` with the same arguments. kube-runtime requires that the reconcile's future is `Unpin`, so it is boxed.
fn both(
    flyball: bool,
    runs: &Arc<Runs>,
    store: Store<ConfigMap>,
    queue: impl Stream<Item = Request> + Send + 'static,
    config: controller::Config,
) -> BoxStream<'static, Item> {
    let reconcile = |map, runs| Box::pin(reconcile(map, runs));
    match flyball {
        true => applier(reconcile, policy, runs.clone(), store, queue, config).boxed(),
        false => controller::applier(reconcile, policy, runs.clone(), store, queue, config).boxed(),
    }
}

#[tokio::test(start_paused = true)]
async fn one_program_does_the_same_on_both() {
    let mut outcomes = Vec::new();
    for flyball in [false, true] {
        let (store, _writer) = stored(&["good", "bad", "often"]);
        let (requests, queue) = queue();
        let runs = Runs::new();
        let mut reconciles = both(flyball, &runs, store, queue, controller::Config::default());
        for name in ["good", "bad", "often", "unknown"] {
            requests.send(request(name)).unwrap();
            during(&mut reconciles, SECOND / 10).await;
        }
        requests.send(Err(std::io::Error::other("the queue's"))).unwrap();
        let items = during(&mut reconciles, SECOND / 10).await;
        assert!(
            matches!(&items[..], [Err(Outcome::QueueError(error))] if error.to_string() == "the queue's")
        );
        during(&mut reconciles, 60 * SECOND).await;
        let times = |name: &str| runs.of(name).iter().map(|at| at / 50).collect::<Vec<_>>();
        outcomes.push(["good", "bad", "often"].map(times));
        drop(requests);
        assert!(timeout(SECOND, reconciles.next()).await.expect("the stream ends with its queue").is_none());
    }
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!(outcomes[1].each_ref().map(Vec::len), [1, 2, 4]);
}

#[tokio::test(start_paused = true)]
async fn missing_objects_and_dropped_writers_have_the_same_results() {
    for flyball in [false, true] {
        let (store, _writer) = stored(&[]);
        let requests = stream::iter([request("unknown")]).chain(stream::pending());
        let mut reconciles = both(flyball, &Runs::new(), store, requests, controller::Config::default());
        assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["?unknown"]);
        let (store, writer) = reflector::store();
        let mut reconciles =
            both(flyball, &Runs::new(), store, stream::pending(), controller::Config::default());
        assert!(during(&mut reconciles, SECOND).await.is_empty());
        drop(writer);
        let item = timeout(10 * SECOND, reconciles.next()).await.unwrap();
        assert!(matches!(item, Some(Err(Outcome::RunnerError(RunnerError::Readiness(_))))), "{item:?}");
        // After this error, kube-runtime's stream continues until its queue ends, but reconciles nothing; flyball's stream ends.
        let after = timeout(10 * SECOND, reconciles.next()).await;
        assert_eq!(after.is_ok_and(|item| item.is_none()), flyball);
    }
}

/// This test runs only with flyball, because kube-runtime drops the objects that are not reconciled yet when the queue of requests ends.
#[tokio::test(start_paused = true)]
async fn requested_objects_are_reconciled_after_the_queue_has_ended() {
    let (store, _writer) = stored(&["good", "bad", "often"]);
    let requests = stream::iter(["good", "often"].map(request));
    let config = controller::Config::default().concurrency(1).debounce(SECOND);
    let runs = Runs::new();
    let reconciles = both(true, &runs, store.clone(), requests, config);
    let items: Vec<_> = timeout(10 * SECOND, reconciles.collect()).await.expect("the stream must end");
    assert_eq!(outcomes(&items), ["good", "often"]);
    assert_eq!(runs.of("good"), [1_000], "the debounce of kube's configuration must apply");
    // Two more cases: the stream of requests is empty, or yields an error and then ends.
    let empty = both(true, &runs, store.clone(), stream::empty(), controller::Config::default());
    assert_eq!(timeout(SECOND, empty.collect::<Vec<_>>()).await.expect("the stream must end").len(), 0);
    let failing = stream::iter([Err(std::io::Error::other("no"))]);
    let failing = both(true, &runs, store, failing, controller::Config::default());
    assert_eq!(
        outcomes(&timeout(SECOND, failing.collect::<Vec<_>>()).await.expect("the stream must end")),
        ["!!"]
    );
}

/// Each reconcile is requeued after 10 ms, and each item of the queue is an error. The consumer takes an item per millisecond.
#[tokio::test(start_paused = true)]
async fn a_queue_that_always_fails_delays_no_result() {
    for flyball in [false, true] {
        let (store, _writer) = stored(&["a", "b", "c"]);
        let requests = stream::iter(["a", "b", "c"].map(request))
            .chain(stream::repeat_with(|| Err(std::io::Error::other("the queue's"))));
        let runs = Runs::new();
        let reconcile = |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            runs.record(&*map);
            std::future::ready(Ok::<_, Refused>(Action::requeue(Duration::from_millis(10))))
        };
        let config = controller::Config::default();
        let mut reconciles = match flyball {
            true => applier(reconcile, policy, runs.clone(), store, requests, config).boxed(),
            false => controller::applier(reconcile, policy, runs.clone(), store, requests, config).boxed(),
        };
        let (mut results, mut errors) = (0, 0);
        for _ in 0..6_000 {
            match reconciles.next().await.unwrap() {
                Err(Outcome::QueueError(_)) => errors += 1,
                Ok(_) => results += 1,
                Err(error) => panic!("{error}"),
            }
            sleep(Duration::from_millis(1)).await;
        }
        // Three objects every 10 ms at most.
        assert!(
            results >= 1_000 && errors >= 1_000,
            "flyball: {flyball}, {results} results, {errors} errors"
        );
        assert!(runs.all().len() >= results);
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_its_concurrency_run_at_once() {
    let names: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    let (store, _writer) = stored(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let requests = stream::iter(names.into_iter().map(|name| request(&name))).chain(stream::pending());
    let runs = Runs::new();
    let config = controller::Config::default().concurrency(2);
    let mut reconciles = both(true, &runs, store, requests, config);
    during(&mut reconciles, SECOND).await;
    let mut times: Vec<_> = runs.all().iter().map(|(_, at)| *at).collect();
    times.dedup();
    assert_eq!(times.len(), 10, "two at a time: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn triggers_of_kubes_feed_it() {
    let (store, _writer) = stored(&["a", "b", "c"]);
    let own = trigger_self(stream::iter([Ok::<_, std::io::Error>(map("default/a"))]), ());
    let owned = trigger_owners(stream::iter([Ok(pod("default/p", &["b"]))]), (), ());
    let others = trigger_with(stream::iter([Ok(pod("default/c", &[]))]), |pod: Pod| {
        Some(ObjectRef::<ConfigMap>::new(&pod.name_any()).within("default"))
    });
    let merged = select(own, select(owned, others));
    let reconcile = async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, Refused>(Action::await_change());
    let config = flyball_kube::Config::default().queue_order(flyball_kube::QueueOrder::Fifo);
    let reconciles = applier(reconcile, |_, _, _| unreachable!(), Arc::new(()), store, merged, config);
    let mut names = outcomes(&reconciles.collect::<Vec<_>>().await);
    names.sort();
    assert_eq!(names, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn the_reason_of_a_request_is_that_of_its_reconcile() {
    let lines = Lines::of(|metadata| {
        metadata.target() == "kube_runtime::controller" || metadata.target() == module_path!()
    });
    let _default = tracing::subscriber::set_default(lines.clone());
    let (store, _writer) = stored(&["a"]);
    let (requests, queue) = queue();
    let reconcile = async |_: Arc<ConfigMap>, _: Arc<()>| {
        tracing::info!("called");
        Ok::<_, Refused>(Action::await_change())
    };
    let mut reconciles = applier(
        reconcile,
        |_, _, _| unreachable!(),
        Arc::new(()),
        store,
        queue,
        flyball_kube::Config::default(),
    );
    let related = ReconcileReason::RelatedObjectUpdated {
        obj_ref: Box::new(ObjectRef::<Pod>::new("p").within("default").erase()),
    };
    let reasons = [
        ReconcileReason::Custom { reason: "the moon is full".to_owned() },
        related,
        ReconcileReason::ObjectUpdated,
        ReconcileReason::Unknown,
    ];
    for reason in &reasons {
        let obj_ref = ObjectRef::new("a").within("default");
        requests.send(Ok(ReconcileRequest { obj_ref, reason: reason.clone() })).unwrap();
        assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
    }
    let logged = lines.with("called");
    assert_eq!(logged.len(), reasons.len());
    for (line, reason) in logged.iter().zip(&reasons) {
        assert!(line.contains(&format!("object.reason={reason} object.reasons=1")), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dynamic_kind_has_its_own_requests() {
    let kind = |kind| ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let mut writer = Writer::<DynamicObject>::new(kind("ConfigMap"));
    let store = writer.as_reader();
    let object = DynamicObject::new("a", &kind("ConfigMap")).within("default");
    for event in [Event::Init, Event::InitApply(object), Event::InitDone] {
        writer.apply_watcher_event(&event);
    }
    let of =
        |of| Ok::<_, std::io::Error>(ObjectRef::<DynamicObject>::new_with("a", kind(of)).within("default"));
    let requests = stream::iter([of("ConfigMap"), of("Secret"), of("ConfigMap")]);
    let reconcile = async |object: Arc<DynamicObject>, _: Arc<()>| {
        assert_eq!(object.name_any(), "a");
        Ok::<_, Refused>(Action::await_change())
    };
    let config = flyball_kube::Config::default();
    let reconciles = applier(reconcile, |_, _, _| unreachable!(), Arc::new(()), store, requests, config);
    assert_eq!(outcomes(&reconciles.collect::<Vec<_>>().await), ["a"]);
}

/// A reference to a cluster-scoped owner has the namespace of the owned object. In this test the reference arrives before the store has the
/// owner.
#[tokio::test(start_paused = true)]
async fn a_request_that_came_before_its_object_is_not_lost() {
    for flyball in [false, true] {
        let (store, mut writer) = reflector::store::<ConfigMap>();
        let (requests, queue) = queue();
        let runs = Runs::new();
        let mut reconciles = both(flyball, &runs, store, queue, controller::Config::default());
        requests.send(request("good")).unwrap();
        during(&mut reconciles, SECOND).await;
        let mut cluster_scoped = map("default/good");
        cluster_scoped.metadata.namespace = None;
        [Event::Init, Event::InitApply(cluster_scoped), Event::InitDone]
            .iter()
            .for_each(|event| writer.apply_watcher_event(event));
        during(&mut reconciles, 5 * SECOND).await;
        assert_eq!(
            runs.all().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["good"],
            "flyball: {flyball}"
        );
    }
}
