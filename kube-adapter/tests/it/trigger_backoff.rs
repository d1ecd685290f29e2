//! A backoff of kube-runtime for the lists, watches and streams of a controller.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube::{Controller, ReconcileStream};
use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::Status;
use kube::runtime::controller::Action;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;
use kube::runtime::{reflector, watcher};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::world::{Refused, Runs, SECOND, during, fifo_config, logging, map, outcomes, pod};

/// A backoff with these waits. A reset makes it start again with the first wait.
struct Waits {
    all: Vec<Duration>,
    left: VecDeque<Duration>,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Waits {
    fn of(seconds: &[u32]) -> (Self, Arc<Mutex<Vec<&'static str>>>) {
        let (all, calls): (Vec<_>, _) =
            (seconds.iter().map(|second| SECOND * *second).collect(), Arc::default());
        (Self { left: all.clone().into(), all, calls: Arc::clone(&calls) }, calls)
    }
}

impl Iterator for Waits {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.calls.lock().push("next");
        self.left.pop_front()
    }
}

impl Backoff for Waits {
    fn reset(&mut self) {
        self.calls.lock().push("reset");
        self.left = self.all.clone().into();
    }
}

fn server() -> ApiServer {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Pod>();
    server.put(&map("default/a"));
    server
}

fn forbidden() -> Status {
    Status::failure("no", "Forbidden").with_code(403)
}

fn controller(server: &ApiServer) -> Controller<ConfigMap> {
    Controller::new(Api::all(server.client()), watcher::Config::default()).with_config(fifo_config())
}

/// Returns the times of the errors in the stream, in seconds.
async fn errors(reconciles: &mut ReconcileStream<ConfigMap, Refused>, time: Duration) -> Vec<u64> {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while let Ok(Some(item)) = timeout(time.saturating_sub(begun.elapsed()), reconciles.next()).await {
        if item.is_err() {
            times.push(begun.elapsed().as_secs());
        }
    }
    times
}

#[tokio::test(start_paused = true)]
async fn failed_lists_and_watches_wait_as_it_says() {
    let server = server();
    server.fail_next(RequestMatcher::verb(Verb::List), 3, forbidden());
    server.fail_next(RequestMatcher::verb(Verb::Watch), 2, forbidden());
    let (backoff, calls) = Waits::of(&[3, 200, 5, 7, 11]);
    let mut reconciles = logging(controller(&server).trigger_backoff(backoff), &Runs::new());
    // A successful list resets the backoff, so the wait after the first failed watch is 3 s again.
    let times = errors(&mut reconciles, 1_000 * SECOND).await;
    assert_eq!(times, [0, 3, 203, 208, 211]);
    let calls = calls.lock().clone();
    assert_eq!(&calls[..4], ["next", "next", "next", "reset"]);
    server.put(&map("default/a"));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn any_success_resets_the_backoff_as_in_kube_runtime() {
    let server = server();
    server.fail_next(RequestMatcher::any().resource::<Pod>(), u32::MAX, forbidden());
    let (backoff, _) = Waits::of(&[1, 2]);
    let controller = controller(&server).owns(Api::<Pod>::all(server.client()), watcher::Config::default());
    let mut reconciles = logging(controller.trigger_backoff(backoff), &Runs::new());
    let busy = server.clone();
    tokio::spawn(async move {
        loop {
            busy.put(&map("default/a"));
            tokio::time::sleep(SECOND / 2).await;
        }
    });
    let times = errors(&mut reconciles, 6 * SECOND).await;
    // The controller does not end, although the backoff has only two waits, because each success resets it.
    assert_eq!(times, [0, 1, 2, 3, 4, 5]);
}

/// Runs a controller of ConfigMaps with kube-runtime or with flyball. Its Pods can be listed, and its Secrets cannot. Returns the number of errors, and when
/// the stream ended, in seconds.
async fn until_given_up(flyball: bool, server: &ApiServer, waits: &[u32]) -> (usize, u64) {
    server.fail_next(RequestMatcher::any().resource::<Secret>(), u32::MAX, forbidden());
    let (maps, pods, secrets) = (
        Api::<ConfigMap>::all(server.client()),
        Api::<Pod>::all(server.client()),
        Api::<Secret>::all(server.client()),
    );
    let (config, (backoff, _), runs, begun) =
        (watcher::Config::default, Waits::of(waits), Runs::new(), Instant::now());
    let reconcile = async |_: Arc<ConfigMap>, _: Arc<Runs>| Ok::<_, Refused>(Action::await_change());
    let policy = |_: Arc<ConfigMap>, _: &Refused, _: Arc<Runs>| Action::await_change();
    let stream = match flyball {
        true => Controller::new(maps, config())
            .owns(pods, config())
            .owns(secrets, config())
            .trigger_backoff(backoff)
            .run(reconcile, policy, runs)
            .boxed(),
        false => kube::runtime::Controller::new(maps, config())
            .owns(pods, config())
            .owns(secrets, config())
            .trigger_backoff(backoff)
            .run(reconcile, policy, runs)
            .boxed(),
    };
    let errors = stream.filter(|item| std::future::ready(item.is_err())).count();
    let errors = timeout(20_000 * SECOND, errors).await.expect("the stream must end");
    (errors, begun.elapsed().as_secs())
}

/// In the time of the waits, many watches end normally, and many bookmarks arrive.
#[tokio::test(start_paused = true)]
async fn bookmarks_and_ends_of_watches_do_not_reset_the_backoff() {
    for flyball in [false, true] {
        let server = server();
        server.register::<Secret>();
        let (errors, ended) = until_given_up(flyball, &server, &[1_000, 1_000, 1_000]).await;
        assert!((4..=5).contains(&errors), "flyball: {flyball}, {errors} errors");
        assert!((3_000..=4_001).contains(&ended), "flyball: {flyball}, after {ended} s");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_that_map_to_no_object_do_not_reset_the_backoff() {
    for flyball in [false, true] {
        let server = server();
        server.register::<Secret>();
        let busy = server.clone();
        let writing = tokio::spawn(async move {
            for number in 0.. {
                let mut pod = pod("default/p", &[]);
                pod.labels_mut().insert("number".to_owned(), number.to_string());
                busy.put(&pod);
                tokio::time::sleep(SECOND / 2).await;
            }
        });
        let (errors, ended) = until_given_up(flyball, &server, &[10, 10, 10]).await;
        writing.abort();
        assert!(
            (4..=5).contains(&errors) && (30..=41).contains(&ended),
            "flyball: {flyball}, {errors}, {ended} s"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn streams_wait_as_it_says() {
    let (store, mut writer) = reflector::store::<ConfigMap>();
    writer.apply_watcher_event(&watcher::Event::InitDone);
    let failed = || watcher::Error::WatchError(forbidden().boxed());
    let own = stream::iter([Err(failed()), Err(failed()), Ok(map("default/a")), Err(failed())])
        .chain(stream::pending());
    let (backoff, _) = Waits::of(&[10, 20, 40]);
    let mut reconciles = logging(Controller::for_stream(own, store).trigger_backoff(backoff), &Runs::new());
    let times = errors(&mut reconciles, 200 * SECOND).await;
    // The third error is that of the reconcile, because its object is not in the store.
    assert_eq!(times, [0, 10, 30, 30]);
}

#[tokio::test(start_paused = true)]
async fn a_backoff_that_gives_up_is_the_end() {
    let server = server();
    server.fail_next(RequestMatcher::any().resource::<Pod>(), u32::MAX, forbidden());
    let (backoff, _) = Waits::of(&[1, 2]);
    let controller = controller(&server).owns(Api::<Pod>::all(server.client()), watcher::Config::default());
    let reconciles = logging(controller.trigger_backoff(backoff), &Runs::new());
    let begun = Instant::now();
    let items: Vec<_> = timeout(60 * SECOND, reconciles.collect()).await.expect("the stream must end");
    assert_eq!((outcomes(&items).len(), begun.elapsed().as_secs()), (4, 3));
}

#[tokio::test(start_paused = true)]
async fn the_backoff_of_kubes_is_one() {
    let server = server();
    server.fail_next(RequestMatcher::verb(Verb::List), 2, forbidden());
    let mut reconciles =
        logging(controller(&server).trigger_backoff(DefaultBackoff::default()), &Runs::new());
    assert_eq!(outcomes(&during(&mut reconciles, 60 * SECOND).await), ["!!", "!!", "a"]);
}
