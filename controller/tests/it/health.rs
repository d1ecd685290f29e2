//! Readiness and liveness in each stage of a controller, and the reasons that are returned if it is not ready or not alive.

use std::future::pending;
use std::sync::Arc;

use flyball_controller::{Action, Controller, ControllerConfig, NotLive, NotReady, RunError};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{advance, sleep};

use crate::support::{HistorySource, SECOND, queue, run_until_pending};

#[tokio::test(start_paused = true)]
async fn readiness_and_liveness_through_a_run() {
    let world = HistorySource::closed();
    let things = world.informer();
    let (signal, stop) = oneshot::channel::<()>();
    let queue = queue();
    let controller = Controller::new(queue.clone())
        .watches(&things, |change| *change.key())
        .graceful_shutdown_on(async { drop(stop.await) });
    let health = controller.health();
    let probe = || (health.ready(), health.live(10 * SECOND));
    assert_eq!(probe(), (Err(NotReady::NotStarted), Ok(())));

    let running = tokio::spawn(controller.run(|_, _| async {
        sleep(5 * SECOND).await;
        Ok::<_, String>(Action::await_change())
    }));
    run_until_pending().await;
    advance(60 * SECOND).await;
    assert_eq!(probe(), (Err(NotReady::Syncing), Ok(())), "a controller that waits for its caches is alive");
    world.put(1, 0);
    world.open();
    run_until_pending().await;
    assert_eq!(probe(), (Ok(()), Ok(())));
    signal.send(()).unwrap();
    run_until_pending().await;
    assert_eq!(queue.stats().leased, 1, "the running reconcile goes on");
    assert_eq!(probe(), (Err(NotReady::ShuttingDown), Ok(())));
    things.shut_down();
    run_until_pending().await;
    assert_eq!(probe(), (Err(NotReady::ShuttingDown), Ok(())), "a cache may end during the shutdown");
    running.await.unwrap().unwrap();
    assert_eq!(probe(), (Err(NotReady::Ended), Err(NotLive::Ended)));
}

#[tokio::test(start_paused = true)]
async fn reports_a_key_leased_for_too_long() {
    let queue = queue();
    queue.add(1).unwrap();
    let controller = Controller::new(queue.clone());
    let health = controller.health();
    let running = tokio::spawn(controller.run(|_, _| pending::<Result<Action, String>>()));
    run_until_pending().await;
    advance(10 * SECOND).await;
    assert_eq!(health.live(10 * SECOND), Ok(()));
    advance(SECOND).await;
    assert_eq!(health.live(10 * SECOND), Err(NotLive::Stuck(11 * SECOND)));
    assert_eq!(health.ready(), Ok(()));
    running.abort();
    run_until_pending().await;
    assert_eq!((health.ready(), health.live(10 * SECOND)), (Err(NotReady::Ended), Err(NotLive::Ended)));
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_ends_while_it_works_is_named_unless_the_run_ends_with_it() {
    for settles in [false, true] {
        let world = HistorySource::new();
        world.put(1, 0);
        let things = world.informer();
        let controller = Controller::new(queue()).watches(&things, |change| *change.key());
        let controller = if settles {
            controller.with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
        } else {
            controller
        };
        let health = controller.health();
        let running = tokio::spawn(controller.run(|_, _| async {
            sleep(SECOND).await;
            Ok::<_, String>(Action::await_change())
        }));
        run_until_pending().await;
        things.shut_down();
        run_until_pending().await;
        if settles {
            assert_eq!((health.live(10 * SECOND), health.ready()), (Ok(()), Ok(())));
            running.abort();
            continue;
        }
        let named =
            NotReady::CacheEnded { index: 0, object_type: std::any::type_name::<crate::support::Thing>() };
        assert_eq!((health.live(10 * SECOND), health.ready()), (Err(NotLive::CacheEnded), Err(named)));
        running.await.unwrap().unwrap_err();
        assert_eq!(
            (health.live(10 * SECOND), health.ready()),
            (Err(NotLive::CacheEnded), Err(named)),
            "the reason stays available after the run"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn reads_no_clock_without_health() {
    let queue = queue();
    let controller = Controller::new(queue.clone());
    assert!(!queue.stats().ages_tracked);
    let _health = controller.health();
    assert!(queue.stats().ages_tracked);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_was_refused_or_never_run_has_ended() {
    let refused = Controller::new(queue())
        .with_config(ControllerConfig { workers: 0.into(), ..ControllerConfig::default() });
    let health = refused.health();
    refused.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await.unwrap_err();
    assert_eq!(health.ready(), Err(NotReady::Ended));
    let health = Controller::new(queue()).health();
    assert_eq!(health.live(SECOND), Err(NotLive::Ended));
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_ended_before_it_had_synced_is_named() {
    let things = HistorySource::closed().informer();
    let controller = Controller::new(queue()).watches(&things, |change| *change.key());
    let health = controller.health();
    let running = tokio::spawn(controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }));
    run_until_pending().await;
    things.shut_down();
    running.await.unwrap().unwrap_err();
    let named =
        NotReady::CacheEnded { index: 0, object_type: std::any::type_name::<crate::support::Thing>() };
    assert_eq!(health.ready(), Err(named));
    assert_eq!(NotReady::Syncing.to_string(), "the controller waits for its caches");
    assert_eq!(NotLive::Stuck(SECOND).to_string(), "a key has been worked on for 1s");
}

#[tokio::test(start_paused = true)]
async fn a_standby_is_ready_with_synced_caches_and_starts_with_existing_objects() {
    let world = HistorySource::closed();
    let things = world.informer();
    let (begin, begins) = oneshot::channel::<()>();
    let queue = queue();
    let ran = Arc::<Mutex<Vec<u32>>>::default();
    let controller = Controller::new(queue.clone())
        .watches(&things, |change| *change.key())
        .standby_until(async { drop(begins.await) });
    let health = controller.health();
    let log = ran.clone();
    let running = tokio::spawn(controller.run(move |key, _| {
        log.lock().push(key);
        async { Ok::<_, String>(Action::await_change()) }
    }));
    run_until_pending().await;
    assert_eq!(health.ready(), Err(NotReady::Syncing));
    world.open();
    run_until_pending().await;
    assert_eq!((health.ready(), health.live(SECOND)), (Ok(()), Ok(())));
    // Objects that are created and deleted during the standby leave no keys in the queue.
    for key in 0..100 {
        world.put(key, 0);
        run_until_pending().await;
        if key != 7 {
            world.remove(key);
        }
    }
    run_until_pending().await;
    assert_eq!(things.store().len(), 1);
    assert_eq!((queue.stats().ready, ran.lock().len()), (0, 0));

    begin.send(()).unwrap();
    run_until_pending().await;
    assert_eq!(*ran.lock(), [7]);
    world.put(8, 0);
    run_until_pending().await;
    assert_eq!(*ran.lock(), [7, 8], "changes after the standby become keys");
    assert_eq!(health.ready(), Ok(()));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_starts_before_sync_is_ready_without_its_caches() {
    let world = HistorySource::closed();
    let things = world.informer();
    let controller = Controller::new(queue())
        .watches(&things, |change| *change.key())
        .with_config(ControllerConfig { start_before_sync: true, ..ControllerConfig::default() })
        .standby_until(pending());
    let health = controller.health();
    let running = tokio::spawn(controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }));
    run_until_pending().await;
    assert!(!health.watches()[0].synced);
    assert_eq!(health.ready(), Ok(()));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_standby_ends_with_its_cache() {
    let world = HistorySource::new();
    world.put(1, 0);
    let things = world.informer();
    let controller =
        Controller::new(queue()).watches(&things, |change| *change.key()).standby_until(pending());
    let health = controller.health();
    let running = tokio::spawn(controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }));
    run_until_pending().await;
    assert_eq!((health.ready(), health.live(SECOND)), (Ok(()), Ok(())));
    things.shut_down();
    run_until_pending().await;
    assert_eq!(health.live(SECOND), Err(NotLive::CacheEnded));
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::CacheEnded(_)), "{error}");
}
