//! The time until listeners have received changes of objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use peers_rust::draws::Draws;
use tokio::sync::Notify;
use tokio::sync::mpsc::channel;
use tokio::time::sleep;

use crate::Figures;
use crate::clock::per_op;
use crate::controller::State;
use crate::controller::changes::{Changes, FIRST, Pace, ROOM};
use crate::informer::listeners::{Handler, informer, listen, start};
use crate::keys::keys;
use crate::memory::Memory;
use crate::options::{Options, Party};
use crate::system;

/// A listener that records when it has received the last state of each object. It may receive a state twice, and may
/// miss intermediate states.
pub(super) struct Last {
    /// For each object, the version of its last state.
    last: Arc<Vec<u32>>,
    known: Vec<u32>,
    /// The number of objects of which the listener has received no state yet.
    listed: usize,
    /// The number of changing objects of which the listener has not received the last state yet.
    left: usize,
    progress: Arc<Progress>,
}

/// The progress of all listeners.
#[derive(Default)]
pub(super) struct Progress {
    /// The number of listeners that have received all objects.
    listed: AtomicUsize,
    ended: AtomicUsize,
    changed: Notify,
    /// The number of delivered changes, added up over all listeners.
    times: AtomicUsize,
}

impl Progress {
    pub(super) async fn listed(&self, listeners: usize) {
        self.until(&self.listed, listeners).await;
    }

    pub(super) async fn ended(&self, listeners: usize) {
        self.until(&self.ended, listeners).await;
    }

    async fn until(&self, count: &AtomicUsize, listeners: usize) {
        while count.load(Ordering::SeqCst) < listeners {
            self.changed.notified().await;
        }
    }
}

impl Last {
    /// Builds a listener that finishes when each object has reached the given version.
    pub(super) fn new(last: &Arc<Vec<u32>>, progress: &Arc<Progress>) -> Self {
        let left = last.iter().filter(|&&version| version >= FIRST).count();
        let known = vec![0; last.len()];
        Self { listed: last.len(), left, known, last: last.clone(), progress: progress.clone() }
    }
}

impl Handler for Last {
    async fn handle(&mut self, State { number, version }: State) {
        let known = &mut self.known[number as usize];
        if *known == 0 {
            self.listed -= 1;
            if self.listed == 0 {
                self.progress.listed.fetch_add(1, Ordering::SeqCst);
                self.progress.changed.notify_one();
            }
        }
        if version < FIRST {
            *known = (*known).max(version);
            return;
        }
        self.progress.times.fetch_add(1, Ordering::Relaxed);
        if version > *known {
            *known = version;
            if version == self.last[number as usize] {
                self.left -= 1;
                if self.left == 0 {
                    self.progress.ended.fetch_add(1, Ordering::SeqCst);
                    self.progress.changed.notify_one();
                }
            }
        }
    }
}

/// Changes random objects as fast as the watch accepts the changes, and waits until all listeners have received the last state of each object.
pub(super) async fn events(options: &Options, party: Party) -> Figures {
    let drawn = Draws::choices(1, options.adds, options.keys);
    let mut last = vec![1; options.keys];
    for (&number, version) in drawn.iter().zip(FIRST..) {
        last[number as usize] = version;
    }
    let (last, progress) = (Arc::new(last), Arc::new(Progress::default()));
    let (sender, events) = channel(ROOM);
    let handlers: Vec<_> = (0..options.sides).map(|_| Last::new(&last, &progress)).collect();
    start(party, keys(options.keys), events, handlers);
    progress.listed(options.sides).await;
    let (begin, cpu) = (Instant::now(), system::cpu());
    for (&number, version) in drawn.iter().zip(FIRST..) {
        sender.send(State { number, version }).await.expect("it listens");
    }
    progress.ended(options.sides).await;
    let (took, cpu) = (begin.elapsed(), system::cpu() - cpu);
    let times = progress.times.load(Ordering::Relaxed) as f64;
    [
        ("ns", per_op(took, options.adds)),
        ("cpu", per_op(cpu, options.adds)),
        ("told", times / options.adds as f64 / options.sides as f64),
    ]
    .into()
}

/// Either a listener that measures its latency, or a slow one.
enum Beside {
    Quick(Arc<Changes>),
    Slow(Duration),
}

impl Handler for Beside {
    async fn handle(&mut self, state: State) {
        match self {
            Self::Quick(changes) => changes.begins(state),
            // Objects of the initial list are not measured.
            Self::Slow(work) if state.version >= FIRST => sleep(*work).await,
            Self::Slow(_) => {}
        }
    }
}

/// Measures the latency of a listener while another listener is too slow to handle every change, and the memory that the slow listener costs.
pub(super) async fn slow_handler(options: &Options, party: Party, begin: Instant) -> Figures {
    let mut quick = options.clone();
    quick.work = 0;
    let pace = Pace::new(&quick);
    let (changes, (sender, events)) = (pace.changes(&quick, begin), pace.channel());
    let handlers = [Beside::Quick(changes.clone()), Beside::Slow(Duration::from_millis(options.work))];
    start(party, keys(options.keys), events, handlers);
    changes.listed().await;
    let (memory, cpu) = (Memory::watch(), system::cpu());
    pace.send(&changes, &sender).await;
    let mut figures = pace.end(&changes, cpu).await;
    memory.end(&mut figures);
    figures
}

/// A listener that counts the objects it receives.
struct Counts {
    left: usize,
    all: Arc<Notify>,
}

impl Handler for Counts {
    async fn handle(&mut self, _: State) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.all.notify_one();
        }
    }
}

/// Listeners join one after the other while objects change. Measures the time until each of them has all objects, and the latency of a listener that
/// joined before them.
pub(super) async fn late_join(options: &Options, begin: Instant) -> Figures {
    const JOINS: usize = 5;
    let pace = Pace::new(options);
    let (changes, (sender, events)) = (pace.changes(options, begin), pace.channel());
    let informer = informer(&keys(options.keys), events);
    tokio::spawn(listen(informer.subscribe(), Beside::Quick(changes.clone())));
    changes.listed().await;
    let (pause, objects) = (Duration::from_secs(options.seconds) / (JOINS as u32 + 1), options.keys);
    let joining = tokio::spawn(async move {
        let mut joined = Vec::new();
        for _ in 0..JOINS {
            sleep(pause).await;
            let (all, start) = (Arc::new(Notify::new()), Instant::now());
            let late = Counts { left: objects, all: all.clone() };
            let listening = tokio::spawn(listen(informer.subscribe(), late));
            all.notified().await;
            joined.push(start.elapsed());
            listening.abort();
        }
        joined
    });
    let cpu = system::cpu();
    pace.send(&changes, &sender).await;
    let mut figures = pace.end(&changes, cpu).await;
    let mut joined = joining.await.expect("they join");
    joined.sort_unstable();
    figures.insert("joined", joined[JOINS / 2].as_secs_f64() * 1e3);
    figures
}
