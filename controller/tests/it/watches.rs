//! Watches that are added to a controller, and removed from it, at any time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use flyball_controller::testing::Simulation;
use flyball_controller::{
    Action, AddWatchError, BatchConfig, Controller, ControllerConfig, ControllerHandle, Health, NotReady,
    RunError, RunReport, WatchOptions,
};
use flyball_informer_cache::testing::TestServer;
use flyball_informer_cache::{Change, Informer, Schema, Version};
use flyball_ratelimit::Exponential;
use flyball_sync::TokioTimer;
use flyball_workqueue::{Fifo, Priority, Queue};
use testkit::random::thorough;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::support::{
    HistorySource, Keys, Log, SECOND, Thing, panic_quietly, queue, run_until_pending, sorted,
};

type Handle = ControllerHandle<u32, Fifo, Exponential<u32>, TokioTimer>;
type Running = JoinHandle<Result<RunReport<u32>, RunError>>;

fn key(change: &Change<u32, Thing>) -> u32 {
    *change.key()
}

/// Runs a controller that logs the keys that it reconciles.
fn start(controller: Controller<u32, Fifo, Exponential<u32>, TokioTimer>) -> (Running, Log<u32>) {
    let log = Log::new();
    let own_log = log.clone();
    let run = controller.run(move |key, _| {
        own_log.note(key);
        async { Ok::<_, String>(Action::await_change()) }
    });
    (tokio::spawn(run), log)
}

/// Starts a controller that watches nothing yet.
async fn working() -> (Handle, Health, Running, Log<u32>) {
    let controller = Controller::new(queue());
    let (handle, health) = (controller.handle(), controller.health());
    let (running, log) = start(controller);
    run_until_pending().await;
    assert_eq!(health.ready(), Ok(()));
    (handle, health, running, log)
}

fn synced(health: &Health) -> Vec<(usize, bool)> {
    health.watches().iter().map(|watch| (watch.index, watch.synced)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_added_while_workers_work_and_removed_again() {
    let (handle, health, running, log) = working().await;
    let (one, other) = (HistorySource::new(), HistorySource::new());
    (1..=2).for_each(|key| _ = one.put(key, 0));
    other.put(10, 0);
    let (ones, others) = (one.informer(), other.informer());
    ones.synced().await.unwrap();
    others.synced().await.unwrap();

    let first = handle.add_watch(&ones, key).unwrap();
    let second = handle.clone().add_watch(&others, |change| [*change.key(), 99]).unwrap();
    run_until_pending().await;
    assert_eq!(sorted(log.take()), [1, 2, 10, 99], "existing objects must become keys");
    assert_eq!(((first.index(), second.index()), synced(&health)), ((0, 1), vec![(0, true), (1, true)]));
    one.put(3, 0);
    other.put(11, 0);
    run_until_pending().await;
    assert_eq!(sorted(log.take()), [3, 11, 99], "changes must become keys");

    assert!(handle.remove_watch(&first) && !handle.remove_watch(&first), "once");
    one.put(4, 0);
    other.put(12, 0);
    run_until_pending().await;
    assert_eq!(sorted(log.take()), [12, 99], "a removed watch must add no keys");
    assert_eq!(synced(&health), [(1, true)]);
    ones.shut_down();
    run_until_pending().await;
    assert_eq!(
        (health.ready(), running.is_finished()),
        (Ok(()), false),
        "the end of a removed informer must not end the run"
    );

    let third = handle.add_watch(&others, |change| 100 + change.key()).unwrap();
    assert_eq!(third.index(), 2, "a number must not be reused");
    others.shut_down();
    let error = running.await.unwrap().unwrap_err();
    assert!(
        matches!(error, RunError::CacheEnded(cache) if cache.index == 1),
        "the end of a watched informer must end the run"
    );
}

#[tokio::test(start_paused = true)]
async fn workers_continue_while_an_added_watch_syncs() {
    let (handle, health, running, log) = working().await;
    let (late, never) = (HistorySource::closed(), HistorySource::closed());
    late.put(1, 0);
    let lists = late.informer();
    let watch = handle.add_watch(&never.informer(), key).unwrap();
    handle.add_watch(&lists, key).unwrap();
    sleep(1_000 * SECOND).await;
    assert_eq!((synced(&health), health.ready()), (vec![(0, false), (1, false)], Ok(())));
    late.open();
    run_until_pending().await;
    assert_eq!((log.take(), synced(&health)), (vec![1], vec![(0, false), (1, true)]));
    assert!(handle.remove_watch(&watch));
    assert!(!running.is_finished());
    running.abort();
}

/// A watch that is added before the run, or while the controller waits for its caches, is treated like a watch that is added by the builder.
#[tokio::test(start_paused = true)]
async fn workers_that_have_not_started_wait_for_an_added_watch() {
    let (main, late, never) = (HistorySource::new(), HistorySource::closed(), HistorySource::closed());
    main.put(1, 0);
    late.put(2, 0);
    let (mains, lates, nevers) = (main.informer(), late.informer(), never.informer());
    let controller = Controller::new(queue()).watches(&mains, key);
    let (handle, health) = (controller.handle(), controller.health());
    let before = handle.add_watch(&nevers, key).unwrap();
    assert_eq!(synced(&health).len(), 2);
    let (running, log) = start(controller);
    run_until_pending().await;
    handle.add_watch(&lates, key).unwrap();
    assert_eq!((log.take().len(), health.ready()), (0, Err(NotReady::Syncing)));
    // The controller does not wait for a watch that was removed, and the informer of that watch may end before it has synced.
    assert!(handle.remove_watch(&before));
    nevers.shut_down();
    run_until_pending().await;
    assert_eq!(
        (log.take().len(), health.ready()),
        (0, Err(NotReady::Syncing)),
        "the other added cache has not synced"
    );
    late.open();
    run_until_pending().await;
    assert_eq!((sorted(log.take()), health.ready()), (vec![1, 2], Ok(())));
    running.abort();

    // The run fails if the informer of an added watch ends before it has synced, or does not sync in time.
    for ends in [true, false] {
        let controller = Controller::new(queue()).watches(&mains, key).start_when(sleep_ok(10 * SECOND));
        let handle = controller.handle();
        let (running, _) = start(controller);
        run_until_pending().await;
        let nevers = never.informer();
        handle.add_watch(&nevers, key).unwrap();
        if ends {
            nevers.shut_down();
        }
        match running.await.unwrap().unwrap_err() {
            RunError::CacheEnded(cache) => assert_eq!((cache.index, ends), (1, true)),
            RunError::StartTimeout(missing) => assert_eq!((missing[0].index, ends), (1, false)),
            error => panic!("{error}"),
        }
    }
}

async fn sleep_ok(time: Duration) -> Result<(), String> {
    sleep(time).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn in_standby_a_watch_waits_for_the_start() {
    let (main, late) = (HistorySource::new(), HistorySource::closed());
    main.put(1, 0);
    late.put(2, 0);
    let (mains, lates) = (main.informer(), late.informer());
    let (elect, elected) = oneshot::channel::<()>();
    let queue = queue();
    let controller = Controller::new(queue.clone()).standby_until(async { drop(elected.await) });
    let (handle, health) = (controller.handle(), controller.health());
    let (running, log) = start(controller);
    run_until_pending().await;
    assert_eq!(health.ready(), Ok(()));
    let gone = handle.add_watch(&mains, |change| 100 + change.key()).unwrap();
    handle.add_watch(&mains, key).unwrap();
    handle.add_watch(&lates, key).unwrap();
    run_until_pending().await;
    assert_eq!(queue.ready_len(), 0, "no change becomes a key");
    assert_eq!(health.ready(), Err(NotReady::Syncing), "a standby whose caches have not synced is not ready");
    assert!(handle.remove_watch(&gone));
    elect.send(()).unwrap();
    run_until_pending().await;
    assert_eq!(
        (log.take().len(), queue.ready_len()),
        (0, 1),
        "workers must wait for the cache that has not synced"
    );
    late.open();
    run_until_pending().await;
    assert_eq!(sorted(log.take()), [1, 2]);
    running.abort();
}

/// A change that is published after `remove_watch` has returned does not become a key. Uses several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_published_after_the_removal_becomes_a_key() {
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    for _ in 0..50 {
        let queue: Keys = queue();
        // No worker starts, so the keys stay in the queue.
        let controller =
            Controller::new(queue.clone()).start_when(std::future::pending::<Result<(), String>>());
        let handle = controller.handle();
        let (running, _) = start(controller);
        let watch = handle.add_watch(&things, key).unwrap();
        let published = Arc::new(AtomicU32::new(0));
        let (writer, count) = (things.writer().clone(), published.clone());
        let writes = std::thread::spawn(move || {
            for key in 1..=200 {
                count.store(key, Ordering::SeqCst);
                writer.upsert(Thing { key, version: u64::from(key), value: 0 });
            }
        });
        while published.load(Ordering::SeqCst) < 20 {
            std::hint::spin_loop();
        }
        assert!(handle.remove_watch(&watch));
        let last = published.load(Ordering::SeqCst);
        writes.join().unwrap();
        assert!(queue.keys().iter().all(|info| info.key <= last), "a change after {last} became a key");
        running.abort();
        let _ = running.await;
        (1..=200).for_each(|key| _ = things.writer().delete(&key, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_watch_is_removed_and_the_run_continues() {
    let world = HistorySource::new();
    let (broken, closed) = (world.informer(), HistorySource::closed().informer());
    let config = ControllerConfig { start_before_sync: true, ..ControllerConfig::default() };
    let controller = Controller::new(queue()).with_config(config);
    let handle = controller.handle();
    let optional = handle.add_watch(&closed, key).unwrap();
    let (running, _) = start(controller);
    run_until_pending().await;
    let watch = handle.add_watch(&broken, key).unwrap();
    // There is no await point between these two calls, so the watch is removed before the run can observe the end of its informer.
    broken.shut_down();
    assert!(handle.remove_watch(&watch));
    run_until_pending().await;
    assert!(handle.remove_watch(&optional));
    closed.shut_down();
    run_until_pending().await;
    assert!(!running.is_finished());
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn once_the_controller_shuts_down_nothing_is_added() {
    let things = HistorySource::new().informer();
    let refused = |handle: &Handle| handle.add_watch(&things, key).err() == Some(AddWatchError::Ended);
    let (stop, stopped) = oneshot::channel::<()>();
    let queue = queue();
    queue.add(1).unwrap();
    let controller =
        Controller::new(queue).watches(&things, key).graceful_shutdown_on(async { drop(stopped.await) });
    let handle = controller.handle();
    let running = tokio::spawn(controller.run(|_, _| async {
        sleep(SECOND).await;
        Ok::<_, String>(Action::await_change())
    }));
    run_until_pending().await;
    let there = handle.add_watch(&things, key).unwrap();
    stop.send(()).unwrap();
    run_until_pending().await;
    assert!(!running.is_finished() && refused(&handle), "no watch may be added while a reconcile ends");
    assert!(handle.remove_watch(&there), "a watch can still be removed during the shutdown");
    running.await.unwrap().unwrap();
    assert!(refused(&handle) && !handle.remove_watch(&there));
    assert_eq!(AddWatchError::Ended.to_string(), "the controller has ended");

    // No watch can be added to a controller that was dropped without a run, had an invalid configuration, or was aborted.
    let never = Controller::new(crate::support::queue());
    let handle = never.handle();
    drop(never);
    assert!(refused(&handle));
    let invalid = Controller::new(crate::support::queue())
        .with_config(ControllerConfig { workers: 0.into(), ..ControllerConfig::default() });
    let handle = invalid.handle();
    let error = start(invalid).0.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::Config(_)) && refused(&handle));
    let (handle, _, running, _) = working().await;
    running.abort();
    let _ = running.await;
    assert!(refused(&handle));
}

/// A handle or a watch id does not keep any part of a run alive, and the run continues after they are dropped.
#[tokio::test(start_paused = true)]
async fn handles_hold_no_watch() {
    let (handle, health, running, log) = working().await;
    let world = HistorySource::new();
    let things = world.informer();
    let held = Arc::new(());
    let mapper = |held: Arc<()>| {
        move |change: &Change<u32, Thing>| (Arc::strong_count(&held) > 0).then(|| *change.key())
    };
    let first = handle.add_watch(&things, mapper(held.clone())).unwrap();
    let second = handle.add_watch(&things, mapper(held.clone())).unwrap();
    assert!(handle.remove_watch(&first));
    run_until_pending().await;
    assert_eq!(Arc::strong_count(&held), 2, "the mapper must be dropped with its watch");
    let kept = handle.clone();
    drop((handle, first));
    world.put(1, 0);
    run_until_pending().await;
    assert_eq!(log.take(), [1]);
    running.abort();
    let _ = running.await;
    assert_eq!((Arc::strong_count(&held), health.watches().len()), (1, 0));
    assert!(!kept.remove_watch(&second));

    // The watch id of a different controller removes no watch.
    let (one, other) = (working().await, working().await);
    let (mine, theirs) = (one.0.add_watch(&things, key).unwrap(), other.0.add_watch(&things, key).unwrap());
    assert_eq!(mine.index(), theirs.index());
    assert!(!one.0.remove_watch(&theirs) && other.0.remove_watch(&theirs));
    one.2.abort();
    other.2.abort();
}

#[tokio::test(start_paused = true)]
async fn a_mapper_that_panics_is_called_again_until_its_watch_is_removed() {
    let (stop, stopped) = oneshot::channel::<()>();
    let controller = Controller::new(queue()).graceful_shutdown_on(async { drop(stopped.await) });
    let handle = controller.handle();
    let (running, log) = start(controller);
    let world = HistorySource::new();
    (1..=2).for_each(|key| _ = world.put(key, 0));
    let things = world.informer();
    things.synced().await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let once = handle.add_watch(&things, move |change| {
        if *change.key() == 1 && counted.fetch_add(1, Ordering::Relaxed) == 0 {
            panic_quietly("once");
        }
        *change.key()
    });
    let always = handle.add_watch(&things, |_| -> u32 { panic_quietly("always") }).unwrap();
    run_until_pending().await;
    assert_eq!(
        (once.is_ok(), log.take()),
        (true, vec![2]),
        "neither the caller nor another object may be affected"
    );
    sleep(SECOND / 5).await;
    assert_eq!((log.take(), calls.load(Ordering::Relaxed)), (vec![1], 2));
    assert!(handle.remove_watch(&always));
    sleep(100 * SECOND).await;
    stop.send(()).unwrap();
    let report = running.await.unwrap().unwrap();
    // `always` panics four times: for each of two objects, immediately and again after 100 ms. `once` panics one time.
    assert_eq!(
        (report.callback_panics, report.mapper_failures),
        (5, 0),
        "changes of a removed watch must not count as lost"
    );
}

/// A controller with `stop_when_idle` also waits for a watch that is added during the run.
#[tokio::test(start_paused = true)]
async fn a_job_waits_for_what_its_reconciles_add() {
    let (first, second) = (HistorySource::new(), HistorySource::new());
    first.put(1, 0);
    second.put(2, 0);
    let (firsts, seconds) = (first.informer(), second.informer());
    firsts.synced().await.unwrap();
    let controller = Controller::new(queue())
        .watches(&firsts, key)
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() });
    let (handle, log) = (controller.handle(), Log::new());
    let (own_log, added) = (log.clone(), seconds.clone());
    let running = tokio::spawn(controller.run(move |key, _| {
        own_log.note(key);
        if key == 1 {
            handle.add_watch(&added, |change| *change.key()).unwrap();
        }
        async {
            sleep(SECOND).await;
            Ok::<_, String>(Action::await_change())
        }
    }));
    run_until_pending().await;
    firsts.shut_down();
    sleep(10 * SECOND).await;
    assert_eq!((log.take(), running.is_finished()), (vec![1, 2], false));
    seconds.shut_down();
    assert_eq!(running.await.unwrap().unwrap().reconciles, 2);
}

/// The run maps the objects of an added watch in pieces. With `stop_when_idle`, it does not end before all of them are keys.
#[tokio::test(start_paused = true)]
async fn a_job_waits_until_the_objects_of_an_added_watch_are_keys() {
    const MANY: u32 = 1_000;
    let (first, second) = (HistorySource::new(), HistorySource::new());
    (0..MANY).for_each(|key| _ = second.put(key, 0));
    let (firsts, seconds) = (first.informer(), second.informer());
    seconds.synced().await.unwrap();
    seconds.shut_down();
    seconds.stopped().await;
    let controller = Controller::new(queue())
        .watches(&firsts, key)
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() });
    let handle = controller.handle();
    let (running, log) = start(controller);
    run_until_pending().await;
    handle.add_watch(&seconds, key).unwrap();
    firsts.shut_down();
    assert_eq!(running.await.unwrap().unwrap().reconciles, u64::from(MANY));
    assert_eq!(log.take().len(), MANY as usize);
}

/// A handle that outlives its controller keeps neither the queue nor the functions of the controller alive.
#[tokio::test(start_paused = true)]
async fn a_handle_keeps_no_state_of_an_ended_run() {
    for runs in [true, false] {
        let held = Arc::new(());
        let kept = held.clone();
        let controller = Controller::new(queue()).filter_keys(move |_: &u32| Arc::strong_count(&kept) > 0);
        let handle = controller.handle();
        if runs {
            let (running, _) = start(controller);
            run_until_pending().await;
            running.abort();
            let _ = running.await;
        } else {
            drop(controller);
        }
        assert_eq!(Arc::strong_count(&held), 1);
        let added = handle.add_watch(&HistorySource::new().informer(), key);
        assert!(matches!(added, Err(AddWatchError::Ended)));
    }
}

/// A key that the queue refuses for lack of capacity is lost. The other key of the change is already in the queue, and needs no capacity.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_refused_does_not_take_the_others_with_it() {
    let world = HistorySource::new();
    world.put(1, 0);
    let informer = world.informer();
    informer.synced().await.unwrap();
    let queue = Queue::<u32>::builder()
        .limiter(Exponential::new(SECOND..=SECOND))
        .capacity(1)
        .timer(TokioTimer::current())
        .build();
    let keys = |change: &Change<u32, Thing>| if change.is_initial() { vec![2] } else { vec![1, 2] };
    let controller = Controller::new(queue)
        .watches(&informer, keys)
        .with_config(ControllerConfig { workers: 1.into(), ..ControllerConfig::default() });
    let log = Log::new();
    let own_log = log.clone();
    let running = tokio::spawn(controller.run(move |key, _| {
        own_log.note(key);
        async {
            sleep(SECOND).await;
            Ok::<_, String>(Action::await_change())
        }
    }));
    run_until_pending().await;
    assert_eq!(log.take(), [2]);
    world.put(1, 1);
    sleep(10 * SECOND).await;
    assert_eq!(log.take(), [2], "the accepted key must run again");
    running.abort();
}

const NUMBERS: Schema<u32, (u32, Version)> =
    Schema::new(|object: &(u32, Version)| object.0, |object| object.1);

/// Watches are added and removed in random order: before the run, in standby and while workers run, with and without resyncs, for single keys and for
/// batches. Objects of active watches are reconciled, objects of removed watches become no keys, and the run ends once all watched informers have
/// stopped.
#[test]
fn watches_added_and_removed_at_random() {
    Simulation::explore(if thorough() { 100 } else { 30 }, |sim| {
        let servers = [0, 1, 2].map(|_| TestServer::new(NUMBERS, |object, _, version| object.1 = version));
        let informers =
            servers.clone().map(|server| sim.informer(Informer::builder(NUMBERS, server)).unwrap());
        let backoff = Exponential::new(SECOND..=60 * SECOND);
        let queue = Queue::<u32>::builder().limiter(backoff).timer(sim.timer()).seed(sim.next_random());
        let queue = queue.order(Priority::new()).build();
        let main = sim.informer(Informer::builder(NUMBERS, servers[0].clone())).unwrap();
        let mut controller = Controller::new(queue)
            .with_config(ControllerConfig {
                workers: (1..=3).into(),
                stop_when_idle: true,
                ..ControllerConfig::default()
            })
            .watches(&main, |_| None::<u32>);
        if sim.next_random() % 2 == 0 {
            controller = controller.standby_until(sim.time().sleep(SECOND * (sim.next_random() % 4) as u32));
        }
        let (handle, log) = (controller.handle(), Log::new());
        let (own_log, time) = (log.clone(), sim.time());
        let reconcile = move |keys: Vec<u32>| {
            keys.iter().for_each(|key| own_log.note(*key));
            let time = time.clone();
            async move {
                time.sleep(SECOND / 10).await;
                Ok::<_, String>(keys.iter().map(|_| Ok(Action::await_change())).collect::<Vec<_>>())
            }
        };
        let running = match sim.next_random() % 2 {
            0 => sim.run_batches(controller, BatchConfig::new(2), move |keys, _| reconcile(keys)),
            _ => sim.run(controller, move |key, _| {
                let reconciled = reconcile(vec![key]);
                async move { reconciled.await.map(|mut results| results.remove(0).unwrap()) }
            }),
        };
        let mut watches = [None, None, None];
        for step in 0..40_u32 {
            let kind = sim.next_random() as usize % 3;
            match sim.next_random() % 4 {
                0 => {
                    watches[kind] = match watches[kind].take() {
                        Some(watch) => {
                            assert!(handle.remove_watch(&watch));
                            None
                        }
                        None => {
                            let options = match sim.next_random() % 2 {
                                0 => WatchOptions::new(),
                                _ => WatchOptions::new().resync_every(SECOND / 3),
                            };
                            let key = move |change: &Change<u32, _>| 1_000 * kind as u32 + change.key();
                            Some(handle.add_watch_with(&informers[kind], key, options).unwrap())
                        }
                    }
                }
                1 => sim.advance(SECOND / 5),
                _ => _ = servers[kind].put((step, Version::ZERO)),
            }
            if sim.next_random() % 2 == 0 {
                sim.run_until_stalled();
            }
        }
        sim.advance(100 * SECOND);
        log.take();
        servers.iter().for_each(|server| _ = server.put((999, Version::ZERO)));
        sim.advance(100 * SECOND);
        let seen: BTreeSet<u32> = log.take().into_iter().collect();
        let watched: BTreeSet<u32> =
            (0..3).filter(|kind| watches[*kind as usize].is_some()).map(|kind| 1_000 * kind + 999).collect();
        assert!(watched.is_subset(&seen), "{seen:?} without all of {watched:?}");
        assert_eq!(seen.iter().map(|key| key / 1_000 * 1_000 + 999).collect::<BTreeSet<_>>(), watched);
        // Only the watched informers must stop before the run ends; the others continue.
        informers
            .iter()
            .zip(&watches)
            .filter(|(_, watch)| watch.is_some())
            .for_each(|(one, _)| one.shut_down());
        sim.advance(100 * SECOND);
        assert!(!running.is_finished(), "one watched informer has not stopped");
        main.shut_down();
        sim.advance(100 * SECOND);
        let report = running.take_output().expect("the run has ended").unwrap();
        assert_eq!((report.failures(), report.callback_panics), (0, 0));
    });
}

/// An informer that has already ended would end the run at once.
#[tokio::test(start_paused = true)]
async fn a_watch_of_an_informer_that_has_ended_is_refused() {
    let (handle, health, running, _) = working().await;
    let stopped = HistorySource::new().informer();
    stopped.shut_down();
    stopped.stopped().await;
    let added = handle.add_watch(&stopped, key);
    assert_eq!(added.err().map(|error| error.to_string()).as_deref(), Some("the informer has ended"));
    run_until_pending().await;
    assert!(!running.is_finished());
    assert_eq!((health.ready(), health.watches().len()), (Ok(()), 0));
    running.abort();

    // A controller that stops when it is idle still maps the objects of a stopped informer.
    let (things, log) = (HistorySource::new(), Log::new());
    things.put(7, 0);
    let things = things.informer();
    things.synced().await.unwrap();
    let never = HistorySource::new().informer();
    let controller = Controller::new(queue())
        .watches(&never, key)
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() });
    let (handle, own_log) = (controller.handle(), log.clone());
    let running = tokio::spawn(controller.run(move |key, _| {
        own_log.note(key);
        async { Ok::<_, String>(Action::await_change()) }
    }));
    run_until_pending().await;
    things.shut_down();
    things.stopped().await;
    handle.add_watch(&things, key).unwrap();
    run_until_pending().await;
    assert_eq!(log.take(), [7]);
    running.abort();
}
