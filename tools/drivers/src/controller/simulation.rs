//! Runs controllers, one after the other, with any combination of the features of [`options`](super::options), over a simulated cluster on virtual
//! time. The bytes select the options, the order of events, the operations and the faults.
//!
//! A replica has a term, as in a leader election: it may begin with a standby, and it ends at any time, perhaps before the controller is notified.
//! Objects change, watches break, watches are added and removed, informers stop, other code adds keys, and mappers, reconciles and `finally` fail.
//!
//! After each operation:
//! 1. at most one reconcile runs per key;
//! 2. no reconcile starts that must not: its key belongs to this replica at that moment, the standby is over, the required caches have synced and the
//!    start conditions are met, the run is not shutting down (unless it drains) and not cancelled;
//! 3. no mapper is called in standby, after its watch was removed, or after the run;
//! 4. a controller that is notified to shut down ends within its grace and the time after which reconciles are dropped;
//! 5. a controller that has ended or was dropped has lost no request: the keys that are still to be reconciled are in its leftovers or in the queue;
//! 6. the metrics never count fewer ends than starts allow, stay within the limits of workers, and agree with the report;
//! 7. the tasks stall, after few polls;
//! 8. a change whose key is being reconciled supersedes that reconcile.
//!
//! When the faults have ended and a controller leads:
//! 9. every request (a change that was mapped, an add, a requeue) was followed by a successful reconcile that began later, unless the key was given up
//!    or filtered; every watch has mapped the newest state of each object;
//! 10. one more change causes exactly one reconcile; then, while the clock stands still, nothing is polled; during an idle hour no reconcile runs, and
//!    polls stay within what informers and resyncs need; the pool has shrunk to its minimum;
//! 11. a shutdown ends the idle controller immediately; nothing is armed when all has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::future::{pending, poll_fn};
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use flyball_controller::testing::{SimulatedTask, SimulatedTime, Simulation};
use flyball_controller::{
    Action, BatchConfig, Context, Controller, ControllerConfig, ControllerHandle, ControllerMetrics,
    FailureClass, ReconcileError, ReconcileOutcome, RunError, RunReport, Shard, WatchId, WatchOptions,
};
use flyball_informer_cache::testing::TestServer;
use flyball_informer_cache::{Change, Informer, Schema, SourceErrorKind, Version};
use flyball_ratelimit::Exponential;
use flyball_sync::{Clock, ManualTimer, Nanos};
use flyball_workqueue::{Fair, Fifo, KeyState, Order, Queue};
use parking_lot::Mutex;
use testkit::coverage::events::Happened;
use testkit::random::Random;
use tokio::sync::oneshot;

use super::options::{
    CACHES, CHANGES, CLASSES, CLOCK, CONDITION, FAILING, FINALLY, GRACE, IDLE, MAPPERS, ORDER, OWNED, RESYNC,
    RETRIES, Row, SHUTDOWN, STANDBY, SYNC_TIMEOUT, TIMEOUT, WORK, WORKERS, note, row,
};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// The keys of the queue are `0..KEYS`. An object is mapped to `key % KEYS`.
const KEYS: u32 = 4;
/// The number of clusters, each of which has objects of one kind. Kinds 0 and 1 are watched from the start, kind 2 only by watches that are added
/// later.
const KINDS: usize = 3;
/// The maximum number of operations of a run.
const MOST: usize = 120;
/// The maximum number of polls after one operation, if no time passes.
const MAX_POLLS: u64 = 3_000;
/// The period of resyncs.
const RESYNC_EVERY: Duration = Duration::from_secs(600);
/// The maximum number of polls that the resyncs of one watch cause in an idle hour: six periods of 64 parts, and the reconciles.
const POLLS_OF_RESYNCS: u64 = 6 * 64 * 2;
/// The limit of workers.
const MAX_WORKERS: usize = 4;
const SYNC_LIMIT: Duration = Duration::from_secs(5);
const RECONCILE_LIMIT: Duration = Duration::from_secs(5);

/// The situations that the runs must reach.
pub const SITUATIONS: &[&str] = &[
    "a key is filtered by a worker",
    "a term ends while its controller runs",
    "a term ends while keys are queued",
    "a request arrives in standby",
    "a watch is added",
    "a watch is added in standby",
    "a watch is removed",
    "a watched informer stops",
    "a mapper panics",
    "a reconcile panics",
    "a reconcile times out",
    "a reconcile fails",
    "a reconcile is cut off by a shutdown",
    "a key is given up",
    "a batch of several keys",
    "a condition fails",
    "a sync times out",
    "a controller is dropped",
    "a controller drains keys",
    "a controller leaves keys",
    "a controller becomes idle and ends",
    "a worker is started later",
    "a reconcile is superseded",
];

type Keys<O> = Queue<u32, O, Exponential<u32>, ManualTimer>;
type Handle<O> = ControllerHandle<u32, O, Exponential<u32>, ManualTimer>;
type Cluster = TestServer<u32, Thing>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Thing {
    key: u32,
    uid: u64,
    version: u64,
}

const THINGS: Schema<u32, Thing> =
    Schema::new(|thing: &Thing| thing.key, |thing| Version::new(thing.version))
        .with_identity(|a, b| a.uid == b.uid);

/// The last state of an object that a watch has mapped or rejected.
///
/// Newer states are greater. A recreation deletes an object and creates another one in a single version, so the ids are compared, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    version: u64,
    uid: u64,
    gone: bool,
}

/// One controller, from its start until its end.
#[derive(Clone, Debug, Default)]
struct Life {
    elected: bool,
    condition_met: bool,
    ended: bool,
    metrics: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    workers: usize,
    workers_started: u64,
    started: u64,
    ended: u64,
    dropped: u64,
    batches: u64,
    given_up: u64,
}

/// What mappers, reconciles and metrics record, and what determines how they behave.
struct Record {
    random: Random,
    /// Whether the functions of the user may fail.
    faults: bool,
    /// The number of requests and starts so far.
    clock: u64,
    /// The term: whether it has begun and was not ended, and the time at which it ends by itself.
    leads: bool,
    ends_at: Nanos,
    life: Life,
    /// The keys that are being reconciled, with the contexts of their reconciles.
    running: BTreeMap<u32, Context>,
    /// Those of them that had failed when their reconcile started.
    failing: BTreeSet<u32>,
    /// The reconciles of which a key was added by a change.
    superseded: Vec<(u32, Context)>,
    /// For each key, when it was requested last, when its last reconcile started, and when the last finished reconcile had started.
    requested: BTreeMap<u32, u64>,
    started: BTreeMap<u32, u64>,
    finished: BTreeMap<u32, u64>,
    /// For each key whose reconcile returned success, whether it asked for a requeue. The controller may still drop this result: if the batch fails
    /// at another key, or if `finally` fails.
    results: BTreeMap<u32, bool>,
    reconciles: u64,
    /// The keys that resyncs added.
    resynced: u64,
    /// The states that each watch has seen, and the watches that exist.
    seen: BTreeMap<(usize, u32), Seen>,
    watches: BTreeSet<usize>,
    happened: Happened,
    /// The first violation. It is recorded here, because the controller catches panics of reconciles and mappers.
    wrong: Option<String>,
}

impl Record {
    /// Returns the number of reconciles that have started, and of keys that resyncs have added.
    fn counts(&self) -> (u64, u64) {
        (self.reconciles, self.resynced)
    }

    fn check(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right && self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn request(&mut self, key: u32) {
        let now = self.tick();
        self.requested.insert(key, now);
    }

    fn chance(&mut self, of: u64) -> bool {
        self.faults && self.random.below(of) == 0
    }

    /// Called when the controller receives the result of a reconcile. Only now is the key finished, and a requeue requested.
    fn finish(&mut self, key: u32) {
        let Some(requeues) = self.results.remove(&key) else { return };
        let begun = self.started[&key];
        self.finished.insert(key, begun);
        if requeues {
            self.request(key);
        }
    }

    /// Returns the keys that were requested after their last finished reconcile had started.
    fn undone(&self) -> Vec<u32> {
        let finished = |key| self.finished.get(key).copied().unwrap_or(0);
        self.requested.iter().filter(|(key, at)| finished(key) < **at).map(|(key, _)| *key).collect()
    }
}

/// What all functions of the user share.
#[derive(Clone)]
struct World {
    record: Arc<Mutex<Record>>,
    row: Row,
    shard: Shard,
    time: SimulatedTime,
    broken: Broken,
}

impl World {
    /// Returns whether this replica may reconcile the key now.
    fn owns(&self, record: &Record, key: u32) -> bool {
        let in_shard = self.row[OWNED] % 2 == 0 || self.shard.contains(key.to_le_bytes());
        let in_term = self.row[OWNED] < 2 || record.leads && self.time.now() < record.ends_at;
        in_shard && in_term
    }

    /// The filter of changes: rejects initial objects, and some versions.
    fn accepts(&self, watch: usize, change: &Change<u32, Thing>) -> bool {
        let thing = change.object();
        let accepts = !change.is_initial() && thing.version % 3 != 0;
        if !accepts {
            self.saw(&mut self.record.lock(), watch, change);
        }
        accepts
    }

    fn saw(&self, record: &mut Record, watch: usize, change: &Change<u32, Thing>) {
        let Thing { version, uid, .. } = **change.object();
        let state = Seen { version, uid, gone: change.kind().is_deletion() };
        let seen = record.seen.entry((watch, *change.key())).or_insert(state);
        // A change at which the mapper panicked is mapped again after newer changes.
        *seen = state.max(*seen);
    }

    fn map<O: Order<u32>>(&self, watch: usize, change: &Change<u32, Thing>, queue: &Keys<O>) -> Option<u32> {
        let mut record = self.record.lock();
        let life = record.life.clone();
        let standby = self.row[STANDBY] == 1 && !life.elected;
        let there = record.watches.contains(&watch);
        record.check(!standby, || "3: a mapper is called in standby".to_owned());
        record.check(there && !life.ended, || "3: a mapper is called after its watch or the run".to_owned());
        if self.row[MAPPERS] == 1 && record.chance(5) {
            record.happened.hit("a mapper panics");
            drop(record);
            panic_quietly("mapper");
        }
        self.saw(&mut record, watch, change);
        let key = *change.key() % KEYS;
        // A resync adds only keys that the queue does not hold, and a queue that is shut down refuses keys.
        let resync = self.row[RESYNC] == 1 && change.is_initial();
        let held = resync && queue.state(&key) != KeyState::Absent;
        if self.owns(&record, key) && !queue.is_shutting_down() && !held {
            record.request(key);
            record.resynced += u64::from(resync);
            if let Some(context) = record.running.get(&key).cloned() {
                record.happened.hit("a reconcile is superseded");
                record.superseded.push((key, context));
            }
        }
        (self.broken != Broken::Mapper || !change.kind().is_deletion()).then_some(key)
    }

    /// Called with each key whose reconcile starts, in the call of the reconcile function.
    fn begin<O: Order<u32>>(
        &self,
        keys: &[u32],
        context: &Context,
        synced: bool,
        queue: &Keys<O>,
    ) -> Vec<Running> {
        let (failing, shut_down) = (|key: &&u32| queue.num_requeues(*key) > 0, queue.is_shutting_down());
        let failing: Vec<u32> = keys.iter().filter(failing).copied().collect();
        let mut record = self.record.lock();
        let life = record.life.clone();
        let drains = self.row[SHUTDOWN] == 1;
        for key in keys {
            let (owned, other) = (self.owns(&record, *key), record.running.insert(*key, context.clone()));
            record.check(other.is_none(), || format!("1: two reconciles of key {key} run at once"));
            record.check(owned, || {
                format!("2: a reconcile of key {key} starts, which this replica does not own")
            });
            let now = record.tick();
            record.started.insert(*key, now);
            record.results.remove(key);
            record.reconciles += 1;
        }
        record.failing.extend(failing);
        let failing = record.failing.len();
        record.check(self.row[FAILING] == 0 || shut_down || failing <= 1, || {
            format!("2: reconciles of {failing} failing keys run at once")
        });
        record
            .check(self.row[STANDBY] == 0 || life.elected, || "2: a reconcile starts in standby".to_owned());
        record.check(synced, || "2: a reconcile starts before the caches have synced".to_owned());
        record.check(self.row[CONDITION] == 0 || life.condition_met, || {
            "2: a reconcile starts before the start condition is met".to_owned()
        });
        record.check(drains || !context.is_shutting_down(), || {
            "2: a reconcile starts after the shutdown has begun".to_owned()
        });
        record.check(!context.is_cancelled() && !life.ended, || {
            "2: a reconcile starts after the grace".to_owned()
        });
        if keys.len() > 1 {
            record.happened.hit("a batch of several keys");
        }
        keys.iter().map(|key| Running { world: self.clone(), key: *key }).collect()
    }

    async fn reconcile(&self, key: u32, context: &Context) -> Result<Action, &'static str> {
        let (slow, stuck) = {
            let mut record = self.record.lock();
            let slow = if record.chance(3) { record.random.below(8_000) } else { 0 };
            let stuck = record.chance(16) && self.row[TIMEOUT] == 1;
            (slow as u32 * MILLI, stuck)
        };
        if stuck {
            pending::<()>().await;
        }
        if slow > Duration::ZERO {
            tokio_select(self.time.sleep(slow), context.cancelled()).await;
        }
        let mut record = self.record.lock();
        if record.chance(5) {
            if record.random.below(2) == 0 {
                record.happened.hit("a reconcile panics");
                drop(record);
                panic_quietly("reconcile");
            }
            record.happened.hit("a reconcile fails");
            if self.broken == Broken::Failures {
                return Ok(Action::await_change());
            }
            return Err(["transient", "conflict", "permanent"][record.random.below(3) as usize]);
        }
        let requeues = record.chance(8);
        record.results.insert(key, requeues);
        if requeues {
            return Ok(Action::requeue_after(record.random.below(3_000) as u32 * MILLI));
        }
        Ok(Action::await_change())
    }

    /// Called when the reconcile function returns, for each of its keys. If there is a `finally`, it decides whether the reconcile has succeeded.
    fn returned(&self, key: u32) {
        if self.row[FINALLY] == 0 {
            self.record.lock().finish(key);
        }
    }
}

/// Waits for the first of two futures.
async fn tokio_select(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready() {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// A reconcile that has started. It ends when this guard is dropped.
struct Running {
    world: World,
    key: u32,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut record = self.world.record.lock();
        record.running.remove(&self.key);
        record.failing.remove(&self.key);
    }
}

/// Panics without calling the panic hook.
fn panic_quietly(message: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(message))
}

impl ControllerMetrics for World {
    fn worker_started(&self) {
        let mut record = self.record.lock();
        let metrics = &mut record.life.metrics;
        metrics.workers += 1;
        metrics.workers_started += 1;
        let workers = metrics.workers;
        record.check(workers <= MAX_WORKERS, || format!("6: {workers} workers"));
    }

    fn worker_stopped(&self) {
        let mut record = self.record.lock();
        let workers = record.life.metrics.workers;
        record.check(workers > 0, || "6: a worker stops that has not started".to_owned());
        record.life.metrics.workers = workers.saturating_sub(1);
    }

    fn reconcile_started(&self) {
        self.record.lock().life.metrics.started += 1;
    }

    fn batch_started(&self, keys: usize) {
        let mut record = self.record.lock();
        record.life.metrics.batches += 1;
        record.check(keys > 0, || "6: a batch of no keys".to_owned());
    }

    fn reconcile_ended(&self, outcome: ReconcileOutcome, _: Duration) {
        let mut record = self.record.lock();
        record.life.metrics.ended += 1;
        record.happened.hit_if(matches!(outcome, ReconcileOutcome::TimedOut(_)), "a reconcile times out");
    }

    fn reconcile_dropped(&self) {
        let mut record = self.record.lock();
        record.life.metrics.dropped += 1;
        record.happened.hit("a reconcile is cut off by a shutdown");
    }

    fn gave_up(&self, _: FailureClass) {
        self.record.lock().life.metrics.given_up += 1;
    }
}

/// The bytes of a run. After the last byte, all bytes are zero.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.next()))
    }
}

/// A controller that was started.
struct Started<O: Order<u32>> {
    task: SimulatedTask<Result<RunReport<u32>, RunError>>,
    handle: Handle<O>,
    stop: Option<oneshot::Sender<()>>,
    elect: Option<oneshot::Sender<()>>,
    condition: Option<oneshot::Sender<()>>,
    /// When the controller was notified to shut down.
    stopped_at: Option<Nanos>,
    /// The watches that were added through the handle, with their numbers in `Record::watches`.
    added: Vec<(WatchId, usize, usize)>,
    condition_failed: bool,
    aborted: bool,
}

struct Run<'a, O: Order<u32>> {
    sim: &'a mut Simulation,
    world: World,
    clusters: Vec<Cluster>,
    informers: Vec<Informer<u32, Thing>>,
    order: fn() -> O,
    queue: Keys<O>,
    controller: Option<Started<O>>,
    /// The number of watches so far.
    watches: usize,
    /// The kind of each watch.
    kinds: BTreeMap<usize, usize>,
    /// The kinds whose informer was shut down, and is replaced when the next controller starts.
    stopped: BTreeSet<usize>,
    log: String,
}

/// A fault that a test introduces on purpose. The simulation must report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// None.
    Nothing,
    /// The owner test accepts every key.
    Owner,
    /// Mappers return no key for a deletion, although they have seen it.
    Mapper,
    /// A failed reconcile returns success.
    Failures,
    /// Adds that arrive in standby are dropped.
    Standby,
    /// A task wakes itself without end while the clock stands still.
    Wakes,
    /// The signal to shut down is ignored.
    Signal,
}

/// Runs one simulation.
pub fn run(bytes: &[u8]) -> Happened {
    run_broken(bytes, Broken::Nothing)
}

/// Runs one simulation with a fault.
pub fn run_broken(bytes: &[u8], broken: Broken) -> Happened {
    let mut bytes = Bytes(bytes);
    let row = row(|| bytes.next());
    match row[ORDER] {
        0 => Run::run(row, bytes, broken, Fifo::default),
        _ => Run::run(row, bytes, broken, || Fair::by_group(|key: &u32| key % 2).max_leased(|_| 1)),
    }
}

/// The cases that [`run`] counts: the options, then the situations.
pub fn happened() -> Happened {
    static NAMES: std::sync::LazyLock<Vec<&'static str>> =
        std::sync::LazyLock::new(|| super::options::NAMES.iter().chain(SITUATIONS).copied().collect());
    Happened::new(&NAMES)
}

fn queue<O: Order<u32>>(sim: &Simulation, order: O) -> Keys<O> {
    let backoff = Exponential::new(100 * MILLI..=20 * SECOND);
    Queue::builder().order(order).limiter(backoff).timer(sim.timer()).seed(sim.next_random()).build()
}

impl<'a, O: Order<u32>> Run<'a, O> {
    fn run(row: Row, mut bytes: Bytes<'_>, broken: Broken, order: fn() -> O) -> Happened {
        let mut sim = Simulation::new(bytes.word());
        sim.set_busy_clock(row[CLOCK] == 1);
        let mut run = Run::new(&mut sim, row, order, broken);
        if bytes.next() % 4 == 0 {
            run.clusters[0].set_faults(|faults| faults.unresponsive = true);
        }
        let mut operations = 0;
        while !bytes.0.is_empty() && operations < MOST {
            operations += 1;
            let (what, number) = (bytes.next(), bytes.next());
            let _ = write!(run.log, " {what}.{number}");
            run.act(what, u32::from(number));
            run.after(number % 2 == 0);
        }
        run.settle();
        let mut record = run.world.record.lock();
        note(&row, &mut record.happened);
        record.happened.clone()
    }

    fn new(sim: &'a mut Simulation, row: Row, order: fn() -> O, broken: Broken) -> Self {
        let stamp =
            |thing: &mut Thing, uid, version: Version| (thing.uid, thing.version) = (uid, version.get());
        let clusters: Vec<Cluster> = (0..KINDS).map(|_| TestServer::new(THINGS, stamp)).collect();
        for (kind, cluster) in clusters.iter().enumerate() {
            (0..kind as u32 + 1).for_each(|key| _ = cluster.put(Thing { key, uid: 0, version: 0 }));
        }
        let informers = clusters.iter().map(|cluster| informer(sim, cluster)).collect();
        let record = Record {
            random: Random::new(sim.next_random()),
            faults: true,
            clock: 0,
            leads: false,
            ends_at: Nanos::new(u64::MAX),
            life: Life::default(),
            running: BTreeMap::new(),
            failing: BTreeSet::new(),
            superseded: Vec::new(),
            requested: BTreeMap::new(),
            started: BTreeMap::new(),
            finished: BTreeMap::new(),
            results: BTreeMap::new(),
            reconciles: 0,
            resynced: 0,
            seen: BTreeMap::new(),
            watches: BTreeSet::new(),
            happened: happened(),
            wrong: None,
        };
        let shard = Shard::new(0, 2).expect("0 is below 2");
        let world = World { record: Arc::new(Mutex::new(record)), row, shard, time: sim.time(), broken };
        if broken == Broken::Wakes {
            let time = sim.time();
            sim.spawn(async move {
                time.sleep(600 * SECOND).await;
                loop {
                    time.sleep(Duration::ZERO).await;
                }
            });
        }
        let queue = queue(sim, order());
        let mut run = Self {
            sim,
            world,
            clusters,
            informers,
            order,
            queue,
            controller: None,
            watches: 0,
            kinds: BTreeMap::new(),
            stopped: BTreeSet::new(),
            log: format!("{row:?}"),
        };
        run.start();
        run
    }

    fn row(&self, option: usize) -> usize {
        self.world.row[option]
    }

    /// Registers one more watch of a kind, and returns its number.
    fn next_watch(&mut self, kind: usize) -> usize {
        self.watches += 1;
        self.kinds.insert(self.watches, kind);
        self.world.record.lock().watches.insert(self.watches);
        self.watches
    }

    fn options(&self, watch: usize) -> WatchOptions<u32, Thing, u32, O, Exponential<u32>, ManualTimer> {
        let mut options = WatchOptions::new();
        if self.row(CHANGES) == 1 {
            let world = self.world.clone();
            options = options.filter(move |change| world.accepts(watch, change));
        }
        if self.row(RESYNC) == 1 {
            options = options.resync_every(RESYNC_EVERY);
        }
        options
    }

    fn mapper(&self, watch: usize) -> impl Fn(&Change<u32, Thing>) -> Option<u32> + Send + Sync + use<O> {
        let (world, queue) = (self.world.clone(), self.queue.clone());
        move |change| world.map(watch, change, &queue)
    }

    /// Starts a controller over the queue, or over a new queue if the old one is shut down. Keys that the old queue still had to reconcile are added to
    /// the new one.
    fn start(&mut self) {
        if self.controller.is_some() {
            return;
        }
        for kind in std::mem::take(&mut self.stopped) {
            self.informers[kind] = informer(self.sim, &self.clusters[kind]);
        }
        if self.queue.is_shutting_down() {
            self.queue = queue(self.sim, (self.order)());
            let undone = self.world.record.lock().undone();
            undone.into_iter().for_each(|key| _ = self.queue.add(key));
        }
        let row = self.world.row;
        {
            let mut record = self.world.record.lock();
            record.life = Life::default();
            record.leads = row[STANDBY] == 0;
            record.ends_at = Nanos::new(u64::MAX);
            record.watches.clear();
            record.seen.clear();
        }
        let ((stop, stopped), broken) = (oneshot::channel(), self.world.broken);
        let mut controller = Controller::new(self.queue.clone())
            .graceful_shutdown_on(async move {
                let _ = stopped.await;
                if broken == Broken::Signal {
                    pending::<()>().await;
                }
            })
            .metrics(self.world.clone());
        let world = self.world.clone();
        let held = self.queue.clone();
        if row[OWNED] > 0 {
            controller = controller.filter_keys(move |key| {
                let mut record = world.record.lock();
                let owned = world.owns(&record, *key);
                // A worker has leased the key. A key that this replica does not own is removed from the queue: another replica reconciles it.
                if !owned && held.state(key) == KeyState::Leased {
                    let now = record.tick();
                    record.finished.insert(*key, now);
                    record.happened.hit("a key is filtered by a worker");
                }
                owned || world.broken == Broken::Owner
            });
        }
        let mut elect = None;
        if row[STANDBY] == 1 {
            let (sender, elected) = oneshot::channel();
            elect = Some(sender);
            controller = controller.standby_until(async move {
                if elected.await.is_err() {
                    pending::<()>().await;
                }
            });
        }
        let mut condition = None;
        if row[CONDITION] == 1 {
            let (sender, met) = oneshot::channel::<()>();
            condition = Some(sender);
            controller = controller.start_when(met);
        }
        controller = controller.with_config(config(&row));
        let world = self.world.clone();
        controller = controller.on_give_up(move |key, _| {
            let mut record = world.record.lock();
            let begun = record.started[key];
            record.finished.insert(*key, begun);
            record.happened.hit("a key is given up");
        });
        if row[CLASSES] == 1 {
            controller = controller.classify(|failure: &ReconcileError| match failure.to_string().as_str() {
                "conflict" => FailureClass::Conflict,
                "permanent" => FailureClass::Permanent,
                _ => FailureClass::Transient,
            });
        }
        if row[FINALLY] == 1 {
            let world = self.world.clone();
            controller = controller.finally(move |key, result, _| {
                let mut record = world.record.lock();
                let (bad, slow) = (record.chance(10), record.chance(4));
                drop(record);
                let world = world.clone();
                async move {
                    if slow {
                        world.time.sleep(SECOND).await;
                    }
                    if bad {
                        return Err("finally");
                    }
                    if result.is_ok() {
                        world.record.lock().finish(key);
                    }
                    Ok(())
                }
            });
        }
        if row[CACHES] == 1 {
            let first = self.informers[0].clone();
            controller = controller.start_when(async move { first.synced().await });
        }
        for kind in 0..2 {
            let watch = self.next_watch(kind);
            let options = self.options(watch);
            controller = controller.watches_with(&self.informers[kind], self.mapper(watch), options);
        }
        let handle = controller.handle();
        let (world, required) = (self.world.clone(), required(&row, &self.informers));
        let is_synced = move || required.iter().all(Informer::is_synced);
        let queue = self.queue.clone();
        let task = if row[WORK] == 0 {
            self.sim.run(controller, move |key, context| {
                let running = world.begin(&[key], &context, is_synced(), &queue);
                let world = world.clone();
                async move {
                    let _running = running;
                    let result = world.reconcile(key, &context).await;
                    world.returned(key);
                    result
                }
            })
        } else {
            let window = if row[WORK] == 2 { 3 * SECOND } else { Duration::ZERO };
            let grouping = self.world.clone();
            let batches = BatchConfig::new(3).max_wait(window).group_by(move |key| {
                let mut record = grouping.record.lock();
                if record.chance(40) {
                    // Fails like a reconcile, so the key may be given up.
                    let now = record.tick();
                    record.started.insert(*key, now);
                    drop(record);
                    panic_quietly("group");
                }
                drop(record);
                key % 2
            });
            self.sim.run_batches(controller, batches, move |keys, context| {
                let running = world.begin(&keys, &context, is_synced(), &queue);
                let world = world.clone();
                async move {
                    let _running = running;
                    let mut results = Vec::new();
                    for key in &keys {
                        results.push(world.reconcile(*key, &context).await);
                    }
                    keys.into_iter().for_each(|key| world.returned(key));
                    Ok(results)
                }
            })
        };
        self.controller = Some(Started {
            task,
            handle,
            stop: Some(stop),
            elect,
            condition,
            stopped_at: None,
            added: Vec::new(),
            condition_failed: false,
            aborted: false,
        });
    }

    /// Adds a key, as code outside the controllers does.
    fn add(&mut self, key: u32, delay: Duration) {
        let mut record = self.world.record.lock();
        let drops = self.world.broken == Broken::Standby && !record.life.elected;
        if !drops && self.queue.add_after(key, delay).is_err() {
            return;
        }
        let mine = self.world.row[OWNED] % 2 == 0 || self.world.shard.contains(key.to_le_bytes());
        if mine {
            record.request(key);
            let standby = self.world.row[STANDBY] == 1 && !record.life.elected && !record.life.ended;
            record.happened.hit_if(standby, "a request arrives in standby");
        }
    }

    /// Notifies the controller to shut down.
    fn stop(&mut self) {
        let now = self.sim.clock().now();
        let Some(controller) = &mut self.controller else { return };
        if let Some(stop) = controller.stop.take() {
            let _ = stop.send(());
            controller.stopped_at = Some(now);
        }
    }

    fn elect(&mut self) {
        let Some(controller) = &mut self.controller else { return };
        let Some(elect) = controller.elect.take() else { return };
        let mut record = self.world.record.lock();
        record.leads = true;
        record.life.elected = true;
        drop(record);
        let _ = elect.send(());
    }

    /// Ends the term after `delay`. The controller is notified only after `lag` more.
    fn end_term(&mut self, delay: Duration, lag: Duration) {
        let now = self.sim.clock().now();
        let waiting = self.queue.stats().ready > 0;
        let Some(controller) = &mut self.controller else { return };
        let mut record = self.world.record.lock();
        if self.world.row[OWNED] < 2 || !record.leads || record.ends_at < Nanos::new(u64::MAX) {
            return;
        }
        let Some(stop) = controller.stop.take() else { return };
        record.ends_at = now + delay;
        record.happened.hit("a term ends while its controller runs");
        record.happened.hit_if(waiting, "a term ends while keys are queued");
        controller.stopped_at = Some(now + delay + lag);
        drop(record);
        if (delay + lag).is_zero() {
            let _ = stop.send(());
        } else {
            let time = self.sim.time();
            self.sim.spawn(async move {
                time.sleep(delay + lag).await;
                let _ = stop.send(());
            });
        }
    }

    fn add_watch(&mut self, kind: usize) {
        let watch = self.next_watch(kind);
        let (options, mapper) = (self.options(watch), self.mapper(watch));
        let Some(controller) = &mut self.controller else { return };
        let added = controller.handle.add_watch_with(&self.informers[kind], mapper, options);
        let mut record = self.world.record.lock();
        match added {
            Ok(id) => {
                record.happened.hit("a watch is added");
                let standby = self.world.row[STANDBY] == 1 && !record.life.elected;
                record.happened.hit_if(standby, "a watch is added in standby");
                controller.added.push((id, watch, kind));
            }
            Err(_) => _ = record.watches.remove(&watch),
        }
    }

    fn remove_watch(&mut self, number: usize) {
        let Some(controller) = &mut self.controller else { return };
        if controller.added.is_empty() {
            return;
        }
        let (id, watch, _) = controller.added.remove(number % controller.added.len());
        if controller.handle.remove_watch(&id) {
            self.world.record.lock().happened.hit("a watch is removed");
        }
        self.world.record.lock().watches.remove(&watch);
    }

    fn act(&mut self, what: u8, number: u32) {
        let kind = number as usize % KINDS;
        let cluster = self.clusters[kind].clone();
        let key = number / 3 % (KEYS * 2);
        let thing = Thing { key, uid: 0, version: 0 };
        let fault = [
            SourceErrorKind::Expired,
            SourceErrorKind::ConnectionRefused,
            SourceErrorKind::Internal,
            SourceErrorKind::Other,
        ][number as usize % 4];
        match what % 48 {
            0..=7 => _ = cluster.put(thing),
            8 | 9 => _ = cluster.delete(&key),
            10 => _ = cluster.recreate(thing),
            11 => cluster.compact(),
            12 => cluster.break_watches(fault),
            13 => cluster.fail_list(fault),
            14 => cluster.set_faults(|faults| faults.unresponsive ^= true),
            15..=20 => self.sim.advance(number * 16 * MILLI),
            21 => self.sim.advance(number * SECOND / 4),
            22..=25 => self.add(key % KEYS, Duration::ZERO),
            26 => self.add(key % KEYS, number * 20 * MILLI),
            27..=30 => self.elect(),
            31 => self.end_term(Duration::ZERO, number / 64 * SECOND),
            32 | 33 => self.end_term(number % 64 * 50 * MILLI, number / 64 * SECOND),
            34 => self.stop(),
            35 if number < 128 => {
                if let Some(controller) = &mut self.controller {
                    controller.task.abort();
                    controller.aborted = true;
                }
            }
            36..=38 => self.start(),
            39 | 40 => self.add_watch(kind),
            41 => self.remove_watch(number as usize),
            42 if number < 64 => self.stop_informers(kind..kind + 1),
            42 if number < 160 => self.stop_informers(0..KINDS),
            43 => self.queue.pause(),
            44 => self.queue.resume(),
            45..=47 => self.meet_condition(number < 224),
            _ => {}
        }
    }

    fn stop_informers(&mut self, kinds: Range<usize>) {
        self.informers[kinds.clone()].iter().for_each(Informer::shut_down);
        self.stopped.extend(kinds);
        self.world.record.lock().happened.hit("a watched informer stops");
    }

    fn meet_condition(&mut self, met: bool) {
        let Some(controller) = &mut self.controller else { return };
        let Some(condition) = controller.condition.take() else { return };
        if met {
            self.world.record.lock().life.condition_met = true;
            let _ = condition.send(());
        } else {
            controller.condition_failed = true;
            drop(condition);
        }
    }

    /// Fails the run.
    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("{what}; after {}", self.log)
    }

    /// Checks the rules that hold after each operation. If `stalls`, first runs the tasks until they stall.
    fn after(&mut self, stalls: bool) {
        if stalls {
            let before = self.sim.poll_count();
            self.sim.run_until_stalled();
            let polls = self.sim.poll_count() - before;
            if polls > MAX_POLLS {
                self.fail(&format!("7: {polls} polls without any time passing"));
            }
        }
        if let Some(wrong) = self.world.record.lock().wrong.take() {
            self.fail(&wrong);
        }
        let superseded = std::mem::take(&mut self.world.record.lock().superseded);
        if let Some((key, _)) = superseded.iter().find(|(_, context)| !context.is_superseded()) {
            self.fail(&format!("8: a change of key {key} does not supersede its reconcile"));
        }
        if let Err(wrong) = self.queue.check() {
            self.fail(&wrong.to_string());
        }
        let now = self.sim.clock().now();
        let Some(controller) = &self.controller else { return };
        if controller.task.is_finished() {
            return self.ended();
        }
        let (grace, abort_after) = grace(&self.world.row);
        // A busy clock moves on while the tasks are still ready.
        let late = controller.stopped_at.is_some_and(|at| now > at + grace + abort_after);
        if late && stalls && self.row(CLOCK) == 0 {
            self.fail("4: a controller does not end in time");
        }
    }

    /// Checks a controller that has ended.
    fn ended(&mut self) {
        let Some(controller) = self.controller.take() else { return };
        let output = controller.task.take_output();
        let mut record = self.world.record.lock();
        record.life.ended = true;
        record.watches.clear();
        let (undone, counts) = (record.undone(), record.life.metrics);
        record
            .happened
            .hit_if(self.world.row[WORKERS] == 2 && counts.workers_started > 1, "a worker is started later");
        record.happened.hit_if(controller.aborted, "a controller is dropped");
        drop(record);
        let kept = |key: &u32| self.queue.state(key) != KeyState::Absent;
        match output {
            None if controller.aborted => {
                // The workers are dropped at their next step.
                self.sim.run_until_stalled();
                let lost: Vec<_> = undone.iter().filter(|key| !kept(key)).collect();
                if !lost.is_empty() {
                    self.fail(&format!("5: a dropped controller loses keys {lost:?}"));
                }
            }
            None => self.fail("the run panicked"),
            Some(Err(error)) => {
                let mut record = self.world.record.lock();
                let expected = match &error {
                    RunError::StartFailed(_) => {
                        record.happened.hit("a condition fails");
                        // One of the conditions may be that an informer has synced.
                        controller.condition_failed
                            || (self.world.row[CACHES] == 1 && self.stopped.contains(&0))
                    }
                    RunError::CacheEnded(_) => !self.stopped.is_empty(),
                    RunError::StartTimeout(_) => {
                        record.happened.hit("a sync times out");
                        self.world.row[SYNC_TIMEOUT] == 1
                    }
                    _ => false,
                };
                drop(record);
                if !expected {
                    self.fail(&format!("unexpected: {error}"));
                }
                let lost: Vec<_> = undone.iter().filter(|key| !kept(key)).collect();
                if !lost.is_empty() {
                    self.fail(&format!("5: a failed controller loses keys {lost:?}"));
                }
            }
            Some(Ok(report)) => {
                let left = &report.leftovers;
                let left: BTreeSet<u32> =
                    left.ready.iter().chain(&left.waiting).chain(&left.leased).copied().collect();
                let lost: Vec<_> = undone.iter().filter(|key| !left.contains(key)).collect();
                if !lost.is_empty() {
                    self.fail(&format!("5: a controller that shut down loses keys {lost:?}"));
                }
                let reported = (report.reconciles, report.batches, report.given_up);
                if reported != (counts.ended, counts.batches, counts.given_up) {
                    self.fail(&format!("6: {report:?} but {counts:?}"));
                }
                let mut record = self.world.record.lock();
                record.happened.hit_if(!left.is_empty(), "a controller leaves keys");
                let drained = self.world.row[SHUTDOWN] == 1 && left.is_empty() && report.reconciles > 0;
                record.happened.hit_if(drained, "a controller drains keys");
                let idle = controller.stop.is_some();
                record.happened.hit_if(idle, "a controller becomes idle and ends");
            }
        }
        let record = self.world.record.lock();
        let Counts { workers, started, ended, dropped, .. } = record.life.metrics;
        let running: Vec<_> = record.running.keys().copied().collect();
        drop(record);
        if workers != 0 || started != ended + dropped || !running.is_empty() {
            self.fail(&format!(
                "6: {workers} workers, {started} starts, {ended} ends, {dropped} drops, {running:?} run"
            ));
        }
    }

    /// Ends the faults, and checks what must hold then.
    fn settle(&mut self) {
        self.world.record.lock().faults = false;
        self.clusters.iter().for_each(|cluster| cluster.clear_faults());
        self.queue.resume();
        self.sim.set_busy_clock(false);
        // A standby whose controller ends meanwhile, and a term that has ended, are replaced.
        let over = {
            let record = self.world.record.lock();
            record.ends_at < Nanos::new(u64::MAX)
        };
        self.meet_condition(true);
        self.elect();
        self.after(true);
        if over || !self.stopped.is_empty() {
            self.stop();
        }
        self.sim.advance(100 * SECOND);
        self.after(true);
        if self.controller.as_ref().is_some_and(|controller| controller.stop.is_none()) {
            self.fail("4: a controller does not end");
        }
        self.queue.resume();
        self.start();
        self.queue.resume();
        self.meet_condition(true);
        self.elect();
        // This is longer than the longest backoff of all kinds, the requests of informers and the retries of mappers together.
        self.sim.advance(800 * SECOND);
        self.settled();
        let before = self.world.record.lock().counts();
        let thing = Thing { key: 0, uid: 0, version: 0 };
        self.clusters[0].put(thing);
        let version = self.clusters[0].version().get();
        self.sim.advance(5 * SECOND);
        self.settled();
        let record = self.world.record.lock();
        let mapped = self.world.owns(&record, 0) && (self.world.row[CHANGES] == 0 || version % 3 != 0);
        let (reconciles, resynced) = record.counts();
        drop(record);
        // A resync of other objects can fall into these seconds.
        let (caused, resynced) = (u64::from(mapped), resynced - before.1);
        let reconciled = reconciles - before.0;
        if !(caused..=caused + resynced).contains(&reconciled) {
            self.fail(&format!("10: one change and {resynced} resyncs cause {reconciled} reconciles"));
        }
        self.idle();
        self.shut_down();
    }

    fn settled(&mut self) {
        self.after(true);
        let record = self.world.record.lock();
        let undone = record.undone();
        let leads = self.controller.is_some();
        let mut behind = Vec::new();
        for watch in &record.watches {
            let kind = self.kinds[watch];
            let seen = |key: &u32| record.seen.get(&(*watch, *key)).filter(|seen| !seen.gone);
            for thing in self.clusters[kind].objects() {
                if seen(&thing.key).is_none_or(|seen| seen.version != thing.version) {
                    behind.push((kind, thing, seen(&thing.key).copied()));
                }
            }
            let gone = (0..KEYS * 2).filter(|key| self.clusters[kind].get(key).is_none());
            gone.filter(|key| seen(key).is_some()).for_each(|key| {
                behind.push((kind, Thing { key, uid: 0, version: 0 }, seen(&key).copied()));
            });
        }
        let running: Vec<_> = record.running.keys().copied().collect();
        drop(record);
        if !leads {
            self.fail("9: the controller has ended");
        }
        if !undone.is_empty() || !running.is_empty() {
            let states: Vec<_> = undone.iter().map(|key| self.queue.state(key)).collect();
            self.fail(&format!(
                "9: keys {undone:?} are requested but not reconciled: {states:?}; {running:?} run"
            ));
        }
        if !behind.is_empty() {
            self.fail(&format!("9: changes that were not mapped: {behind:?}"));
        }
    }

    /// Checks an idle controller: it is not polled while the clock stands still, and rarely while the clock moves.
    fn idle(&mut self) {
        self.sim.advance(10 * SECOND);
        let (before, reconciles) = (self.sim.poll_count(), self.world.record.lock().reconciles);
        self.sim.run_until_stalled();
        if self.sim.poll_count() != before {
            self.fail("10: an idle controller is polled");
        }
        self.sim.advance(3600 * SECOND);
        let polls = self.sim.poll_count() - before;
        let resynced = self.row(RESYNC) == 1;
        let watches = if resynced { self.world.record.lock().watches.len() as u64 } else { 0 };
        if polls > 300 + watches * POLLS_OF_RESYNCS {
            self.fail(&format!("10: {polls} polls in an idle hour"));
        }
        if !resynced && self.world.record.lock().reconciles != reconciles {
            self.fail("10: an idle controller reconciles");
        }
        let workers = self.world.record.lock().life.metrics.workers;
        let least = if self.row(WORKERS) == 1 { 3 } else { 1 };
        if workers != least {
            self.fail(&format!("10: {workers} workers instead of {least}"));
        }
        self.after(true);
    }

    fn shut_down(&mut self) {
        self.stop();
        self.after(true);
        if self.controller.is_some() {
            self.fail("11: an idle controller does not end immediately");
        }
        self.informers.iter().for_each(Informer::shut_down);
        self.after(true);
        if let Some(alarm) = self.sim.clock().next_alarm() {
            self.fail(&format!("11: armed at the end: {alarm:?}"));
        }
    }
}

/// Starts an informer of a cluster.
fn informer(sim: &Simulation, cluster: &Cluster) -> Informer<u32, Thing> {
    sim.informer(Informer::builder(THINGS, cluster.clone())).expect("the configuration is valid")
}

/// The informers that must have synced before a reconcile starts.
fn required(row: &Row, informers: &[Informer<u32, Thing>]) -> Vec<Informer<u32, Thing>> {
    let required = match row[CACHES] {
        0 => 0..2,
        1 => 0..1,
        _ => 0..0,
    };
    informers[required].to_vec()
}

/// The settings of a controller with these options.
fn config(row: &Row) -> ControllerConfig {
    let (shutdown_grace, abort_after) = grace(row);
    ControllerConfig {
        workers: match row[WORKERS] {
            0 => 1.into(),
            1 => 3.into(),
            _ => (1..=MAX_WORKERS).into(),
        },
        worker_idle_timeout: 2 * SECOND,
        reconcile_timeout: (row[TIMEOUT] == 1).then_some(RECONCILE_LIMIT),
        max_attempts: (row[RETRIES] == 1).then_some(3),
        max_failing_in_flight: (row[FAILING] == 1).then_some(1),
        start_before_sync: row[CACHES] > 0,
        start_timeout: if row[SYNC_TIMEOUT] == 0 { Duration::MAX } else { SYNC_LIMIT },
        shutdown_grace,
        abort_after,
        drain_on_shutdown: row[SHUTDOWN] == 1,
        stop_when_idle: row[IDLE] == 1,
        ..ControllerConfig::default()
    }
}

/// The grace of a shutdown, and the time after which reconciles are dropped.
fn grace(row: &Row) -> (Duration, Duration) {
    match row[GRACE] {
        0 => (Duration::ZERO, Duration::ZERO),
        1 => (SECOND, SECOND / 2),
        _ => (20 * SECOND, 5 * SECOND),
    }
}
