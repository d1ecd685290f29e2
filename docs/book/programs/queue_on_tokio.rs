//! Two tasks work on keys of one queue. A timeout drops work that takes too long, and the queue retries its key.

use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_workqueue::{DrainOptions, Queue, TokioTimer};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backoff = Exponential::<&str>::new(Duration::from_millis(1)..=Duration::from_secs(1));
    let queue = Queue::builder().timer(TokioTimer::current()).limiter(backoff).build();

    let mut workers = JoinSet::new();
    for _ in 0..2 {
        let queue = queue.clone();
        workers.spawn(async move {
            let mut sent = Vec::new();
            while let Some(lease) = queue.get().await {
                let (user, failures) = (*lease, lease.num_requeues());
                let work = async {
                    send_mail(user, failures).await;
                    lease.succeed();
                };
                // A timeout drops `work` and with it the lease. A dropped lease counts as a failure of its key.
                if timeout(Duration::from_millis(50), work).await.is_ok() {
                    sent.push((user, failures));
                }
            }
            sent
        });
    }

    let added = queue.add_many(["ann", "bob", "ann"]);
    println!("new: {}, merged: {}", added.new, added.merged);
    queue.add_after("cleo", Duration::from_millis(5))?;
    let left = queue.drain(DrainOptions::serve_waiting(Duration::from_secs(10))).await;
    let mut sent = workers.join_all().await.concat();
    sent.sort();
    println!("sent (user, failures): {sent:?}");
    println!("not finished: {:?}", left.waiting);
    Ok(())
}

async fn send_mail(user: &str, failures: u32) {
    let slow = user == "bob" && failures == 0;
    sleep(Duration::from_millis(if slow { 60_000 } else { 1 })).await;
}
