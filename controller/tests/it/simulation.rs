//! Randomised tests of controllers over a simulated cluster. The seed determines the operations and the order of events. After the faults have ended,
//! the state that reconciles have written must equal the cluster.
//!
//! In a run, objects of one or two kinds change, every fault of the server occurs, and other code adds keys with different priorities. Reconciles of
//! single keys or of batches fail in every failure class, panic, are slow or time out. Each controller has a share of the keys and a worker pool that
//! scales. Controllers are shut down or dropped, and new controllers start after others have ended, or while others still run.
//!
//! At all times:
//! 1. at most one reconcile runs per key;
//! 2. no reconcile starts before every cache has synced; when a mapper receives a change, the store already contains it; and a reconcile reads, of
//!    every object of its key, the last version that was mapped or a newer one;
//! 3. a controller that is shut down reports every unfinished key, and a controller that is dropped leaves every unfinished key in the queue.
//!
//! When the faults have ended:
//! 4. the caches equal the cluster;
//! 5. the last change of each object was followed by a successful reconcile of its key, and the state that reconciles have written equals the
//!    cluster;
//! 6. the queue is empty, one more change causes exactly one more reconcile, the pool has shrunk to its minimum, and the metrics of workers and
//!    reconciles add up.
//!
//! The last test in this file introduces one fault at a time on purpose, and asserts that the simulation reports the rule that the fault breaks.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::testing::{SimulatedTask, SimulatedTime, Simulation};
use flyball_controller::{
    Action, BatchConfig, Controller, ControllerConfig, ControllerMetrics, FailureClass, ReconcileError,
    ReconcileOutcome, RunError, RunReport, Shard, WatchOptions,
};
use flyball_informer_cache::testing::{TestServer, TestServerWatch};
use flyball_informer_cache::{
    Change, Informer, ListRequest, Page, Schema, Source, SourceError, SourceErrorKind, Version, WatchEvent,
    WatchRequest, WatchStream,
};
use flyball_ratelimit::Exponential;
use flyball_sync::ManualTimer;
use flyball_workqueue::{AddOptions, KeyState, Priority, Queue};
use parking_lot::Mutex;
use testkit::random::{Random, thorough};
use tokio::sync::oneshot;

use crate::support::{SECOND, panic_quietly};

/// An object of some kind. Controllers map the object to the queue key `key % KEYS`.
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
type Keys = Queue<u32, Priority, Exponential<u32>, ManualTimer>;

/// A fault that a test introduces on purpose. The simulation must detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The source drops some events.
    Source,
    /// The mapper ignores deletions.
    Mapper,
    /// The mapper adds no key that is currently leased.
    Dirty,
    /// Reconciles read a snapshot that was taken when the controller started.
    Snapshot,
    /// Each new controller of a replica has its own queue, instead of sharing the queue of the replica.
    Queues,
    /// A failed reconcile returns success.
    Failures,
    /// Every replica reconciles all keys.
    Shards,
}

/// What a change says about an object: its version, and whether it was deleted.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    version: u64,
    gone: bool,
}

impl Mapped {
    fn is_newer_than(self, seen: &Thing) -> bool {
        if self.gone { self.version >= seen.version } else { self.version > seen.version }
    }
}

/// How often the runs reached each situation that the simulation should cover.
type Reached = BTreeMap<&'static str, u64>;

/// The state that mappers and reconciles record, and the random numbers that determine what they do next.
struct Record {
    random: Random,
    /// Whether the faults have ended; from then on nothing fails any more.
    faults_ended: bool,
    /// Whether the server was restored to an earlier version. If so, a higher version is not always newer.
    restored: bool,
    /// The number of changes and adds so far, which serves as the clock.
    clock: u64,
    leased: BTreeSet<u32>,
    /// The last change of each object.
    mapped: BTreeMap<Id, Mapped>,
    /// For each key: the time of the last add (`added_at`), the start of the last finished reconcile (`finished_at`), and the start of the last
    /// reconcile (`started_at`). A reconcile is finished if it succeeded, or if the key was given up after it.
    added_at: BTreeMap<u32, u64>,
    finished_at: BTreeMap<u32, u64>,
    started_at: BTreeMap<u32, u64>,
    /// Keys that were given up and have not succeeded since.
    given_up: BTreeSet<u32>,
    /// The state that reconciles have written: the objects as the reconciles read them.
    written: BTreeMap<Id, Thing>,
    reconciles: u64,
    reached: Reached,
    /// The first violation of a rule. It is stored here instead of causing a panic, because the controller would catch a panic in a reconcile or a
    /// mapper.
    wrong: Option<String>,
    log: String,
}

impl Record {
    fn check(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right && self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    /// Returns the keys that were added after their last finished reconcile began.
    fn undone(&self) -> Vec<u32> {
        let done = |key| self.finished_at.get(key).copied().unwrap_or(0);
        self.added_at.iter().filter(|(key, added_at)| done(key) < **added_at).map(|(key, _)| *key).collect()
    }

    /// Returns the keys of [`undone`](Self::undone) that are in this shard.
    fn undone_of(&self, shard: Shard) -> Vec<u32> {
        self.undone().into_iter().filter(|key| contains(shard, *key)).collect()
    }

    fn reach(&mut self, what: &'static str, times: u64) {
        *self.reached.entry(what).or_default() += times;
    }

    fn chance(&mut self, of: u64) -> bool {
        !self.faults_ended && self.random.below(of) == 0
    }
}

/// The state that all mappers and reconciles share.
#[derive(Clone)]
struct World {
    record: Arc<Mutex<Record>>,
    kinds: Arc<Vec<Informer<u32, Thing>>>,
    time: SimulatedTime,
    broken: Broken,
}

impl World {
    fn map_change(&self, kind: usize, change: &Change<u32, Thing>, shard: Shard) -> Option<u32> {
        let (id, key) = ((kind, *change.key()), *change.key() % KEYS);
        let gone = change.kind().is_deletion();
        let mapped = Mapped { version: change.object().version, gone };
        let shown = self.kinds[kind].store().get(&id.1);
        let mut record = self.record.lock();
        record.clock += 1;
        let now = record.clock;
        if contains(shard, key) {
            record.added_at.insert(key, now);
        }
        let older = match &shown {
            Some(shown) => mapped.is_newer_than(shown),
            None => false,
        };
        let wrong = older && !record.restored;
        record.check(!wrong, || format!("2: {id:?} was mapped as {mapped:?}, but the store has {shown:?}"));
        record.mapped.insert(id, mapped);
        let skip = match self.broken {
            Broken::Mapper => mapped.gone,
            Broken::Dirty => record.leased.contains(&key),
            _ => false,
        };
        (!skip).then_some(key)
    }

    /// Returns the objects of a queue key, from `snapshots` if they are given, otherwise from the current state of the caches.
    fn objects_of(&self, key: u32, snapshots: Option<&[Snapshot]>) -> BTreeMap<Id, Thing> {
        let now: Vec<Snapshot> = self.kinds.iter().map(Informer::snapshot).collect();
        let kinds = snapshots.unwrap_or(&now).iter().enumerate();
        let all =
            kinds.flat_map(|(kind, things)| things.iter().map(move |(id, thing)| ((kind, *id), **thing)));
        all.filter(|((_, id), _)| id % KEYS == key).collect()
    }
}

type Snapshot = flyball_informer_cache::Snapshot<u32, Thing>;

/// Removes the key from `leased` when the reconcile ends or is dropped. Sometimes panics.
struct LeaseGuard {
    world: World,
    key: u32,
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        let mut record = self.world.record.lock();
        record.leased.remove(&self.key);
        let bad = record.chance(20);
        drop(record);
        if bad && !std::thread::panicking() {
            panic_quietly("dropped");
        }
    }
}

async fn reconcile(world: World, key: u32, old: Option<Arc<Vec<Snapshot>>>) -> Result<Action, &'static str> {
    let seen = world.objects_of(key, old.as_ref().map(|old| old.as_slice()));
    let (slow, turns) = {
        let mut record = world.record.lock();
        let synced = world.kinds.iter().all(Informer::is_synced);
        record.check(synced, || "2: a reconcile starts before every cache has synced".to_owned());
        let first = record.leased.insert(key);
        record.check(first, || format!("1: two reconciles of key {key} run at once"));
        let now = record.clock;
        record.started_at.insert(key, now);
        record.reconciles += 1;
        if !record.restored {
            let mut mapped = record.mapped.iter().filter(|((_, id), _)| id % KEYS == key);
            // If the reconcile did not find an object, the object was deleted after it was mapped, so the reconcile saw a newer state.
            let older =
                mapped.find(|(id, mapped)| seen.get(id).is_some_and(|thing| mapped.is_newer_than(thing)));
            let older = older.map(|(id, mapped)| {
                format!("2: {id:?} was mapped as {mapped:?}, but the reconcile saw {seen:?}")
            });
            record.check(older.is_none(), || older.unwrap_or_default());
        }
        let slow = if record.chance(3) { record.random.below(12_000) } else { 0 };
        let turns = record.random.below(3);
        (Duration::from_millis(slow), turns)
    };
    let guard = LeaseGuard { world, key };
    let world = &guard.world;
    for _ in 0..turns {
        world.time.sleep(Duration::ZERO).await;
    }
    if !slow.is_zero() {
        world.time.sleep(slow).await;
    }
    let mut record = world.record.lock();
    if record.chance(4) {
        if record.random.below(2) == 0 {
            drop(record);
            panic_quietly("reconcile");
        }
        if world.broken != Broken::Failures {
            return Err(["transient", "conflict", "permanent"][record.random.below(3) as usize]);
        }
        return Ok(Action::await_change());
    }
    record.written.retain(|(_, id), _| id % KEYS != key);
    record.written.extend(seen);
    let begun = record.started_at[&key];
    record.finished_at.insert(key, begun);
    record.given_up.remove(&key);
    if record.chance(8) {
        return Ok(Action::requeue_after(Duration::from_millis(record.random.below(3_000))));
    }
    Ok(Action::await_change())
}

/// Returns whether a key belongs to this shard.
fn contains(shard: Shard, key: u32) -> bool {
    shard.contains(key.to_le_bytes())
}

fn class_of(world: &World, failure: &ReconcileError) -> FailureClass {
    let panics = world.record.lock().chance(20);
    if panics {
        panic_quietly("classify panics");
    }
    match failure.to_string().as_str() {
        "conflict" => FailureClass::Conflict,
        "permanent" => FailureClass::Permanent,
        _ => FailureClass::Transient,
    }
}

fn least_wait(world: &World) -> Option<Duration> {
    let mut record = world.record.lock();
    if record.chance(20) {
        drop(record);
        panic_quietly("the minimum wait panics");
    }
    record.chance(4).then(|| Duration::from_millis(record.random.below(20_000)))
}

/// Counts the workers and reconciles that the metrics report as running.
#[derive(Clone, Default)]
struct Gauge(Arc<Mutex<Counted>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    workers: usize,
    started: u64,
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
        counted.started += 1;
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
    /// The index of the replica that the controller belongs to.
    shard: usize,
    /// Whether no other controller has used this controller's queue.
    alone: bool,
    least: usize,
    /// `None` for about half of the controllers, because workers without metrics read the clock less often.
    gauge: Option<Gauge>,
}

struct Run<'a> {
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

impl<'a> Run<'a> {
    fn new(sim: &'a mut Simulation, broken: Broken) -> Self {
        let kinds = 1 + sim.next_random() as usize % 2;
        let stamp =
            |thing: &mut Thing, uid, version: Version| (thing.uid, thing.version) = (uid, version.get());
        let clusters: Vec<Cluster> = (0..kinds).map(|_| TestServer::new(THINGS, stamp)).collect();
        let informer = |cluster: &Cluster| {
            let mut builder = Informer::builder(THINGS, LossySource { inner: cluster.clone(), broken });
            if sim.next_random() % 2 == 0 {
                builder = builder.streaming_lists();
            }
            if sim.next_random() % 2 == 0 {
                builder = builder.page_size(NonZeroU32::new(2).expect("2 is not zero"));
            }
            sim.informer(builder).expect("the configuration is valid")
        };
        let informers = clusters.iter().map(informer).collect();
        let record = Record {
            random: Random::new(sim.next_random()),
            faults_ended: false,
            restored: false,
            clock: 0,
            leased: BTreeSet::new(),
            mapped: BTreeMap::new(),
            added_at: BTreeMap::new(),
            finished_at: BTreeMap::new(),
            started_at: BTreeMap::new(),
            given_up: BTreeSet::new(),
            written: BTreeMap::new(),
            reconciles: 0,
            reached: Reached::new(),
            wrong: None,
            log: String::new(),
        };
        let record = Arc::new(Mutex::new(record));
        let world = World { record, kinds: Arc::new(informers), time: sim.time(), broken };
        sim.set_busy_clock(sim.seed() % 3 == 0);
        let replicas = 1 + u32::from(sim.next_random() % 3 == 0);
        let shards: Vec<Shard> = (0..replicas)
            .map(|index| Shard::new(index, replicas).expect("the index is below the number of shards"))
            .collect();
        let queues = shards.iter().map(|_| queue(sim)).collect();
        let served = vec![0; shards.len()];
        let mut run = Self { sim, clusters, world, shards, queues, running: Vec::new(), served };
        (0..run.shards.len()).for_each(|shard| run.start(shard));
        run
    }

    fn below(&self, bound: u64) -> u64 {
        self.sim.next_random() % bound
    }

    /// Starts a controller of replica `of`, over the queue of that replica, or over a new queue if the old one is shut down.
    fn start(&mut self, of: usize) {
        if self.queues[of].is_shutting_down() || self.world.broken == Broken::Queues {
            self.queues[of] = queue(self.sim);
            self.served[of] = 0;
        }
        self.served[of] += 1;
        let others = self.running.iter_mut().filter(|running| running.shard == of);
        others.for_each(|running| running.alone = false);
        // A new controller reconciles all keys of its replica, because no event reports objects that were deleted while no controller ran.
        (0..KEYS).filter(|key| self.home(*key) == of).for_each(|key| self.add(key, of));
        let (sender, receiver) = oneshot::channel();
        let world = self.world.clone();
        let gives_up = world.clone();
        let (least, more) = (1 + self.below(3) as usize, self.below(4) as usize);
        let (shard, alike) = (self.shards[of], self.world.broken == Broken::Shards);
        let (classifies, waits, finishes) = (world.clone(), world.clone(), world.clone());
        let mut config = ControllerConfig {
            workers: (least..=least + more).into(),
            worker_idle_timeout: Duration::from_millis(1 + self.below(12_000)),
            // No timeout, because faults may delay responses of the server for longer than the default timeout.
            start_timeout: Duration::MAX,
            max_attempts: Some(2 + self.below(4) as u32),
            ..ControllerConfig::default()
        };
        if self.below(2) == 0 {
            config.reconcile_timeout = Some(5 * SECOND);
        }
        if self.below(2) == 0 {
            (config.shutdown_grace, config.abort_after) = (SECOND, Duration::from_millis(self.below(3_000)));
        }
        config.drain_on_shutdown = self.below(2) == 0;
        let mut controller = Controller::new(self.queues[of].clone())
            .with_config(config)
            .filter_keys(move |key| alike || contains(shard, *key))
            .classify(move |failure| class_of(&classifies, failure))
            .retry_after_at_least(move |_, _| least_wait(&waits))
            .graceful_shutdown_on(async { drop(receiver.await) })
            .on_give_up(move |key, _| {
                let mut record = gives_up.record.lock();
                let begun = record.started_at[key];
                record.finished_at.insert(*key, begun);
                record.given_up.insert(*key);
                if record.chance(3) {
                    drop(record);
                    panic_quietly("given up");
                }
            });
        if self.below(2) == 0 {
            controller = controller.finally(move |_, _, _| {
                let (bad, world) = (finishes.record.lock().chance(10), finishes.clone());
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
                0 => controller.watches_with(
                    informer,
                    move |change| world.map_change(kind, change, shard),
                    WatchOptions::new().initial_priority(-5),
                ),
                // The priority of a key depends on the object.
                _ => controller.watches_with(
                    informer,
                    move |change| world.map_change(kind, change, shard),
                    WatchOptions::new().add_with(|queue: &Keys, change: &Change<u32, Thing>, key| {
                        queue.add_with(
                            key,
                            AddOptions { priority: *change.key() as i8 - 2, ..AddOptions::default() },
                        )
                    }),
                ),
            };
        }
        let snapshots = || Arc::new(world.kinds.iter().map(Informer::snapshot).collect());
        let old = (world.broken == Broken::Snapshot).then(snapshots);
        // `called` may panic, before the reconcile function has returned a future. The reconcile still counts as started.
        let called = {
            let world = world.clone();
            move |keys: &[u32]| {
                let mut record = world.record.lock();
                let now = record.clock;
                record.started_at.extend(keys.iter().map(|key| (*key, now)));
                if record.chance(12) {
                    drop(record);
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
                    world.record.lock().reach("batches of several keys", u64::from(keys.len() > 1));
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

    /// Returns whether a new controller of this replica may start. A replica runs at most two controllers at a time. If its queue is shut down, a new
    /// controller starts only after the others have ended.
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

    /// Adds a key, as code outside the controllers does, possibly to the queue of the wrong replica.
    fn add(&self, key: u32, of: usize) {
        let priority = self.below(10) as i8 - 5;
        if self.queues[of].add_with(key, AddOptions { priority, ..AddOptions::default() }).is_ok()
            && self.home(key) == of
        {
            let mut record = self.world.record.lock();
            record.clock += 1;
            let now = record.clock;
            record.added_at.insert(key, now);
        }
    }

    fn act(&mut self) {
        let (what, which) = (self.below(34), self.below(self.clusters.len() as u64) as usize);
        let number = self.below(256);
        let shard = number as usize % self.shards.len();
        let _ = write!(self.world.record.lock().log, " {what}.{which}.{number}");
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
                self.world.record.lock().restored = true;
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
        self.check();
    }

    /// Drops a controller and its workers.
    fn abort(&mut self) {
        let Some(running) = self.running.pop() else { return };
        running.task.abort();
        let (queue, of) = (self.queues[running.shard].clone(), self.shards[running.shard]);
        let leased = queue.stats().leased as u64;
        self.world.record.lock().reach("keys held at a drop", leased);
        self.sim.run_until_stalled();
        assert!(running.task.is_finished());
        self.check();
        if let Some(gauge) = &running.gauge {
            let Counted { workers, running, .. } = gauge.counted();
            assert_eq!((workers, running), (0, 0), "6: the metrics do not add up");
        }
        if self.running_of(running.shard) == 0 && !queue.is_shutting_down() {
            let mut record = self.world.record.lock();
            let undone = record.undone_of(of);
            record.reach("keys undone by a dropped controller", undone.len() as u64);
            for key in undone {
                assert_ne!(queue.state(&key), KeyState::Absent, "3: key {key} is lost");
            }
            assert_eq!(queue.stats().leased, 0);
        }
    }

    /// Checks the rules that hold at all times.
    fn check(&mut self) {
        if let Some(wrong) = self.world.record.lock().wrong.take() {
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
                let mut record = self.world.record.lock();
                record.reach("controllers shut down", 1);
                record.reach("errors", report.errors);
                record.reach("panics", report.panics);
                record.reach("timeouts", report.timeouts);
                record.reach("keys given up", report.given_up);
                record.reach("conflicts", report.conflicts);
                record.reach("retries that succeeded", report.successful_retries);
                record.reach("keys of another replica", report.filtered_keys);
                record.reach("failures after the reconcile", report.finally_failures);
                record.reach("reconciles cut off", report.leftovers.leased.len() as u64);
                if let Some(gauge) = &running.gauge {
                    let Counted { workers, started, running: reconciles } = gauge.counted();
                    assert_eq!((workers, reconciles), (0, 0), "6: the metrics do not add up");
                    record.reach("workers started later", started.saturating_sub(running.least as u64));
                }
                drop(record);
                if running.alone {
                    let left = &report.leftovers;
                    let left: BTreeSet<u32> =
                        left.ready.iter().chain(&left.waiting).chain(&left.leased).copied().collect();
                    let mut record = self.world.record.lock();
                    let undone = record.undone_of(self.shards[running.shard]);
                    record.reach("keys undone at the end of a controller", undone.len() as u64);
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
    fn end_faults(mut self) -> Reached {
        let mut record = self.world.record.lock();
        let (late, restored) = (record.undone().len(), record.restored);
        record.reach("keys undone at the end of the faults", late as u64);
        record.reach("servers restored", u64::from(restored));
        record.faults_ended = true;
        drop(record);
        for cluster in &self.clusters {
            cluster.clear_faults();
            cluster.set_latency(self.sim.clock(), Duration::ZERO);
        }
        self.sim.set_busy_clock(false);
        // Controllers that are shutting down end within this time.
        self.sim.advance(100 * SECOND);
        self.check();
        for shard in 0..self.shards.len() {
            if self.running_of(shard) == 0 {
                self.start(shard);
            }
        }
        // Keys that were given up are added again.
        let given_up = std::mem::take(&mut self.world.record.lock().given_up);
        given_up.into_iter().for_each(|key| self.add(key, self.home(key)));
        // This time is longer than the longest backoff, the timeout of an unanswered request and the timeout of an endless streaming list together.
        self.sim.advance(800 * SECOND);
        self.converged();
        let before = self.world.record.lock().reconciles;
        self.clusters[0].put(Thing { key: 0, uid: 0, version: 0 });
        // This time is longer than the window of any batch.
        self.sim.advance(3 * SECOND);
        self.converged();
        assert_eq!(self.world.record.lock().reconciles, before + 1, "6: one change must cause one reconcile");
        self.check_idle();
        let mut record = self.world.record.lock();
        for status in self.world.kinds.iter().map(Informer::status) {
            record.reach("relists", status.relists);
            record.reach("watches without a list", status.watch_restarts);
        }
        let reconciles = record.reconciles;
        record.reach("reconciles", reconciles);
        std::mem::take(&mut record.reached)
    }

    fn converged(&mut self) {
        self.check();
        for (kind, (cluster, informer)) in self.clusters.iter().zip(self.world.kinds.iter()).enumerate() {
            let mut stored: Vec<Thing> = informer.snapshot().iter().map(|(_, thing)| **thing).collect();
            stored.sort_by_key(|thing| thing.key);
            assert_eq!(stored, cluster.objects(), "4: the cache differs from the cluster");
            let record = self.world.record.lock();
            let written = record.written.iter().filter(|((of, _), _)| *of == kind).map(|(_, thing)| *thing);
            assert_eq!(written.collect::<Vec<_>>(), stored, "5: the written state differs from the cluster");
        }
        let record = self.world.record.lock();
        assert_eq!(record.undone(), [], "5: a change without a reconcile");
        assert!(record.leased.is_empty());
        for (shard, queue) in self.queues.iter().enumerate() {
            assert!(crate::support::holds_nothing(&queue.stats()), "6: the queue is not empty");
            assert_ne!(self.running_of(shard), 0);
        }
    }

    /// Checks idle controllers: the pools have shrunk to their minimum, and the controllers end at a shutdown.
    fn check_idle(&mut self) {
        self.sim.advance(60 * SECOND);
        for Running { gauge, least, .. } in &self.running {
            let workers = gauge.as_ref().map_or(*least, |gauge| gauge.counted().workers);
            assert_eq!(workers, *least, "6: more workers than the minimum");
        }
        self.running.iter_mut().for_each(|running| running.stop = None);
        self.sim.advance(SECOND);
        self.check();
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

fn run_case(sim: &mut Simulation, broken: Broken) -> Reached {
    let acts = 1 + sim.next_random() % 100;
    let mut run = Run::new(sim, broken);
    for _ in 0..acts {
        run.act();
    }
    run.end_faults()
}

/// A server whose watches drop some events if `broken` is [`Broken::Source`].
struct LossySource<T> {
    inner: T,
    broken: Broken,
}

impl Source for LossySource<Cluster> {
    type Object = Thing;
    type Watch = LossySource<TestServerWatch<u32, Thing>>;

    async fn list(&self, request: ListRequest) -> Result<Page<Thing>, SourceError> {
        self.inner.list(request).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<Self::Watch, SourceError> {
        Ok(LossySource { inner: self.inner.watch(request).await?, broken: self.broken })
    }
}

impl WatchStream for LossySource<TestServerWatch<u32, Thing>> {
    type Object = Thing;

    async fn next(&mut self) -> Option<Result<WatchEvent<Thing>, SourceError>> {
        loop {
            match self.inner.next().await {
                Some(Ok(WatchEvent::Modified(thing)))
                    if self.broken == Broken::Source && thing.version % 3 == 0 => {}
                mapped => return mapped,
            }
        }
    }
}

#[test]
fn converges_to_the_cluster() {
    let (runs, reached) = (Cell::new(0), RefCell::new(Reached::new()));
    // An unoptimised run takes 10 ms.
    Simulation::explore(if thorough() { 10_000 } else { 1_000 }, |sim| {
        for (what, times) in run_case(sim, Broken::Nothing) {
            *reached.borrow_mut().entry(what).or_default() += times;
        }
        runs.set(runs.get() + 1);
    });
    let reached = reached.into_inner();
    println!("{} runs: {reached:#?}", runs.get());
    if runs.get() >= 1_000 {
        assert_eq!(reached.len(), 20, "some situation was never reached");
        assert!(
            reached.values().all(|times| *times > runs.get() / 20),
            "some situation is rare: {reached:#?}"
        );
    }
}

/// Runs 100 seeds with this fault, and returns the messages of the failures.
fn found(broken: Broken) -> Vec<String> {
    let failed = |seed| {
        let panic =
            catch_unwind(AssertUnwindSafe(|| run_case(&mut Simulation::new(seed), broken).len())).err()?;
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        panic.downcast_ref::<String>().cloned().or(text)
    };
    (1..=100).filter_map(failed).collect()
}

#[test]
fn detects_each_broken_rule() {
    for (broken, message) in [
        (Broken::Source, "4: "),
        (Broken::Mapper, "5: "),
        (Broken::Dirty, "5: "),
        (Broken::Snapshot, "2: "),
        (Broken::Queues, "1: "),
        (Broken::Failures, "3: "),
        (Broken::Shards, "1: "),
    ] {
        let mapped = found(broken);
        assert!(mapped.iter().any(|mapped| mapped.contains(message)), "{broken:?}: {mapped:#?}");
    }
}
