//! Reports a lease as soon as it is overdue, without polling, so that a worker that hangs is detected.
//!
//! `cargo run -p flyball-workqueue --features tokio --example stuck_workers`

use std::time::Duration;

use flyball_workqueue::{DrainOptions, Queue, TokioTimer};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let queue = Queue::<&str>::builder().timer(TokioTimer::current()).build();
    let watcher = tokio::spawn({
        let queue = queue.clone();
        async move {
            while let Some(overdue) = queue.next_overdue(Duration::from_millis(20)).await {
                println!("{} has been running for {:?}", overdue.key, overdue.age);
            }
        }
    });
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            while let Some(lease) = queue.get().await {
                let hangs = lease.starts_with("slow");
                tokio::time::sleep(Duration::from_millis(if hangs { 100 } else { 1 })).await;
                lease.done();
            }
        }
    });
    _ = queue.add_many(["quick", "slow", "quick too"]);
    queue.drain(DrainOptions::unlimited()).await;
    worker.await.expect("the worker ends with the queue");
    watcher.await.expect("the watcher ends with the queue");
}
