//! Randomised tests of controllers over a simulated cluster. The seed determines the operations and the order of events. After the faults have ended,
//! the state that reconciles have written must equal the cluster.
//!
//! A run consists of changes of one or two kinds of objects, all faults of the server, keys that other code adds with different priorities, and
//! reconciles that fail in every class, panic, are slow or time out, one by one or in batches. Each controller has a share of the keys and a worker
//! pool that scales. Controllers are shut down or dropped, and others start after them or beside them.
//!
//! At all times:
//! 1. at most one reconcile runs per key;
//! 2. no reconcile starts before every cache has synced; when a mapper receives a change, the store already has it; and a reconcile sees every object
//!    of its key in the last version that was mapped, or in a newer one;
//! 3. a controller that is shut down reports every unfinished key, and a controller that is dropped leaves it in the queue.
//!
//! When the faults have ended:
//! 4. the caches equal the cluster;
//! 5. the last change of each object was followed by a successful reconcile of its key, and the state that reconciles have written equals the
//!    cluster;
//! 6. the queue is empty, one more change causes one more reconcile, the pool has shrunk to its minimum, and the metrics of workers and reconciles
//!    add up.
//!
//! The tests at the end of this file break one rule on purpose and assert that the check fails.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::testing::{SimulatedTask, SimulatedTime, Simulation};
use flyball_controller::{
    Action, BatchConfig, Controller, ControllerMetrics, FailureClass, ReconcileError, ReconcileOutcome,
    RunError, RunReport, Shard, WatchOptions,
};
use flyball_informer_cache::testing::{TestServer, TestServerWatch};
use flyball_informer_cache::{
    Change, Informer, ListRequest, Page, Schema, Source, SourceError, SourceErrorKind, Version, WatchEvent,
    WatchRequest, WatchStream,
};
use flyball_ratelimit::Exponential;
use flyball_sync::ManualTimer;
use flyball_workqueue::{KeyState, Priority, Queue, WithTimer};
use parking_lot::Mutex;
use testkit::random::Random;
use tokio::sync::oneshot;

use crate::support::{SECOND, panic_quietly};

/// An object of some kind. A controller maps it to the key modulo [`KEYS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Thing {
    key: u32,
    uid: u64,
    version: u64,
}

const THINGS: Schema<u32, Thing> =
    Schema::new(|thing: &Thing| thing.key, |thing| Version::new(thing.version))
        .with_identity(|a, b| a.uid == b.uid);

const KEYS: u32 = 4;

/// The kind and the key of an object.
type Id = (usize, u32);

type Cluster = TestServer<u32, Thing>;
type Keys = Queue<u32, Priority, Exponential<u32>, WithTimer<ManualTimer>>;

/// The rule that a test breaks on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The source drops some events.
    Source,
    /// The mapper ignores deletions.
    Mapper,
    /// A key that is leased is not added again.
    Dirty,
    /// Reconciles read a snapshot that was taken when the controller started.
    Snapshot,
    /// Two controllers of a replica have a queue each.
    Queues,
    /// A failed reconcile returns success.
    Failures,
    /// Every replica reconciles all keys.
    Shards,
}

/// The version of an object in a change, and whether the object was deleted.
#[derive(Clone, Copy, Debug)]
struct Told {
    version: u64,
    gone: bool,
}

impl Told {
    fn is_newer_than(self, seen: &Thing) -> bool {
        if self.gone { self.version >= seen.version } else { self.version > seen.version }
    }
}

/// How often the runs reached each situation that they should reach.
type Reached = BTreeMap<&'static str, u64>;

/// The state that mappers and reconciles record, and the random numbers that determine what they do next.
struct Notes {
    random: Random,
    /// Set once nothing fails any more.
    calm: bool,
    /// The server was restored to an earlier version, so a higher version is not always newer.
    restored: bool,
    /// The number of changes so far, which serves as the clock.
    clock: u64,
    held: BTreeSet<u32>,
    /// The last change of each object.
    told: BTreeMap<Id, Told>,
    /// For each key: when it was added last (`wanted`), when the last reconcile began that succeeded or was given up (`done`), and when the last
    /// reconcile began (`begun`).
    wanted: BTreeMap<u32, u64>,
    done: BTreeMap<u32, u64>,
    begun: BTreeMap<u32, u64>,
    /// Keys whose last attempt failed.
    given_up: BTreeSet<u32>,
    /// The state that reconciles have written: the objects as they saw them.
    made: BTreeMap<Id, Thing>,
    reconciles: u64,
    reached: Reached,
    /// The first violation of a rule. A panic in a reconcile or a mapper would be caught.
    wrong: Option<String>,
    log: String,
}

impl Notes {
    fn check(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right && self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    /// Returns the keys that were added after their last finished reconcile began.
    fn undone(&self) -> Vec<u32> {
        let done = |key| self.done.get(key).copied().unwrap_or(0);
        self.wanted.iter().filter(|(key, wanted)| done(key) < **wanted).map(|(key, _)| *key).collect()
    }

    /// Returns the unfinished keys of a shard.
    fn undone_of(&self, shard: Shard) -> Vec<u32> {
        self.undone().into_iter().filter(|key| contains(shard, *key)).collect()
    }

    fn reach(&mut self, what: &'static str, times: u64) {
        *self.reached.entry(what).or_default() += times;
    }

    fn chance(&mut self, of: u64) -> bool {
        !self.calm && self.random.below(of) == 0
    }
}

/// The state that all mappers and reconciles share.
#[derive(Clone)]
struct World {
    notes: Arc<Mutex<Notes>>,
    kinds: Arc<Vec<Informer<u32, Thing>>>,
    time: SimulatedTime,
    broken: Broken,
}

impl World {
    fn told(&self, kind: usize, change: &Change<u32, Thing>, shard: Shard) -> Option<u32> {
        let (id, key) = ((kind, *change.key()), *change.key() % KEYS);
        let gone = change.kind().is_deletion();
        let told = Told { version: change.object().version, gone };
        let shown = self.kinds[kind].store().get(&id.1);
        let mut notes = self.notes.lock();
        notes.clock += 1;
        let now = notes.clock;
        if contains(shard, key) {
            notes.wanted.insert(key, now);
        }
        let older = match &shown {
            Some(shown) => told.is_newer_than(shown),
            None => false,
        };
        let wrong = older && !notes.restored;
        notes.check(!wrong, || format!("2: {id:?} was mapped as {told:?}, but the store has {shown:?}"));
        notes.told.insert(id, told);
        let skip = match self.broken {
            Broken::Mapper => told.gone,
            Broken::Dirty => notes.held.contains(&key),
            _ => false,
        };
        (!skip).then_some(key)
    }

    /// Returns the objects of a key, from these snapshots or from the current ones.
    fn look(&self, key: u32, snapshots: Option<&[Snapshot]>) -> BTreeMap<Id, Thing> {
        let now: Vec<Snapshot> = self.kinds.iter().map(Informer::snapshot).collect();
        let kinds = snapshots.unwrap_or(&now).iter().enumerate();
        let all =
            kinds.flat_map(|(kind, things)| things.iter().map(move |(id, thing)| ((kind, *id), **thing)));
        all.filter(|((_, id), _)| id % KEYS == key).collect()
    }
}

type Snapshot = flyball_informer_cache::Snapshot<u32, Thing>;

/// A guard: the key counts as leased while its reconcile exists.
struct Held {
    world: World,
    key: u32,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut notes = self.world.notes.lock();
        notes.held.remove(&self.key);
        let bad = notes.chance(20);
        drop(notes);
        if bad && !std::thread::panicking() {
            panic_quietly("dropped");
        }
    }
}

async fn reconcile(world: World, key: u32, old: Option<Arc<Vec<Snapshot>>>) -> Result<Action, &'static str> {
    let seen = world.look(key, old.as_ref().map(|old| old.as_slice()));
    let (slow, turns) = {
        let mut notes = world.notes.lock();
        let synced = world.kinds.iter().all(Informer::is_synced);
        notes.check(synced, || "2: a reconcile starts before every cache has synced".to_owned());
        let first = notes.held.insert(key);
        notes.check(first, || format!("1: two reconciles of key {key} run at once"));
        let now = notes.clock;
        notes.begun.insert(key, now);
        notes.reconciles += 1;
        if !notes.restored {
            let mut told = notes.told.iter().filter(|((_, id), _)| id % KEYS == key);
            // An object that is missing was deleted since: the cache already had the state that was mapped.
            let older = told.find(|(id, told)| seen.get(id).is_some_and(|thing| told.is_newer_than(thing)));
            let older = older.map(|(id, told)| {
                format!("2: {id:?} was mapped as {told:?}, but the reconcile saw {seen:?}")
            });
            notes.check(older.is_none(), || older.unwrap_or_default());
        }
        let slow = if notes.chance(3) { notes.random.below(12_000) } else { 0 };
        let turns = notes.random.below(3);
        (Duration::from_millis(slow), turns)
    };
    let held = Held { world, key };
    let world = &held.world;
    for _ in 0..turns {
        world.time.sleep(Duration::ZERO).await;
    }
    if !slow.is_zero() {
        world.time.sleep(slow).await;
    }
    let mut notes = world.notes.lock();
    if notes.chance(4) {
        if notes.random.below(2) == 0 {
            drop(notes);
            panic_quietly("reconcile");
        }
        if world.broken != Broken::Failures {
            return Err(["transient", "conflict", "permanent"][notes.random.below(3) as usize]);
        }
        return Ok(Action::await_change());
    }
    notes.made.retain(|(_, id), _| id % KEYS != key);
    notes.made.extend(seen);
    let begun = notes.begun[&key];
    notes.done.insert(key, begun);
    notes.given_up.remove(&key);
    if notes.chance(8) {
        return Ok(Action::requeue_after(Duration::from_millis(notes.random.below(3_000))));
    }
    Ok(Action::await_change())
}

/// Returns whether a key belongs to this shard.
fn contains(shard: Shard, key: u32) -> bool {
    shard.contains(key.to_le_bytes())
}

fn class_of(world: &World, failure: &ReconcileError) -> FailureClass {
    let unsure = world.notes.lock().chance(20);
    if unsure {
        panic_quietly("nobody knows");
    }
    match failure.to_string().as_str() {
        "conflict" => FailureClass::Conflict,
        "permanent" => FailureClass::Permanent,
        _ => FailureClass::Transient,
    }
}

fn least_wait(world: &World) -> Option<Duration> {
    let mut notes = world.notes.lock();
    if notes.chance(20) {
        drop(notes);
        panic_quietly("the minimum wait panics");
    }
    notes.chance(4).then(|| Duration::from_millis(notes.random.below(20_000)))
}

/// Counts the workers and reconciles that the metrics report as running.
#[derive(Clone, Default)]
struct Gauge(Arc<Mutex<Counted>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    workers: usize,
    came: u64,
    running: usize,
}

impl Gauge {
    fn counted(&self) -> Counted {
        *self.0.lock()
    }
}

impl ControllerMetrics for Gauge {
    fn worker_started(&self) {
        let mut counted = self.0.lock();
        counted.workers += 1;
        counted.came += 1;
    }

    fn worker_stopped(&self) {
        self.0.lock().workers -= 1;
    }

    fn reconcile_started(&self) {
        self.0.lock().running += 1;
    }

    fn reconcile_ended(&self, _: ReconcileOutcome, _: Duration) {
        self.0.lock().running -= 1;
    }

    fn reconcile_dropped(&self) {
        self.0.lock().running -= 1;
    }
}

/// A running controller.
struct Running {
    task: SimulatedTask<Result<RunReport<u32>, RunError>>,
    stop: Option<oneshot::Sender<()>>,
    /// The index of its replica.
    shard: usize,
    /// Whether no other controller has used its queue.
    alone: bool,
    least: usize,
    /// Set for half of the controllers, because metrics cost clock reads.
    gauge: Option<Gauge>,
}

struct Life<'a> {
    sim: &'a mut Simulation,
    clusters: Vec<Cluster>,
    world: World,
    /// The shard of each replica.
    shards: Vec<Shard>,
    queues: Vec<Keys>,
    running: Vec<Running>,
    /// The number of controllers that have used each queue.
    served: Vec<usize>,
}

impl<'a> Life<'a> {
    fn new(sim: &'a mut Simulation, broken: Broken) -> Self {
        let kinds = 1 + sim.next_random() as usize % 2;
        let stamp =
            |thing: &mut Thing, uid, version: Version| (thing.uid, thing.version) = (uid, version.get());
        let clusters: Vec<Cluster> = (0..kinds).map(|_| TestServer::new(THINGS, stamp)).collect();
        let informer = |cluster: &Cluster| {
            let mut builder = Informer::builder(THINGS, Leaky { inner: cluster.clone(), broken });
            if sim.next_random() % 2 == 0 {
                builder = builder.streaming_lists();
            }
            if sim.next_random() % 2 == 0 {
                builder = builder.page_size(NonZeroU32::new(2).expect("2 is not zero"));
            }
            sim.informer(builder).expect("the configuration is valid")
        };
        let informers = clusters.iter().map(informer).collect();
        let notes = Notes {
            random: Random::new(sim.next_random()),
            calm: false,
            restored: false,
            clock: 0,
            held: BTreeSet::new(),
            told: BTreeMap::new(),
            wanted: BTreeMap::new(),
            done: BTreeMap::new(),
            begun: BTreeMap::new(),
            given_up: BTreeSet::new(),
            made: BTreeMap::new(),
            reconciles: 0,
            reached: Reached::new(),
            wrong: None,
            log: String::new(),
        };
        let notes = Arc::new(Mutex::new(notes));
        let world = World { notes, kinds: Arc::new(informers), time: sim.time(), broken };
        sim.set_busy_clock(sim.seed() % 3 == 0);
        let replicas = 1 + u32::from(sim.next_random() % 3 == 0);
        let shards: Vec<Shard> = (0..replicas)
            .map(|index| Shard::new(index, replicas).expect("the index is below the number of shards"))
            .collect();
        let queues = shards.iter().map(|_| queue(sim)).collect();
        let served = vec![0; shards.len()];
        let mut life = Self { sim, clusters, world, shards, queues, running: Vec::new(), served };
        (0..life.shards.len()).for_each(|shard| life.start(shard));
        life
    }

    fn below(&self, bound: u64) -> u64 {
        self.sim.next_random() % bound
    }

    /// Starts another controller of this replica, over its queue, or over a new queue if the old one is shut down.
    fn start(&mut self, of: usize) {
        if self.queues[of].is_shutting_down() || self.world.broken == Broken::Queues {
            self.queues[of] = queue(self.sim);
            self.served[of] = 0;
        }
        self.served[of] += 1;
        let others = self.running.iter_mut().filter(|running| running.shard == of);
        others.for_each(|running| running.alone = false);
        // A new controller reconciles all keys of its replica: no event reports objects that were deleted while no controller ran.
        (0..KEYS).filter(|key| self.home(*key) == of).for_each(|key| self.add(key, of));
        let (sender, receiver) = oneshot::channel();
        let world = self.world.clone();
        let gives_up = world.clone();
        let (least, more) = (1 + self.below(3) as usize, self.below(4) as usize);
        let (shard, alike) = (self.shards[of], self.world.broken == Broken::Shards);
        let (classifies, waits, finishes) = (world.clone(), world.clone(), world.clone());
        let mut controller = Controller::new(self.queues[of].clone())
            .workers_between(least..=least + more)
            .worker_idle_timeout(Duration::from_millis(1 + self.below(12_000)))
            .filter_keys(move |key| alike || contains(shard, *key))
            .classify(move |failure| class_of(&classifies, failure))
            .retry_after_at_least(move |_, _| least_wait(&waits))
            .initial_priority(-5)
            // Faults may delay answers of the server for longer than the default timeout.
            .cache_sync_timeout(Duration::MAX)
            .graceful_shutdown_on(async { drop(receiver.await) })
            .max_attempts(2 + self.below(4) as u32)
            .on_give_up(move |key, _| {
                let mut notes = gives_up.notes.lock();
                let begun = notes.begun[key];
                notes.done.insert(*key, begun);
                notes.given_up.insert(*key);
                if notes.chance(3) {
                    drop(notes);
                    panic_quietly("given up");
                }
            });
        if self.below(2) == 0 {
            controller = controller.reconcile_timeout(5 * SECOND);
        }
        if self.below(2) == 0 {
            controller =
                controller.shutdown_grace(SECOND).abort_after(Duration::from_millis(self.below(3_000)));
        }
        if self.below(2) == 0 {
            controller = controller.drain_on_shutdown();
        }
        if self.below(2) == 0 {
            controller = controller.finally(move |_, _, _| {
                let (bad, world) = (finishes.notes.lock().chance(10), finishes.clone());
                async move {
                    world.time.sleep(Duration::ZERO).await;
                    if bad { Err("finally") } else { Ok(()) }
                }
            });
        }
        let gauge = (self.below(2) == 0).then(Gauge::default);
        if let Some(gauge) = &gauge {
            controller = controller.metrics(gauge.clone());
        }
        for (kind, informer) in world.kinds.iter().enumerate() {
            let world = world.clone();
            controller = match kind {
                0 => controller.watches(informer, move |change| world.told(kind, change, shard)),
                // The priority of a key depends on the object.
                _ => controller.watches_with(
                    informer,
                    move |change| world.told(kind, change, shard),
                    WatchOptions::new().add_with(|queue: &Keys, change: &Change<u32, Thing>, key| {
                        queue.with_priority(*change.key() as i8 - 2).add(key)
                    }),
                ),
            };
        }
        let snapshots = || Arc::new(world.kinds.iter().map(Informer::snapshot).collect());
        let old = (world.broken == Broken::Snapshot).then(snapshots);
        // A panic here comes before there is a future. The reconcile still counts as begun.
        let called = {
            let world = world.clone();
            move |keys: &[u32]| {
                let mut notes = world.notes.lock();
                let now = notes.clock;
                notes.begun.extend(keys.iter().map(|key| (*key, now)));
                if notes.chance(12) {
                    drop(notes);
                    panic_quietly("called");
                }
            }
        };
        let task = if self.below(3) == 0 {
            let window = Duration::from_millis(self.below(2_000));
            let batches =
                BatchConfig::new(1 + self.below(4) as usize).max_wait(window).group_by(|key| key % 2);
            self.sim.run_batches(controller, batches, move |keys: Vec<u32>, _| {
                called(&keys);
                let (world, old) = (world.clone(), old.clone());
                async move {
                    let mut results = Vec::new();
                    world.notes.lock().reach("batches of several keys", u64::from(keys.len() > 1));
                    for key in keys {
                        results.push(reconcile(world.clone(), key, old.clone()).await);
                    }
                    Ok(results)
                }
            })
        } else {
            self.sim.run(controller, move |key, _| {
                called(&[key]);
                reconcile(world.clone(), key, old.clone())
            })
        };
        let alone = self.served[of] == 1;
        self.running.push(Running { task, stop: Some(sender), shard: of, alone, least, gauge });
    }

    /// Returns whether another controller may start: a second one over the same queue, or the first one over a new queue once the others have ended.
    fn may_start(&self, of: usize) -> bool {
        let ending = self.queues[of].is_shutting_down() && self.world.broken != Broken::Queues;
        let running = self.running_of(of);
        running == 0 || running < 2 && !ending
    }

    fn running_of(&self, shard: usize) -> usize {
        self.running.iter().filter(|running| running.shard == shard).count()
    }

    /// Returns the replica that a key belongs to.
    fn home(&self, key: u32) -> usize {
        self.shards.iter().position(|shard| contains(*shard, key)).expect("every key is in one shard")
    }

    /// Adds a key from outside the controller, possibly to the queue of another replica.
    fn add(&self, key: u32, of: usize) {
        let priority = self.below(10) as i8 - 5;
        if self.queues[of].with_priority(priority).add(key).is_ok() && self.home(key) == of {
            let mut notes = self.world.notes.lock();
            notes.clock += 1;
            let now = notes.clock;
            notes.wanted.insert(key, now);
        }
    }

    fn act(&mut self) {
        let (what, which) = (self.below(34), self.below(self.clusters.len() as u64) as usize);
        let number = self.below(256);
        let shard = number as usize % self.shards.len();
        let _ = write!(self.world.notes.lock().log, " {what}.{which}.{number}");
        let cluster = self.clusters[which].clone();
        let key = number as u32 % (KEYS * (1 + which as u32));
        let kind = {
            use SourceErrorKind::*;
            let busy = TooManyRequests { retry_after: (number > 128).then_some(SECOND) };
            [Expired, VersionTooLarge, busy, ConnectionRefused, Internal, Other][number as usize % 6]
        };
        let thing = |key| Thing { key, uid: 0, version: 0 };
        match what {
            0..=5 => _ = cluster.put(thing(key)),
            6 => (0..KEYS).filter(|key| number >> key & 1 != 0).for_each(|key| _ = cluster.put(thing(key))),
            7 | 8 => _ = cluster.delete(&key),
            9 => _ = cluster.recreate(thing(key)),
            10 => cluster.send_bookmarks(),
            11 => cluster.compact(),
            12 => cluster.cache_state(),
            13 if number < 64 => {
                self.world.notes.lock().restored = true;
                cluster.restore_cached();
            }
            13 | 14 => cluster.fail_list(kind),
            15 => cluster.fail_watch(kind),
            16 => cluster.break_watches(kind),
            17 => cluster.close_watches(),
            18 => cluster.repeat_events(),
            19 => cluster.set_faults(|faults| faults.unresponsive ^= true),
            20 => cluster.set_faults(|faults| faults.shuffled_lists ^= true),
            21 => cluster.set_faults(|faults| faults.endless_streaming_list ^= true),
            22 => cluster.set_faults(|faults| faults.repeated_events ^= true),
            23 => cluster.set_latency(self.sim.clock(), Duration::from_millis(number)),
            24..=26 => self.sim.advance(Duration::from_millis(number * 8)),
            27 => self.sim.advance(Duration::from_secs(number / 4)),
            28 => self.add(key % KEYS, shard),
            29 => _ = self.queues[shard].add_after(key % KEYS, Duration::from_millis(number * 20)),
            30 | 33 if self.may_start(shard) => self.start(shard),
            31 => {
                if let Some(running) = self.running.last_mut() {
                    running.stop = None;
                }
            }
            32 => {
                if number < 128 {
                    // The worker that this add wakes may be dropped before it is polled.
                    self.add(key % KEYS, self.home(key % KEYS));
                }
                self.abort();
            }
            _ => self.sim.run_until_stalled(),
        }
        if self.below(2) == 0 {
            self.sim.run_until_stalled();
        }
        self.look();
    }

    /// Drops a controller and its workers.
    fn abort(&mut self) {
        let Some(running) = self.running.pop() else { return };
        running.task.abort();
        let (queue, of) = (self.queues[running.shard].clone(), self.shards[running.shard]);
        let leased = queue.stats().leased as u64;
        self.world.notes.lock().reach("keys held at a drop", leased);
        self.sim.run_until_stalled();
        assert!(running.task.is_finished());
        self.look();
        if let Some(gauge) = &running.gauge {
            let Counted { workers, running, .. } = gauge.counted();
            assert_eq!((workers, running), (0, 0), "6: the metrics do not add up");
        }
        if self.running_of(running.shard) == 0 && !queue.is_shutting_down() {
            let mut notes = self.world.notes.lock();
            let undone = notes.undone_of(of);
            notes.reach("keys undone by a dropped controller", undone.len() as u64);
            for key in undone {
                assert_ne!(queue.state(&key), KeyState::Absent, "3: key {key} is lost");
            }
            assert_eq!(queue.stats().leased, 0);
        }
    }

    /// Checks the rules that hold at all times.
    fn look(&mut self) {
        if let Some(wrong) = self.world.notes.lock().wrong.take() {
            panic!("{wrong}");
        }
        for queue in &self.queues {
            queue.check().expect("the queue is sound");
        }
        for informer in self.world.kinds.iter() {
            informer.store().check().expect("the store is sound");
        }
        self.running.retain(|running| {
            if let Some(report) = running.task.take_output() {
                let report = report.expect("no informer has ended");
                let mut notes = self.world.notes.lock();
                notes.reach("controllers shut down", 1);
                notes.reach("errors", report.errors);
                notes.reach("panics", report.panics);
                notes.reach("timeouts", report.timeouts);
                notes.reach("keys given up", report.given_up);
                notes.reach("conflicts", report.conflicts);
                notes.reach("retries that succeeded", report.successful_retries);
                notes.reach("keys of another replica", report.filtered_keys);
                notes.reach("failures after the reconcile", report.finally_failures);
                notes.reach("reconciles cut off", report.leftovers.leased.len() as u64);
                if let Some(gauge) = &running.gauge {
                    let Counted { workers, came, running: reconciles } = gauge.counted();
                    assert_eq!((workers, reconciles), (0, 0), "6: the metrics do not add up");
                    notes.reach("workers started later", came.saturating_sub(running.least as u64));
                }
                drop(notes);
                if running.alone {
                    let left = &report.leftovers;
                    let left: BTreeSet<u32> =
                        left.ready.iter().chain(&left.waiting).chain(&left.leased).copied().collect();
                    let mut notes = self.world.notes.lock();
                    let undone = notes.undone_of(self.shards[running.shard]);
                    notes.reach("keys undone at the end of a controller", undone.len() as u64);
                    for key in undone {
                        assert!(left.contains(&key), "3: key {key} is lost at shutdown");
                    }
                }
                return false;
            }
            true
        });
    }

    /// Ends all faults, and checks the rules that hold afterwards.
    fn heal(mut self) -> Reached {
        let mut notes = self.world.notes.lock();
        let (late, restored) = (notes.undone().len(), notes.restored);
        notes.reach("keys undone at the end of the faults", late as u64);
        notes.reach("servers restored", u64::from(restored));
        notes.calm = true;
        drop(notes);
        for cluster in &self.clusters {
            cluster.clear_faults();
            cluster.set_latency(self.sim.clock(), Duration::ZERO);
        }
        self.sim.set_busy_clock(false);
        // Controllers that were asked to shut down end in this time.
        self.sim.advance(100 * SECOND);
        self.look();
        for shard in 0..self.shards.len() {
            if self.running_of(shard) == 0 {
                self.start(shard);
            }
        }
        // Keys that were given up are added again.
        let given_up = std::mem::take(&mut self.world.notes.lock().given_up);
        given_up.into_iter().for_each(|key| self.add(key, self.home(key)));
        // This is longer than the longest backoff, an unanswered request and an endless streaming list together.
        self.sim.advance(800 * SECOND);
        self.converged();
        let before = self.world.notes.lock().reconciles;
        self.clusters[0].put(Thing { key: 0, uid: 0, version: 0 });
        // Every batch window is shorter.
        self.sim.advance(3 * SECOND);
        self.converged();
        assert_eq!(self.world.notes.lock().reconciles, before + 1, "6: one change must cause one reconcile");
        self.rests();
        let mut notes = self.world.notes.lock();
        for status in self.world.kinds.iter().map(Informer::status) {
            notes.reach("relists", status.relists);
            notes.reach("watches without a list", status.watch_restarts);
        }
        let reconciles = notes.reconciles;
        notes.reach("reconciles", reconciles);
        std::mem::take(&mut notes.reached)
    }

    fn converged(&mut self) {
        self.look();
        for (kind, (cluster, informer)) in self.clusters.iter().zip(self.world.kinds.iter()).enumerate() {
            let mut stored: Vec<Thing> = informer.snapshot().iter().map(|(_, thing)| **thing).collect();
            stored.sort_by_key(|thing| thing.key);
            assert_eq!(stored, cluster.objects(), "4: the cache differs from the cluster");
            let notes = self.world.notes.lock();
            let made = notes.made.iter().filter(|((of, _), _)| *of == kind).map(|(_, thing)| *thing);
            assert_eq!(made.collect::<Vec<_>>(), stored, "5: the written state differs from the cluster");
        }
        let notes = self.world.notes.lock();
        assert_eq!(notes.undone(), [], "5: a change without a reconcile");
        assert!(notes.held.is_empty());
        for (shard, queue) in self.queues.iter().enumerate() {
            assert!(crate::support::holds_nothing(&queue.stats()), "6: the queue is not empty");
            assert_ne!(self.running_of(shard), 0);
        }
    }

    /// Checks idle controllers: the pools have shrunk to their minimum, and the controllers end at a shutdown.
    fn rests(&mut self) {
        self.sim.advance(60 * SECOND);
        for Running { gauge, least, .. } in &self.running {
            let workers = gauge.as_ref().map_or(*least, |gauge| gauge.counted().workers);
            assert_eq!(workers, *least, "6: more workers than the minimum");
        }
        self.running.iter_mut().for_each(|running| running.stop = None);
        self.sim.advance(SECOND);
        self.look();
        assert!(self.running.is_empty(), "6: a controller does not end");
    }
}

fn queue(sim: &Simulation) -> Keys {
    let backoff = Exponential::new(Duration::from_millis(100)..=20 * SECOND);
    Queue::builder()
        .order(Priority::new())
        .limiter(backoff)
        .timer(sim.timer())
        .seed(sim.next_random())
        .build()
}

fn live(sim: &mut Simulation, broken: Broken) -> Reached {
    let acts = 1 + sim.next_random() % 100;
    let mut life = Life::new(sim, broken);
    for _ in 0..acts {
        life.act();
    }
    life.heal()
}

/// A server whose watches drop some events, if that rule is broken.
struct Leaky<T> {
    inner: T,
    broken: Broken,
}

impl Source for Leaky<Cluster> {
    type Object = Thing;
    type Watch = Leaky<TestServerWatch<u32, Thing>>;

    async fn list(&self, request: ListRequest) -> Result<Page<Thing>, SourceError> {
        self.inner.list(request).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<Self::Watch, SourceError> {
        Ok(Leaky { inner: self.inner.watch(request).await?, broken: self.broken })
    }
}

impl WatchStream for Leaky<TestServerWatch<u32, Thing>> {
    type Object = Thing;

    async fn next(&mut self) -> Option<Result<WatchEvent<Thing>, SourceError>> {
        loop {
            match self.inner.next().await {
                Some(Ok(WatchEvent::Modified(thing)))
                    if self.broken == Broken::Source && thing.version % 3 == 0 => {}
                told => return told,
            }
        }
    }
}

#[test]
fn it_always_arrives_at_the_cluster() {
    let (lives, reached) = (Cell::new(0), RefCell::new(Reached::new()));
    Simulation::explore(10_000, |sim| {
        for (what, times) in live(sim, Broken::Nothing) {
            *reached.borrow_mut().entry(what).or_default() += times;
        }
        lives.set(lives.get() + 1);
    });
    let reached = reached.into_inner();
    println!("{} lives: {reached:#?}", lives.get());
    if lives.get() >= 1_000 {
        assert_eq!(reached.len(), 20, "some situation was never reached");
        assert!(
            reached.values().all(|times| *times > lives.get() / 20),
            "some situation is rare: {reached:#?}"
        );
    }
}

/// Runs some seeds with this rule broken, and returns the messages of the failures.
fn found(broken: Broken) -> Vec<String> {
    let failed = |seed| {
        let panic =
            catch_unwind(AssertUnwindSafe(|| live(&mut Simulation::new(seed), broken).len())).err()?;
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        panic.downcast_ref::<String>().cloned().or(text)
    };
    (1..=100).filter_map(failed).collect()
}

#[test]
fn it_finds_what_is_broken() {
    for (broken, message) in [
        (Broken::Source, "4: "),
        (Broken::Mapper, "5: "),
        (Broken::Dirty, "5: "),
        (Broken::Snapshot, "2: "),
        (Broken::Queues, "1: "),
        (Broken::Failures, "3: "),
        (Broken::Shards, "1: "),
    ] {
        let told = found(broken);
        assert!(told.iter().any(|told| told.contains(message)), "{broken:?}: {told:#?}");
    }
}
