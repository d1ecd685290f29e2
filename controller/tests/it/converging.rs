//! Random controllers with settings that the simulation in `tools/drivers` does not combine: priorities, rates and lease limits that change, pauses, strict backoff,
//! give-up rules of the queue, minimum waits, spread requeues, mappers that return several keys, and a limit of failing keys.
//!
//! The oracle is a time line and no model: each request (a key that a mapper returned, or that other code added) gets a number. When the faults have ended, an
//! attempt that began after the last request of a key has succeeded, or was given up.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use flyball_controller::testing::Simulation;
use flyball_controller::{
    Action, BatchConfig, Context, Controller, ControllerConfig, ControllerMetrics, FailureClass,
    ReconcileOutcome, WatchOptions,
};
use flyball_informer_cache::testing::TestServer;
use flyball_informer_cache::{Change, Informer, Schema, SourceErrorKind, Version};
use flyball_ratelimit::{Exponential, Quota};
use flyball_sync::ManualTimer;
use flyball_workqueue::{Fair, Fifo, Order, Priority, Queue};
use parking_lot::Mutex;
use testkit::random::{Random, cases_are_chosen};
use tokio::sync::oneshot;

use crate::support::{SECOND, panic_quietly};

const OBJECTS: u64 = 5;
/// The keys of owners begin here.
const OWNERS: u32 = 100;

#[derive(Clone, Copy, Debug)]
struct Thing {
    key: u32,
    owner: u32,
    version: Version,
}
const THINGS: Schema<u32, Thing> = Schema::new(|thing: &Thing| thing.key, |thing| thing.version);

type Things = Informer<u32, Thing>;
type Keys<O> = Queue<u32, O, Exponential<u32>, ManualTimer>;
type Options<O> = WatchOptions<u32, Thing, u32, O, Exponential<u32>, ManualTimer>;

#[derive(Default)]
struct Record {
    tick: u64,
    requested: BTreeMap<u32, u64>,
    covered: BTreeMap<u32, u64>,
    given_up: BTreeMap<u32, u64>,
    /// The keys that are reconciled, and whether they had failed.
    live: BTreeMap<u32, bool>,
    /// The begin of the last attempt of each key.
    begun: BTreeMap<u32, u64>,
    /// Whether the run was dropped: leases of open batches then end as failures.
    dropped: bool,
    resyncs: bool,
    errors: Vec<String>,
    calls: usize,
    most_calls: usize,
    most_failing: usize,
    /// The objects whose initial changes the watch of this run has mapped.
    initial: BTreeSet<(u32, u32)>,
    mapped: BTreeMap<u32, Version>,
    adds: BTreeMap<u32, u64>,
    ended: u64,
    seen: BTreeSet<&'static str>,
}

#[derive(Clone, Default)]
struct World {
    record: Arc<Mutex<Record>>,
    faults: Arc<AtomicBool>,
    dice: Arc<Mutex<Option<Random>>>,
    log: Arc<Mutex<String>>,
}

impl World {
    fn below(&self, bound: u64) -> u64 {
        self.dice.lock().as_mut().map_or(0, |dice| dice.below(bound))
    }
    fn fault(&self, bound: u64) -> bool {
        self.faults.load(Ordering::Relaxed) && self.below(bound) == 0
    }
    fn request(&self, key: u32) {
        let mut record = self.record.lock();
        record.tick += 1;
        let tick = record.tick;
        record.requested.insert(key, tick);
    }
    /// Records an error: a panic in a reconcile would be caught.
    fn error(&self, what: String) {
        self.record.lock().errors.push(what);
    }
    fn check(&self) {
        let errors = std::mem::take(&mut self.record.lock().errors);
        if !errors.is_empty() {
            self.fail(&errors.join("; "));
        }
    }
    fn fail(&self, why: &str) -> ! {
        panic!("{why}\n{}", self.log.lock())
    }
    fn map(&self, watch: u32, change: &Change<u32, Thing>) -> Vec<u32> {
        if self.fault(8) {
            panic_quietly("a mapper");
        }
        let thing = change.object();
        let mut keys: Vec<_> =
            [Some(change.object()), change.old()].into_iter().flatten().map(|t| OWNERS + t.owner).collect();
        keys.push(*change.key());
        let counts = {
            let mut record = self.record.lock();
            // A resync adds only absent keys, so a mapping that may be one requests nothing. Its changes look like initial ones.
            let first = record.initial.insert((watch, *change.key()));
            !record.resyncs || !change.is_initial() || first
        };
        if counts {
            keys.iter().for_each(|key| self.request(*key));
            let mut record = self.record.lock();
            keys.iter().for_each(|key| *record.adds.entry(*key).or_default() += 1);
        }
        let mut record = self.record.lock();
        let newest = record.mapped.entry(*change.key()).or_insert(Version::ZERO);
        *newest = (*newest).max(thing.version);
        keys
    }
    fn gave_up(&self, key: u32) {
        let mut record = self.record.lock();
        let begun = record.begun.get(&key).copied().unwrap_or_default();
        let at = if record.dropped { record.tick } else { begun };
        record.given_up.insert(key, at);
    }
}

/// A call in flight.
struct Call {
    world: World,
    keys: Vec<u32>,
}

impl Call {
    fn begin(world: &World, keys: &[u32], failing: impl Fn(&u32) -> bool) -> (Self, u64) {
        let mut guard = world.record.lock();
        let record = &mut *guard;
        record.tick += 1;
        let tick = record.tick;
        record.calls += 1;
        record.most_calls = record.most_calls.max(record.calls);
        for key in keys {
            record.begun.insert(*key, tick);
            if record.live.insert(*key, failing(key)).is_some() {
                record.errors.push(format!("key {key} runs twice"));
            }
        }
        let failing = record.live.values().filter(|failing| **failing).count();
        record.most_failing = record.most_failing.max(failing);
        (Self { world: world.clone(), keys: keys.to_vec() }, tick)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut record = self.world.record.lock();
        record.calls -= 1;
        self.keys.iter().for_each(|key| _ = record.live.remove(key));
    }
}

#[derive(Clone)]
struct Metrics(World, Arc<AtomicU32>);
impl ControllerMetrics for Metrics {
    fn reconcile_ended(&self, _: ReconcileOutcome, _: Duration) {
        self.0.record.lock().ended += 1;
    }
    fn worker_started(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
    fn worker_stopped(&self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn work(
    world: World,
    keys: Vec<u32>,
    context: Context,
    time: flyball_controller::testing::SimulatedTime,
    things: Things,
    failing: Vec<bool>,
    resyncs: bool,
) -> Vec<Result<Action, String>> {
    let adds = |world: &World| -> u64 {
        let record = world.record.lock();
        keys.iter().filter_map(|key| record.adds.get(key)).sum()
    };
    let before = adds(&world);
    let at = |key: &u32| failing[keys.iter().position(|own| own == key).unwrap()];
    let (call, begin) = Call::begin(&world, &keys, at);
    for key in keys.iter().filter(|key| **key < OWNERS) {
        let mapped = world.record.lock().mapped.get(key).copied().unwrap_or(Version::ZERO);
        if things.store().get(key).is_some_and(|thing| thing.version < mapped) {
            world.error(format!("a reconcile of {key} reads an old state"));
        }
    }
    let faulty = world.fault(3);
    let sleep = [0, 0, 100, 900, 4_000][world.below(5) as usize];
    time.sleep(Duration::from_millis(sleep)).await;
    if faulty && world.below(4) == 0 {
        panic_quietly("a reconcile");
    }
    if faulty && world.below(4) == 0 {
        pending::<()>().await;
    }
    let (superseded, added) = (context.is_superseded(), adds(&world) > before);
    // The mapper cannot distinguish a resync from an initial change.
    if superseded != added && !resyncs {
        world.error(format!("{keys:?}: superseded {superseded}, added {added}"));
    }
    let results = keys
        .iter()
        .map(|key| {
            if faulty && world.below(2) == 0 {
                return Err(["transient", "conflict", "permanent"][world.below(3) as usize].to_owned());
            }
            world.record.lock().covered.insert(*key, begin);
            let again = world.fault(6);
            Ok(if again {
                Action::requeue_after(Duration::from_millis(world.below(3_000)))
            } else {
                Action::await_change()
            })
        })
        .collect();
    drop(call);
    results
}

struct Running {
    task: flyball_controller::testing::SimulatedTask<
        Result<flyball_controller::RunReport<u32>, flyball_controller::RunError>,
    >,
    stop: Option<oneshot::Sender<()>>,
    handle_ops: Box<dyn FnMut(bool)>,
    most: Option<usize>,
    workers: usize,
    workers_now: Arc<AtomicU32>,
    ends_within: Duration,
    resyncs: bool,
}

#[expect(clippy::too_many_lines, reason = "one list of settings")]
fn start<O: Order<u32>>(
    sim: &Simulation,
    r: &mut Random,
    world: &World,
    queue: &Keys<O>,
    things: &Things,
    options: &dyn Fn(&mut Random) -> Options<O>,
) -> Running {
    *world.record.lock() = {
        let mut old = world.record.lock();
        let old = std::mem::take(&mut *old);
        Record {
            requested: old.requested,
            covered: old.covered,
            given_up: old.given_up,
            tick: old.tick,
            seen: old.seen,
            ..Record::default()
        }
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let most = [None, Some(1), Some(2)][r.below(3) as usize];
    let (min, max) = [(1, 1), (3, 3), (1, 4), (2, 5)][r.below(4) as usize];
    let finally = r.below(2) == 0;
    let resync = (r.below(3) == 0).then(|| Duration::from_millis(1 + r.below(90_000)));
    world.record.lock().resyncs = resync.is_some();
    let config = ControllerConfig {
        workers: (min..=max).into(),
        worker_idle_timeout: Duration::from_millis(1 + r.below(3_000)),
        reconcile_timeout: Some(Duration::from_secs(5)),
        max_attempts: (r.below(3) == 0).then(|| 1 + r.below(3) as u32),
        max_failing_in_flight: most,
        requeue_spread_percent: [0, 50, 300][r.below(3) as usize],
        start_before_sync: r.below(2) == 0,
        drain_on_shutdown: r.below(2) == 0,
        shutdown_grace: [Duration::ZERO, SECOND, 20 * SECOND][r.below(3) as usize],
        abort_after: [Duration::ZERO, SECOND][r.below(2) as usize],
        ..ControllerConfig::default()
    };
    let ends_within = config.shutdown_grace + config.abort_after;
    let workers_now = Arc::new(AtomicU32::new(0));
    let watched = |options: Options<O>, resync: Option<Duration>| match resync {
        Some(period) => options.resync_every(period),
        None => options,
    };
    let mapped = world.clone();
    let first = watched(options(r), resync);
    world.log.lock().push_str(&format!("\n{config:?} resync {resync:?} finally {finally}"));
    let given_up = world.clone();
    let controller = Controller::new(queue.clone())
        .with_config(config)
        .watches_with(things, move |change: &Change<u32, Thing>| mapped.map(0, change), first)
        .metrics(Metrics(world.clone(), workers_now.clone()))
        .on_give_up(move |key, _| given_up.gave_up(*key))
        .graceful_shutdown_on(async move { drop(stopped.await) });
    let controller = if r.below(2) == 0 {
        controller.classify(|failure| match failure.to_string().as_str() {
            "conflict" => FailureClass::Conflict,
            "permanent" => FailureClass::Permanent,
            _ => FailureClass::Transient,
        })
    } else {
        controller
    };
    let controller = if r.below(2) == 0 {
        controller.retry_after_at_least(|key, _| (key % 2 == 0).then_some(3 * SECOND))
    } else {
        controller
    };
    let (own, time) = (world.clone(), sim.time());
    let controller = if finally {
        controller.finally(move |_, _, _| {
            let (own, time) = (own.clone(), time.clone());
            async move {
                let failed = own.fault(6);
                time.sleep(Duration::from_millis(own.below(500))).await;
                if failed { Err("finally") } else { Ok(()) }
            }
        })
    } else {
        controller
    };
    let handle = controller.handle();
    let (own, own_queue, time, cache, resyncs) =
        (world.clone(), queue.clone(), sim.time(), things.clone(), resync.is_some());
    let one = move |keys: Vec<u32>, context| {
        // A drain ignores the limit.
        let drains = own_queue.is_shutting_down();
        let failing = keys.iter().map(|key| !drains && own_queue.num_requeues(key) > 0).collect();
        work(own.clone(), keys, context, time.clone(), cache.clone(), failing, resyncs)
    };
    let task = if r.below(2) == 0 {
        let one = Arc::new(one);
        sim.run(controller, move |key, context| {
            let one = one.clone();
            async move { one(vec![key], context).await.remove(0) }
        })
    } else {
        let wait = Duration::from_millis([0, 700, 3_000][r.below(3) as usize]);
        let batches = BatchConfig::new(1 + r.below(3) as usize).max_wait(wait).group_by(|key| key % 2);
        world.log.lock().push_str(&format!(" {batches:?}"));
        sim.run_batches(controller, batches, move |keys, context| {
            let calls = one(keys, context);
            async move { Ok(calls.await) }
        })
    };
    let (own, things) = (world.clone(), things.clone());
    let mut ids = Vec::new();
    let mut number = 0;
    let more: Vec<_> = (0..8).map(|_| watched(options(r), resync)).collect();
    let mut more = more.into_iter();
    let handle_ops = move |adds: bool| {
        if adds {
            let Some(options) = more.next() else { return };
            number += 1;
            let (own, number) = (own.clone(), number);
            let mapper = move |change: &Change<u32, Thing>| own.map(number, change);
            ids.extend(handle.add_watch_with(&things, mapper, options).ok());
        } else if !ids.is_empty() {
            assert!(handle.remove_watch(&ids.remove(0)));
        }
    };
    Running {
        task,
        stop: Some(stop),
        handle_ops: Box::new(handle_ops),
        most,
        workers: max,
        workers_now,
        ends_within,
        resyncs: resync.is_some(),
    }
}

/// Returns the keys whose last request is not covered.
fn open(world: &World) -> Vec<u32> {
    let record = world.record.lock();
    let at = |map: &BTreeMap<u32, u64>, key: &u32| map.get(key).copied().unwrap_or(0);
    let done = |key: &u32| at(&record.covered, key).max(at(&record.given_up, key));
    record.requested.iter().filter(|(key, tick)| **tick > done(key)).map(|(key, _)| *key).collect()
}

fn check_limits(world: &World, running: &Running) {
    let record = world.record.lock();
    let (calls, failing) = (record.most_calls, record.most_failing);
    drop(record);
    if calls > running.workers {
        world.fail(&format!("{calls} calls"));
    }
    if running.most.is_some_and(|most| failing > most) {
        world.fail(&format!("{failing} failing keys at once"));
    }
}

#[expect(clippy::too_many_lines, reason = "one list of operations")]
fn life<O: Order<u32>>(
    sim: &mut Simulation,
    r: &mut Random,
    order: impl Fn() -> O,
    options: &dyn Fn(&mut Random) -> Options<O>,
    change_limits: &dyn Fn(&Keys<O>, bool),
) -> BTreeSet<&'static str> {
    let world = World::default();
    *world.dice.lock() = Some(Random::new(r.next()));
    world.faults.store(true, Ordering::Relaxed);
    let server = TestServer::new(THINGS, |thing: &mut Thing, _, version| thing.version = version);
    let things = sim.informer(Informer::builder(THINGS, server.clone())).unwrap();
    let (strict, give_up) =
        (r.below(3) == 0, (r.below(4) == 0).then(|| NonZeroU32::new(1 + r.below(3) as u32).unwrap()));
    let new_queue = |sim: &Simulation| {
        let backoff = Exponential::new(SECOND / 10..=9 * SECOND);
        let queue =
            Queue::builder().order(order()).limiter(backoff).timer(sim.timer()).seed(sim.next_random());
        let queue = if strict { queue.strict_backoff() } else { queue };
        match give_up {
            None => queue.build(),
            Some(most) => {
                let own = world.clone();
                queue.give_up_after(most, move |key, _| own.gave_up(*key)).build()
            }
        }
    };
    world.log.lock().push_str(&format!("strict {strict} give up {give_up:?}"));
    let mut queue = new_queue(sim);
    let mut running = start(sim, r, &world, &queue, &things, options);
    for _ in 0..30 + r.below(60) {
        let key = r.below(OBJECTS) as u32;
        let thing = Thing { key, owner: r.below(3) as u32, version: Version::ZERO };
        let what = r.below(32);
        world.log.lock().push_str(&format!(" {what}.{key}"));
        match what {
            0..7 => _ = server.put(thing),
            7..9 => _ = server.delete(&key),
            9 => server.break_watches(SourceErrorKind::Other),
            10 => {
                server.compact();
                server.break_watches(SourceErrorKind::Expired);
            }
            11 | 12 => {
                world.request(key);
                _ = queue.add(key);
            }
            13 => queue.pause(),
            14 | 15 => queue.resume(),
            16 => change_limits(&queue, true),
            17 => change_limits(&queue, false),
            18 => (running.handle_ops)(true),
            19 => (running.handle_ops)(false),
            20 if r.below(2) == 0 => {
                world.record.lock().seen.insert("dropped");
                check_limits(&world, &running);
                world.record.lock().dropped = true;
                running.task.abort();
                sim.run_until_stalled();
                assert_eq!(running.workers_now.load(Ordering::Relaxed), 0, "{}", world.log.lock());
                running = start(sim, r, &world, &queue, &things, options);
            }
            21 if r.below(2) == 0 => {
                world.record.lock().seen.insert("shut down");
                drop(running.stop.take());
                sim.run_until_stalled();
                // With a busy clock, each of the two times may be over late.
                sim.advance(running.ends_within);
                sim.advance(running.ends_within);
                let Some(report) = running.task.take_output() else { world.fail("the run does not end") };
                let Ok(report) = report else { world.fail("the run fails") };
                assert_eq!(running.workers_now.load(Ordering::Relaxed), 0, "{}", world.log.lock());
                check_limits(&world, &running);
                let left = &report.leftovers;
                let left: Vec<u32> =
                    [&left.ready, &left.waiting, &left.leased].into_iter().flatten().copied().collect();
                let unique: BTreeSet<u32> = left.iter().copied().collect();
                if unique.len() != left.len() {
                    world.fail(&format!("a key is left twice: {left:?}"));
                }
                let lost: Vec<u32> = open(&world).into_iter().filter(|key| !unique.contains(key)).collect();
                if !lost.is_empty() {
                    world.fail(&format!("lost at the shutdown: {lost:?}, left {left:?}"));
                }
                let record = world.record.lock();
                assert_eq!(report.reconciles, record.ended, "{}", world.log.lock());
                drop(record);
                // The leftovers are not in the next queue; the next run maps all objects again.
                queue = new_queue(sim);
                world.record.lock().requested.clear();
                running = start(sim, r, &world, &queue, &things, options);
            }
            _ => {
                let most = [50, 1_500, 20_000][r.below(3) as usize];
                sim.advance(Duration::from_millis(r.below(most)));
            }
        }
        if r.below(2) == 0 {
            sim.run_until_stalled();
        }
        world.check();
    }
    // A busy clock may pass the whole time while a task is ready.
    sim.set_busy_clock(false);
    world.faults.store(false, Ordering::Relaxed);
    server.clear_faults();
    queue.resume();
    change_limits(&queue, false);
    sim.advance(400 * SECOND);
    world.check();
    check_limits(&world, &running);
    let left = open(&world);
    if !left.is_empty() {
        let states: Vec<_> = left.iter().map(|key| queue.state(key)).collect();
        world.fail(&format!("{left:?} were not reconciled: {states:?}"));
    }
    for thing in server.objects() {
        let mapped = world.record.lock().mapped.get(&thing.key).copied();
        if mapped != Some(thing.version) {
            world.fail(&format!("{thing:?} was mapped at {mapped:?}"));
        }
    }
    let stats = queue.stats();
    if !running.resyncs && (stats.ready, stats.leased, stats.waiting) != (0, 0, 0) {
        world.fail(&format!("{stats:?}"));
    }
    std::mem::take(&mut world.record.lock().seen)
}

#[test]
fn every_request_is_reconciled_in_the_end_whatever_the_settings() {
    let seen = Mutex::new(BTreeMap::<&'static str, u32>::new());
    Simulation::explore(200, |sim| {
        let mut r = Random::new(sim.next_random());
        sim.set_busy_clock(r.below(3) == 0);
        let events = match r.below(3) {
            0 => life(sim, &mut r, || Fifo, &|_| WatchOptions::new(), &|_, _| ()),
            1 => life(
                sim,
                &mut r,
                Priority::new,
                &|r| {
                    let options = WatchOptions::new().priority(r.below(5) as i8);
                    if r.below(2) == 0 { options.initial_priority(-(r.below(128) as i8)) } else { options }
                },
                &|queue, low| _ = queue.set_priority(&1, if low { -9 } else { 9 }),
            ),
            _ => {
                let low = Arc::new(AtomicBool::new(false));
                let (own, rated) = (low.clone(), low.clone());
                let quota = Quota::per_second(NonZeroU32::new(2).unwrap());
                let has_rate = r.below(2) == 0;
                let order = move || {
                    let (own, rated) = (own.clone(), rated.clone());
                    let fair = Fair::by_group(|key: &u32| key % 3);
                    let fair = fair.max_leased(move |group| match own.load(Ordering::Relaxed) {
                        true => *group,
                        false => 1 + *group,
                    });
                    if has_rate {
                        fair.rate(move |group| {
                            (rated.load(Ordering::Relaxed) || *group == 0).then_some(quota)
                        })
                    } else {
                        fair
                    }
                };
                life(sim, &mut r, order, &|_| WatchOptions::new(), &move |queue, is_low| {
                    low.store(is_low, Ordering::Relaxed);
                    queue.refresh_groups();
                })
            }
        };
        let mut seen = seen.lock();
        events.into_iter().for_each(|event| *seen.entry(event).or_default() += 1);
    });
    if !cases_are_chosen() {
        let seen = seen.into_inner();
        assert!(seen.len() == 2 && seen.values().all(|lives| *lives > 50), "{seen:?}");
    }
}
