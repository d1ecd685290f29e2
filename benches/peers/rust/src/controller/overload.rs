//! Overload: every key is requeued after its reconcile, and there are more keys than the workers can handle. Measures
//! how long a due key waits for its reconcile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc::channel;
use tokio::time::sleep;

use crate::Figures;
use crate::controller::{State, Work, figures, start, system};
use crate::keys::keys;
use crate::options::{Options, Party};

/// The delay after which a reconciled key is due again.
const AGAIN: Duration = Duration::from_secs(1);

struct Overload {
    begin: Instant,
    work: Duration,
    /// For each key, when it became due or will be due, in nanoseconds since `begin`.
    due: Vec<AtomicU64>,
    never: AtomicUsize,
    waits: Mutex<Vec<Duration>>,
    slept: AtomicU64,
}

impl Overload {
    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }
}

/// The due time of a key that has not been reconciled yet.
const AT_FIRST: u64 = 0;

impl Work for Overload {
    async fn reconcile(self: Arc<Self>, state: State) -> Option<Duration> {
        let (start, due) = (self.now(), &self.due[state.number as usize]);
        let since = due.load(Ordering::Relaxed);
        if since == AT_FIRST {
            self.never.fetch_sub(1, Ordering::Relaxed);
        }
        self.waits.lock().push(Duration::from_nanos(start.saturating_sub(since)));
        sleep(self.work).await;
        let end = self.now();
        self.slept.fetch_add(end - start, Ordering::Relaxed);
        due.store(end + AGAIN.as_nanos() as u64, Ordering::Relaxed);
        Some(AGAIN)
    }
}

/// A key that is still due at the end counts as having waited until then, whether or not it was reconciled before.
pub(crate) async fn overload(options: &Options, party: Party, begin: Instant) -> Figures {
    let overload = Arc::new(Overload {
        begin,
        work: Duration::from_millis(options.work),
        due: (0..options.keys).map(|_| AtomicU64::new(AT_FIRST)).collect(),
        never: AtomicUsize::new(options.keys),
        waits: Mutex::new(Vec::new()),
        slept: AtomicU64::new(0),
    });
    let (_sender, events) = channel(1);
    let cpu = system::cpu();
    start(party, keys(options.keys), events, options.sides, overload.clone());
    sleep(Duration::from_secs(options.seconds)).await;
    let (cpu, now) = (system::cpu() - cpu, overload.now());
    let mut waits = std::mem::take(&mut *overload.waits.lock());
    let reconciles = waits.len();
    let due = overload.due.iter().map(|due| due.load(Ordering::Relaxed)).filter(|&due| due < now);
    waits.extend(due.map(|due| Duration::from_nanos(now - due)));
    let mut figures = figures(waits, cpu, reconciles);
    figures.insert("never", overload.never.load(Ordering::Relaxed) as f64);
    figures.insert("slept", overload.slept.load(Ordering::Relaxed) as f64 / 1e6 / reconciles as f64);
    figures.insert("rate", reconciles as f64 / options.seconds as f64);
    figures
}
