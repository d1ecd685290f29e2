//! Runs workers as tokio tasks, with a time limit for the work, delayed runs, and an orderly shutdown.
//!
//! `cargo run -p flyball-workqueue --features tokio --example tokio_workers`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_workqueue::{DrainOptions, Queue, TokioTimer};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let millis = Duration::from_millis;
    let backoff = Exponential::new(millis(1)..=millis(1000));
    // The queue uses this timer for deadlines and retries, and needs no task or thread for them.
    let queue = Queue::builder().timer(TokioTimer::current()).limiter(backoff).build();
    let (finished, mut results) = mpsc::unbounded_channel();
    let hung = Arc::new(AtomicUsize::new(0));

    let mut workers = JoinSet::new();
    for _ in 0..4 {
        let (queue, finished, hung) = (queue.clone(), finished.clone(), hung.clone());
        workers.spawn(async move {
            while let Some(lease) = queue.get().await {
                let key: &str = *lease;
                // The future `work` owns the lease. If the work takes too long, `timeout` drops the future and with it the lease. That counts as a
                // failure, so the key is retried.
                let work = async {
                    if key == "hangs at first" && lease.num_requeues() == 0 {
                        hung.fetch_add(1, Ordering::Relaxed);
                        sleep(millis(60_000)).await;
                    }
                    finished.send((key, lease.num_requeues())).expect("the receiver is open");
                    match key {
                        "again" => lease.requeue_after(millis(5)),
                        _ => lease.succeed(),
                    }
                };
                let _ = timeout(millis(20), work).await;
            }
        });
    }

    for key in ["quick", "hangs at first", "again"] {
        queue.add(key)?;
    }
    let (mut looks, mut seen) = (0, Vec::new());
    while looks < 3 || seen.len() < 2 {
        match results.recv().await.expect("workers run") {
            ("again", _) => looks += 1,
            other => seen.push(other),
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [("hangs at first", 1), ("quick", 0)]);
    assert_eq!(hung.load(Ordering::Relaxed), 1);

    // The drain refuses adds and waits for the leases to end. Each run of "again" requests another run, so "again" is a leftover.
    let left = queue.drain(DrainOptions::unlimited()).await;
    assert!(left.ready.is_empty() && left.leased.is_empty());
    println!("left over: {:?}", left.waiting);
    assert_eq!(left.waiting, ["again"]);
    while let Some(ended) = workers.join_next().await {
        ended?; // `get` returned `None`, so every worker has ended
    }
    Ok(())
}
