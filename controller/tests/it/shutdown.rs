//! The order of a shutdown: stop mapping changes, drain the queue or leave its keys, join the workers, report the leftovers.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

use flyball_controller::{Action, Controller, ControllerConfig};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};

use crate::support::{HistorySource, Log, SECOND, left, panic_quietly, queue, run_until_pending, sorted};

#[tokio::test(start_paused = true)]
async fn a_drain_stops_events_first_then_finishes_the_queue_then_joins_workers() {
    let world = HistorySource::new();
    for key in 0..10 {
        world.put(key, 0);
    }
    let things = world.informer();
    let queue = queue();
    let (signal, stop) = oneshot::channel::<()>();
    let log = Log::new();
    let own_log = log.clone();
    let running = tokio::spawn(
        Controller::new(queue.clone())
            .watches(&things, |change| *change.key())
            .with_config(ControllerConfig {
                workers: 2.into(),
                drain_on_shutdown: true,
                ..ControllerConfig::default()
            })
            .graceful_shutdown_on(async { drop(stop.await) })
            .run(move |key, context| {
                let own_log = own_log.clone();
                async move {
                    sleep(SECOND).await;
                    own_log.note((key, context.is_shutting_down()));
                    match key {
                        8 => Ok(Action::requeue_after(SECOND)),
                        9 => Err("it fails"),
                        _ => Ok(Action::await_change()),
                    }
                }
            }),
    );
    things.synced().await.unwrap();
    sleep(SECOND / 2).await;
    assert_eq!(queue.stats().leased, 2, "two keys are being reconciled");
    signal.send(()).unwrap();
    run_until_pending().await;
    // An object changes after the signal. The controller no longer maps this change.
    let late = world.put(77, 0);
    things.store().wait_for_version(late).await.unwrap();
    run_until_pending().await;
    let report = running.await.unwrap().unwrap();
    let done = sorted(log.take());
    assert_eq!(
        done,
        (0..10).map(|key| (key, true)).collect::<Vec<_>>(),
        "every reconcile of the backlog must see the shutdown"
    );
    assert_eq!(report.reconciles, 10);
    assert_eq!(sorted(report.leftovers.waiting), [8, 9], "the delayed key and the retried key are leftovers");
    assert!(report.leftovers.ready.is_empty() && report.leftovers.leased.is_empty());
    assert!(queue.add(1).is_err(), "the queue is shut down");
}

#[tokio::test(start_paused = true)]
async fn running_reconciles_end_at_shutdown_and_the_queue_is_left() {
    let (queue, log, begin) = (queue(), Log::new(), Instant::now());
    (0..600).for_each(|key| _ = queue.add(key).unwrap());
    let own_log = log.clone();
    let report = Controller::new(queue.clone())
        .graceful_shutdown_on(sleep(SECOND * 9 / 2))
        .run(move |key, _| {
            own_log.note(key);
            async {
                sleep(SECOND).await;
                Ok::<_, String>(Action::await_change())
            }
        })
        .await
        .unwrap();
    assert_eq!(
        (begin.elapsed(), log.take()),
        (5 * SECOND, vec![0, 1, 2, 3, 4]),
        "the reconcile in flight must be the last one"
    );
    assert_eq!((report.reconciles, sorted(report.leftovers.ready)), (5, (5..600).collect()));
    assert!(report.leftovers.waiting.is_empty() && report.leftovers.leased.is_empty());
    assert!(queue.add(1).is_err(), "the queue is shut down");
}

#[tokio::test(start_paused = true)]
async fn a_drain_starts_nothing_after_its_grace_and_cuts_nothing_in_the_middle() {
    let (queue, dropped, begin) = (queue(), Arc::new(AtomicU32::new(0)), Instant::now());
    (0..600).for_each(|key| _ = queue.add(key).unwrap());
    let counted = dropped.clone();
    let report = Controller::new(queue)
        .with_config(ControllerConfig {
            workers: 8.into(),
            drain_on_shutdown: true,
            shutdown_grace: 7 * SECOND,
            ..ControllerConfig::default()
        })
        .graceful_shutdown_on(sleep(SECOND / 2))
        .run(move |_, _| {
            let guard = Dropped(counted.clone());
            async move {
                let guard = guard;
                sleep(SECOND).await;
                std::mem::forget(guard);
                Ok::<_, String>(Action::await_change())
            }
        })
        .await
        .unwrap();
    assert_eq!((begin.elapsed(), dropped.load(Ordering::SeqCst)), (8 * SECOND, 0));
    assert_eq!((report.reconciles, report.leftovers.ready.len(), left(&report)), (64, 536, 536));
}

#[tokio::test(start_paused = true)]
async fn reconciles_are_cancelled_after_the_grace_and_dropped_some_time_later() {
    let (queue, log, begin) = (queue(), Log::new(), Instant::now());
    (0..4).for_each(|key| _ = queue.add(key).unwrap());
    let own_log = log.clone();
    let report = Controller::new(queue)
        .with_config(ControllerConfig { workers: 3.into(), ..ControllerConfig::default() })
        .graceful_shutdown_on(sleep(SECOND))
        .run(move |key, context| {
            let own_log = own_log.clone();
            async move {
                assert!(!context.is_shutting_down() && !context.is_cancelled());
                context.shutdown_started().await;
                own_log.note((key, begin.elapsed().as_secs(), context.is_cancelled()));
                if key == 0 {
                    return Ok(Action::await_change());
                }
                context.cancelled().await;
                own_log.note((key, begin.elapsed().as_secs(), context.is_cancelled()));
                match key {
                    1 => Err("it was cancelled"),
                    _ => pending().await,
                }
            }
        })
        .await
        .unwrap();
    assert_eq!(begin.elapsed(), 26 * SECOND, "1 s until the signal, 20 s of grace and 5 s until the abort");
    let seen = [(0, 1, false), (1, 1, false), (1, 21, true), (2, 1, false), (2, 21, true)];
    assert_eq!(sorted(log.take()), seen);
    assert_eq!((report.reconciles, report.errors), (2, 1));
    let left = report.leftovers;
    assert_eq!(
        (left.ready, left.leased),
        (vec![3, 1], vec![2]),
        "ready: queued and failed keys; leased: the dropped one"
    );
}

struct Dropped(Arc<AtomicU32>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn drops_and_reports_reconciles_after_the_grace() {
    let queue = queue();
    for key in 0..5 {
        queue.add(key).unwrap();
    }
    let dropped = Arc::new(AtomicU32::new(0));
    let counted = dropped.clone();
    let begin = Instant::now();
    let report = Controller::new(queue)
        .with_config(ControllerConfig {
            workers: 2.into(),
            shutdown_grace: 2 * SECOND,
            abort_after: SECOND,
            ..ControllerConfig::default()
        })
        .graceful_shutdown_on(sleep(SECOND))
        .run(move |_, _| {
            let guard = Dropped(counted.clone());
            async move {
                let _guard = guard;
                pending::<Result<Action, String>>().await
            }
        })
        .await
        .unwrap();
    assert_eq!(begin.elapsed().as_secs(), 4);
    assert_eq!(dropped.load(Ordering::SeqCst), 2, "both workers must be joined");
    assert_eq!(sorted(report.leftovers.leased), [0, 1]);
    assert_eq!(sorted(report.leftovers.ready), [2, 3, 4]);
    assert_eq!(report.reconciles, 0);
}

#[tokio::test(start_paused = true)]
async fn after_the_grace_a_reconcile_that_panics_when_dropped_takes_no_report_away() {
    struct PanicOnDrop;
    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            panic_quietly("dropped");
        }
    }
    let queue = queue();
    for key in 0..3 {
        queue.add(key).unwrap();
    }
    let report = Controller::new(queue)
        .with_config(ControllerConfig {
            workers: 2.into(),
            shutdown_grace: SECOND,
            ..ControllerConfig::default()
        })
        .graceful_shutdown_on(sleep(SECOND))
        .run(|_, _| async {
            let _panic_on_drop = PanicOnDrop;
            pending::<Result<Action, String>>().await
        })
        .await
        .unwrap();
    assert_eq!((sorted(report.leftovers.leased), report.leftovers.ready), (vec![0, 1], vec![2]));
    assert_eq!((report.reconciles, report.panics), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_long_reconcile_can_end_early_at_shutdown() {
    let queue = queue();
    queue.add(1).unwrap();
    let begin = Instant::now();
    let report = Controller::new(queue)
        .graceful_shutdown_on(sleep(SECOND))
        .run(|_, context| async move {
            tokio::select! {
                () = context.shutdown_started() => Ok::<_, String>(Action::await_change()),
                () = sleep(3_600 * SECOND) => unreachable!("the reconcile must end at the shutdown"),
            }
        })
        .await
        .unwrap();
    assert_eq!(begin.elapsed().as_secs(), 1);
    assert_eq!((report.reconciles, report.panics), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn shut_down_before_the_caches_have_synced_it_reconciles_nothing() {
    let (world, never) = (HistorySource::new(), HistorySource::closed());
    world.put(1, 0);
    let (one, other) = (world.informer(), never.informer());
    one.synced().await.unwrap();
    let report = Controller::new(queue())
        .watches(&one, |change| *change.key())
        .watches(&other, |change| *change.key())
        .graceful_shutdown_on(sleep(SECOND))
        .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
        .await
        .unwrap();
    assert_eq!(report.reconciles, 0);
    assert_eq!(report.leftovers.ready, [1]);
}

#[tokio::test(start_paused = true)]
async fn no_reconcile_starts_after_the_signal() {
    let queue = queue();
    queue.add(1).unwrap();
    let controller = Controller::new(queue).graceful_shutdown_on(async {});
    let report = controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await.unwrap();
    assert_eq!((report.reconciles, report.leftovers.ready), (0, vec![1]));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_shut_down_from_elsewhere_ends_the_run() {
    let queue = queue();
    queue.add(1).unwrap();
    queue.add_after(2, SECOND).unwrap();
    let closing = queue.clone();
    let report = Controller::new(queue)
        .run(move |_, _| {
            closing.shut_down();
            async { Ok::<_, String>(Action::await_change()) }
        })
        .await
        .unwrap();
    assert_eq!((report.reconciles, report.leftovers.waiting), (1, vec![2]));
}

#[tokio::test(start_paused = true)]
async fn stop_when_idle_ends_after_the_last_retry() {
    let world = HistorySource::new();
    world.put(1, 0);
    let things = world.informer();
    let begin = Instant::now();
    let failures = AtomicU32::new(0);
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, |change| *change.key())
            .with_config(ControllerConfig {
                workers: 3.into(),
                stop_when_idle: true,
                ..ControllerConfig::default()
            })
            .run(move |_, _| {
                let fails = failures.fetch_add(1, Ordering::SeqCst) < 3;
                async move { if fails { Err("not yet") } else { Ok(Action::await_change()) } }
            }),
    );
    things.synced().await.unwrap();
    run_until_pending().await;
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!(
        begin.elapsed().as_secs(),
        1 + 2 + 4,
        "the run must wait for three backoffs, although the cache was closed before the first"
    );
    assert_eq!((report.reconciles, report.retries()), (4, 3));
    assert_eq!(left(&report), 0);
}

#[tokio::test(start_paused = true)]
async fn stop_when_idle_ends_immediately_without_work() {
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    things.shut_down();
    let never = Notify::new();
    let run = Controller::new(queue())
        .watches(&things, |change| *change.key())
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
        .run(|_, _| async { Ok::<_, String>(Action::await_change()) });
    tokio::select! {
        report = run => assert_eq!(report.unwrap().reconciles, 0),
        () = never.notified() => unreachable!(),
        () = sleep(Duration::from_secs(60)) => panic!("the run does not end"),
    }
}

#[tokio::test(start_paused = true)]
async fn stop_when_idle_ends_when_the_last_waiting_key_is_cancelled() {
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    let (queue, begin) = (queue(), Instant::now());
    queue.add_after(1, 3_600 * SECOND).unwrap();
    let running = tokio::spawn(
        Controller::new(queue.clone())
            .watches(&things, |change| *change.key())
            .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    run_until_pending().await;
    things.shut_down();
    sleep(SECOND).await;
    assert!(!running.is_finished());
    queue.cancel(&1);
    let report =
        tokio::time::timeout(60 * SECOND, running).await.expect("the run must end").unwrap().unwrap();
    assert_eq!((begin.elapsed(), report.reconciles), (SECOND, 0));
}

#[tokio::test(start_paused = true)]
async fn a_key_added_with_the_signal_is_left_over() {
    let (queue, log) = (queue(), Log::new());
    let (signal, stop) = oneshot::channel::<()>();
    let own_log = log.clone();
    let running = tokio::spawn(
        Controller::new(queue.clone()).graceful_shutdown_on(async { drop(stop.await) }).run(move |key, _| {
            own_log.note(key);
            async { Ok::<_, String>(Action::await_change()) }
        }),
    );
    run_until_pending().await;
    // The signal wakes the run future before the add wakes a worker.
    signal.send(()).unwrap();
    queue.add(1).unwrap();
    let report = running.await.unwrap().unwrap();
    assert_eq!((log.take(), report.leftovers.ready), (vec![], vec![1]));
}

#[tokio::test(start_paused = true)]
async fn the_first_of_several_signals_shuts_down() {
    for (first, second) in [(1, 2), (2, 1)] {
        let begin = Instant::now();
        let controller = Controller::new(queue())
            .graceful_shutdown_on(sleep(first * SECOND))
            .graceful_shutdown_on(sleep(second * SECOND));
        controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await.unwrap();
        assert_eq!(begin.elapsed(), SECOND);
    }
}

/// A reconcile may poll its context with a waker of its own. The panic of such a waker must not end the shutdown.
#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_does_not_end_the_shutdown() {
    struct PanickingWaker;
    impl Wake for PanickingWaker {
        fn wake(self: Arc<Self>) {
            panic_quietly("a waker");
        }
    }
    for stage in ["shutdown", "cancelled"] {
        let queue = queue();
        queue.add(1).unwrap();
        let report = Controller::new(queue)
            .with_config(ControllerConfig { shutdown_grace: 2 * SECOND, ..ControllerConfig::default() })
            .graceful_shutdown_on(sleep(SECOND))
            .run(move |_, context| async move {
                let mut waits: Pin<Box<dyn Future<Output = ()> + Send>> = match stage {
                    "shutdown" => Box::pin(async { context.shutdown_started().await }),
                    _ => Box::pin(async { context.cancelled().await }),
                };
                let waker = Arc::new(PanickingWaker).into();
                assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                sleep(5 * SECOND).await;
                drop(waits);
                Ok::<_, String>(Action::await_change())
            })
            .await
            .unwrap();
        assert_eq!((report.reconciles, left(&report)), (1, 0), "{stage}");
    }
}
