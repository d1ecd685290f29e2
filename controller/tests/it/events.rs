//! Changes become keys: initial objects, updates, deletes, states in between; one key or several; a mapper that panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use flyball_controller::{Action, Controller, Report};
use flyball_workqueue::DelayMode;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::{Log, SECOND, Thing, World, left, panic_quietly, queue, settle, sorted};

const MILLI: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn every_kind_of_change_becomes_a_reconcile() {
    let world = World::new();
    world.put(1, 0);
    let things = world.informer();
    let log = Log::new();
    let (noted, cache) = (log.clone(), things.clone());
    let running: JoinHandle<Result<Report<u32>, _>> = tokio::spawn(
        Controller::new(queue()).on(&things, |change| *change.key()).until_settled().run(move |key, _| {
            noted.note((key, cache.store().get(&key).map(|thing| thing.value)));
            async { Ok::<_, String>(Action::await_change()) }
        }),
    );
    settle().await;
    assert_eq!(log.take(), [(1, Some(0))], "an object that was there before");
    world.put(2, 5);
    settle().await;
    assert_eq!(log.take(), [(2, Some(5))]);
    world.put(1, 6);
    settle().await;
    assert_eq!(log.take(), [(1, Some(6))]);
    let last = world.remove(1);
    things.store().wait_for(last).await.unwrap();
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!(
        log.take(),
        [(1, None)],
        "the last change is reconciled although the cache was closed right after it"
    );
    assert_eq!((report.adds, report.reconciles, report.retries()), (4, 4, 0));
    assert_eq!(left(&report), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_may_become_no_key_or_several() {
    let world = World::new();
    for key in 0..4 {
        world.put(key, key);
    }
    let things = world.informer();
    let log = Log::new();
    let noted = log.clone();
    let running = tokio::spawn(
        Controller::new(queue())
            .on_many(&things, |change| (0..change.object().value).map(|copy| copy * 10).collect::<Vec<_>>())
            .until_settled()
            .run(move |key, _| {
                noted.note(key);
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    things.synced().await.unwrap();
    settle().await;
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!(report.adds, 6, "0 + 1 + 2 + 3");
    let mut keys = sorted(log.take());
    keys.dedup();
    assert_eq!(keys, [0, 10, 20]);
}

/// Debounced: a key waits until nothing has happened to it for a while, but not for ever. Whoever adds is asked for the keys of
/// this controller alone, a panic loses its change, and what it adds is counted.
#[tokio::test(start_paused = true)]
async fn a_say_in_how_keys_are_added() {
    let world = World::new();
    world.put(1, 0);
    let things = world.informer();
    things.synced().await.unwrap();
    let (log, asked, begin) = (Log::new(), Log::new(), Instant::now());
    let (noted, adding) = (log.clone(), asked.clone());
    let running = tokio::spawn(
        Controller::new(queue())
            .only(|key| *key < 9)
            .on_with(
                &things,
                |change| [*change.key(), 10 + change.key()],
                move |queue, change, key| {
                    adding.note((key, change.is_initial()));
                    if change.object().value == 7 {
                        panic_quietly("add");
                    }
                    let mode = DelayMode::Latest { longest: 250 * MILLI };
                    queue.add_delayed(key, 100 * MILLI, mode)
                },
            )
            .until_settled()
            .run(move |key, _| {
                noted.note((key, begin.elapsed().as_millis()));
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    settle().await;
    for value in 1..=7 {
        sleep(60 * MILLI).await;
        world.put(1, value);
    }
    sleep(SECOND).await;
    world.put(2, 0);
    settle().await;
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    // Until 250 ms it is put off by the changes at 60, 120, 180 and 240; then by the one at 360. The one at 420 is lost.
    assert_eq!(log.take(), [(1, 250), (1, 460), (2, 1_520)]);
    assert_eq!((report.adds, report.hook_panics), (8, 1));
    assert_eq!(asked.take(), [&[(1, true)], &[(1, false); 7][..], &[(2, false)]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_mapper_that_panics_loses_its_change_and_goes_on() {
    let world = World::new();
    let things = world.informer();
    let log = Log::new();
    let noted = log.clone();
    let calls = Arc::new(AtomicU32::new(0));
    let called = calls.clone();
    let running = tokio::spawn(
        Controller::new(queue())
            .on(&things, move |change| {
                called.fetch_add(1, Ordering::SeqCst);
                if change.object().value == 13 { panic_quietly("a mapper panics") } else { *change.key() }
            })
            .until_settled()
            .run(move |key, _| {
                noted.note(key);
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    things.synced().await.unwrap();
    for (key, value) in [(1, 0), (2, 13), (3, 0), (2, 14)] {
        let version = world.put(key, value);
        things.store().wait_for(version).await.unwrap();
        settle().await;
    }
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!(log.take(), [1, 3, 2]);
    assert_eq!(calls.load(Ordering::SeqCst), 4);
    assert_eq!((report.adds, report.reconciles, report.hook_panics), (3, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_added_while_it_waits_for_its_retry_runs_at_once() {
    let world = World::new();
    world.put(1, 0);
    let things = world.informer();
    let log = Log::new();
    let (noted, cache) = (log.clone(), things.clone());
    let running =
        tokio::spawn(Controller::new(queue()).on(&things, |change| *change.key()).run(move |key, _| {
            let value = cache.store().get(&key).map(|thing| thing.value);
            noted.note(value);
            async move { if value == Some(0) { Err("not yet") } else { Ok(Action::await_change()) } }
        }));
    settle().await;
    assert_eq!(log.take(), [Some(0)]);
    world.put(1, 1);
    settle().await;
    assert_eq!(log.take(), [Some(1)], "no time has passed");
    running.abort();
}

/// Direct writes to the store of an informer whose source is silent, so that a test says when what is published.
fn written(key: u32, version: u64, value: u32) -> Thing {
    Thing { key, version, value }
}

/// The interleaving that merged changes lose: a reconcile reads an object, for a reason of its own, and the object goes before
/// anybody has looked at its changes.
#[tokio::test(start_paused = true)]
async fn an_object_that_was_read_and_went_is_reconciled_again() {
    let things = World::new().informer();
    things.synced().await.unwrap();
    let queue = queue();
    let log = Log::new();
    let (noted, cache) = (log.clone(), things.clone());
    let running = tokio::spawn(
        // Everything belongs to key 7, whose reconcile counts what there is.
        Controller::new(queue.clone()).on(&things, |_| 7).run(move |key, _| {
            let count = cache.snapshot().len();
            noted.note((key, count));
            if count == 1 && key == 7 {
                // Nothing else has run since it was counted.
                cache.store().delete(&1, None);
            }
            async { Ok::<_, String>(Action::await_change()) }
        }),
    );
    settle().await;
    queue.add(7).unwrap();
    things.store().upsert(written(1, 1, 0));
    settle().await;
    assert_eq!(log.take(), [(7, 1), (7, 0)], "what was counted and went is counted again");
    running.abort();
}

/// The other one: an object that points to A, then to B, then to A again before anybody looks.
#[tokio::test(start_paused = true)]
async fn a_state_in_between_names_its_key() {
    let things = World::new().informer();
    things.synced().await.unwrap();
    let log = Log::new();
    let noted = log.clone();
    let running = tokio::spawn(Controller::new(queue()).on(&things, |change| change.object().value).run(
        move |owner, _| {
            noted.note(owner);
            async { Ok::<_, String>(Action::await_change()) }
        },
    ));
    settle().await;
    for (version, owner) in [(1, 100), (2, 200), (3, 100)] {
        things.store().upsert(written(1, version, owner));
    }
    settle().await;
    assert_eq!(log.take(), [100, 200], "each owner once, the one in between, too");
    running.abort();
}

/// A change that is published while the controller ends is refused by the queue, and harms nobody.
#[tokio::test(start_paused = true)]
async fn after_the_end_no_change_is_mapped() {
    let world = World::new();
    let things = world.informer();
    things.synced().await.unwrap();
    let (queue, mapped) = (queue(), Arc::new(AtomicU32::new(0)));
    let (closing, counting) = (queue.clone(), mapped.clone());
    let running = tokio::spawn(
        Controller::new(queue)
            .on_many(&things, move |_| {
                counting.fetch_add(1, Ordering::SeqCst);
                [1, 2]
            })
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    settle().await;
    closing.shut_down();
    things.store().upsert(written(1, 1, 0));
    assert_eq!(mapped.load(Ordering::SeqCst), 1, "the controller has not noticed yet");
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.adds, report.hook_panics), (0, 0), "its keys were refused");
    things.store().upsert(written(1, 2, 0));
    assert_eq!(mapped.load(Ordering::SeqCst), 1, "it ended with the run");
}
