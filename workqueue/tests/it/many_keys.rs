//! Random operations on many keys, beyond the sizes at which a queue works in pieces, wakes in batches and releases memory. The drivers with an oracle
//! have a few keys only.
//!
//! There is no oracle of the order. Checked are: a key is leased once at a time; no add, retry or requeue is lost, neither by a drain; the state of each key
//! follows from the operations on it; the failures of keys in the queue are kept; no waiter misses what it waits for; few steps under one lock.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use flyball_ratelimit::{Exponential, Quota};
use flyball_sync::random::SplitMix64;
use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos, steps};
use flyball_workqueue::{
    AddOptions, DelayMode, DrainOptions, Fair, Fifo, KeyState, Lease, LeaseOutcome, Order, Priority, Queue,
    QueueBuilder, QueueMetrics, TryGetError,
};
use testkit::random::thorough;
use testkit::wakers::{Counting, poll_with};

type Key = (u16, u16);
type Q<O> = Queue<Key, O, Exponential<Key>, ManualTimer>;

const GROUPS: u64 = 40;
const IDS: u64 = 80;

#[derive(Clone, Copy, Debug)]
struct Conf {
    weight: u32,
    leases: u32,
    cap: usize,
    rate: Option<Quota>,
}
const FREE: Conf = Conf { weight: 1, leases: u32::MAX, cap: usize::MAX, rate: None };
type Confs = Arc<Mutex<Vec<Conf>>>;

struct Ignore;
impl QueueMetrics for Ignore {}

enum Out {
    Leases(Vec<Lease<Key>>),
    Added(Key, bool),
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Get,
    Add(Key),
    Idle,
    Empty,
    Overdue,
    Drain,
}

struct Task<'a> {
    fut: Pin<Box<dyn Future<Output = Out> + 'a>>,
    wakes: Arc<Counting>,
    waker: Waker,
    seen: usize,
    kind: Kind,
    until: Option<Nanos>,
}

struct Sim<'a, O: Order<Key>> {
    q: &'a Q<O>,
    clock: ManualClock,
    rng: SplitMix64,
    confs: Confs,
    tasks: Vec<Task<'a>>,
    leases: Vec<Lease<Key>>,
    detached: Vec<Key>,
    leased: HashSet<Key>,
    pending: HashSet<Key>,
    fails: HashMap<Key, u32>,
    open: bool,
    stopped: bool,
    back: bool,
    adds: u64,
    polls: u64,
    stale: bool,
}

fn ns(n: u64) -> Duration {
    Duration::from_nanos(n)
}

impl<'a, O: Order<Key>> Sim<'a, O> {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }
    fn key(&mut self) -> Key {
        ((self.below(GROUPS)) as u16, self.below(IDS) as u16)
    }
    fn a_leased(&mut self) -> Key {
        if self.leases.is_empty() || self.below(2) == 0 {
            return self.key();
        }
        let i = self.below(self.leases.len() as u64) as usize;
        *self.leases[i]
    }
    fn delay(&mut self) -> Duration {
        match self.below(6) {
            0 => ns(0),
            1 => ns(7),
            2 => ns(50),
            3 => ns(1_000),
            _ => ns(self.rng.below(100)),
        }
    }
    fn took(&mut self, leases: Vec<Lease<Key>>) {
        for lease in leases {
            assert!(!self.stopped, "handed out after stop");
            assert!(self.leased.insert(*lease), "{:?} leased twice", *lease);
            assert!(self.pending.remove(&*lease), "{:?} was not pending", *lease);
            self.leases.push(lease);
        }
    }
    fn added(&mut self, key: Key, ok: bool) {
        if ok {
            assert!(self.open, "{key:?} added after a shutdown");
            self.pending.insert(key);
        }
    }
    fn bounded(&self, what: &str, most: u64) {
        let steps = steps::take();
        assert!(steps <= most, "{what}: {steps} steps");
    }
    fn end(&mut self, lease: Lease<Key>) {
        let key = *lease;
        let before = self.q.num_requeues(&key);
        if let Some(known) = self.fails.get(&key) {
            assert_eq!(before, *known, "failures of {key:?}");
        }
        let delay = self.delay();
        let outcome = match self.below(9) {
            0 | 1 => LeaseOutcome::Done,
            2 => LeaseOutcome::DoneAndRequeueAfter(delay),
            3 => LeaseOutcome::Succeeded,
            4 => LeaseOutcome::SucceededAndRequeueAfter(delay),
            5 => LeaseOutcome::Failed { at_least: delay },
            6 => LeaseOutcome::Failed { at_least: ns(0) },
            7 => LeaseOutcome::Dropped,
            _ => LeaseOutcome::Requeued,
        };
        steps::take();
        match outcome {
            LeaseOutcome::Dropped => drop(lease),
            outcome => lease.end(outcome),
        }
        self.bounded("end", 8_000);
        let after = self.q.num_requeues(&key);
        let comes_back = !matches!(outcome, LeaseOutcome::Done | LeaseOutcome::Succeeded);
        match outcome {
            LeaseOutcome::Succeeded | LeaseOutcome::SucceededAndRequeueAfter(_) => assert_eq!(after, 0),
            outcome if outcome.is_failure() => assert!(after == before || after == before + 1),
            _ => assert_eq!(after, before),
        }
        self.left(key, comes_back, after);
    }
    fn left(&mut self, key: Key, comes_back: bool, fails: u32) {
        assert!(self.leased.remove(&key));
        if comes_back && !self.stopped {
            self.pending.insert(key);
        }
        if self.pending.contains(&key) {
            self.fails.insert(key, fails);
        } else {
            self.fails.remove(&key);
        }
    }
    fn verify(&self, key: Key) {
        let (leased, pending) = (self.leased.contains(&key), self.pending.contains(&key));
        let state = self.q.state(&key);
        let expected = match state {
            KeyState::Absent => (false, false),
            KeyState::Ready | KeyState::Waiting(_) => (false, true),
            KeyState::Leased => (true, false),
            _ => (true, true),
        };
        assert_eq!((leased, pending), expected, "{key:?} is {state:?}");
        if leased || pending {
            if let Some(known) = self.fails.get(&key) {
                assert_eq!(self.q.num_requeues(&key), *known, "failures of {key:?}");
            }
        }
    }
    fn spawn(&mut self, kind: Kind, until: Option<Duration>, fut: impl Future<Output = Out> + 'a) {
        let (wakes, waker) = Counting::waker();
        let until = until.map(|limit| self.clock.now() + limit);
        self.tasks.push(Task { fut: Box::pin(fut), wakes, waker, seen: 0, kind, until });
        self.poll(self.tasks.len() - 1);
    }
    fn poll(&mut self, index: usize) {
        self.polls += 1;
        let task = &mut self.tasks[index];
        task.seen = task.wakes.wakes();
        steps::take();
        let polled = poll_with(task.fut.as_mut(), &task.waker);
        let kind = task.kind;
        if kind != Kind::Drain {
            self.bounded("poll", 12_000);
        }
        if let Poll::Ready(out) = polled {
            drop(self.tasks.swap_remove(index));
            match out {
                Out::Leases(leases) => self.took(leases),
                Out::Added(key, ok) => self.added(key, ok),
                Out::Other => {}
            }
        }
    }
    fn settle(&mut self) {
        let before = self.polls;
        while let Some(index) = self.tasks.iter().position(|task| task.seen < task.wakes.wakes()) {
            self.poll(index);
            assert!(self.polls - before < 5_000, "wakes each other without end");
        }
        let now = self.clock.now();
        for task in &self.tasks {
            assert!(task.until.is_none_or(|until| until > now), "{:?}: limit has passed", task.kind);
        }
        if self.tasks.iter().any(|task| task.kind == Kind::Get) {
            match self.q.try_get() {
                Ok(lease) => panic!("lost wake-up: {:?} is ready", *lease),
                Err(TryGetError::Closed) => panic!("getters pend on a closed queue"),
                Err(TryGetError::Empty) => {}
            }
        }
        if !self.back && self.tasks.iter().any(|task| task.kind == Kind::Idle) {
            assert!(self.q.has_ready() || !self.leased.is_empty(), "idle, and not woken");
        }
        if self.tasks.iter().any(|task| task.kind == Kind::Empty) {
            assert!(!self.pending.is_empty() || !self.leased.is_empty(), "empty, and not woken");
        }
        let adders: Vec<Key> = self
            .tasks
            .iter()
            .filter_map(|task| if let Kind::Add(key) = task.kind { Some(key) } else { None })
            .collect();
        for key in adders {
            assert!(self.open, "an adder pends after a shutdown");
            if !self.stale && !self.pending.contains(&key) && !self.leased.contains(&key) {
                assert!(self.q.add(key).is_err(), "room for {key:?}, and its adder was not woken");
            }
        }
    }
    fn start(&mut self) {
        if self.tasks.len() > 60 {
            return;
        }
        let (q, key, limit) = (self.q, self.key(), self.delay() + ns(1));
        let many = self.below(5) as usize + 1;
        match self.below(12) {
            0..=3 => {
                self.spawn(Kind::Get, None, async move { Out::Leases(q.get().await.into_iter().collect()) })
            }
            4 => self.spawn(Kind::Get, None, async move { Out::Leases(q.get_many(many).await) }),
            5 => self.spawn(Kind::Get, Some(limit), async move {
                Out::Leases(q.timeout(limit, q.get_many(many)).await.unwrap_or_default())
            }),
            6 => self.spawn(Kind::Idle, None, async move {
                q.wait_idle().await;
                Out::Other
            }),
            7 => self.spawn(Kind::Empty, None, async move {
                q.wait_empty().await;
                Out::Other
            }),
            8 | 9 => self.spawn(Kind::Add(key), None, async move {
                Out::Added(key, q.add_when_room(key).await.is_ok())
            }),
            10 => self.spawn(Kind::Add(key), Some(limit), async move {
                let added = q.timeout(limit, q.add_when_room(key)).await;
                Out::Added(key, added.is_some_and(|added| added.is_ok()))
            }),
            _ => self.spawn(Kind::Overdue, None, async move {
                q.next_overdue(limit).await;
                Out::Other
            }),
        }
    }
    fn bulk(&mut self) -> Vec<Key> {
        let n = match self.below(12) {
            0 => 3_000,
            1 | 2 => 300,
            _ => 1 + self.below(40),
        };
        let group = self.below(GROUPS) as u16;
        let one_group = self.below(3) == 0;
        let keys = (0..n).map(|_| {
            let key = self.key();
            if one_group { (group, key.1) } else { key }
        });
        keys.collect()
    }
    fn step(&mut self, refresh: &impl Fn(&Q<O>), prio: &impl Fn(&Q<O>, Key, i8)) {
        let q = self.q;
        let (key, delay) = (self.a_leased(), self.delay());
        match self.below(34) {
            0 | 1 => {
                let priority = self.below(5) as i8 - 2;
                let ok = q.add_with(key, AddOptions { priority, ..AddOptions::default() }).is_ok();
                self.added(key, ok);
            }
            2 | 3 => {
                let keys = self.bulk();
                let refused: HashSet<Key> =
                    q.add_many(keys.iter().copied()).refused.into_iter().map(|e| e.into_key()).collect();
                for key in keys {
                    self.added(key, !refused.contains(&key));
                }
            }
            4 | 5 => {
                for key in self.bulk() {
                    let delay = if self.below(2) == 0 { delay } else { self.delay() };
                    let ok = q.add_after(key, delay).is_ok();
                    self.added(key, ok);
                }
            }
            6 => {
                let max_wait = self.delay();
                for key in self.bulk() {
                    let mode = DelayMode::Debounce { max_wait };
                    let ok = q.add_with(key, AddOptions { delay, mode, ..AddOptions::default() }).is_ok();
                    self.added(key, ok);
                }
            }
            7 => {
                let mode = DelayMode::Replace;
                let ok = q.add_with(key, AddOptions { delay, mode, ..AddOptions::default() }).is_ok();
                self.added(key, ok);
            }
            8 => {
                let found = q.postpone(&key, delay);
                assert_eq!(found, self.open && self.pending.contains(&key), "postpone {key:?}");
            }
            9 | 10 => {
                let keys = if self.below(4) == 0 { self.bulk() } else { vec![key] };
                for key in keys {
                    let found = q.cancel(&key);
                    assert_eq!(found, self.pending.remove(&key), "cancel {key:?}");
                    if !self.leased.contains(&key) {
                        self.fails.remove(&key);
                    }
                }
            }
            11..=14 => {
                let most = match self.below(6) {
                    0 => 3_000,
                    1 => 100,
                    n => n as usize,
                };
                for _ in 0..most {
                    steps::take();
                    let got = q.try_get();
                    self.bounded("try_get", 8_000);
                    match got {
                        Ok(lease) => self.took(vec![lease]),
                        Err(_) => break,
                    }
                }
            }
            15 => {
                let most = self.below(500) as usize;
                let got = q.try_get_many(most).unwrap_or_default();
                self.took(got);
            }
            16..=19 => {
                let most = match self.below(4) {
                    0 => self.leases.len(),
                    _ => 1 + self.below(20) as usize,
                };
                for _ in 0..most.min(self.leases.len()) {
                    let index = self.below(self.leases.len() as u64) as usize;
                    let lease = self.leases.swap_remove(index);
                    self.end(lease);
                }
            }
            20 => {
                if !self.leases.is_empty() {
                    let lease = self.leases.swap_remove(0);
                    self.detached.push(lease.detach());
                }
            }
            21 => {
                if !self.detached.contains(&key) && !self.detached.is_empty() {
                    assert!(q.done(&key).is_err(), "{key:?} is not detached");
                    let key = self.detached.swap_remove(0);
                    q.done(&key).unwrap();
                    let fails = q.num_requeues(&key);
                    self.left(key, false, fails);
                }
            }
            22..=24 => {
                let by = match self.below(4) {
                    0 => ns(0),
                    1 => ns(1),
                    2 => ns(self.rng.below(60)),
                    _ => ns(1_500),
                };
                self.clock.advance(by);
            }
            25 => {
                if self.back {
                    let now = self.clock.now().get();
                    let by = self.below(80);
                    self.clock.set(Nanos::new(now.saturating_sub(by)));
                }
            }
            26 | 27 => {
                let quota = |tokens: u32, period, burst: u32| {
                    let nz = |n| NonZeroU32::new(n).unwrap();
                    Some(Quota::new(nz(tokens), ns(period)).unwrap().allow_burst(nz(burst)))
                };
                for _ in 0..1 + self.below(8) {
                    let group = self.below(GROUPS) as usize;
                    let conf = Conf {
                        weight: [0, 1, 2, 7][self.below(4) as usize],
                        leases: [0, 1, 3, u32::MAX][self.below(4) as usize],
                        cap: [0, 2, 30, usize::MAX, usize::MAX][self.below(5) as usize],
                        rate: [None, None, quota(1, 3, 1), quota(1, 10, 5), quota(3, 2, 100)]
                            [self.below(5) as usize],
                    };
                    self.confs.lock().unwrap()[group] = conf;
                }
                self.stale = self.below(3) == 0;
                if !self.stale {
                    refresh(q);
                }
            }
            28 => {
                let slow = self.below(50) + 1;
                let max = 1 + self.below(60) as u32;
                let new = Exponential::new(ns(slow)..=ns(slow * 10)).max_keys(NonZeroU32::new(max).unwrap());
                drop(q.update_limiter(|limiter, _| std::mem::replace(limiter, new)));
                self.fails.values_mut().for_each(|fails| *fails = 0);
            }
            29 => {
                if self.below(2) == 0 {
                    q.pause()
                } else {
                    q.resume()
                }
            }
            30 => prio(q, key, delay.subsec_nanos() as i8),
            31 => {
                let before = q.num_requeues(&key);
                let ok = q.add_rate_limited(key).is_ok();
                let after = q.num_requeues(&key);
                assert!(after == before || after == before + 1);
                self.added(key, ok);
                if self.pending.contains(&key) || self.leased.contains(&key) {
                    if self.open {
                        if let Some(known) = self.fails.get(&key) {
                            assert_eq!(before, *known);
                        }
                    }
                    self.fails.insert(key, after);
                }
            }
            _ => self.start(),
        }
        if !self.tasks.is_empty() && self.below(4) == 0 {
            let index = self.below(self.tasks.len() as u64) as usize;
            if self.tasks[index].kind != Kind::Drain {
                drop(self.tasks.swap_remove(index));
            }
        }
        if self.below(2) == 0 {
            self.settle();
        }
        for _ in 0..6 {
            let key = self.a_leased();
            self.verify(key);
        }
        let stats = q.stats();
        assert!(stats.adds >= self.adds);
        self.adds = stats.adds;
        assert_eq!(stats.leased, self.leased.len());
        assert_eq!(
            stats.ready + stats.waiting + stats.dirty + stats.leased_waiting,
            self.pending.len(),
            "{stats:?}"
        );
    }
    fn end_all(&mut self) {
        for key in std::mem::take(&mut self.detached) {
            self.q.done(&key).unwrap();
            let fails = self.q.num_requeues(&key);
            self.left(key, false, fails);
        }
        while let Some(lease) = self.leases.pop() {
            let key = *lease;
            lease.succeed();
            self.left(key, false, 0);
        }
    }
}

fn run<O: Order<Key>>(
    seed: u64,
    builder: QueueBuilder<Key, O>,
    confs: Confs,
    refresh: impl Fn(&Q<O>),
    prio: impl Fn(&Q<O>, Key, i8),
) {
    let mut rng = SplitMix64::new(seed);
    let clock = ManualClock::new();
    let limiter = Exponential::new(ns(5)..=ns(200)).max_keys(NonZeroU32::new(20).unwrap());
    let mut builder = builder.timer(clock.timer()).limiter(limiter);
    if rng.below(2) == 0 {
        builder = builder.capacity([1, 60, 1_200, 2_500][rng.below(4) as usize]);
    }
    if rng.below(2) == 0 {
        builder = builder.strict_backoff();
    }
    if rng.below(2) == 0 {
        builder = builder.metrics(Ignore);
    }
    let q = builder.build();
    let back = rng.below(3) == 0;
    let mut sim = Sim {
        q: &q,
        clock,
        rng,
        confs,
        tasks: Vec::new(),
        leases: Vec::new(),
        detached: Vec::new(),
        leased: HashSet::new(),
        pending: HashSet::new(),
        fails: HashMap::new(),
        open: true,
        stopped: false,
        back,
        adds: 0,
        polls: 0,
        stale: false,
    };
    let steps = 150;
    for step in 0..steps {
        sim.step(&refresh, &prio);
        if step % 40 == 39 {
            q.check().unwrap();
        }
    }
    let free = || sim_free(&sim.confs);
    if sim.rng.clone().below(2) == 0 {
        free();
        refresh(&q);
        sim.stale = false;
        q.resume();
        for _ in 0..130 {
            sim.end_all();
            sim.clock.advance(ns(2_000));
            sim.settle();
            loop {
                let Ok(lease) = q.try_get() else { break };
                sim.took(vec![lease]);
                if sim.leases.len() > 100 {
                    sim.end_all();
                }
            }
            sim.settle();
        }
        sim.end_all();
        sim.settle();
        assert!(sim.pending.is_empty(), "{} keys are lost", sim.pending.len());
        assert!(sim.tasks.iter().all(|task| matches!(task.kind, Kind::Get | Kind::Overdue)));
        q.check().unwrap();
        assert!(q.keys().is_empty());
        return;
    }
    let options = match sim.below(3) {
        0 => DrainOptions::unlimited(),
        1 => DrainOptions::within(ns(3_000)),
        _ => DrainOptions::serve_waiting(ns(2_000)),
    };
    sim.open = false;
    let queue = &q;
    if sim.below(3) == 0 {
        q.shut_down();
    } else {
        sim.spawn(Kind::Drain, None, async move {
            drop(queue.drain(options).await);
            Out::Other
        });
    }
    sim.settle();
    for _ in 0..30 {
        sim.step(&refresh, &prio);
    }
    q.check().unwrap();
    q.resume();
    let mut closed = false;
    for _ in 0..4_000 {
        sim.end_all();
        sim.clock.advance(ns(100));
        sim.settle();
        match q.try_get_many(200) {
            Ok(leases) => sim.took(leases),
            Err(TryGetError::Closed) => {
                closed = true;
                break;
            }
            Err(TryGetError::Empty) => {}
        }
    }
    assert!(closed, "not closed: {:?}", q.stats());
    sim.end_all();
    sim.settle();
    for task in &sim.tasks {
        assert!(matches!(task.kind, Kind::Idle | Kind::Empty), "{:?} pends", task.kind);
    }
    let left = q.stop_now();
    sim.stopped = true;
    let left: HashSet<Key> = left.ready.into_iter().chain(left.waiting).collect();
    assert_eq!(left, sim.pending);
    sim.pending.clear();
    sim.settle();
    q.check().unwrap();
}

fn sim_free(confs: &Confs) {
    confs.lock().unwrap().iter_mut().for_each(|conf| *conf = FREE);
}

fn new_confs() -> Confs {
    Arc::new(Mutex::new(vec![FREE; GROUPS as usize]))
}

fn for_each_seed(run: impl Fn(u64)) {
    for seed in 0..if thorough() { 100 } else { 4 } {
        eprintln!("seed {seed}");
        run(seed);
    }
}

fn fair(seed: u64, rated: bool) {
    let confs = new_confs();
    let of = |confs: &Confs| {
        let confs = confs.clone();
        move |group: &u16| confs.lock().unwrap()[usize::from(*group)]
    };
    let (a, b, c, d) = (of(&confs), of(&confs), of(&confs), of(&confs));
    let mut order = Fair::by_group(|key: &Key| key.0)
        .weight(move |group| a(group).weight)
        .max_leased(move |group| b(group).leases)
        .capacity(move |group| c(group).cap);
    if rated {
        order = order.rate(move |group| d(group).rate);
    }
    run(seed, Queue::builder().order(order), confs, |q| q.refresh_groups(), |_, _, _| {});
}

#[test]
fn no_key_of_many_is_lost_in_groups_whose_limits_change() {
    for_each_seed(|seed| fair(seed, seed % 2 == 0));
}

#[test]
fn no_key_of_many_is_lost_with_priorities() {
    for_each_seed(|seed| {
        let builder = Queue::builder().order(Priority::new());
        run(seed, builder, new_confs(), |_| {}, |q, key, at| _ = q.set_priority(&key, at % 4));
    });
}

#[test]
fn no_key_of_many_is_lost_in_fifo_order() {
    for_each_seed(|seed| run(seed, Queue::builder().order(Fifo), new_confs(), |_| {}, |_, _, _| {}));
}
