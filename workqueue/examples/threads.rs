//! Uses the queue on threads, without an async runtime: fetches pages, retries failed fetches, and shuts down in an orderly way.
//!
//! `cargo run -p flyball-workqueue --example threads`

use std::thread;
use std::time::Duration;

use crossbeam_channel::unbounded;
use flyball_ratelimit::Exponential;
use flyball_workqueue::{DrainOptions, Queue};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The backoff of a page grows from 1 ms (2 ms, 4 ms, …) up to one second.
    let backoff = Exponential::<&str>::new(Duration::from_millis(1)..=Duration::from_secs(1));
    let queue = Queue::builder().limiter(backoff).build();
    let (finished, results) = unbounded();

    // Four workers. A page is leased to one worker at a time, however often it is added.
    let workers: Vec<_> = (1..=4)
        .map(|worker| {
            let (queue, finished) = (queue.clone(), finished.clone());
            thread::spawn(move || {
                while let Some(page) = queue.blocking_get() {
                    match fetch(&page, page.num_requeues()) {
                        Ok(()) => {
                            println!("worker {worker}: {} after {} failures", *page, page.num_requeues());
                            finished.send(*page).expect("the receiver exists until the workers have ended");
                            page.succeed(); // forgets its failures
                        }
                        Err(why) => {
                            println!("worker {worker}: {}: {why}", *page);
                            page.retry(); // Ready again after its backoff
                        }
                    } // a lease that is dropped, for example by a panic, counts as a failure, too
                }
            })
        })
        .collect();

    // Any thread can add keys at any time. `add` never waits, and returns what it did with the key.
    for page in ["/", "/news", "/about", "/flaky"] {
        println!("main: {page} is {:?}", queue.add(page)?);
    }
    queue.add_after("/later", Duration::from_millis(5))?;
    queue.add_after("/tomorrow", Duration::from_secs(24 * 60 * 60))?;
    let done: Vec<_> = results.iter().take(5).collect();
    assert!(done.contains(&"/later") && done.contains(&"/flaky"));

    // The drain refuses new adds, waits for the backlog and the leases to end, and returns the keys that were not served.
    let left = queue.blocking_drain(DrainOptions::within(Duration::from_secs(10)));
    println!("main: left over: {:?}", left.waiting);
    assert_eq!(left.waiting, ["/tomorrow"]);
    for worker in workers {
        worker.join().expect("workers do not panic");
    }
    Ok(())
}

/// Simulates a fetch: `/flaky` succeeds at the fourth attempt, any other page at the first.
fn fetch(page: &str, failures: u32) -> Result<(), &'static str> {
    if page == "/flaky" && failures < 3 { Err("connection reset") } else { Ok(()) }
}
