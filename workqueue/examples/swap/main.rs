//! One generic worker and one generic event handler run over three queues: `Queue`, a port of client-go's queue, and a tokio channel. A fourth part
//! uses `Queue` in a framework that expects client-go's interface.
//!
//! `cargo run -p flyball-workqueue --features tokio --example swap`

mod channel;
mod client_go;
mod framework;
mod traits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_workqueue::{Queue, TokioTimer};

use crate::traits::{AsyncGet, BlockingGet, KeyQueue};

type Failed = Box<dyn std::error::Error>;
const MILLI: Duration = Duration::from_millis(1);

/// The work of this program. Each of the 8 keys runs three times: the first run fails, the second succeeds and requests a delayed run, and the third
/// is the last.
#[derive(Default)]
struct Job {
    runs: [AtomicU32; 8],
    done: AtomicU32,
}

impl Job {
    /// Runs `key`. The first run fails; later runs return the delay until the next run, or `None` after the last one.
    fn run(&self, key: u32) -> Result<Option<Duration>, Failed> {
        match self.runs[key as usize].fetch_add(1, Ordering::Relaxed) {
            0 => Err("connection reset".into()),
            1 => Ok(Some(MILLI)),
            _ => {
                self.done.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed) == 8
    }

    fn check(&self) {
        let runs: Vec<_> = self.runs.iter().map(|runs| runs.load(Ordering::Relaxed)).collect();
        assert_eq!(runs, [3; 8], "a key did not run three times: a failure, a delayed run, the last run");
    }
}

/// The event handler. It works with any queue.
fn on_events(queue: &impl KeyQueue) {
    for key in 0..8 {
        queue.add(key);
    }
}

/// The worker thread. It works with any queue that has a blocking `get`.
fn work(queue: &impl BlockingGet, job: &Job, close: impl Fn()) {
    while let Some(leased) = queue.blocking_get() {
        finish(queue, leased, job);
        if job.is_done() {
            close();
        }
    }
}

/// The worker task. It works with any queue that has an async `get`.
async fn work_on_task<Q: AsyncGet>(queue: Arc<Q>, job: Arc<Job>, close: impl Fn(&Q)) {
    while let Some(leased) = queue.get().await {
        finish(&*queue, leased, &job);
        if job.is_done() {
            close(&queue);
        }
    }
}

/// Runs the job, and ends the lease. Both workers call it.
fn finish<Q: KeyQueue>(queue: &Q, leased: Q::Leased, job: &Job) {
    let key = queue.key(&leased);
    match job.run(key) {
        Ok(again) => {
            // The key is still leased, so it becomes Ready once the delay is over and the lease has ended.
            if let Some(delay) = again {
                queue.add_after(key, delay);
            }
            queue.succeed(leased);
        }
        Err(_) => queue.retry(leased),
    }
}

fn on_threads(queue: &(impl BlockingGet + Sync), close: impl Fn() + Sync) {
    let job = Job::default();
    on_events(queue);
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| work(queue, &job, &close)))));
    job.check();
}

async fn on_tasks<Q>(queue: Q, close: impl Fn(&Q) + Copy + Send + 'static)
where
    Q: AsyncGet<Leased: Send> + Send + Sync + 'static,
{
    let (queue, job) = (Arc::new(queue), Arc::new(Job::default()));
    on_events(&*queue);
    let workers = [(); 4].map(|()| tokio::spawn(work_on_task(queue.clone(), job.clone(), close)));
    for worker in workers {
        worker.await.expect("workers do not panic");
    }
    job.check();
}

#[tokio::main]
async fn main() {
    let backoff = || Exponential::new(MILLI..=1000 * MILLI);

    let ours = Queue::builder().limiter(backoff()).build();
    on_threads(&ours, || ours.shut_down());
    println!("ours, on threads");

    let theirs = client_go::RateLimiting::default();
    on_threads(&theirs, || theirs.shut_down());
    println!("a queue in client-go's shape, on threads");

    on_tasks(Queue::builder().timer(TokioTimer::current()).limiter(backoff()).build(), Queue::shut_down)
        .await;
    println!("ours, on tasks");

    on_tasks(channel::Channel::new(), channel::Channel::close).await;
    println!("a channel, on tasks");

    let ours = Queue::builder().limiter(backoff()).build();
    framework::run(&ours);
    println!("ours, in a framework of client-go's shape");
}
