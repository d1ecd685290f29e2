//! How a controller starts and shuts down.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::{NotLive, NotReady};
use flyball_informer_cache::NamespacedName;
use flyball_kube::{Config, Controller};
use flyball_kube_lease::{Election, ElectionOutcome};
use flyball_kube_testing::ApiServer;
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::world::{Refused, Runs, World, during, fifo_config, logging, map, outcomes};

const SECOND: Duration = Duration::from_secs(1);

/// Runs a controller whose reconciles each take a second.
fn slow(
    controller: Controller<ConfigMap>,
    runs: &Arc<Runs>,
) -> flyball_kube::ReconcileStream<ConfigMap, Refused> {
    controller.run(
        async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            sleep(SECOND).await;
            runs.record(&*map);
            Ok(Action::requeue(SECOND * 100))
        },
        |_, _, _| unreachable!(),
        runs.clone(),
    )
}

fn ten() -> World<ConfigMap> {
    World::of((0..10).map(|n| map(&format!("default/{n}"))))
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_loses_no_waiting_key() {
    let world = ten();
    let (runs, (end, ended)) = (Runs::new(), oneshot::channel::<()>());
    let controller = Controller::for_shared(&world.informer)
        .with_config(fifo_config().concurrency(2).drain_on_shutdown())
        .graceful_shutdown_on(async { drop(ended.await) });
    let monitor = controller.monitor();
    assert_eq!((monitor.ready(), monitor.live(SECOND)), (Err(NotReady::NotStarted), Ok(())));
    let mut reconciles = slow(controller, &runs);
    let mut items = during(&mut reconciles, SECOND * 3 / 2).await;
    assert_eq!(monitor.ready(), Ok(()));
    assert_eq!(monitor.stats().map(|counts| (counts.leased, counts.ready, counts.waiting)), Some((2, 6, 2)));
    end.send(()).unwrap();
    items.extend(during(&mut reconciles, SECOND).await);
    assert_eq!(monitor.ready(), Err(NotReady::ShuttingDown));
    world.server.put(map("default/late"));
    items.extend(during(&mut reconciles, SECOND * 60).await);
    assert!(timeout(SECOND, reconciles.next()).await.unwrap().is_none(), "the stream ends");
    assert!(reconciles.next().await.is_none());
    assert_eq!(items.len(), 10);
    assert_eq!((monitor.ready(), monitor.live(SECOND)), (Err(NotReady::Ended), Err(NotLive::Ended)));
}

#[tokio::test(start_paused = true)]
async fn the_grace_is_a_bound() {
    let config = || fifo_config().concurrency(1).shutdown_grace(SECOND * 2);
    // The cases are a drain, reconciles in flight, and reconciles that are dropped because they do not end in time.
    let short = || config().shutdown_grace(SECOND / 4);
    for (config, ended, results) in [
        (config().drain_on_shutdown(), 5_000, 5),
        (config().drain_on_shutdown().abort_after(Duration::ZERO), 4_500, 4),
        (config(), 3_000, 3),
        (short(), 3_000, 3),
        (short().abort_after(SECOND / 8), 2_875, 2),
    ] {
        let world = ten();
        let runs = Runs::new();
        let controller = Controller::for_shared(&world.informer)
            .with_config(config)
            .graceful_shutdown_on(sleep(SECOND * 5 / 2));
        let mut reconciles = slow(controller, &runs);
        let begun = Instant::now();
        let items: Vec<_> = (&mut reconciles).collect().await;
        assert_eq!((begun.elapsed().as_millis(), items.len()), (ended, results));
    }
}

#[tokio::test(start_paused = true)]
async fn forceful_shutdown_drops_reconciles() {
    let world = ten();
    let runs = Runs::new();
    let controller = Controller::for_shared(&world.informer)
        .with_config(fifo_config().concurrency(1).drain_on_shutdown())
        .graceful_shutdown_on(sleep(SECOND))
        .forceful_shutdown_on(sleep(SECOND * 5 / 2));
    let begun = Instant::now();
    let items: Vec<_> = slow(controller, &runs).collect().await;
    assert_eq!((begun.elapsed().as_millis(), items.len()), (2_500, 2));
}

/// What a reconcile waits for, and whether it has seen it.
type Blocks = (std::sync::mpsc::Receiver<()>, Option<bool>);

/// The reconcile below blocks its thread during the stop. The test runs on real time: if the lease is released too early, the first `recv_timeout` returns
/// at once, and otherwise it takes its whole time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn immediate_stop_releases_the_lease_only_after_the_last_poll_of_a_reconcile() {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Lease>();
    server.put(&map("default/a"));
    let mut election = Election::builder(server.client(), "default", "l", "a").standby(true).build().unwrap();
    let ((stop, stopped), (released, is_released)) = (oneshot::channel::<()>(), std::sync::mpsc::channel());
    let (blocks, begun) = (Arc::new(Mutex::new((is_released, None))), Arc::new(Notify::new()));
    let controller = Controller::new(Api::<ConfigMap>::all(server.client()), watcher::Config::default())
        .forceful_shutdown_on(stopped.map(drop));
    let context = Arc::new((blocks.clone(), begun.clone()));
    let work = election.run(std::future::pending(), |leadership| {
        let reconciles = controller.with_leadership(&leadership).run(
            async |_, context: Arc<(Arc<Mutex<Blocks>>, Arc<Notify>)>| {
                let (blocks, begun) = &*context;
                let (is_released, early) = &mut *blocks.lock();
                begun.notify_one();
                *early = Some(is_released.recv_timeout(SECOND / 2).is_ok());
                Ok::<_, Refused>(Action::await_change())
            },
            |_, _, _| unreachable!("no reconcile fails"),
            context,
        );
        reconciles.for_each(|_| std::future::ready(()))
    });
    // The test stops the controller, because a task that the blocked thread wakes would wait for that thread.
    let stops = begun.notified().map(|()| stop.send(()));
    let work = async { tokio::join!(work, stops).0 };
    let outcome = timeout(SECOND * 30, work).await.expect("the controller ends");
    assert_eq!(outcome, ElectionOutcome::Done(()));
    let lease = server.get::<Lease>("default", "l").unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.unwrap_or_default(), "", "the lease is released");
    // While the reconcile blocks, it receives this.
    released.send(()).unwrap();
    assert_eq!(blocks.lock().1, Some(false), "released during a poll of the reconcile");
}

#[tokio::test(start_paused = true)]
async fn the_first_of_several_signals_counts() {
    for [in_order, at_once] in [[1, 1000], [1000, 1]] {
        let world = World::of([map("default/a")]);
        let controller = Controller::for_shared(&world.informer)
            .graceful_shutdown_on(sleep(SECOND * 100))
            .graceful_shutdown_on(sleep(SECOND * in_order))
            .forceful_shutdown_on(sleep(SECOND * at_once))
            .forceful_shutdown_on(sleep(SECOND * 1000));
        let begun = Instant::now();
        logging(controller, &Runs::new()).for_each(|_| std::future::ready(())).await;
        assert_eq!(begun.elapsed(), SECOND);
    }
}

/// This test sends signals to its own process, so no other test may do that. It runs on real time; the timeout expires only if the stream does not
/// end.
#[cfg(unix)]
#[tokio::test]
async fn the_first_signal_ends_it_in_order_and_the_second_at_once() {
    use tokio::signal::unix::{SignalKind, signal};

    // From here on the signals do not terminate the test process.
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let mut interrupt = signal(SignalKind::interrupt()).unwrap();
    let send = |name: &str| {
        let kill = format!("kill -{name} {}", std::process::id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    };
    for (twice, results) in [(false, 1), (true, 0)] {
        let world = World::of([map("default/a")]);
        let begun_and_may_end = Arc::new((Notify::new(), Notify::new()));
        let reconciles = Controller::for_shared(&world.informer).shutdown_on_signal().run(
            async |_: Arc<ConfigMap>, begun_and_may_end: Arc<(Notify, Notify)>| {
                begun_and_may_end.0.notify_one();
                begun_and_may_end.1.notified().await;
                Ok::<_, Refused>(Action::await_change())
            },
            |_, _, _| unreachable!(),
            begun_and_may_end.clone(),
        );
        let all = tokio::spawn(reconciles.collect::<Vec<_>>());
        begun_and_may_end.0.notified().await;
        send("TERM");
        terminate.recv().await;
        // The controller has also received the signal, and must be polled before the test sends the next signal.
        for _ in 0..100 {
            yield_now().await;
        }
        if twice {
            send("INT");
            interrupt.recv().await;
        } else {
            begun_and_may_end.1.notify_one();
        }
        let all = timeout(SECOND * 30, all).await.expect("the stream ends").unwrap();
        assert_eq!(all.len(), results);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_ends_everything() {
    let world = ten();
    let runs = Runs::new();
    let controller = Controller::for_shared(&world.informer).with_config(fifo_config().concurrency(2));
    let monitor = controller.monitor();
    let mut reconciles = slow(controller, &runs);
    during(&mut reconciles, SECOND * 3 / 2).await;
    drop(reconciles);
    sleep(SECOND * 60).await;
    assert_eq!(runs.all().len(), 2);
    assert_eq!(monitor.live(SECOND), Err(NotLive::Ended));
    assert_eq!(Arc::strong_count(&runs), 1, "the controller must drop everything");
    // The shared informer continues to run: another controller starts with all objects of the informer.
    let again = Runs::new();
    during(&mut logging(Controller::for_shared(&world.informer), &again), SECOND).await;
    assert_eq!(again.all().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn never_polled_it_never_begins() {
    let world = ten();
    let runs = Runs::new();
    let reconciles = logging(Controller::for_shared(&world.informer), &runs);
    sleep(SECOND * 60).await;
    assert_eq!(runs.all().len(), 0);
    drop(reconciles);
    assert_eq!(Arc::strong_count(&runs), 1);
}

#[tokio::test(start_paused = true)]
async fn store_wait_fails_after_the_controller_is_dropped() {
    let server = ApiServer::new();
    server.register::<ConfigMap>();
    let new = || Controller::new(Api::<ConfigMap>::all(server.client()), watcher::Config::default());
    let (dropped, never_polled) = (new(), new());
    for store in [dropped.store(), never_polled.store()] {
        assert!(timeout(SECOND, store.wait_until_ready()).await.is_err(), "the controller does not run yet");
    }
    let stores = [dropped.store(), never_polled.store()];
    drop(dropped);
    drop(logging(never_polled, &Runs::new()));
    for store in stores {
        assert!(timeout(SECOND, store.wait_until_ready()).await.unwrap().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn buffers_results_up_to_a_limit() {
    let world = World::of((0..1_000).map(|n| map(&format!("default/{n}"))));
    let runs = Runs::new();
    let mut reconciles =
        logging(Controller::for_shared(&world.informer).with_config(Config::default().concurrency(8)), &runs);
    let first = reconciles.next().await;
    sleep(SECOND).await;
    // 256 results wait in the channel, each of eight reconciles waits to send one result, and the test has read one result.
    assert_eq!(runs.all().len(), 256 + 8 + 1);
    let rest = during(&mut reconciles, SECOND).await;
    assert_eq!((first.is_some(), rest.len()), (true, 999));
}

#[tokio::test(start_paused = true)]
async fn it_begins_when_every_cache_is_filled() {
    let world = ten();
    let pods = World::of([] as [k8s_openapi::api::core::v1::Pod; 0]);
    pods.server.fail_list(flyball_informer_cache::SourceErrorKind::ConnectionRefused);
    let runs = Runs::new();
    let controller = Controller::for_shared(&world.informer).owns_shared(&pods.informer);
    let monitor = controller.monitor();
    let mut reconciles = logging(controller, &runs);
    assert_eq!(outcomes(&during(&mut reconciles, SECOND / 2).await), [""; 0]);
    assert_eq!(monitor.ready(), Err(NotReady::Syncing));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND * 10).await).len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_never_syncs_ends_the_stream() {
    let world = ten();
    let (pods, run) = flyball_informer_cache::Informer::<NamespacedName, ConfigMap>::builder(
        flyball_kube::schema(),
        world.server.clone(),
    )
    .timer(flyball_sync::TokioTimer::current())
    .build()
    .unwrap();
    let runs = Runs::new();
    let mut reconciles = logging(Controller::for_shared(&world.informer).owns_shared(&pods), &runs);
    assert_eq!(during(&mut reconciles, SECOND).await.len(), 0);
    drop(run);
    assert!(timeout(SECOND, reconciles.next()).await.unwrap().is_none());
    assert_eq!(runs.all().len(), 0);
}
