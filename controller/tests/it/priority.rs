//! Priorities: keys of initial objects, and keys of later changes.

use std::sync::atomic::{AtomicBool, Ordering};

use flyball_controller::{Action, Controller, ControllerConfig, FailureClass, WatchOptions};
use flyball_informer_cache::{Change, Informer};
use flyball_ratelimit::Exponential;
use flyball_sync::TokioTimer;
use flyball_workqueue::{AddOptions, Priority, Queue};
use tokio::time::sleep;

use crate::support::{HistorySource, Log, SECOND, Thing};

type Prioritised = Queue<u32, Priority, Exponential<u32>, TokioTimer>;

fn queue() -> Prioritised {
    let backoff = Exponential::new(SECOND..=60 * SECOND);
    Queue::builder().order(Priority::new()).limiter(backoff).timer(TokioTimer::current()).build()
}

#[tokio::test(start_paused = true)]
async fn the_initial_list_has_the_lowest_priority() {
    let world = HistorySource::new();
    initial_goes_last(&world, async |things| things.synced().await.unwrap()).await;
}

/// The usual order: the informer and the controller start at the same time, so the controller observes the first list when it arrives.
#[tokio::test(start_paused = true)]
async fn a_list_after_the_start_has_the_lowest_priority() {
    let world = HistorySource::closed();
    let opening = world.clone();
    initial_goes_last(&world, async move |things| {
        let things = things.clone();
        tokio::spawn(async move {
            assert!(!things.is_synced());
            opening.open();
        });
    })
    .await;
}

async fn initial_goes_last(world: &HistorySource, before: impl AsyncFnOnce(&Informer<u32, Thing>)) {
    for key in 1..=3 {
        world.put(key, 0);
    }
    let things = world.informer();
    before(&things).await;
    let (world, queue, log) = (world.clone(), queue(), Log::new());
    let own_log = log.clone();
    let first = AtomicBool::new(true);
    let options = WatchOptions::new().initial_priority(-100);
    let controller = Controller::new(queue.clone()).watches_with(&things, |change| *change.key(), options);
    let controller = controller
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
        .run(move |key, _| {
            own_log.note(key);
            let first = first.swap(false, Ordering::Relaxed);
            let event = first.then(|| world.put(7, 0));
            let (queue, things) = (queue.clone(), things.clone());
            async move {
                // The event arrives while the first key of the initial list is reconciled.
                if let Some(version) = event {
                    things.store().wait_for_version(version).await.expect("the store is open");
                    assert_eq!(queue.priority(&7), Some(0));
                    things.shut_down();
                }
                Ok::<_, String>(Action::await_change())
            }
        });
    controller.await.unwrap();
    let order = log.take();
    assert_eq!((order.len(), order[1]), (4, 7), "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn a_mapper_may_set_the_priority() {
    let world = HistorySource::new();
    for (key, value) in [(1, 5), (2, 9), (3, 0)] {
        world.put(key, value);
    }
    let things = world.informer();
    things.synced().await.unwrap();
    let log = Log::new();
    let own_log = log.clone();
    let controller = Controller::new(queue())
        .watches_with(
            &things,
            |change| *change.key(),
            WatchOptions::new().add_with(|queue: &Prioritised, change: &Change<u32, Thing>, key| {
                queue.add_with(
                    key,
                    AddOptions { priority: change.object().value as i8, ..AddOptions::default() },
                )
            }),
        )
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() });
    let running = tokio::spawn(controller.run(move |key, _| {
        own_log.note(key);
        async { Ok::<_, String>(Action::await_change()) }
    }));
    tokio::task::yield_now().await;
    things.shut_down();
    running.await.unwrap().unwrap();
    assert_eq!(log.take(), [2, 1, 3]);
}

/// A conflict requeues the key with its own priority, not with the priority of a new add.
#[tokio::test(start_paused = true)]
async fn a_conflict_keeps_the_priority_of_its_key() {
    let (queue, log) = (queue(), Log::new());
    queue.add_with(1, AddOptions { priority: -5, ..AddOptions::default() }).unwrap();
    queue.add_with(2, AddOptions { priority: 7, ..AddOptions::default() }).unwrap();
    let (own_log, seen) = (log.clone(), queue.clone());
    let report = Controller::new(queue)
        .classify(|_| FailureClass::Conflict)
        .graceful_shutdown_on(sleep(SECOND))
        .run(move |key, _| {
            let first = own_log.count() < 2;
            own_log.note((key, seen.priority(&key)));
            async move { if first { Err("conflict") } else { Ok(Action::await_change()) } }
        })
        .await
        .unwrap();
    assert_eq!(log.take(), [2, 1, 2, 1].map(|key| (key, Some(if key == 1 { -5 } else { 7 }))));
    assert_eq!(report.conflicts, 2);
}
