//! Prints a scrape in the format of a Prometheus endpoint, and passes the queue's events to `tracing`. There is one worker; one key fails, and a
//! different key waits. Run it with `cargo run -p flyball-ops --features prometheus-client,tracing --example metrics`.

use flyball_sync::block_on;
use std::error::Error;
use std::thread;
use std::time::Duration;

use flyball_ops::{PrometheusQueues, TracingQueue};
use flyball_ratelimit::Exponential;
use flyball_workqueue::Queue;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

fn main() -> Result<(), Box<dyn Error>> {
    let queues = PrometheusQueues::with_buckets([0.001, 0.01, 0.1, 1.0])?;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(queues.clone()));

    let backoff = Exponential::new(Duration::from_millis(1)..=Duration::from_secs(1));
    let queue = Queue::builder()
        .limiter(backoff)
        .metrics(queues.queue("pods"))
        .metrics(TracingQueue::new("pods"))
        .build();
    _ = queue.add_many(["web-0", "web-1", "flaky"]);
    queue.add_after("tomorrow", Duration::from_secs(86_400))?;

    let worker = thread::spawn({
        let queue = queue.clone();
        move || {
            while let Some(lease) = queue.blocking_get() {
                if *lease == "flaky" && lease.num_requeues() < 2 { lease.retry() } else { lease.succeed() }
            }
        }
    });
    // This loop also waits for the retries, because a key that fails after the shutdown would be left in the queue.
    loop {
        block_on(queue.wait_idle());
        let counts = queue.stats();
        if (counts.ready, counts.leased, counts.waiting) == (0, 0, 1) {
            break;
        }
        thread::yield_now();
    }

    let mut scrape = String::new();
    encode(&mut scrape, &registry)?;
    println!("{scrape}");
    assert!(scrape.contains("workqueue_failures_total{name=\"pods\"} 2\n"));
    assert!(scrape.contains("workqueue_waiting{name=\"pods\"} 1\n"));

    queue.shut_down();
    worker.join().expect("the worker does not panic");
    Ok(())
}
