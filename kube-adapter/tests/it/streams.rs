//! Controllers over streams of objects: with streams only, with streams and informers, and with the other features of a controller.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use flyball_kube::{Config, Controller, ReconcileStream};
use flyball_kube_lease::Election;
use flyball_kube_testing::{ApiServer, RequestMatcher};
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::Status;
use kube::runtime::controller::{Action, Error as Outcome, RunnerError};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, predicates};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::log_capture::Lines;
use crate::world::{Refused, Runs, SECOND, World, during, fifo_config, logging, map, outcomes, pod};

type Item<K> = Result<K, watcher::Error>;

fn server() -> ApiServer {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Pod>().register::<Lease>();
    for name in ["default/a", "default/b", "default/c"] {
        server.put(&map(name));
    }
    server
}

fn all<K>(server: &ApiServer) -> Api<K>
where
    K: kube::Resource<DynamicType = ()>,
{
    Api::all(server.client())
}

/// Returns a sender, and a stream of the items that the test sends.
fn fed<T: Send + 'static>() -> (UnboundedSender<T>, BoxStream<'static, T>) {
    let (sender, receiver) = unbounded_channel();
    (sender, stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))).boxed())
}

/// Returns a kube-runtime store that is ready and contains ConfigMaps with these names, and the writer of the store.
fn stored(names: &[&str]) -> (reflector::Store<ConfigMap>, Writer<ConfigMap>) {
    let (store, mut writer) = reflector::store();
    let maps = names.iter().map(|name| Event::InitApply(map(name)));
    [Event::Init]
        .into_iter()
        .chain(maps)
        .chain([Event::InitDone])
        .for_each(|event| writer.apply_watcher_event(&event));
    (store, writer)
}

fn failed() -> watcher::Error {
    watcher::Error::WatchError(Status::failure("no", "Forbidden").with_code(403).boxed())
}

fn nothing(controller: Controller<ConfigMap>) -> ReconcileStream<ConfigMap, Refused> {
    logging(controller.with_config(fifo_config()), &Runs::new())
}

/// Returns the results until the stream ends.
async fn until_the_end(mut reconciles: ReconcileStream<ConfigMap, Refused>) -> Vec<String> {
    let mut items = Vec::new();
    while let Some(item) = timeout(600 * SECOND, reconciles.next()).await.expect("the stream must end") {
        items.push(item);
    }
    outcomes(&items)
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_a_reflector_are_reconciled_when_they_change() {
    let server = server();
    let (reader, writer) = reflector::store();
    let maps =
        watcher(all::<ConfigMap>(&server), watcher::Config::default()).reflect(writer).applied_objects();
    let mut reconciles = nothing(Controller::for_stream(maps, reader));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a", "b", "c"]);
    server.put(&map("default/b"));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["b"]);
    server.delete::<ConfigMap>("default", "b");
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), <[&str; 0]>::default());
}

#[tokio::test(start_paused = true)]
async fn one_reflector_feeds_several_controllers_by_handles() {
    let server = server();
    let (reader, writer) = reflector::store_shared(64);
    let [first, second] = [(); 2].map(|()| writer.subscribe().unwrap());
    let reflect = watcher(all::<ConfigMap>(&server), watcher::Config::default()).reflect_shared(writer);
    tokio::spawn(reflect.for_each(async |_| {}));
    let mut firsts = nothing(Controller::for_shared_stream(first, reader.clone()));
    let mut seconds = nothing(Controller::for_shared_stream(second, reader));
    for reconciles in [&mut firsts, &mut seconds] {
        let mut names = outcomes(&during(reconciles, SECOND).await);
        names.sort();
        assert_eq!(names, ["a", "b", "c"]);
    }
    server.put(&map("default/b"));
    for reconciles in [&mut firsts, &mut seconds] {
        assert_eq!(outcomes(&during(reconciles, SECOND).await), ["b"]);
    }
}

/// Tests all kinds of streams of related objects, with a controller over a store and with a controller over an informer.
#[tokio::test(start_paused = true)]
async fn owned_and_watched_streams_add_related_keys() {
    let world = World::of(["default/a", "default/b", "default/c"].map(map));
    for over_informer in [true, false] {
        let (owned, owned_stream) = fed::<Item<Pod>>();
        let (shared, shared_stream) = fed::<Arc<Pod>>();
        let (watched, watched_stream) = fed::<Item<Pod>>();
        let (both, both_stream) = fed::<Arc<Pod>>();
        let (store, _writer) = stored(&["default/a", "default/b", "default/c"]);
        let controller = match over_informer {
            true => Controller::for_shared(&world.informer),
            false => Controller::for_stream(stream::pending(), store),
        };
        let named = |name: String| Some(ObjectRef::new(&name).within("default"));
        let controller = controller
            .owns_stream(owned_stream)
            .owns_shared_stream(shared_stream)
            .watches_stream(watched_stream, move |pod: Pod| named(pod.name_any()))
            .watches_shared_stream(both_stream, move |pod: Arc<Pod>| named(pod.name_any()));
        let mut reconciles = nothing(controller);
        during(&mut reconciles, SECOND).await;
        owned.send(Ok(pod("default/p", &["a", "b"]))).unwrap();
        assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a", "b"]);
        shared.send(Arc::new(pod("default/p", &["c"]))).unwrap();
        assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["c"]);
        watched.send(Ok(pod("default/b", &[]))).unwrap();
        assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["b"]);
        both.send(Arc::new(pod("default/a", &[]))).unwrap();
        assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
        // As in kube-runtime, the result for an object that is not in the store is an error.
        owned.send(Ok(pod("default/p", &["unknown"]))).unwrap();
        assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["?unknown"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_without_a_namespace_has_one_key() {
    let cluster: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}})).unwrap();
    let (store, mut writer) = stored(&["default/b"]);
    writer.apply_watcher_event(&Event::Apply(cluster.clone()));
    let (own, own_stream) = fed::<Item<ConfigMap>>();
    let (owned, owned_stream) = fed::<Item<Pod>>();
    let slow = async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
        runs.record(&*map);
        sleep(SECOND).await;
        Ok::<_, Refused>(Action::await_change())
    };
    let runs = Runs::new();
    let mut reconciles = Controller::for_stream(own_stream, store).owns_stream(owned_stream).run(
        slow,
        |_, _, _| unreachable!(),
        runs.clone(),
    );
    own.send(Ok(cluster)).unwrap();
    owned.send(Ok(pod("default/p", &["a", "b"]))).unwrap();
    during(&mut reconciles, 10 * SECOND).await;
    // Each owner has one key, so it is reconciled only once.
    assert_eq!([runs.of("a").len(), runs.of("b").len()], [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn reconciles_queued_keys_and_ends_once_all_streams_have_ended() {
    let names = ["default/a", "default/b", "default/c"];
    let (store, _writer) = stored(&names);
    let controller = || {
        Controller::for_stream(stream::iter(names.map(|name| Ok(map(name)))), store.clone())
            .owns_stream(stream::iter([Ok(pod("default/p", &["a"]))]))
    };
    assert_eq!(until_the_end(nothing(controller())).await, ["a", "b", "c"]);
    // Debounced keys are also reconciled before the end.
    let debounced = fifo_config().debounce(SECOND).concurrency(1);
    let reconciles = logging(controller().with_config(debounced), &Runs::new());
    assert_eq!(until_the_end(reconciles).await, ["a", "b", "c"]);
    // The controller does not wait for requeues that reconciles return, whether delayed or immediate.
    for delay in [Duration::ZERO, 3600 * SECOND] {
        let reconcile =
            move |_: Arc<ConfigMap>, _: Arc<()>| std::future::ready(Ok::<_, Refused>(Action::requeue(delay)));
        let begun = Instant::now();
        let reconciles = controller().run(reconcile, |_, _, _| unreachable!(), Arc::new(()));
        assert!(until_the_end(reconciles).await.len() >= 3);
        assert!(begun.elapsed() < SECOND);
    }
    // The controller continues while one of its streams is open.
    let (_open, related) = fed::<Item<Pod>>();
    let mut reconciles = nothing(controller().owns_stream(related));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a", "b", "c"]);
    assert!(timeout(3600 * SECOND, reconciles.next()).await.is_err());
    // The controller also continues while it has an informer.
    let server = server();
    let mut reconciles = nothing(controller().owns(all::<Pod>(&server), watcher::Config::default()));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a", "b", "c"]);
    server.put(&pod("default/p", &["b"]));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_changes_while_it_is_reconciled_is_reconciled_again_before_the_end() {
    let (store, _writer) = stored(&["default/a"]);
    let changes = stream::iter([Ok(map("default/a"))]).chain(stream::once(async {
        sleep(SECOND / 2).await;
        Ok(map("default/a"))
    }));
    let reconcile = async |_: Arc<ConfigMap>, _: Arc<()>| {
        sleep(SECOND).await;
        Ok::<_, Refused>(Action::await_change())
    };
    let reconciles =
        Controller::for_stream(changes, store).run(reconcile, |_, _, _| unreachable!(), Arc::new(()));
    assert_eq!(until_the_end(reconciles).await, ["a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn an_immediately_failing_stream_is_reported_and_backs_off_alone() {
    let (store, _writer) = stored(&["default/a"]);
    let failing = stream::repeat_with(|| Err::<Pod, _>(failed()));
    let (own, own_stream) = fed::<Item<ConfigMap>>();
    let mut reconciles = nothing(Controller::for_stream(own_stream, store).owns_stream(failing));
    let (mut failures, mut reconciled) = (0, 0);
    for _ in 0..600 {
        own.send(Ok(map("default/a"))).unwrap();
        let items = during(&mut reconciles, SECOND).await;
        failures += items.iter().filter(|item| matches!(item, Err(Outcome::QueueError(_)))).count();
        reconciled += items.iter().filter(|item| item.is_ok()).count();
    }
    assert_eq!(reconciled, 600, "the stream of own objects must not be delayed");
    assert!((15..60).contains(&failures), "{failures} in ten minutes, with a backoff up to a minute");
}

#[tokio::test(start_paused = true)]
async fn the_last_error_of_a_stream_is_reported() {
    let (store, _writer) = stored(&[]);
    let last = stream::iter([Err(failed())]);
    assert_eq!(until_the_end(nothing(Controller::for_stream(last, store))).await, ["!!"]);
}

#[tokio::test(start_paused = true)]
async fn an_unread_failing_stream_loses_no_error() {
    let (store, _writer) = stored(&[]);
    let errors = stream::iter((0..500).map(|_| Err(failed())));
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = polls.clone();
    let errors = errors.inspect(move |_| _ = counted.fetch_add(1, Ordering::Relaxed));
    let at_once = ZeroBackoff;
    let mut reconciles = nothing(Controller::for_stream(errors, store).trigger_backoff(at_once));
    assert!(reconciles.next().await.is_some());
    sleep(SECOND).await;
    assert!(polls.load(Ordering::Relaxed) < 100, "the stream must wait until its errors are read");
    assert_eq!(until_the_end(reconciles).await.len(), 499);
}

/// A backoff without a wait.
struct ZeroBackoff;

impl Iterator for ZeroBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

impl kube::runtime::utils::Backoff for ZeroBackoff {
    fn reset(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn reconciles_begin_when_the_store_is_ready() {
    let (store, mut writer) = reflector::store::<ConfigMap>();
    let (own, own_stream) = fed::<Item<ConfigMap>>();
    let controller = Controller::for_stream(own_stream, store.clone()).with_config(fifo_config());
    let monitor = controller.monitor();
    let mut reconciles = logging(controller, &Runs::new());
    own.send(Ok(map("default/a"))).unwrap();
    own.send(Ok(map("default/a"))).unwrap();
    writer.apply_watcher_event(&Event::Init);
    writer.apply_watcher_event(&Event::InitApply(map("default/a")));
    assert!(during(&mut reconciles, 600 * SECOND).await.is_empty());
    assert!(monitor.ready().is_err());
    // kube's store wakes only the task that was the last to begin its wait (D6).
    let other = tokio::spawn(async move { store.wait_until_ready().await });
    sleep(SECOND / 10).await;
    writer.apply_watcher_event(&Event::InitDone);
    assert_eq!(outcomes(&during(&mut reconciles, 2 * SECOND).await), ["a"]);
    assert_eq!(monitor.ready(), Ok(()));
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_writer_is_gone_is_the_end() {
    let (store, writer) = reflector::store::<ConfigMap>();
    let mut reconciles = nothing(Controller::for_stream(stream::pending(), store));
    assert!(during(&mut reconciles, SECOND).await.is_empty());
    drop(writer);
    let item = reconciles.next().await;
    assert!(matches!(item, Some(Err(Outcome::RunnerError(RunnerError::Readiness(_))))), "{item:?}");
    assert!(timeout(SECOND, reconciles.next()).await.expect("the stream must end").is_none());
    // If the writer of a store is dropped after the store has become ready, the controller does not detect this: the store keeps its objects, and the
    // controller continues to reconcile them, as with kube-runtime.
    let (store, writer) = stored(&["default/a"]);
    let (own, own_stream) = fed::<Item<ConfigMap>>();
    let mut reconciles = nothing(Controller::for_stream(own_stream, store));
    drop(writer);
    own.send(Ok(map("default/a"))).unwrap();
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_mapper_that_panics_loses_its_change_alone() {
    let lines = Lines::of_flyball();
    let _default = tracing::subscriber::set_default(lines.clone());
    let (store, _writer) = stored(&["default/a"]);
    let (watched, watched_stream) = fed::<Item<Pod>>();
    let mapper = |pod: Pod| {
        // The panic occurs in the iterator that the mapper returned.
        [pod.name_any()].into_iter().map(|name| {
            assert_ne!(name, "bomb", "a bug in the mapper");
            ObjectRef::new(&name).within("default")
        })
    };
    let controller = Controller::for_stream(stream::pending(), store).watches_stream(watched_stream, mapper);
    let mut reconciles = nothing(controller);
    for name in ["default/bomb", "default/a"] {
        watched.send(Ok(pod(name, &[]))).unwrap();
    }
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
    assert_eq!(lines.with("a mapper panicked").len(), 1, "{:?}", lines.all());
    assert!(lines.with("default/bomb")[0].contains("kind=\"Pod\""));
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "a bug in the stream")]
async fn a_stream_that_panics_ends_the_controller_and_is_not_hidden() {
    let (store, _writer) = stored(&[]);
    let broken = stream::poll_fn(|_| -> std::task::Poll<Option<Item<Pod>>> { panic!("a bug in the stream") });
    let mut reconciles = nothing(Controller::for_stream(stream::pending(), store).owns_stream(broken));
    during(&mut reconciles, SECOND).await;
}

/// Tests a stream that always has another item, and a stream that blocks its thread for some time in each poll.
#[tokio::test(start_paused = true)]
async fn a_busy_stream_delays_no_other() {
    let (store, _writer) = stored(&["default/a"]);
    let endless = stream::repeat_with(|| Ok(pod("default/p", &[])));
    let (own, own_stream) = fed::<Item<ConfigMap>>();
    let (end, ended) = oneshot::channel::<()>();
    let controller = Controller::for_stream(own_stream, store)
        .owns_stream(endless)
        .graceful_shutdown_on(async { drop(ended.await) });
    let reconciles = nothing(controller);
    own.send(Ok(map("default/a"))).unwrap();
    let first = tokio::spawn(async move { reconciles.take(1).collect::<Vec<_>>().await });
    // The test uses no timer, because a paused clock does not advance while tasks are ready.
    let mut turns = 0;
    while !first.is_finished() {
        tokio::task::yield_now().await;
        turns += 1;
        assert!(turns < 10_000, "no other task can run");
    }
    assert_eq!(outcomes(&first.await.unwrap()), ["a"]);
    drop(end);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_controller_even_with_open_streams() {
    let (store, _writer) = stored(&["default/a"]);
    let (end, ended) = oneshot::channel::<()>();
    let (own, own_stream) = fed::<Item<ConfigMap>>();
    let reconcile = async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
        runs.record(&*map);
        sleep(10 * SECOND).await;
        Ok::<_, Refused>(Action::await_change())
    };
    let runs = Runs::new();
    let mut reconciles = Controller::for_stream(own_stream, store)
        .graceful_shutdown_on(async { drop(ended.await) })
        .run(reconcile, |_, _, _| unreachable!(), runs.clone());
    own.send(Ok(map("default/a"))).unwrap();
    assert!(during(&mut reconciles, SECOND).await.is_empty());
    drop(end);
    assert!(during(&mut reconciles, SECOND).await.is_empty());
    assert!(
        own.send(Ok(map("default/a"))).is_err(),
        "the stream is dropped at the signal, as in kube-runtime"
    );
    assert_eq!(until_the_end(reconciles).await, ["a"], "the reconcile in flight must end");
    assert_eq!(runs.of("a"), [0]);
}

/// A stream that would panic because the program is shutting down must not abort the reconciles in flight, so it is not polled after the shutdown
/// signal.
#[tokio::test(start_paused = true)]
async fn a_stream_that_would_panic_after_the_signal_is_not_polled() {
    let (store, _writer) = stored(&["default/a"]);
    let (end, ended) = oneshot::channel::<()>();
    let (closed, is_closed) = oneshot::channel::<()>();
    let own = stream::iter([Ok(map("default/a"))]).chain(stream::once(async move {
        let _ = is_closed.await;
        panic!("the other end is gone")
    }));
    let reconcile = async |_: Arc<ConfigMap>, _: Arc<()>| {
        sleep(10 * SECOND).await;
        Ok::<_, Refused>(Action::await_change())
    };
    let mut reconciles = Controller::for_stream(own, store)
        .graceful_shutdown_on(async { drop(ended.await) })
        .run(reconcile, |_, _, _| unreachable!(), Arc::new(()));
    assert!(during(&mut reconciles, SECOND).await.is_empty());
    drop(end);
    assert!(during(&mut reconciles, SECOND).await.is_empty());
    drop(closed);
    assert_eq!(until_the_end(reconciles).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn with_all_caches_it_waits_for_the_store_and_for_informers() {
    let server = server();
    server.set_latency(RequestMatcher::any().resource::<Pod>(), 20 * SECOND);
    let (store, _writer) = stored(&["default/a"]);
    let own = stream::iter([Ok(map("default/a"))]).chain(stream::pending());
    let controller = Controller::for_stream(own, store)
        .owns(all::<Pod>(&server), watcher::Config::default())
        .with_config(Config::default().wait_for_all_caches());
    let mut reconciles = logging(controller, &Runs::new());
    assert!(during(&mut reconciles, 19 * SECOND).await.is_empty());
    assert_eq!(outcomes(&during(&mut reconciles, 2 * SECOND).await), ["a"]);
}

/// The items of the stream arrive before the standby is elected, during its election, and later.
#[tokio::test(start_paused = true)]
async fn a_standby_reconciles_all_objects_of_the_store_when_it_is_elected() {
    for ends_before in [false, true] {
        let server = server();
        let forbidden = Status::failure("leases", "Forbidden").with_code(403);
        server.fail_next(RequestMatcher::any().resource::<Lease>(), 10, forbidden);
        let (store, mut writer) = reflector::store::<ConfigMap>();
        let (own, own_stream) = fed::<Item<ConfigMap>>();
        let mut election =
            Election::builder(server.client(), "default", "l", "a").seed(7).standby(true).build().unwrap();
        let controller = Controller::for_stream(own_stream, store).with_config(fifo_config());
        let (monitor, runs) = (controller.monitor(), Runs::new());
        let (stop, stopped) = oneshot::channel::<()>();
        let (noted, status) = (runs.clone(), election.status());
        let running = tokio::spawn(async move {
            let work =
                |leadership| logging(controller.with_leadership(&leadership), &noted).for_each(async |_| {});
            election.run(async { drop(stopped.await) }, work).await
        });
        for name in ["default/a", "default/b"] {
            writer.apply_watcher_event(&Event::Init);
            writer.apply_watcher_event(&Event::InitApply(map(name)));
            own.send(Ok(map(name))).unwrap();
        }
        writer.apply_watcher_event(&Event::InitApply(map("default/a")));
        writer.apply_watcher_event(&Event::InitDone);
        sleep(3 * SECOND).await;
        assert_eq!(monitor.ready(), Ok(()), "a standby is ready");
        assert!(!status.is_leader() && runs.all().is_empty());
        if ends_before {
            // All objects are reconciled after the election, even though the stream has already ended.
            drop(own);
            sleep(120 * SECOND).await;
            let mut names = runs.names();
            names.sort();
            assert_eq!(names, ["a", "b"]);
        } else {
            sleep(120 * SECOND).await;
            assert_eq!(runs.names().len(), 2);
            own.send(Ok(map("default/b"))).unwrap();
            sleep(SECOND).await;
            assert_eq!(runs.of("b").len(), 2);
            drop(stop);
        }
        timeout(600 * SECOND, running).await.expect("the stream must end").unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn filters_in_front_of_a_stream_filter() {
    let server = server();
    let (reader, writer) = reflector::store();
    let maps = watcher(all::<ConfigMap>(&server), watcher::Config::default())
        .reflect(writer)
        .applied_objects()
        .predicate_filter(predicates::labels, kube::runtime::PredicateConfig::default());
    let controller =
        Controller::for_stream(maps, reader).filter_changes(|_| unreachable!("there are no changes"));
    let mut reconciles = nothing(controller);
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a", "b", "c"]);
    server.put(&map("default/a"));
    let mut labelled = map("default/b");
    labelled.labels_mut().insert("new".to_owned(), String::new());
    server.put(&labelled);
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn bulk_and_named_requests_work_over_a_store() {
    let (store, _writer) = stored(&["default/a", "default/b"]);
    let bulk = stream::once(sleep(SECOND));
    let named = stream::once(async {
        sleep(2 * SECOND).await;
        ObjectRef::new("b").within("default")
    });
    let controller =
        Controller::for_stream(stream::pending(), store).reconcile_all_on(bulk).reconcile_on(named);
    let mut reconciles = nothing(controller);
    let mut names = outcomes(&during(&mut reconciles, SECOND + SECOND / 2).await);
    names.sort();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["b"]);
}

/// One item of a stream may add the keys of all objects, and so does the election of a standby. Other tasks run while the keys are added.
#[tokio::test(start_paused = true)]
async fn the_keys_of_all_objects_are_added_in_pieces() {
    const OBJECTS: usize = 4_000;
    let names: Vec<String> = (0..OBJECTS).map(|number| format!("default/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for elected in [false, true] {
        let (store, _writer) = stored(&names);
        let (bulk, bulk_stream) = fed();
        let server = server();
        let mut election =
            Election::builder(server.client(), "default", "l", "a").seed(7).standby(true).build().unwrap();
        let mut controller = Controller::for_stream(stream::pending(), store)
            .with_config(fifo_config().concurrency(1))
            .reconcile_all_on(bulk_stream);
        let monitor = controller.monitor();
        let never = |_, _| std::future::pending::<Result<Action, Refused>>();
        let running = tokio::spawn(async move {
            let work = async |leadership| {
                if elected {
                    controller = controller.with_leadership(&leadership);
                }
                controller.run(never, |_, _, _| unreachable!(), Arc::new(())).for_each(async |_| {}).await;
            };
            election.run(std::future::pending(), work).await
        });
        if !elected {
            bulk.send(()).unwrap();
        }
        // In a task of its own, so that the scheduler polls it in turn with the tasks of the controller.
        let watching = tokio::spawn(async move {
            let (mut before, mut most) = (0, 0);
            while before < OBJECTS {
                tokio::task::yield_now().await;
                let now = monitor.stats().map_or(0, |stats| stats.ready + stats.leased);
                (before, most) = (now, most.max(now - before));
            }
            most
        });
        let most = watching.await.unwrap();
        assert!(most <= OBJECTS / 4, "{most} keys were added at once; elected: {elected}");
        running.abort();
    }
}

/// Each reconcile has a reason, which is recorded in the span of the reconcile and shown by `Monitor::in_flight`.
#[tokio::test(start_paused = true)]
async fn each_stream_is_the_reason() {
    let lines = Lines::of(|metadata| {
        metadata.target() == "kube_runtime::controller" || metadata.target() == module_path!()
    });
    let _default = tracing::subscriber::set_default(lines.clone());
    let (store, _writer) = stored(&["default/a"]);
    let (own, own_stream) = fed::<Item<ConfigMap>>();
    let (owned, owned_stream) = fed::<Item<Pod>>();
    let controller = Controller::for_stream(own_stream, store).owns_stream(owned_stream);
    let monitor = controller.monitor();
    let reconcile = async |_: Arc<ConfigMap>, _: Arc<()>| {
        tracing::info!("called");
        sleep(SECOND / 2).await;
        Ok::<_, Refused>(Action::await_change())
    };
    let mut reconciles = controller.run(reconcile, |_, _, _| unreachable!(), Arc::new(()));
    let reasons = ["object updated", "related object updated: Pod default/p"];
    for reason in reasons {
        match reason {
            "object updated" => own.send(Ok(map("default/a"))).unwrap(),
            _ => owned.send(Ok(pod("default/p", &["a"]))).unwrap(),
        }
        during(&mut reconciles, SECOND / 4).await;
        let shown = monitor.in_flight();
        assert_eq!((shown.len(), shown[0].object.as_str(), &*shown[0].reason), (1, "default/a", reason));
        assert_eq!((shown[0].reasons, shown[0].running_for), (1, SECOND / 4));
        during(&mut reconciles, SECOND).await;
        assert_eq!(monitor.in_flight(), []);
    }
    let logged = lines.with("called");
    assert!(
        logged.iter().zip(reasons).all(|(line, reason)| line.contains(&format!("object.reason={reason} "))),
        "{logged:?}"
    );
}

/// `Monitor::in_flight` needs no `tracing` subscriber.
#[tokio::test(start_paused = true)]
async fn reasons_are_noted_from_the_first_question_on() {
    let (store, _writer) = stored(&["default/a"]);
    let (own, own_stream) = fed::<Item<ConfigMap>>();
    let controller = Controller::for_stream(own_stream, store);
    let monitor = controller.monitor();
    let reconcile = async |_: Arc<ConfigMap>, _: Arc<()>| {
        sleep(SECOND / 2).await;
        Ok::<_, Refused>(Action::await_change())
    };
    let mut reconciles = controller.run(reconcile, |_, _, _| unreachable!(), Arc::new(()));
    for shown in [0, 1] {
        own.send(Ok(map("default/a"))).unwrap();
        during(&mut reconciles, SECOND / 4).await;
        assert_eq!(monitor.in_flight().len(), shown);
        during(&mut reconciles, SECOND).await;
    }
    // A reconcile that is dropped before it completes is removed from `Monitor::in_flight`, too.
    own.send(Ok(map("default/a"))).unwrap();
    during(&mut reconciles, SECOND / 4).await;
    drop(reconciles);
    tokio::task::yield_now().await;
    assert_eq!(monitor.in_flight(), []);
}

/// The reconciler is an `FnMut`, as in kube-runtime.
#[tokio::test(start_paused = true)]
async fn a_reconciler_may_count_and_panic() {
    let world = World::of(["default/a", "default/b"].map(map));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let mut calls = 0;
    let reconcile = move |map: Arc<ConfigMap>, _: Arc<()>| {
        calls += 1;
        assert_ne!(calls, 2, "a bug in the reconciler");
        noted.lock().push((map.name_any(), calls));
        std::future::ready(Ok::<_, Refused>(Action::await_change()))
    };
    let controller = Controller::for_shared(&world.informer).with_config(fifo_config().concurrency(1));
    let mut reconciles = controller.run(reconcile, |_, _, _| unreachable!(), Arc::new(()));
    during(&mut reconciles, 10 * SECOND).await;
    assert_eq!(*seen.lock(), [("a".to_owned(), 1), ("b".to_owned(), 3)]);
}

/// The streams are dropped with their controller, whether or not it has started.
#[tokio::test(start_paused = true)]
async fn dropping_the_results_drops_the_streams() {
    struct Guarded(Pin<Box<dyn Stream<Item = Item<ConfigMap>> + Send>>, Arc<AtomicBool>);
    impl Stream for Guarded {
        type Item = Item<ConfigMap>;
        fn poll_next(
            mut self: Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Self::Item>> {
            self.0.as_mut().poll_next(context)
        }
    }
    impl Drop for Guarded {
        fn drop(&mut self) {
            self.1.store(true, Ordering::Relaxed);
        }
    }
    for runs in [false, true] {
        let dropped = Arc::new(AtomicBool::new(false));
        let (store, _writer) = stored(&["default/a"]);
        let own = Guarded(stream::pending().boxed(), dropped.clone());
        let mut reconciles = nothing(Controller::for_stream(own, store));
        if runs {
            during(&mut reconciles, SECOND).await;
        }
        drop(reconciles);
        sleep(SECOND).await;
        assert!(dropped.load(Ordering::Relaxed), "runs: {runs}");
    }
}
