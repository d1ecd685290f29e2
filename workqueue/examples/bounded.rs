//! A queue of at most 8 keys: the producer waits for the workers, so the memory is bounded.
//!
//! `cargo run -p flyball-workqueue --example bounded`

use flyball_sync::block_on;
use std::thread;

use flyball_workqueue::{DrainOptions, Lease, Queue};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = Queue::<u32>::builder().capacity(8).build();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut done = 0;
                loop {
                    let batch = block_on(queue.get_many(4)); // up to 4 keys with one call
                    if batch.is_empty() {
                        return done;
                    }
                    done += batch.len();
                    batch.into_iter().for_each(Lease::done);
                }
            })
        })
        .collect();

    let mut most = 0;
    for key in 0..1000 {
        block_on(queue.add_when_room(key))?; // on a task: add_when_room(key).await
        let counts = queue.stats();
        most = most.max(counts.ready + counts.leased);
    }
    let left = queue.blocking_drain(DrainOptions::unlimited());
    assert!(left.ready.is_empty() && left.leased.is_empty() && most <= 8);
    let done: usize = workers.into_iter().map(|worker| worker.join().expect("no worker panics")).sum();
    println!("{done} keys, at most {most} at a time");
    Ok(())
}
