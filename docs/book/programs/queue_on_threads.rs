//! Two threads work on keys of one queue. A key that fails is retried later.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_workqueue::{DrainOptions, Queue};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A key that fails waits 1 ms, then 2 ms, then 4 ms, up to a second.
    let backoff = Exponential::new(Duration::from_millis(1)..=Duration::from_secs(1));
    let queue = Queue::builder().limiter(backoff).build();
    for key in ["cat.png", "dog.png", "cat.png"] {
        println!("add {key}: {:?}", queue.add(key)?);
    }

    let (finished, results) = mpsc::channel();
    for _ in 0..2 {
        let (queue, finished) = (queue.clone(), finished.clone());
        thread::spawn(move || {
            while let Some(lease) = queue.blocking_get() {
                let failures = lease.num_requeues();
                match resize(*lease, failures) {
                    Ok(()) => {
                        finished.send((*lease, failures)).expect("the main thread reads the results");
                        lease.succeed();
                    }
                    Err(_) => lease.retry(),
                }
            }
        });
    }
    drop(finished);

    let left = queue.blocking_drain(DrainOptions::serve_waiting(Duration::from_secs(10)));
    let mut results: Vec<_> = results.iter().collect();
    results.sort();
    println!("resized (file, failures): {results:?}");
    println!("not finished: {}", left.ready.len() + left.waiting.len() + left.leased.len());
    Ok(())
}

fn resize(file: &str, failures: u32) -> Result<(), &'static str> {
    if file == "dog.png" && failures < 2 { Err("the disk is busy") } else { Ok(()) }
}
