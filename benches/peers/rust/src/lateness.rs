//! One consumer, and deadlines that are spread over two seconds. Measures the time from deadline to receipt.

use std::collections::HashMap;
use std::time::Duration;

use flyball_sync::TokioTimer;
use flyball_workqueue::{Queue, Timer};
use foldhash::fast::RandomState;
use futures::StreamExt;
use kube_runtime::scheduler::{ScheduleRequest, scheduler};
use peers_rust::draws::Draws;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::Figures;
use crate::clock::percentiles;
use crate::delaying::{ByKey, Delaying, Ours};
use crate::keys::{Key, keys};
use crate::options::{Options, Party};

const LEAD: Duration = Duration::from_secs(1);
const SPREAD: Duration = Duration::from_secs(2);

pub(crate) fn lateness(options: &Options, party: Party) -> Figures {
    let keys = keys(options.keys);
    let mut draws = Draws(3);
    let deadlines = keys.iter().map(|key| (key.clone(), LEAD + draw(&mut draws))).collect();
    let mut plan = Plan { keys, deadlines, start: Instant::now(), late: Vec::with_capacity(options.keys) };
    match party {
        Party::OursMultiThread => {
            let runtime = Builder::new_multi_thread().enable_time().build().expect("a runtime");
            // The consumer is a spawned task, because `block_on` would run the future on this thread.
            plan = runtime.block_on(runtime.spawn(plan.on_task())).expect("the consumer panicked");
        }
        Party::OursBlocking => plan.on_thread(),
        Party::Ours => plan = single_thread().block_on(plan.on_task()),
        Party::DelayQueue => single_thread().block_on(plan.on_delay_queue()),
        Party::Kube => single_thread().block_on(plan.on_kube()),
        _ => unreachable!("this party has no deadlines"),
    }
    assert_eq!(plan.late.len(), options.keys);
    percentiles(plan.late)
}

fn draw(draws: &mut Draws) -> Duration {
    Duration::from_nanos(draws.next(SPREAD.as_nanos() as usize) as u64)
}

fn single_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

struct Plan {
    keys: Vec<Key>,
    deadlines: HashMap<Key, Duration, RandomState>,
    start: Instant,
    late: Vec<Duration>,
}

impl Plan {
    /// Passes every key and the time until its deadline to `add`.
    fn add_all(&mut self, mut add: impl FnMut(Key, Duration)) {
        self.start = Instant::now();
        for key in &self.keys {
            add(key.clone(), self.deadlines[key].saturating_sub(self.start.elapsed()));
        }
        assert!(self.start.elapsed() < LEAD, "the adds took longer than the time until the first deadline");
    }

    fn received(&mut self, key: &Key) {
        let now = self.start.elapsed();
        let deadline = self.deadlines[key];
        assert!(now >= deadline, "never early");
        self.late.push(now - deadline);
    }

    async fn on_task(mut self) -> Self {
        let queue = Queue::builder().timer(TokioTimer::current()).build();
        self.add_all(|key, delay| add(&queue, key, delay));
        for _ in 0..self.keys.len() {
            let lease = queue.get().await.expect("open");
            self.received(lease.key());
            lease.done();
        }
        self
    }

    fn on_thread(&mut self) {
        let Ours(queue) = Ours::new();
        self.add_all(|key, delay| add(&queue, key, delay));
        for _ in 0..self.keys.len() {
            let lease = queue.blocking_get().expect("open");
            self.received(lease.key());
            lease.done();
        }
    }

    async fn on_delay_queue(&mut self) {
        let mut queue = ByKey::new();
        self.add_all(|key, delay| queue.add_after(key, delay));
        while let Some(expired) = queue.delays.next().await {
            let key = expired.into_inner();
            queue.places.remove(&key);
            self.received(&key);
        }
    }

    async fn on_kube(&mut self) {
        let (sender, requests) = futures::channel::mpsc::unbounded();
        self.add_all(|message, delay| {
            let run_at = Instant::now() + delay;
            sender.unbounded_send(ScheduleRequest { message, run_at }).expect("it listens");
        });
        let mut scheduled = scheduler(requests);
        for _ in 0..self.keys.len() {
            let key = scheduled.next().await.expect("open");
            self.received(&key);
        }
    }
}

fn add<T: Timer>(
    queue: &Queue<Key, flyball_workqueue::Fifo, flyball_workqueue::NoLimiter, T>,
    key: Key,
    delay: Duration,
) {
    queue.add_after(key, delay).expect("open");
}
