//! The time from a change of an object to the start of a reconcile that sees this change or a later one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use peers_rust::draws::Draws;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

use crate::Figures;
use crate::clock::per_op;
use crate::controller::{State, Work, figures, start, system};
use crate::keys::keys;
use crate::options::{Options, Party};

/// The capacity of a watch channel: client-go's `watch.DefaultChanSize`.
pub(crate) const ROOM: usize = 100;

/// The version of the first change; each later change has the next version.
pub(crate) const FIRST: u32 = 2;

pub(crate) struct Changes {
    begin: Instant,
    /// How long a reconcile takes.
    work: Duration,
    /// For each change, the version that its object had before.
    before: Vec<u32>,
    /// For each change, when it was sent, in nanoseconds since `begin`.
    sent: Vec<AtomicU64>,
    /// For each object, the version that its last reconcile saw; 0 before the first reconcile.
    seen: Vec<AtomicU32>,
    listed: AtomicUsize,
    /// The number of changes that a reconcile has seen.
    covered: AtomicUsize,
    /// The number of changes that must be seen before `reached` is notified.
    awaited: AtomicUsize,
    reached: Notify,
    waits: Mutex<Vec<Duration>>,
    slept: AtomicU64,
}

impl Changes {
    /// `drawn` contains, for each change in order, the number of the object that changes.
    fn new(objects: usize, drawn: &[u32], work: Duration, begin: Instant) -> Arc<Self> {
        let mut last = vec![1; objects];
        let before = drawn
            .iter()
            .zip(FIRST..)
            .map(|(&number, version)| std::mem::replace(&mut last[number as usize], version));
        Arc::new(Self {
            begin,
            work,
            before: before.collect(),
            sent: drawn.iter().map(|_| AtomicU64::new(0)).collect(),
            seen: (0..objects).map(|_| AtomicU32::new(0)).collect(),
            listed: AtomicUsize::new(0),
            covered: AtomicUsize::new(0),
            awaited: AtomicUsize::new(usize::MAX),
            reached: Notify::new(),
            waits: Mutex::new(Vec::with_capacity(drawn.len())),
            slept: AtomicU64::new(0),
        })
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Called at the start of a reconcile. Records the time since the oldest change of this object that no earlier reconcile has seen.
    /// Reconciles of one object never overlap.
    pub(crate) fn begins(&self, state: State) {
        let seen = self.seen[state.number as usize].swap(state.version, Ordering::Relaxed);
        if seen == 0 && self.listed.fetch_add(1, Ordering::Relaxed) + 1 == self.seen.len() {
            self.reached.notify_one();
        }
        let (mut version, mut oldest, mut covered) = (state.version, None, 0);
        while version > seen.max(1) {
            let change = (version - FIRST) as usize;
            (oldest, version) = (Some(change), self.before[change]);
            covered += 1;
        }
        if let Some(change) = oldest {
            let wait = self.now() - self.sent[change].load(Ordering::Relaxed);
            self.waits.lock().push(Duration::from_nanos(wait));
            let before = self.covered.fetch_add(covered, Ordering::SeqCst);
            let awaited = self.awaited.load(Ordering::SeqCst);
            if before < awaited && awaited <= before + covered {
                self.reached.notify_one();
            }
        }
    }

    /// Waits until all objects of the list have been seen.
    pub(crate) async fn listed(&self) {
        self.reached.notified().await;
    }

    /// Waits until the given number of changes have been seen.
    async fn seen(&self, changes: usize) {
        self.awaited.store(changes, Ordering::SeqCst);
        while self.covered.load(Ordering::SeqCst) < changes {
            self.reached.notified().await;
        }
    }
}

impl Work for Changes {
    async fn reconcile(self: Arc<Self>, state: State) -> Option<Duration> {
        self.begins(state);
        // Reconciles of the initial list are not measured.
        if !self.work.is_zero() && state.version >= FIRST {
            let start = self.now();
            sleep(self.work).await;
            self.slept.fetch_add(self.now() - start, Ordering::Relaxed);
        }
        None
    }
}

/// All objects change. As soon as reconciles have seen all of these changes, all objects change again. So no two changes are coalesced, and
/// every implementation runs the same number of reconciles.
pub(crate) async fn throughput(options: &Options, party: Party, begin: Instant) -> Figures {
    let objects = options.keys;
    let rounds = options.adds / objects;
    let drawn: Vec<u32> = (0..rounds).flat_map(|_| 0..objects as u32).collect();
    let changes = Changes::new(objects, &drawn, Duration::ZERO, begin);
    let (sender, events) = channel(ROOM);
    start(party, keys(objects), events, options.sides, changes.clone());
    changes.listed().await;
    let (start, cpu) = (Instant::now(), system::cpu());
    for (change, &number) in drawn.iter().enumerate() {
        changes.sent[change].store(changes.now(), Ordering::Relaxed);
        sender.send(State { number, version: change as u32 + FIRST }).await.expect("it listens");
        if (change + 1) % objects == 0 {
            changes.seen(change + 1).await;
        }
    }
    let (took, cpu) = (start.elapsed(), system::cpu() - cpu);
    let waits = std::mem::take(&mut *changes.waits.lock());
    assert_eq!(waits.len(), drawn.len(), "two changes were coalesced");
    let mut figures = figures(waits, cpu, drawn.len());
    figures.insert("ns", per_op(took, drawn.len()));
    figures
}

/// Changes of objects drawn at random, at random moments, at a given average rate. The sender checks every millisecond
/// which changes are due.
pub(crate) struct Pace {
    drawn: Vec<u32>,
    /// For each change, when it is due, in microseconds.
    due: Vec<u32>,
}

impl Pace {
    pub(crate) fn new(options: &Options) -> Self {
        let count = options.rate * options.seconds as usize;
        let window = Duration::from_secs(options.seconds).as_micros() as usize;
        let mut due = Draws::choices(2, count, window);
        due.sort_unstable();
        Self { drawn: Draws::choices(1, count, options.keys), due }
    }

    pub(crate) fn changes(&self, options: &Options, begin: Instant) -> Arc<Changes> {
        Changes::new(options.keys, &self.drawn, Duration::from_millis(options.work), begin)
    }

    /// The capacity is the number of changes, so the sender never waits.
    pub(crate) fn channel(&self) -> (Sender<State>, Receiver<State>) {
        channel(self.drawn.len())
    }

    pub(crate) async fn send(&self, changes: &Changes, sender: &Sender<State>) {
        let (start, mut change) = (Instant::now(), 0);
        while change < self.due.len() {
            let (passed, now) = (start.elapsed().as_micros(), changes.now());
            while change < self.due.len() && u128::from(self.due[change]) <= passed {
                changes.sent[change].store(now, Ordering::Relaxed);
                let state = State { number: self.drawn[change], version: change as u32 + FIRST };
                sender.send(state).await.expect("it listens");
                change += 1;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until all changes have been seen, for 5 s at most. A change that no reconcile has seen counts as having
    /// waited until the end of this time.
    pub(crate) async fn end(&self, changes: &Changes, cpu: Duration) -> Figures {
        let count = self.drawn.len();
        let _ = timeout(Duration::from_secs(5), changes.seen(count)).await;
        let (cpu, now) = (system::cpu() - cpu, changes.now());
        let mut waits = std::mem::take(&mut *changes.waits.lock());
        let seen = waits.len();
        let never = (0..count).filter(|&change| {
            let last = changes.seen[self.drawn[change] as usize].load(Ordering::Relaxed);
            last < change as u32 + FIRST && changes.before[change] <= last
        });
        let sent = |change: usize| changes.sent[change].load(Ordering::Relaxed);
        waits.extend(never.map(|change| Duration::from_nanos(now - sent(change))));
        let mut figures = figures(waits, cpu, seen);
        if !changes.work.is_zero() {
            // Reconciles that are still asleep are not included.
            figures.insert("slept", changes.slept.load(Ordering::Relaxed) as f64 / 1e6 / seen as f64);
        }
        figures
    }
}

/// Changes at a fixed rate; each reconcile sleeps for the configured time.
pub(crate) async fn paced(options: &Options, party: Party, begin: Instant) -> Figures {
    let pace = Pace::new(options);
    let (changes, (sender, events)) = (pace.changes(options, begin), pace.channel());
    start(party, keys(options.keys), events, options.sides, changes.clone());
    changes.listed().await;
    let cpu = system::cpu();
    pace.send(&changes, &sender).await;
    pace.end(&changes, cpu).await
}
