//! How changes become keys: initial objects, updates, deletes and intermediate states; one key or several; a mapper that panics.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use flyball_controller::{
    Action, BatchConfig, Context, Controller, ControllerConfig, RunReport, WatchOptions,
};
use flyball_informer_cache::{Change, Informer, Schema, Version};
use flyball_workqueue::{AddOptions, DelayMode};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::{
    HistorySource, Keys, Log, SECOND, Thing, left, panic_quietly, queue, run_until_pending, sorted,
};

const MILLI: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn every_kind_of_change_becomes_a_reconcile() {
    let world = HistorySource::new();
    world.put(1, 0);
    let things = world.informer();
    let log = Log::new();
    let (own_log, cache) = (log.clone(), things.clone());
    let running: JoinHandle<Result<RunReport<u32>, _>> = tokio::spawn(
        Controller::new(queue())
            .watches(&things, |change| *change.key())
            .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
            .run(move |key, _| {
                own_log.note((key, cache.store().get(&key).map(|thing| thing.value)));
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    run_until_pending().await;
    assert_eq!(log.take(), [(1, Some(0))], "an object that was there before");
    world.put(2, 5);
    run_until_pending().await;
    assert_eq!(log.take(), [(2, Some(5))]);
    world.put(1, 6);
    run_until_pending().await;
    assert_eq!(log.take(), [(1, Some(6))]);
    let last = world.remove(1);
    things.store().wait_for_version(last).await.unwrap();
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!(
        log.take(),
        [(1, None)],
        "the last change must be reconciled, although the cache was closed right after it"
    );
    assert_eq!((report.keys_added, report.reconciles, report.retries()), (4, 4, 0));
    assert_eq!(left(&report), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_may_become_no_key_or_several() {
    let world = HistorySource::new();
    for key in 0..4 {
        world.put(key, key);
    }
    let things = world.informer();
    let log = Log::new();
    let own_log = log.clone();
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, |change| (0..change.object().value).map(|copy| copy * 10).collect::<Vec<_>>())
            .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
            .run(move |key, _| {
                own_log.note(key);
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    things.synced().await.unwrap();
    run_until_pending().await;
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!(report.keys_added, 6, "0 + 1 + 2 + 3");
    let mut keys = sorted(log.take());
    keys.dedup();
    assert_eq!(keys, [0, 10, 20]);
}

/// `add_with` debounces: a key waits until it has not been added for 100 ms, but at most 250 ms. `add_with`'s function is called only for keys that
/// `filter_keys` accepts. If it panics, the change is mapped again, and the panic is counted.
#[tokio::test(start_paused = true)]
async fn add_with_adds_each_key() {
    let world = HistorySource::new();
    world.put(1, 0);
    let things = world.informer();
    things.synced().await.unwrap();
    let (log, asked, begin) = (Log::new(), Log::new(), Instant::now());
    let (own_log, adding) = (log.clone(), asked.clone());
    let running = tokio::spawn(
        Controller::new(queue())
            .filter_keys(|key| *key < 9)
            .watches_with(
                &things,
                |change| [*change.key(), 10 + change.key()],
                WatchOptions::new().add_with(move |queue: &Keys, change: &Change<u32, Thing>, key| {
                    adding.note((key, change.is_initial()));
                    if change.object().value == 7 {
                        panic_quietly("add");
                    }
                    let mode = DelayMode::Debounce { max_wait: 250 * MILLI };
                    queue.add_with(key, AddOptions { delay: 100 * MILLI, mode, ..AddOptions::default() })
                }),
            )
            .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
            .run(move |key, _| {
                own_log.note((key, begin.elapsed().as_millis()));
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    run_until_pending().await;
    for value in 1..=7 {
        sleep(60 * MILLI).await;
        world.put(1, value);
    }
    sleep(SECOND).await;
    world.put(2, 0);
    run_until_pending().await;
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    // The adds at 60, 120, 180 and 240 ms postpone the key up to the limit of 250 ms. After the add at 360 ms the key runs at 460 ms. The add at 420
    // ms always panics.
    assert_eq!(log.take(), [(1, 250), (1, 460), (2, 1_520)]);
    assert_eq!((report.keys_added, report.callback_panics, report.mapper_failures), (8, 5, 1));
    // The change for which `add_with` panics is mapped again: three times before object 2 is added, and once at the end.
    assert_eq!(asked.take(), [&[(1, true)], &[(1, false); 10][..], &[(2, false), (1, false)]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_change_at_which_the_mapper_panics_is_mapped_again() {
    let world = HistorySource::new();
    let things = world.informer();
    let (log, begin) = (Log::new(), Instant::now());
    let (own_log, calls, old) = (log.clone(), AtomicU32::new(0), Log::new());
    let olds = old.clone();
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, move |change| {
                // The mapper panics in its first three calls for the change from 5 to 13.
                if change.object().value == 13 && calls.fetch_add(1, Ordering::SeqCst) < 3 {
                    panic_quietly("a mapper panics");
                }
                olds.note(change.old().map(|old| old.value));
                *change.key()
            })
            .graceful_shutdown_on(sleep(SECOND))
            .run(move |key, _| {
                own_log.note((key, begin.elapsed().as_millis()));
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    things.synced().await.unwrap();
    for (key, value) in [(1, 0), (2, 5), (2, 13), (3, 0)] {
        let version = world.put(key, value);
        things.store().wait_for_version(version).await.unwrap();
        run_until_pending().await;
    }
    let report = running.await.unwrap().unwrap();
    assert_eq!(log.take(), [(1, 0), (2, 0), (3, 0), (2, 700)], "after 100, 200 and 400 ms");
    assert_eq!(old.take(), [None, None, None, Some(5)], "the repeated mapping receives the old object, too");
    assert_eq!((report.keys_added, report.callback_panics, report.mapper_failures), (4, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn counts_unmapped_changes_and_ends() {
    let world = HistorySource::new();
    let things = world.informer();
    let begin = Instant::now();
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(
                &things,
                |change| if *change.key() == 2 { panic_quietly("always") } else { *change.key() },
            )
            .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    things.synced().await.unwrap();
    for value in 0..40 {
        let version = world.put(2, value);
        things.store().wait_for_version(version).await.unwrap();
    }
    let version = world.put(1, 0);
    things.store().wait_for_version(version).await.unwrap();
    sleep(10 * SECOND).await;
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!((begin.elapsed(), report.keys_added, report.reconciles), (10 * SECOND, 1, 1));
    assert_eq!(report.mapper_failures, 40);
    // 40 first attempts; then retries after 0.1, 0.3, 0.7, 1.5, 3.1 and 6.3 s, and one at the end.
    assert_eq!(report.callback_panics, 40 + 7 * 16, "the number of kept changes per object is bounded");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_added_while_it_waits_for_its_retry_runs_at_once() {
    let world = HistorySource::new();
    world.put(1, 0);
    let things = world.informer();
    let log = Log::new();
    let (own_log, cache) = (log.clone(), things.clone());
    let running =
        tokio::spawn(Controller::new(queue()).watches(&things, |change| *change.key()).run(move |key, _| {
            let value = cache.store().get(&key).map(|thing| thing.value);
            own_log.note(value);
            async move { if value == Some(0) { Err("not yet") } else { Ok(Action::await_change()) } }
        }));
    run_until_pending().await;
    assert_eq!(log.take(), [Some(0)]);
    world.put(1, 1);
    run_until_pending().await;
    assert_eq!(log.take(), [Some(1)], "the add must not wait for the retry");
    running.abort();
}

/// Returns an object. The tests write it directly to the store of an informer whose source sends nothing, so that they determine when each change is
/// published.
fn written(key: u32, version: u64, value: u32) -> Thing {
    Thing { key, version, value }
}

/// A reconcile reads an object, and the object is deleted before its changes are mapped. If changes coalesced before they are mapped, the addition
/// and the deletion would cancel out, and the key would not be reconciled again.
#[tokio::test(start_paused = true)]
async fn reconciles_again_after_a_deletion_that_follows_a_read() {
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    let queue = queue();
    let log = Log::new();
    let (own_log, cache) = (log.clone(), things.clone());
    let running = tokio::spawn(
        // Every object maps to key 7, whose reconcile counts the objects.
        Controller::new(queue.clone()).watches(&things, |_| 7).run(move |key, _| {
            let count = cache.snapshot().len();
            own_log.note((key, count));
            if count == 1 && key == 7 {
                // The object is deleted after the count, and no other task runs in between.
                cache.writer().delete(&1, None);
            }
            async { Ok::<_, String>(Action::await_change()) }
        }),
    );
    run_until_pending().await;
    queue.add(7).unwrap();
    things.writer().upsert(written(1, 1, 0));
    run_until_pending().await;
    assert_eq!(log.take(), [(7, 1), (7, 0)], "the key must be reconciled again after the deletion");
    running.abort();
}

/// An object refers to owner A, then B, then A again, before its changes are read.
#[tokio::test(start_paused = true)]
async fn a_state_in_between_names_its_key() {
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    let log = Log::new();
    let own_log = log.clone();
    let running = tokio::spawn(
        Controller::new(queue()).watches(&things, |change| change.object().value).run(move |owner, _| {
            own_log.note(owner);
            async { Ok::<_, String>(Action::await_change()) }
        }),
    );
    run_until_pending().await;
    for (version, owner) in [(1, 100), (2, 200), (3, 100)] {
        things.writer().upsert(written(1, version, owner));
    }
    run_until_pending().await;
    assert_eq!(log.take(), [100, 200], "each owner runs once, including the intermediate one");
    running.abort();
}

/// If a change is published while the controller ends, the queue refuses the keys of the change. There is no other effect.
#[tokio::test(start_paused = true)]
async fn after_the_end_no_change_is_mapped() {
    let world = HistorySource::new();
    let things = world.informer();
    things.synced().await.unwrap();
    let (queue, mapped) = (queue(), Arc::new(AtomicU32::new(0)));
    let (closing, counting) = (queue.clone(), mapped.clone());
    let running = tokio::spawn(
        Controller::new(queue)
            .watches(&things, move |_| {
                counting.fetch_add(1, Ordering::SeqCst);
                [1, 2]
            })
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    run_until_pending().await;
    closing.shut_down();
    things.writer().upsert(written(1, 1, 0));
    assert_eq!(mapped.load(Ordering::SeqCst), 1, "the controller has not ended yet");
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.keys_added, report.callback_panics), (0, 0), "its keys were refused");
    things.writer().upsert(written(1, 2, 0));
    assert_eq!(mapped.load(Ordering::SeqCst), 1, "no change may be mapped after the run");
}

#[tokio::test(start_paused = true)]
async fn the_changes_of_one_object_that_are_kept_are_bounded_at_once() {
    let world = HistorySource::new();
    let things = world.informer();
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, |_| -> u32 { panic_quietly("always") })
            // The shutdown begins after the first retry.
            .graceful_shutdown_on(sleep(150 * MILLI))
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    things.synced().await.unwrap();
    for value in 0..40 {
        let version = world.put(1, value);
        things.store().wait_for_version(version).await.unwrap();
    }
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.mapper_failures, report.callback_panics), (40, 40 + 16));
}

#[tokio::test(start_paused = true)]
async fn a_change_does_not_wait_for_the_backoff_of_another_object() {
    let world = HistorySource::new();
    let (things, log, calls) = (world.informer(), Log::new(), AtomicU32::new(0));
    let own_log = log.clone();
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, move |change| match *change.key() {
                1 => panic_quietly("always"),
                2 if calls.fetch_add(1, Ordering::SeqCst) == 0 => panic_quietly("once"),
                key => key,
            })
            .run(move |key, _| {
                own_log.note(key);
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    world.put(1, 0);
    // The retries of the first object are at 51.1 s, 102.3 s, 162.3 s and so on, so no retry is close to 600 s.
    sleep(600 * SECOND).await;
    world.put(2, 0);
    sleep(SECOND).await;
    assert_eq!(log.take(), [2]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_mapper_that_always_panics_does_not_hold_up_the_shutdown() {
    let world = HistorySource::new();
    (0..5_000).for_each(|key| _ = world.put(key, 0));
    let things = world.informer();
    things.synced().await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let (counted, (signal, stop)) = (calls.clone(), oneshot::channel::<()>());
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, move |_| -> u32 {
                counted.fetch_add(1, Ordering::SeqCst);
                panic_quietly("always")
            })
            .graceful_shutdown_on(async { drop(stop.await) })
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    // The shutdown begins during the first round of retries.
    sleep(100 * MILLI).await;
    while calls.load(Ordering::SeqCst) < 5_100 {
        tokio::task::yield_now().await;
    }
    signal.send(()).unwrap();
    assert_eq!(running.await.unwrap().unwrap().mapper_failures, 5_000);
    assert!(calls.load(Ordering::SeqCst) < 9_000, "the shutdown must interrupt the round of retries");
}

/// A run that stops when it is idle maps all failed changes one last time. A shutdown interrupts this round, too, and other tasks run in between.
#[tokio::test(start_paused = true)]
async fn a_shutdown_interrupts_the_last_retries_of_a_run_that_stops_when_idle() {
    const CHANGES: u32 = 5_000;
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    let (calls, (signal, stop)) = (Arc::new(AtomicU32::new(0)), oneshot::channel::<()>());
    let (counted, signal) = (calls.clone(), Mutex::new(Some(signal)));
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, move |_| -> u32 {
                if counted.fetch_add(1, Ordering::SeqCst) == CHANGES + 100 {
                    drop(signal.lock().take());
                }
                panic_quietly("always")
            })
            .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
            .graceful_shutdown_on(async { drop(stop.await) })
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    run_until_pending().await;
    for key in 0..CHANGES {
        things.writer().upsert(Thing { key, version: 1, value: 0 });
    }
    run_until_pending().await;
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!(report.mapper_failures, u64::from(CHANGES));
    let calls = calls.load(Ordering::SeqCst) - CHANGES;
    assert!((100..500).contains(&calls), "{calls} calls in the last round");
}

/// A change that cannot be kept for a retry, because `Hash` of its key panics, counts as never mapped.
#[tokio::test(start_paused = true)]
async fn counts_a_change_that_cannot_be_kept() {
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Name(u32);
    static ARMED: AtomicBool = AtomicBool::new(false);
    impl Hash for Name {
        fn hash<H: Hasher>(&self, state: &mut H) {
            if ARMED.load(Ordering::Relaxed) {
                panic_quietly("hash");
            }
            self.0.hash(state);
        }
    }
    let schema = Schema::new(|thing: &Thing| Name(thing.key), |thing| Version::new(thing.version));
    let source = HistorySource::new();
    source.put(1, 0);
    let things = Informer::builder(schema, source).start().unwrap();
    things.synced().await.unwrap();
    let report = Controller::new(queue())
        .watches(&things, |_| -> u32 {
            ARMED.store(true, Ordering::Relaxed);
            panic_quietly("mapper")
        })
        .graceful_shutdown_on(sleep(SECOND))
        .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
        .await
        .unwrap();
    ARMED.store(false, Ordering::Relaxed);
    assert_eq!((report.mapper_failures, report.callback_panics), (1, 2));
}

/// The key of an object. If it is armed, the next drop of any key panics.
#[derive(Clone, PartialEq, Eq, Hash)]
struct FragileKey(u32);

static ARMED: AtomicBool = AtomicBool::new(false);

impl Drop for FragileKey {
    fn drop(&mut self) {
        if ARMED.swap(false, Ordering::Relaxed) {
            panic_quietly("a key of an object panics when it is dropped");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_failed_change_that_panics_when_dropped_does_not_end_the_run() {
    const FRAGILE: Schema<FragileKey, Thing> =
        Schema::new(|thing: &Thing| FragileKey(thing.key), |thing| Version::new(thing.version));
    let world = HistorySource::new();
    world.put(1, 0);
    let things = Informer::builder(FRAGILE, world.clone()).seed(1).start().unwrap();
    let calls = AtomicU32::new(0);
    let mapper = move |change: &Change<FragileKey, Thing>| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => panic_quietly("the first call"),
        _ => change.key().0,
    };
    let running = Controller::new(queue())
        .watches(&things, mapper)
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
        .run(|_, _| async { Ok::<_, String>(Action::await_change()) });
    let mut running = std::pin::pin!(running);
    tokio::select! {
        biased;
        _ = &mut running => panic!("the informer has not stopped"),
        () = sleep(MILLI * 50) => {}
    }
    things.shut_down();
    things.stopped().await;
    ARMED.store(true, Ordering::Relaxed);
    let report = running.await.unwrap();
    assert!(!ARMED.load(Ordering::Relaxed));
    assert_eq!((report.reconciles, report.mapper_failures), (1, 0));
}

/// A change whose mapper always panics is given up after ten minutes. `RunReport::mapper_failures` counts it.
#[tokio::test(start_paused = true)]
async fn a_change_whose_mapper_keeps_panicking_is_given_up_after_a_time() {
    let world = HistorySource::new();
    world.put(1, 0);
    let (things, calls) = (world.informer(), Arc::new(AtomicU32::new(0)));
    let counted = calls.clone();
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, move |_| -> u32 {
                counted.fetch_add(1, Ordering::SeqCst);
                panic_quietly("always")
            })
            .graceful_shutdown_on(sleep(3 * 3_600 * SECOND))
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    sleep(700 * SECOND).await;
    // The retries are 0.1, 0.3, 0.7, 1.5 … 102.3 s after the change, and then once per minute.
    let at_the_end = calls.load(Ordering::SeqCst);
    assert!((19..=21).contains(&at_the_end), "{at_the_end} calls");
    sleep(2 * 3_600 * SECOND).await;
    assert_eq!(calls.load(Ordering::SeqCst), at_the_end, "the change must have been given up");
    assert_eq!(running.await.unwrap().unwrap().mapper_failures, 1);
}

/// A deletion ends the retries of the earlier changes of its object: they are mapped once more, and then given up.
#[tokio::test(start_paused = true)]
async fn a_deletion_ends_the_retries_of_earlier_changes() {
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    let (calls, log) = (Log::new(), Log::new());
    let (own_calls, own_log) = (calls.clone(), log.clone());
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, move |change| {
                own_calls.note(change.kind());
                // The changes to an odd value are never mapped.
                if change.object().value % 2 == 1 && !change.kind().is_deletion() {
                    panic_quietly("an odd value");
                }
                *change.key()
            })
            .graceful_shutdown_on(sleep(1_000 * SECOND))
            .run(move |key, _| {
                own_log.note(key);
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    run_until_pending().await;
    for version in 1..=3 {
        things.writer().upsert(written(1, version, 1));
    }
    sleep(60 * SECOND).await;
    things.writer().delete(&1, None);
    run_until_pending().await;
    assert_eq!(log.take(), [1]);
    calls.take();
    sleep(500 * SECOND).await;
    assert_eq!(calls.take().len(), 3, "each earlier change once more");
    assert_eq!(running.await.unwrap().unwrap().mapper_failures, 3);
}

/// A deletion also ends the retries if more objects are deleted with it than changes are kept.
#[tokio::test(start_paused = true)]
async fn a_deletion_among_many_ends_the_retries_of_earlier_changes() {
    const OBJECTS: u32 = 12_000;
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    let calls = Log::new();
    let own_calls = calls.clone();
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, move |change| {
                let key = *change.key();
                if key % 100 == 0 && !change.kind().is_deletion() {
                    own_calls.note(key);
                    panic_quietly("each hundredth object, except at its deletion");
                }
                key
            })
            .graceful_shutdown_on(sleep(1_000 * SECOND))
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    run_until_pending().await;
    things.writer().replace((0..OBJECTS).map(|key| written(key, 1, 0)), Version::new(1));
    sleep(60 * SECOND).await;
    calls.take();
    things.writer().replace([], Version::new(2));
    sleep(500 * SECOND).await;
    assert_eq!(calls.take().len(), 120, "each change once more");
    assert_eq!(running.await.unwrap().unwrap().mapper_failures, 120);
}

/// Many deletions at once do not take the place of a change at which the mapper panics.
#[tokio::test(start_paused = true)]
async fn many_deletions_replace_no_failed_change() {
    const OBJECTS: u32 = 12_000;
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    things.writer().replace((0..OBJECTS).map(|key| written(key, 1, 0)), Version::new(1));
    let (log, panicked) = (Log::new(), AtomicBool::new(false));
    let own_log = log.clone();
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, move |change| {
                let key = *change.key();
                if key == 0 || change.object().value == 1 && !panicked.swap(true, Ordering::SeqCst) {
                    panic_quietly("object 0 always, object 1 once");
                }
                key
            })
            .graceful_shutdown_on(sleep(10 * SECOND))
            .run(move |key, _| {
                own_log.note(key);
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    sleep(SECOND).await;
    assert_eq!(log.take().len(), OBJECTS as usize - 1);
    // A list reports the deletions first.
    things.writer().replace([written(0, 1, 0), written(1, 2, 1)], Version::new(2));
    sleep(SECOND).await;
    assert_eq!(log.take().iter().filter(|key| **key == 1).count(), 1, "the change is mapped again");
    assert_eq!(running.await.unwrap().unwrap().mapper_failures, 1);
}

/// The number of changes that are kept for a retry is bounded, even if every object is a different one.
#[tokio::test(start_paused = true)]
async fn the_changes_that_are_kept_are_bounded() {
    const OBJECTS: u32 = 12_000;
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, move |_| -> u32 {
                counted.fetch_add(1, Ordering::SeqCst);
                panic_quietly("always")
            })
            .graceful_shutdown_on(sleep(SECOND * 3 / 20))
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    run_until_pending().await;
    (0..OBJECTS).for_each(|key| _ = things.writer().upsert(written(key, 1, 0)));
    let report = running.await.unwrap().unwrap();
    assert_eq!(report.mapper_failures, u64::from(OBJECTS));
    assert_eq!(calls.load(Ordering::SeqCst), OBJECTS + 10_000, "only the kept changes are mapped again");
}

/// A reconcile that waits for something is notified when its object changes.
#[tokio::test(start_paused = true)]
async fn a_running_reconcile_is_notified_when_its_object_changes() {
    for (batches, delay) in [(false, None), (true, None), (false, Some(SECOND))] {
        let world = HistorySource::new();
        (1..=2).for_each(|key| _ = world.put(key, 0));
        let (things, log) = (world.informer(), Log::new());
        let own_log = log.clone();
        let options = match delay {
            None => WatchOptions::new(),
            Some(delay) => WatchOptions::new().add_with(move |queue: &Keys, _: &Change<u32, Thing>, key| {
                queue.add_with(key, AddOptions { delay, ..AddOptions::default() })
            }),
        };
        let controller = Controller::new(queue()).watches_with(&things, |change| *change.key(), options);
        let controller = controller
            .with_config(ControllerConfig { workers: 2.into(), ..ControllerConfig::default() })
            .finally({
                let log = log.clone();
                move |key, _, context| {
                    log.note((key, "finally", context.is_superseded()));
                    async { Ok::<_, String>(()) }
                }
            });
        let reconcile = move |key, context: Context| {
            let own_log = own_log.clone();
            async move {
                own_log.note((key, "begins", context.is_superseded()));
                tokio::select! {
                    biased;
                    () = context.superseded() => own_log.note((key, "superseded", context.is_superseded())),
                    () = sleep(100 * SECOND) => {}
                }
                Ok::<_, String>(Action::await_change())
            }
        };
        let running = match batches {
            false => tokio::spawn(controller.run(reconcile)),
            true => {
                tokio::spawn(controller.run_batches(BatchConfig::new(1), move |keys: Vec<u32>, context| {
                    let reconciled = reconcile(keys[0], context);
                    async move { Ok(vec![reconciled.await]) }
                }))
            }
        };
        sleep(2 * SECOND).await;
        assert_eq!(sorted(log.take()), [(1, "begins", false), (2, "begins", false)]);
        world.put(1, 1);
        sleep(2 * SECOND).await;
        let expected = [(1, "superseded", true), (1, "finally", true), (1, "begins", false)];
        assert_eq!(log.take(), expected, "{batches} {delay:?}");
        // The next reconcile of the same worker begins anew, and is notified again.
        world.remove(1);
        sleep(2 * SECOND).await;
        assert_eq!(log.take(), expected, "{batches} {delay:?}");
        sleep(90 * SECOND).await;
        assert_eq!(log.take(), [], "no change concerns object 2");
        running.abort();
    }
}

/// The key of a running reconcile may be dirty already, because other code added it, or because it changed in an open batch. It may also wait for a
/// delay. A change then coalesces, and still supersedes the reconcile.
#[tokio::test(start_paused = true)]
async fn a_change_supersedes_a_reconcile_whose_key_is_queued_already() {
    for case in ["added", "delayed", "open batch"] {
        let world = HistorySource::new();
        world.put(1, 0);
        let (things, queue, log) = (world.informer(), queue(), Log::new());
        let (own_log, own_queue, begin) = (log.clone(), queue.clone(), Instant::now());
        let reconcile = move |key, context: Context| {
            let (log, queue) = (own_log.clone(), own_queue.clone());
            async move {
                match case {
                    "added" => _ = queue.add(key).unwrap(),
                    "delayed" => _ = queue.add_after(key, 3600 * SECOND).unwrap(),
                    _ => {}
                }
                log.note(("begins", begin.elapsed().as_secs()));
                context.superseded().await;
                log.note(("superseded", begin.elapsed().as_secs()));
                std::future::pending::<Result<Action, String>>().await
            }
        };
        let controller = Controller::new(queue).watches(&things, |change| *change.key());
        let running = match case {
            "open batch" => {
                let batches = BatchConfig::new(2).max_wait(10 * SECOND);
                tokio::spawn(controller.run_batches(batches, move |keys: Vec<u32>, context| {
                    let reconciled = reconcile(keys[0], context);
                    async move { Ok(vec![reconciled.await]) }
                }))
            }
            _ => tokio::spawn(controller.run(reconcile)),
        };
        sleep(5 * SECOND).await;
        let begins = match case {
            "open batch" => {
                world.put(1, 1);
                10
            }
            _ => 0,
        };
        sleep(15 * SECOND).await;
        assert_eq!(log.take(), [("begins", begins)], "{case}");
        world.put(1, 2);
        sleep(SECOND).await;
        assert_eq!(log.take(), [("superseded", 20)], "{case}");
        running.abort();
    }
}

/// The worker takes the key right after the change has added it, before the call of the mapper returns. The reconcile reads the new state, and no other
/// one follows it, so it must not be superseded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_does_not_supersede_the_reconcile_that_it_causes() {
    for ready in [false, true] {
        let things = HistorySource::new().informer();
        things.synced().await.unwrap();
        let (queue, (begun, begins)) = (queue(), std::sync::mpsc::channel());
        let begins = Mutex::new(begins);
        let options = WatchOptions::new().add_with(move |queue: &Keys, _: &Change<u32, Thing>, key| {
            let added = queue.add(key);
            queue.resume();
            begins.lock().recv_timeout(Duration::from_secs(60)).expect("the reconcile begins");
            added
        });
        let (mapped, (superseded, result)) = (Arc::new(tokio::sync::Notify::new()), oneshot::channel());
        let (returned, superseded) = (mapped.clone(), Mutex::new(Some(superseded)));
        let controller =
            Controller::new(queue.clone()).watches_with(&things, |change| *change.key(), options);
        let health = controller.health();
        let running = tokio::spawn(controller.run(move |_, context: Context| {
            let (returned, superseded) = (returned.clone(), superseded.lock().take());
            let _ = begun.send(());
            async move {
                returned.notified().await;
                let _ = superseded.map(|superseded| superseded.send(context.is_superseded()));
                Ok::<_, String>(Action::await_change())
            }
        }));
        while health.ready().is_err() {
            tokio::task::yield_now().await;
        }
        if ready {
            // The key is Ready, so the add of the change coalesces.
            queue.pause();
            queue.add(1).unwrap();
        }
        let writer = things.clone();
        tokio::task::spawn_blocking(move || writer.writer().upsert(written(1, 1, 0))).await.unwrap();
        mapped.notify_one();
        assert!(!result.await.unwrap(), "ready: {ready}");
        running.abort();
    }
}
