//! Runs random scripts on virtual time, and predicts with an oracle, to the nanosecond, when each reconcile starts.
//!
//! There are as many workers as keys, so a key runs as soon as it is Ready, and the keys are independent of each other. Reconciles and `finally` take
//! some time, and succeed, ask for a requeue, fail with any class, panic, or run into their time limit. Meanwhile keys are added, with a delay or
//! without, and cancelled; objects change, and their mappers panic a few times; the controller is dropped, and another one takes over. At the end it is
//! shut down. The oracle shares no code with the queue, the limiters and the controller. It also predicts which reconciles a change supersedes, the
//! counters of the report, and the keys that are left. The hooks may panic without an effect.
//!
//! All times are in nanoseconds, and the durations have odd remainders, so that no two events are simultaneous by chance.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::testing::{SimulatedTime, Simulation};
use flyball_controller::{
    Action, BatchConfig, Context, Controller, ControllerConfig, ControllerMetrics, FailureClass,
    ReconcileError, ReconcileOutcome, RunReport,
};
use flyball_informer_cache::testing::TestServer;
use flyball_informer_cache::{Informer, Schema, Version};
use flyball_ratelimit::Exponential;
use flyball_workqueue::{Fair, Fifo, Order, Priority, Queue};
use parking_lot::Mutex;
use testkit::random::{Random, cases_are_chosen};
use tokio::sync::oneshot;

use crate::support::panic_quietly;

const KEYS: u32 = 3;
const MILLI: u64 = 1_000_000;
const LIMIT: u64 = 5_003 * MILLI + 1;
const FIRST: u64 = 1_009 * MILLI + 3;
const CAP: u64 = 8_017 * MILLI + 7;
const CONFLICT_FIRST: u64 = 211 * MILLI + 11;
const CONFLICT_CAP: u64 = 907 * MILLI + 13;
const NEVER: u64 = u64::MAX / 4;

const fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// How a call of the user's code ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Out {
    Ok,
    Requeue(u64),
    /// With a minimum wait.
    Transient(u64),
    Conflict,
    Permanent,
    Panic,
    Timeout,
}

#[derive(Clone, Copy, Debug)]
struct Script {
    takes: u64,
    out: Out,
    finally_takes: u64,
    finally: Out,
}

/// What the nth reconcile of a key does.
fn script(seed: u64, key: u32, nth: u64) -> Script {
    let mut r = Random::new(seed ^ (u64::from(key) << 40) ^ (nth << 8));
    r.next();
    let takes = [
        0,
        0,
        7 * MILLI + 1,
        331 * MILLI + 19,
        1_201 * MILLI + 23,
        2_503 * MILLI + 29,
        7_001 * MILLI + 31,
        NEVER,
    ];
    let takes = takes[r.below(8) as usize];
    let out = match r.below(12) {
        0..3 => Out::Ok,
        3 => Out::Requeue(0),
        4 => Out::Requeue((1_500 + r.below(1_000)) * MILLI + 37),
        5..8 => Out::Transient(if r.below(3) == 0 { 3_001 * MILLI + 41 } else { 0 }),
        8..10 => Out::Conflict,
        10 => Out::Permanent,
        _ => Out::Panic,
    };
    let finally_takes = [0, 0, 13 * MILLI + 43, 401 * MILLI + 47, NEVER][r.below(5) as usize];
    let finally = match r.below(16) {
        0 => Out::Transient(0),
        1 => Out::Conflict,
        2 => Out::Permanent,
        3 => Out::Panic,
        _ => Out::Ok,
    };
    Script { takes, out, finally_takes, finally }
}

/// Whether a leased key runs again after its lease.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Again {
    None,
    Dirty,
    Wait(u64),
}

#[derive(Clone, Copy, Debug)]
enum KeyState {
    Absent,
    Waiting(u64),
    Leased {
        end: u64,
        out: Out,
        finally_failed: bool,
        again: Again,
    },
    /// Is left in the queue at the shutdown.
    Left,
}

/// The oracle's state of a key.
#[derive(Clone, Copy, Debug)]
struct Key {
    state: KeyState,
    nth: u64,
    failures: u32,
    backoff_until: u64,
    conflicts: u32,
    conflict_until: u64,
    last_conflict: u64,
    /// Until when the reconcile itself runs, and whether a change has superseded it.
    reconcile_end: u64,
    superseded: bool,
}

#[derive(Default, Debug, PartialEq, Clone)]
struct Counts {
    reconciles: u64,
    requeues: u64,
    errors: u64,
    panics: u64,
    timeouts: u64,
    conflicts: u64,
    given_up: u64,
    finally_failures: u64,
    successful_retries: u64,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    finally: bool,
    limited: bool,
    attempts: Option<u32>,
    percent: u32,
    drains: bool,
    grace: u64,
    abort: u64,
    batches: bool,
    scales: bool,
    panicking_hooks: bool,
    restarts: bool,
}

struct Oracle {
    seed: u64,
    options: Options,
    keys: Vec<Key>,
    starts: Vec<(u64, u32)>,
    superseded: Vec<(u32, u64, bool)>,
    counts: Counts,
    /// The successes that count as retries only if the count of conflicts has not been evicted yet.
    unsure: u64,
    /// When the shutdown begins.
    stop: u64,
}

/// The delay of a requeue, extended by a hash of the key.
fn extended(key: u32, delay: u64, percent: u32) -> u64 {
    let mut h = DefaultHasher::new();
    key.hash(&mut h);
    let most = u128::from(delay) * u128::from(percent) / 100;
    delay + ((u128::from(h.finish()) * most) >> 64) as u64
}

impl Oracle {
    fn new(seed: u64, options: Options) -> Self {
        let key = Key {
            state: KeyState::Absent,
            nth: 0,
            failures: 0,
            backoff_until: 0,
            conflicts: 0,
            conflict_until: 0,
            last_conflict: 0,
            reconcile_end: 0,
            superseded: false,
        };
        Self {
            seed,
            options,
            keys: vec![key; KEYS as usize],
            starts: Vec::new(),
            superseded: Vec::new(),
            counts: Counts::default(),
            unsure: 0,
            stop: u64::MAX,
        }
    }

    fn limit(&self) -> u64 {
        if self.options.limited { LIMIT } else { NEVER }
    }

    fn start(&mut self, k: usize, t: u64, dirty: bool) {
        let may = t < self.stop || self.options.drains && dirty && t < self.stop + self.options.grace;
        if !may {
            self.keys[k].state = KeyState::Left;
            return;
        }
        self.starts.push((t, k as u32));
        let nth = self.keys[k].nth;
        let s = script(self.seed, k as u32, nth);
        let limit = self.limit();
        let reconcile_end = t.saturating_add(s.takes.min(limit));
        let mut out = if s.takes >= limit { Out::Timeout } else { s.out };
        let (mut end, mut finally_failed) = (reconcile_end, false);
        if self.options.finally {
            end = end.saturating_add(s.finally_takes.min(limit));
            let finally = if s.finally_takes >= limit { Out::Timeout } else { s.finally };
            if finally != Out::Ok {
                finally_failed = true;
                if matches!(out, Out::Ok | Out::Requeue(_)) {
                    out = finally;
                }
            }
        }
        let key = &mut self.keys[k];
        key.nth += 1;
        (key.reconcile_end, key.superseded) = (reconcile_end, false);
        key.state = KeyState::Leased { end, out, finally_failed, again: Again::None };
    }

    fn finish(&mut self, k: usize) {
        let attempts = self.options.attempts;
        let key = &mut self.keys[k];
        let KeyState::Leased { end, out, finally_failed, again } = key.state else { panic!() };
        let again = match again {
            Again::Wait(t) if t <= end && (t <= self.stop || !self.options.drains) => Again::Dirty,
            other => other,
        };
        let c = &mut self.counts;
        c.reconciles += 1;
        c.finally_failures += u64::from(finally_failed);
        let mut gives_up = false;
        let wait = match out {
            Out::Ok | Out::Requeue(_) => {
                // A count of conflicts that has expired may still be there.
                let expired =
                    key.failures == 0 && key.conflicts > 0 && end > key.last_conflict + 2 * CONFLICT_CAP;
                self.unsure += u64::from(expired);
                c.successful_retries += u64::from(key.failures + key.conflicts > 0 && !expired);
                (key.failures, key.backoff_until, key.conflicts, key.conflict_until) = (0, 0, 0, 0);
                match out {
                    Out::Requeue(delay) => {
                        c.requeues += 1;
                        Some(end + extended(k as u32, delay, self.options.percent))
                    }
                    _ => None,
                }
            }
            Out::Transient(_) | Out::Panic | Out::Timeout => {
                let least = match out {
                    Out::Transient(least) => {
                        c.errors += 1;
                        least
                    }
                    Out::Panic => {
                        c.panics += 1;
                        0
                    }
                    _ => {
                        c.timeouts += 1;
                        0
                    }
                };
                if end >= key.backoff_until {
                    key.failures += 1;
                    key.backoff_until = end + (FIRST << (key.failures - 1)).min(CAP);
                    gives_up = attempts.is_some_and(|most| key.failures >= most);
                }
                Some(key.backoff_until.max(end + least))
            }
            Out::Conflict => {
                c.errors += 1;
                c.conflicts += 1;
                if end >= key.conflict_until {
                    if key.conflicts > 0 && end > key.last_conflict + 2 * CONFLICT_CAP {
                        key.conflicts = 0;
                    }
                    key.conflicts += 1;
                    key.last_conflict = end;
                    key.conflict_until =
                        end + (CONFLICT_FIRST << (key.conflicts - 1).min(20)).min(CONFLICT_CAP);
                }
                Some(key.conflict_until)
            }
            Out::Permanent => {
                c.errors += 1;
                gives_up = true;
                None
            }
        };
        if gives_up {
            c.given_up += 1;
            (key.failures, key.backoff_until, key.conflicts, key.conflict_until) = (0, 0, 0, 0);
        }
        let wait = wait.filter(|_| !gives_up);
        let next = match (again, wait) {
            (Again::Dirty, _) => return self.start(k, end, true),
            (Again::Wait(t), Some(wait)) => t.min(wait),
            (Again::Wait(t), None) => t,
            (Again::None, Some(wait)) => wait,
            (Again::None, None) => {
                key.state = KeyState::Absent;
                return;
            }
        };
        if next <= end { self.start(k, end, false) } else { key.state = KeyState::Waiting(next) }
    }

    /// Runs the key until `t`.
    fn until(&mut self, k: usize, t: u64) {
        loop {
            let key = self.keys[k];
            if let KeyState::Leased { .. } = key.state
                && key.reconcile_end <= t
                && key.reconcile_end < NEVER
                && key.nth > 0
            {
                let s = script(self.seed, k as u32, key.nth - 1);
                if s.takes < self.limit() {
                    self.superseded.push((k as u32, key.nth - 1, key.superseded));
                }
                self.keys[k].reconcile_end = NEVER;
            }
            match key.state {
                KeyState::Waiting(at) if at <= t && at < self.stop => self.start(k, at, false),
                KeyState::Leased { end, .. } if end <= t => self.finish(k),
                _ => return,
            }
        }
    }

    fn add(&mut self, k: usize, t: u64, change: bool) {
        self.until(k, t);
        let key = &mut self.keys[k];
        match &mut key.state {
            KeyState::Leased { again, .. } => {
                *again = Again::Dirty;
                key.superseded |= change;
            }
            KeyState::Left => panic!("adds end at the stop"),
            KeyState::Absent | KeyState::Waiting(_) => self.start(k, t, false),
        }
    }

    fn add_after(&mut self, k: usize, t: u64, delay: u64) {
        self.until(k, t);
        let at = t + delay;
        match &mut self.keys[k].state {
            KeyState::Leased { again, .. } => match again {
                Again::None => *again = Again::Wait(at),
                Again::Wait(before) => *before = at.min(*before),
                Again::Dirty => {}
            },
            KeyState::Left => panic!(),
            KeyState::Waiting(before) => *before = at.min(*before),
            state @ KeyState::Absent => *state = KeyState::Waiting(at),
        }
    }

    /// The controller is dropped, and another one takes over: it maps all objects, whose keys are `mapped`.
    fn restart(&mut self, t: u64, mapped: &BTreeSet<u32>) {
        for k in 0..KEYS as usize {
            self.until(k, t);
            let key = &mut self.keys[k];
            (key.conflicts, key.conflict_until, key.reconcile_end) = (0, 0, NEVER);
            let mut ready = mapped.contains(&(k as u32));
            if let KeyState::Leased { again, .. } = key.state {
                if t >= key.backoff_until {
                    key.failures += 1;
                    key.backoff_until = t + (FIRST << (key.failures - 1)).min(CAP);
                }
                ready |= again == Again::Dirty || matches!(again, Again::Wait(at) if at <= t);
                key.state = match again {
                    Again::Wait(at) => KeyState::Waiting(at.min(key.backoff_until)),
                    _ => KeyState::Waiting(key.backoff_until),
                };
            }
            if ready {
                self.start(k, t, false);
            }
        }
        self.counts = Counts::default();
        self.unsure = 0;
    }

    fn cancel(&mut self, k: usize, t: u64) {
        self.until(k, t);
        match &mut self.keys[k].state {
            KeyState::Leased { again, .. } => *again = Again::None,
            state => *state = KeyState::Absent,
        }
    }
}

/// Metrics that always panic.
struct PanickingMetrics;

impl ControllerMetrics for PanickingMetrics {
    fn max_workers(&self, _: usize) {
        panic_quietly("metrics")
    }
    fn worker_started(&self) {
        panic_quietly("metrics")
    }
    fn worker_stopped(&self) {
        panic_quietly("metrics")
    }
    fn reconcile_started(&self) {
        panic_quietly("metrics")
    }
    fn batch_started(&self, _: usize) {
        panic_quietly("metrics")
    }
    fn reconcile_ended(&self, _: ReconcileOutcome, _: Duration) {
        panic_quietly("metrics")
    }
    fn reconcile_dropped(&self) {
        panic_quietly("metrics")
    }
    fn retry_succeeded(&self, _: u32) {
        panic_quietly("metrics")
    }
    fn gave_up(&self, _: FailureClass) {
        panic_quietly("metrics")
    }
}

/// What the reconciles of all controllers of a run share.
struct Shared {
    seed: u64,
    nths: Mutex<BTreeMap<u32, u64>>,
    running: Mutex<BTreeMap<u32, u64>>,
    starts: Mutex<Vec<(u64, u32)>>,
    superseded: Mutex<Vec<(u32, u64, bool)>>,
    given_up: Mutex<u64>,
}

async fn act(takes: u64, out: Out, time: SimulatedTime) -> Result<Action, &'static str> {
    match takes {
        0 => {}
        NEVER => std::future::pending().await,
        takes => time.sleep(nanos(takes)).await,
    }
    match out {
        Out::Ok => Ok(Action::await_change()),
        Out::Requeue(delay) => Ok(Action::requeue_after(nanos(delay))),
        Out::Transient(0) => Err("transient"),
        Out::Transient(_) => Err("later"),
        Out::Conflict => Err("conflict"),
        Out::Permanent => Err("permanent"),
        Out::Panic => panic_quietly("panic"),
        Out::Timeout => unreachable!(),
    }
}

impl Shared {
    async fn reconcile(
        self: Arc<Self>,
        key: u32,
        cx: Context,
        time: SimulatedTime,
    ) -> Result<Action, &'static str> {
        let nth = {
            let mut nths = self.nths.lock();
            let nth = nths.entry(key).or_default();
            *nth += 1;
            *nth - 1
        };
        self.running.lock().insert(key, nth);
        self.starts.lock().push((time.now().get(), key));
        let Script { takes, out, .. } = script(self.seed, key, nth);
        let result = act(takes, Out::Ok, time.clone()).await;
        assert!(result.is_ok());
        self.superseded.lock().push((key, nth, cx.is_superseded()));
        act(0, out, time).await
    }
}

/// An object: its id, the key to which it maps, and how often its mapper panics.
type Object = (u64, u32, u32, Version);
const OBJECTS: Schema<u64, Object> = Schema::new(|object: &Object| object.0, |object| object.3);

/// Runs one script. Returns the numbers of starts, of starts after the signal, of superseded reconciles and of restarts.
fn life<O: Order<u32>>(sim: &mut Simulation, o: Options, order: O) -> [u64; 4] {
    let seed = sim.seed();
    let mut r = Random::new(sim.next_random());
    let queue = Queue::builder()
        .order(order)
        .limiter(Exponential::new(nanos(FIRST)..=nanos(CAP)))
        .timer(sim.timer())
        .seed(sim.next_random())
        .build();
    let server = TestServer::new(OBJECTS, |object: &mut Object, _, version| object.3 = version);
    let objects = sim.informer(Informer::builder(OBJECTS, server.clone())).unwrap();
    let shared = Arc::new(Shared {
        seed,
        nths: Mutex::default(),
        running: Mutex::default(),
        starts: Mutex::default(),
        superseded: Mutex::default(),
        given_up: Mutex::default(),
    });
    let panics = Arc::new(Mutex::new(BTreeMap::<u64, u32>::new()));
    let make = |sim: &Simulation| {
        let (stop, stopped) = oneshot::channel::<()>();
        let (gave_up, time) = (shared.clone(), sim.time());
        let mut controller = Controller::new(queue.clone())
            .watches(&objects, {
                let panics = panics.clone();
                move |change| {
                    let (id, key, most, _) = **change.object();
                    let mut panics = panics.lock();
                    let so_far = panics.entry(id).or_default();
                    if *so_far < most {
                        *so_far += 1;
                        drop(panics);
                        panic_quietly("mapper");
                    }
                    key
                }
            })
            .with_config(ControllerConfig {
                workers: if o.scales { (1..=KEYS as usize).into() } else { (KEYS as usize).into() },
                reconcile_timeout: o.limited.then_some(nanos(LIMIT)),
                max_attempts: o.attempts,
                requeue_spread_percent: o.percent,
                conflict_backoff_initial: nanos(CONFLICT_FIRST),
                conflict_backoff_max: nanos(CONFLICT_CAP),
                shutdown_grace: nanos(o.grace),
                abort_after: nanos(o.abort),
                drain_on_shutdown: o.drains,
                ..ControllerConfig::default()
            })
            .graceful_shutdown_on(async move { drop(stopped.await) })
            .on_give_up(move |_, _| {
                *gave_up.given_up.lock() += 1;
                if o.panicking_hooks {
                    panic_quietly("give up")
                }
            })
            .filter_keys(move |_| true)
            .retry_after_at_least(|_, failure| {
                (failure.to_string() == "later").then_some(nanos(3_001 * MILLI + 41))
            })
            .classify(move |failure: &ReconcileError| match failure.to_string().as_str() {
                "conflict" => FailureClass::Conflict,
                "permanent" => FailureClass::Permanent,
                _ if o.panicking_hooks => panic_quietly("classify"),
                _ => FailureClass::Transient,
            });
        if o.panicking_hooks {
            controller = controller.metrics(PanickingMetrics);
        }
        if o.finally {
            let (of, time) = (shared.clone(), sim.time());
            controller = controller.finally(move |key, _, _| {
                let nth = of.running.lock()[&key];
                let Script { finally_takes, finally, .. } = script(of.seed, key, nth);
                let time = time.clone();
                async move { act(finally_takes, finally, time).await.map(drop) }
            });
        }
        let of = shared.clone();
        let task = match o.batches {
            false => sim.run(controller, move |key, cx| of.clone().reconcile(key, cx, time.clone())),
            true => sim.run_batches(controller, BatchConfig::new(1), move |keys: Vec<u32>, cx| {
                let (of, time) = (of.clone(), time.clone());
                async move { Ok::<_, &str>(vec![of.reconcile(keys[0], cx, time).await]) }
            }),
        };
        (stop, task)
    };
    let (mut stop, mut task) = make(sim);
    let mut oracle = Oracle::new(seed, o);
    sim.run_until_stalled();
    let mut mapped: BTreeSet<(u64, u64, u32)> = BTreeSet::new();
    let mut log = String::new();
    let (mut ids, mut restarted) = (0, 0);
    for _ in 0..r.below(40) {
        // No two operations at the same time, so that the retries of their mappers are not simultaneous.
        sim.advance(nanos(1 + r.below(1_000)));
        let now = sim.time().now().get();
        while let Some((at, id, key)) = mapped.first().copied().filter(|(at, ..)| *at <= now) {
            mapped.remove(&(at, id, key));
            oracle.add(key as usize, at, true);
        }
        (0..KEYS as usize).for_each(|k| oracle.until(k, now));
        let k = r.below(u64::from(KEYS)) as usize;
        let what = r.below(12);
        match what {
            0..4 => {
                _ = queue.add(k as u32);
                oracle.add(k, now, false);
            }
            4 => {
                let delay = 1 + r.below(4_000 * MILLI);
                _ = queue.add_after(k as u32, nanos(delay));
                oracle.add_after(k, now, delay);
            }
            9 if o.restarts && r.below(4) == 0 => {
                task.abort();
                sim.run_until_stalled();
                (stop, task) = make(sim);
                let mut now_mapped = BTreeSet::new();
                mapped.clear();
                for object in server.objects() {
                    let (id, key, most, _) = object;
                    let so_far = panics.lock().get(&id).copied().unwrap_or_default();
                    match most - so_far.min(most) {
                        0 => _ = now_mapped.insert(key),
                        left => _ = mapped.insert((now + 100 * MILLI * ((1 << left) - 1), id, key)),
                    }
                }
                let times: BTreeSet<_> = mapped.iter().map(|(at, _, key)| (*at, *key)).collect();
                if times.len() < mapped.len() {
                    return [0; 4]; // two retries at the same time, in any order
                }
                oracle.restart(now, &now_mapped);
                restarted += 1;
            }
            5 if r.below(3) == 0 => {
                _ = queue.cancel(&(k as u32));
                oracle.cancel(k, now);
            }
            6..9 => {
                let most = [0, 0, 1, 2, 4][r.below(5) as usize];
                ids += 1;
                server.put((ids, k as u32, most, Version::ZERO));
                match most {
                    0 => oracle.add(k, now, true),
                    _ => _ = mapped.insert((now + 100 * MILLI * ((1 << most) - 1), ids, k as u32)),
                }
            }
            _ => {
                let by = match r.below(3) {
                    0 => r.below(100 * MILLI),
                    1 => r.below(1_000 * MILLI),
                    _ => r.below(6_000 * MILLI),
                };
                sim.advance(nanos(by));
                let now = now + by;
                while let Some((at, id, key)) = mapped.first().copied().filter(|(at, ..)| *at <= now) {
                    mapped.remove(&(at, id, key));
                    oracle.add(key as usize, at, true);
                }
                (0..KEYS as usize).for_each(|k| oracle.until(k, now));
                log += &format!(" +{}", by / MILLI);
            }
        }
        log += &format!(" {what}.{k}");
        sim.run_until_stalled();
        (0..KEYS as usize).for_each(|k| oracle.until(k, sim.time().now().get()));
        let mut seen = shared.starts.lock().clone();
        let mut expected = oracle.starts.clone();
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!(seen, expected, "{o:?}:{log}");
    }
    let now = sim.time().now().get();
    oracle.stop = now + 1;
    let before = oracle.starts.len();
    _ = stop.send(());
    sim.advance(nanos(o.grace + o.abort + 1));
    assert!(task.is_finished(), "{o:?}:{log}");
    let cut = now + o.grace + o.abort;
    (0..KEYS as usize).for_each(|k| oracle.until(k, cut));
    let report: RunReport<u32> = task.take_output().unwrap().unwrap();
    let sorted = |mut all: Vec<(u64, u32)>| {
        all.sort_unstable();
        all
    };
    assert_eq!(sorted(shared.starts.lock().clone()), sorted(oracle.starts.clone()), "{o:?}:{log}");
    let mut seen = shared.superseded.lock().clone();
    seen.sort_unstable();
    oracle.superseded.sort_unstable();
    assert_eq!(seen, oracle.superseded, "{o:?}:{log}");
    let counts = Counts {
        reconciles: report.reconciles,
        requeues: report.requeues,
        errors: report.errors,
        panics: report.panics,
        timeouts: report.timeouts,
        conflicts: report.conflicts,
        given_up: report.given_up,
        finally_failures: report.finally_failures,
        successful_retries: report.successful_retries,
    };
    let retries = counts.successful_retries;
    let sure = oracle.counts.successful_retries;
    assert!((sure..=sure + oracle.unsure).contains(&retries), "{o:?}:{log}");
    oracle.counts.successful_retries = retries;
    assert_eq!(counts, oracle.counts, "{o:?}:{log}");
    assert_eq!(report.mapper_failures, mapped.len() as u64, "{o:?}:{log}");
    assert!(restarted > 0 || *shared.given_up.lock() == oracle.counts.given_up);
    let left = &report.leftovers;
    let leased: BTreeSet<u32> = left.leased.iter().copied().collect();
    let all: BTreeSet<u32> = left.ready.iter().chain(&left.waiting).chain(&left.leased).copied().collect();
    let keys = |of: &dyn Fn(&KeyState) -> bool| -> BTreeSet<u32> {
        (0..KEYS).filter(|key| of(&oracle.keys[*key as usize].state)).collect()
    };
    assert_eq!(leased, keys(&|st| matches!(st, KeyState::Leased { .. })), "{o:?}:{log}");
    assert_eq!(all, keys(&|st| !matches!(st, KeyState::Absent)), "{o:?}:{log} {:?} {left:?}", oracle.keys);
    [
        oracle.starts.len() as u64,
        (oracle.starts.len() - before) as u64,
        oracle.superseded.iter().filter(|s| s.2).count() as u64,
        restarted,
    ]
}

#[test]
fn every_reconcile_starts_when_it_must_and_ends_as_it_must() {
    let totals = Mutex::new([0; 4]);
    Simulation::explore(1_000, |sim| {
        let mut random = Random::new(sim.next_random());
        let mut one_of = |most: u64| random.below(most) as usize;
        let o = Options {
            finally: one_of(2) == 0,
            limited: one_of(3) > 0,
            attempts: [None, Some(1), Some(2), Some(4)][one_of(4)],
            percent: [0, 0, 10, 250][one_of(4)],
            drains: one_of(2) == 0,
            grace: [0, 1_511 * MILLI + 51, 20_000 * MILLI + 57][one_of(3)],
            abort: [0, 503 * MILLI + 61][one_of(2)],
            batches: one_of(2) == 0,
            scales: one_of(2) == 0,
            panicking_hooks: one_of(2) == 0,
            restarts: one_of(2) == 0,
        };
        let happened = match one_of(3) {
            0 => life(sim, o, Fifo),
            1 => life(sim, o, Priority::new()),
            _ => life(sim, o, Fair::by_group(|key: &u32| key % 2)),
        };
        totals.lock().iter_mut().zip(happened).for_each(|(total, one)| *total += one);
    });
    if cases_are_chosen() {
        return; // the floors are for the usual number of cases
    }
    let [starts, drained, superseded, restarts] = totals.into_inner();
    assert!(
        starts > 3_000 && drained > 50 && superseded > 300 && restarts > 100,
        "{totals:?}",
        totals = [starts, drained, superseded, restarts]
    );
}
