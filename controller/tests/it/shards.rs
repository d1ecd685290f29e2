//! Several replicas, each with its share of the keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flyball_controller::{Action, Controller, ControllerConfig, FailureClass, Shard};
use flyball_workqueue::KeyState;
use tokio::time::{Instant, sleep};

use crate::support::{HistorySource, Log, SECOND, panic_quietly, queue, run_until_pending, sorted};

#[tokio::test(start_paused = true)]
async fn every_key_belongs_to_one_replica() {
    let world = HistorySource::new();
    for key in 0..100 {
        world.put(key, 0);
    }
    let things = world.informer();
    let log = Log::new();
    let mut running = Vec::new();
    for index in 0..3 {
        let (own_log, shard) = (log.clone(), Shard::new(index, 3).unwrap());
        running.push(tokio::spawn(
            Controller::new(queue())
                .watches(&things, |change| *change.key())
                .filter_keys(move |key| shard.contains(key.to_le_bytes()))
                .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
                .run(move |key, _| {
                    own_log.note((key, index));
                    async { Ok::<_, String>(Action::await_change()) }
                }),
        ));
    }
    things.synced().await.unwrap();
    run_until_pending().await;
    let first = sorted(log.take());
    assert_eq!(first.iter().map(|(key, _)| *key).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    assert!((0..3).all(|index| first.iter().any(|(_, by)| *by == index)));

    // Later changes of an object are reconciled by the same replica.
    for key in 0..100 {
        world.put(key, 1);
    }
    run_until_pending().await;
    assert_eq!(sorted(log.take()), first);
    things.shut_down();
    let mut adds = 0;
    for running in running {
        let report = running.await.unwrap().unwrap();
        adds += report.keys_added;
        assert_eq!(report.filtered_keys, 0);
    }
    assert_eq!(adds, 200, "each replica must add only its own keys");
}

#[tokio::test(start_paused = true)]
async fn removes_keys_of_other_replicas() {
    let (queue, log) = (queue(), Log::new());
    (0..10).for_each(|key| drop(queue.add(key)));
    queue.shut_down();
    let own_log = log.clone();
    let report = Controller::new(queue.clone())
        .filter_keys(|key| match key {
            9 => panic_quietly("an unknown key"),
            key => key % 3 == 0,
        })
        .run(move |key, _| {
            own_log.note(key);
            async { Ok::<_, String>(Action::await_change()) }
        })
        .await
        .unwrap();
    assert_eq!(log.take(), [0, 3, 6, 9], "if the filter panics, the key must be reconciled rather than lost");
    assert_eq!((report.reconciles, report.filtered_keys, report.callback_panics), (4, 6, 1));
    assert!(crate::support::holds_nothing(&queue.stats()));
}

/// A key fails, moves to another replica, and comes back. Its failures and its conflicts from before must not count.
#[tokio::test(start_paused = true)]
async fn a_key_of_another_replica_loses_its_failures_and_conflicts() {
    for class in [FailureClass::Transient, FailureClass::Conflict] {
        let (queue, times, begin) = (queue(), Log::new(), Instant::now());
        let (own_times, mine) = (times.clone(), Arc::new(AtomicBool::new(true)));
        let owned = mine.clone();
        let running = tokio::spawn(
            Controller::new(queue.clone())
                .classify(move |_| class)
                .filter_keys(move |_| owned.load(Ordering::SeqCst))
                .with_config(ControllerConfig { max_attempts: Some(4), ..ControllerConfig::default() })
                .run(move |_, _| {
                    own_times.note(begin.elapsed());
                    async { Err::<Action, _>("no luck") }
                }),
        );
        queue.add(1).unwrap();
        while times.count() < 3 {
            sleep(Duration::from_millis(1)).await;
        }
        mine.store(false, Ordering::SeqCst);
        sleep(10 * SECOND).await;
        assert_eq!((times.take().len(), queue.state(&1)), (3, KeyState::Absent), "{class:?}");
        assert_eq!(queue.num_requeues(&1), 0, "{class:?}: the failures must be forgotten");

        mine.store(true, Ordering::SeqCst);
        queue.add(1).unwrap();
        while times.count() < 2 {
            sleep(Duration::from_millis(1)).await;
        }
        let first_wait = if class == FailureClass::Conflict { Duration::from_millis(10) } else { SECOND };
        let times = times.take();
        assert_eq!(times[1] - times[0], first_wait, "{class:?}: the backoff must begin anew");
        running.abort();
    }
}

/// For example a shard, and the leadership.
#[tokio::test(start_paused = true)]
async fn a_key_must_pass_every_filter() {
    let (queue, log) = (queue(), Log::new());
    (0..10).for_each(|key| drop(queue.add(key)));
    let own_log = log.clone();
    let report = Controller::new(queue)
        .filter_keys(|key| key % 2 == 0)
        .filter_keys(|key| key % 3 == 0)
        .graceful_shutdown_on(sleep(SECOND))
        .run(move |key, _| {
            own_log.note(key);
            async { Ok::<_, String>(Action::await_change()) }
        })
        .await
        .unwrap();
    assert_eq!((log.take(), report.filtered_keys), (vec![0, 6], 8));
}
