//! In each resync period all objects are mapped again, and their keys are added behind all others.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use flyball_controller::{Action, AddWatchError, Controller, ControllerConfig, RunError, WatchOptions};
use flyball_informer_cache::testing::TestServer;
use flyball_informer_cache::{Change, Informer, Schema, Version};
use flyball_ratelimit::Exponential;
use flyball_sync::TokioTimer;
use flyball_workqueue::{AddError, AddOptions, Added, KeyState, Priority, Queue};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::support::{
    HistorySource, Keys, Log, SECOND, Thing, panic_quietly, queue, run_until_pending, sorted,
};

type Prioritised = Queue<u32, Priority, Exponential<u32>, TokioTimer>;

fn prioritised() -> Prioritised {
    let backoff = Exponential::new(SECOND..=60 * SECOND);
    Queue::builder().order(Priority::new().strict()).limiter(backoff).timer(TokioTimer::current()).build()
}

fn key(change: &Change<u32, Thing>) -> u32 {
    *change.key()
}

#[tokio::test(start_paused = true)]
async fn every_object_is_mapped_again_in_each_period() {
    let world = HistorySource::new();
    (1..=4).for_each(|key| _ = world.put(key, key));
    let things = world.informer();
    things.synced().await.unwrap();
    let (log, changes, begin) = (Log::new(), Log::new(), Instant::now());
    let (own_log, own_changes) = (log.clone(), changes.clone());
    let options = WatchOptions::new()
        .filter(|change: &Change<u32, Thing>| change.object().value != 4)
        .resync_every(60 * SECOND);
    let controller = Controller::new(queue()).watches_with(
        &things,
        move |change| {
            own_changes.note((*change.key(), change.is_initial()));
            *change.key()
        },
        options,
    );
    let handle = controller.handle();
    let running = tokio::spawn(controller.run(move |key, _| {
        own_log.note((key, begin.elapsed().as_secs()));
        async { Ok::<_, String>(Action::await_change()) }
    }));
    run_until_pending().await;
    assert_eq!(sorted(log.take()), [(1, 0), (2, 0), (3, 0)]);
    // The last 64th of the period is over, and the first 64th of the next one is not.
    sleep(60 * SECOND + SECOND / 2).await;
    assert_eq!(sorted(log.take().into_iter().map(|(key, _)| key).collect()), [1, 2, 3]);
    changes.take();
    world.remove(2);
    world.put(5, 5);
    run_until_pending().await;
    assert_eq!((log.take(), changes.take().len()), (vec![(2, 60), (5, 60)], 2));
    sleep(120 * SECOND).await;
    let seen = sorted(log.take());
    assert_eq!(
        seen.iter().map(|(key, _)| *key).collect::<Vec<_>>(),
        [1, 1, 3, 3, 5, 5],
        "not the filtered object"
    );
    assert!(seen.chunks(2).all(|times| times[1].1 - times[0].1 == 60), "{seen:?}: once per period");
    assert!(changes.take().iter().all(|(_, initial)| *initial), "the changes must be initial");

    // A watch that is added later has its own periods, and its resyncs stop when the watch is removed.
    let watch =
        handle.add_watch_with(&things, |change| 10 + change.key(), WatchOptions::new().resync_every(SECOND));
    sleep(SECOND * 2 + SECOND / 128).await;
    assert_eq!(log.take().iter().filter(|(key, _)| *key > 10).count(), 3 * 4);
    assert!(handle.remove_watch(&watch.unwrap()));
    log.take();
    sleep(10 * SECOND).await;
    assert!(log.take().iter().all(|(key, _)| *key < 10));
    running.abort();
}

/// Objects that were listed together are not resynced together.
#[tokio::test(start_paused = true)]
async fn objects_are_spread_over_the_period() {
    const OBJECTS: usize = 1_000;
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    (0..OBJECTS as u32).for_each(|key| _ = things.writer().upsert(Thing { key, version: 1, value: 0 }));
    let (log, begin) = (Log::new(), Instant::now());
    let own_log = log.clone();
    let options = WatchOptions::new().resync_every(60 * SECOND);
    let controller = Controller::new(queue()).watches_with(&things, key, options);
    let running = tokio::spawn(controller.run(move |key, _| {
        own_log.note((key, begin.elapsed().as_secs() as usize));
        async { Ok::<_, String>(Action::await_change()) }
    }));
    run_until_pending().await;
    while log.count() < OBJECTS {
        tokio::task::yield_now().await;
    }
    log.take();
    sleep(121 * SECOND).await;
    let mut by_second = [0; 122];
    let seen = log.take();
    seen.iter().for_each(|(_, second)| by_second[*second] += 1);
    assert!(by_second.iter().all(|count| *count < OBJECTS / 15), "{by_second:?}");
    assert!(seen.len() >= 2 * OBJECTS && seen.len() < 2 * OBJECTS + OBJECTS / 15);
    running.abort();
}

/// With a setting, requeues are spread, too.
#[tokio::test(start_paused = true)]
async fn requeues_are_spread_by_a_setting() {
    let spread = |percent| async move {
        let queue = queue();
        _ = queue.add_many(0..1_000);
        let (log, begin) = (Log::new(), Instant::now());
        let own_log = log.clone();
        let config = ControllerConfig { requeue_spread_percent: percent, ..ControllerConfig::default() };
        let controller = Controller::new(queue).with_config(config);
        let running = tokio::spawn(controller.run(move |_, _| {
            own_log.note(begin.elapsed().as_secs());
            async { Ok::<_, String>(Action::requeue_after(100 * SECOND)) }
        }));
        sleep(50 * SECOND).await;
        log.take();
        sleep(100 * SECOND).await;
        running.abort();
        let times = log.take();
        let in_a_second = (0..150).map(|second| times.iter().filter(|at| **at == second).count()).max();
        (times.len(), times.iter().copied().min(), in_a_second)
    };
    assert_eq!(spread(0).await, (1_000, Some(100), Some(1_000)));
    let (count, first, in_a_second) = spread(20).await;
    assert_eq!((count, first), (1_000, Some(100)));
    assert!(in_a_second < Some(100), "{in_a_second:?}");
}

/// A resync does not change the state of a key that the queue holds.
#[tokio::test(start_paused = true)]
async fn a_resync_adds_absent_keys_alone_and_behind_all_others() {
    let world = HistorySource::new();
    (1..=5).for_each(|key| _ = world.put(key, 0));
    let things = world.informer();
    things.synced().await.unwrap();
    let (queue, log, adds) = (prioritised(), Log::new(), Log::new());
    let (own_log, asked) = (log.clone(), adds.clone());
    let add = move |queue: &Prioritised, _: &Change<u32, Thing>, key: u32| -> Result<Added, AddError<u32>> {
        asked.note(key);
        queue.add(key)
    };
    let controller = Controller::new(queue.clone()).watches_with(
        &things,
        key,
        WatchOptions::new().add_with(add).resync_every(60 * SECOND),
    );
    let running = tokio::spawn(controller.run(move |key, _| {
        own_log.note(key);
        let asks = key == 4;
        async move {
            match key {
                // The only worker holds the lease of this key for longer than a period.
                9 => sleep(61 * SECOND).await,
                _ if asks => return Ok(Action::requeue_after(3_600 * SECOND)),
                _ => {}
            }
            Ok::<_, String>(Action::await_change())
        }
    }));
    sleep(55 * SECOND).await;
    let mut reconciled = sorted(log.take());
    reconciled.dedup();
    assert_eq!((reconciled, adds.take().len()), (vec![1, 2, 3, 4, 5], 5));
    queue.add(9).unwrap();
    world.put(9, 0);
    run_until_pending().await;
    assert_eq!((log.take(), queue.state(&9)), (vec![9], KeyState::LeasedDirty));
    queue.add_with(5, AddOptions { priority: -7, ..AddOptions::default() }).unwrap();
    queue.add_with(3, AddOptions { priority: 3, ..AddOptions::default() }).unwrap();
    adds.take();
    sleep(60 * SECOND + SECOND / 2).await;
    assert_eq!(adds.count(), 0, "a resync must not call `add_with`");
    let priorities = [1, 2, 3, 5].map(|key| queue.priority(&key));
    assert_eq!(priorities, [Some(i8::MIN), Some(i8::MIN), Some(3), Some(-7)]);
    assert!(matches!(queue.state(&4), KeyState::Waiting(_)), "a waiting key must keep waiting");
    assert_eq!(queue.num_requeues(&4), 0);
    queue.add(8).unwrap();
    sleep(70 * SECOND).await;
    let order = log.take();
    assert_eq!(
        (&order[..4], sorted(order[4..6].to_vec())),
        (&[3, 8, 9, 5][..], vec![1, 2]),
        "keys of the resync run last"
    );
    running.abort();
}

/// A resync does not make a leased key dirty.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_reconciled_meanwhile_is_not_reconciled_twice() {
    let world = HistorySource::new();
    world.put(1, 0);
    let things = world.informer();
    let log = Log::new();
    let own_log = log.clone();
    let options = WatchOptions::new().resync_every(SECOND);
    let running =
        tokio::spawn(Controller::new(queue()).watches_with(&things, key, options).run(move |key, _| {
            own_log.note(key);
            async {
                sleep(5 * SECOND + SECOND / 2).await;
                Ok::<_, String>(Action::await_change())
            }
        }));
    sleep(5 * SECOND + SECOND / 4).await;
    assert_eq!(log.take(), [1]);
    sleep(SECOND / 2).await;
    assert_eq!(log.take(), []);
    sleep(SECOND / 2).await;
    assert_eq!(log.take(), [1], "the key runs again only in the next period");
    running.abort();
}

const MANY: u32 = 100_000;

/// During a resync of many objects other tasks run in between, and a shutdown interrupts the resync.
#[tokio::test(start_paused = true)]
async fn other_tasks_run_while_many_objects_are_mapped() {
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    for key in 0..MANY {
        things.writer().upsert(Thing { key, version: 1, value: 0 });
    }
    let (polls, mapped, most) =
        (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (seen, maps, longest, last) = (polls.clone(), mapped.clone(), most.clone(), AtomicU32::new(0));
    let in_turn = AtomicU32::new(0);
    let mapper = move |_: &Change<u32, Thing>| {
        maps.fetch_add(1, Ordering::Relaxed);
        let now = seen.load(Ordering::Relaxed);
        if last.swap(now, Ordering::Relaxed) != now {
            in_turn.store(0, Ordering::Relaxed);
        }
        longest.fetch_max(in_turn.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        None::<u32>
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let options = WatchOptions::new().resync_every(60 * SECOND);
    let controller = Controller::new(queue())
        .watches_with(&things, mapper, options)
        .graceful_shutdown_on(async { drop(stopped.await) });
    let mut run = Box::pin(controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }));
    let running = tokio::spawn(poll_fn(move |cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        run.as_mut().poll(cx)
    }));
    // The initial objects, and then those of a resync.
    for all in [MANY, 2 * MANY] {
        while mapped.load(Ordering::Relaxed) < all {
            tokio::task::yield_now().await;
        }
        let most = most.swap(0, Ordering::Relaxed);
        assert!((1..=256).contains(&most), "{most} of {all} objects were mapped in one poll");
        sleep(60 * SECOND).await;
    }
    while mapped.load(Ordering::Relaxed) < 2 * MANY + 1_000 {
        tokio::task::yield_now().await;
    }
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    assert!(mapped.load(Ordering::Relaxed) < 3 * MANY, "the shutdown must interrupt the resync");
}

#[tokio::test(start_paused = true)]
async fn a_mapper_that_panics_at_a_resync_is_called_again_at_the_next() {
    let world = HistorySource::new();
    world.put(1, 0);
    let things = world.informer();
    let (stop, stopped) = oneshot::channel::<()>();
    let calls = Log::new();
    let own_log = calls.clone();
    let begin = Instant::now();
    let mapper = move |change: &Change<u32, Thing>| {
        own_log.note(begin.elapsed());
        if own_log.count() == 2 {
            panic_quietly("the mapper panics at the first resync");
        }
        *change.key()
    };
    let options = WatchOptions::new().resync_every(60 * SECOND);
    let controller = Controller::new(queue())
        .watches_with(&things, mapper, options)
        .graceful_shutdown_on(async { drop(stopped.await) });
    let running = tokio::spawn(controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }));
    sleep(120 * SECOND + SECOND / 2).await;
    stop.send(()).unwrap();
    let report = running.await.unwrap().unwrap();
    let calls = calls.take();
    assert_eq!((calls.len(), calls[2] - calls[1]), (3, 60 * SECOND));
    assert_eq!((report.reconciles, report.callback_panics, report.mapper_failures), (2, 1, 0));
}

/// In standby no object is mapped. A resync does not keep a controller with `stop_when_idle` from ending.
#[tokio::test(start_paused = true)]
async fn resyncs_neither_in_standby_nor_after_the_end() {
    let world = HistorySource::new();
    world.put(1, 0);
    let things = world.informer();
    let (queue, maps): (Keys, _) = (queue(), Log::new());
    let own_log = maps.clone();
    let controller = Controller::new(queue)
        .watches_with(
            &things,
            move |change| {
                own_log.note(());
                *change.key()
            },
            WatchOptions::new().resync_every(SECOND),
        )
        .standby_until(sleep(100 * SECOND))
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() });
    let running = tokio::spawn(controller.run(|_, _| async {
        sleep(30 * SECOND).await;
        Ok::<_, String>(Action::await_change())
    }));
    sleep(99 * SECOND).await;
    assert_eq!(maps.count(), 0);
    sleep(6 * SECOND + SECOND / 2).await;
    assert!((6..=7).contains(&maps.take().len()), "at the start, and in the five or six periods so far");
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!((maps.count(), report.reconciles), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_period_of_zero_is_refused() {
    let things = HistorySource::new().informer();
    let zero = || WatchOptions::new().resync_every(Duration::ZERO);
    let controller = Controller::new(queue()).watches_with(&things, key, zero());
    let handle = controller.handle();
    let added = handle.add_watch_with(&things, key, zero());
    assert_eq!(added.err(), Some(AddWatchError::ZeroResyncPeriod));
    let ended = controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await;
    assert!(matches!(ended, Err(RunError::Config(invalid)) if invalid.setting() == "resync_every"));
}

/// An object. If `ARMED` is set, the next drop of an object panics.
#[derive(Clone)]
struct FragileObject {
    key: u32,
    version: Version,
}

static ARMED: AtomicBool = AtomicBool::new(false);

impl Drop for FragileObject {
    fn drop(&mut self) {
        if ARMED.swap(false, Ordering::Relaxed) {
            panic_quietly("an object panics when it is dropped");
        }
    }
}

/// While the objects are mapped again, all of them are replaced, so the resync holds the last reference to each.
#[tokio::test(start_paused = true)]
async fn an_object_that_panics_when_a_resync_drops_it_does_not_end_the_run() {
    const OBJECTS: u32 = 25_600;
    let schema = Schema::new(|object: &FragileObject| object.key, |object| object.version);
    let server = TestServer::new(schema, |object, _, version| object.version = version);
    let object = |key| FragileObject { key, version: Version::ZERO };
    (0..OBJECTS).for_each(|key| _ = server.put(object(key)));
    let objects = Informer::builder(schema, server.clone()).seed(1).start().unwrap();
    objects.synced().await.unwrap();
    let initial = AtomicU32::new(0);
    let mapper = move |change: &Change<u32, FragileObject>| {
        if change.is_initial() {
            match initial.fetch_add(1, Ordering::Relaxed) + 1 {
                first if first == OBJECTS + 1 => (0..OBJECTS).for_each(|key| _ = server.put(object(key))),
                // In the same slice, of about 400 objects, so the snapshot of the resync is the same.
                later if later == OBJECTS + 300 => ARMED.store(true, Ordering::Relaxed),
                _ => {}
            }
        }
        None
    };
    let report = Controller::new(queue())
        .watches_with(&objects, mapper, WatchOptions::new().resync_every(SECOND))
        .graceful_shutdown_on(sleep(SECOND * 3 / 2))
        .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
        .await;
    assert!(!ARMED.load(Ordering::Relaxed), "no object was dropped");
    assert_eq!(report.unwrap().reconciles, 0);
}

/// The key of an object. Counts the calls of `Hash`.
#[derive(Clone, PartialEq, Eq)]
struct CountedKey(u32);

static HASHED: AtomicU32 = AtomicU32::new(0);

impl std::hash::Hash for CountedKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        HASHED.fetch_add(1, Ordering::Relaxed);
        self.0.hash(state);
    }
}

/// Each part of so short a period is over at once. The clock is not paused, so that it moves. A resync of one part hashes each key once.
#[tokio::test]
async fn a_resync_with_a_tiny_period_yields_to_other_tasks() {
    const COUNTED: Schema<CountedKey, Thing> =
        Schema::new(|thing: &Thing| CountedKey(thing.key), |thing| Version::new(thing.version));
    let things = Informer::builder(COUNTED, HistorySource::new()).start().unwrap();
    things.synced().await.unwrap();
    things.writer().upsert(Thing { key: 1, version: 1, value: 0 });
    let options = WatchOptions::new().resync_every(Duration::from_nanos(1));
    let controller = Controller::new(queue()).watches_with(&things, |_| None::<u32>, options);
    let mut run = Box::pin(controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }));
    let mut polls = 0;
    poll_fn(|cx| {
        HASHED.store(0, Ordering::Relaxed);
        assert!(run.as_mut().poll(cx).is_pending());
        let parts = HASHED.load(Ordering::Relaxed);
        assert!(parts <= 256, "one poll resynced {parts} parts");
        polls += 1;
        if polls == 100 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
