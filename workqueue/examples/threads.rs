//! The queue alone, on threads, without any runtime: fetch pages, retry those that fail, stop in order.
//!
//! `cargo run -p flyball-workqueue --example threads`

use std::thread;
use std::time::Duration;

use crossbeam_channel::unbounded;
use flyball_ratelimit::Exponential;
use flyball_workqueue::Queue;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A page that fails comes back after 1 ms, 2 ms, 4 ms, … and at the latest after a second.
    let backoff = Exponential::<&str>::new(Duration::from_millis(1)..=Duration::from_secs(1));
    let queue = Queue::builder().limiter(backoff).build();
    let (finished, results) = unbounded();

    // Four workers. A page is never with two of them at once, however often it is added.
    let workers: Vec<_> = (1..=4)
        .map(|worker| {
            let (queue, finished) = (queue.clone(), finished.clone());
            thread::spawn(move || {
                while let Some(page) = queue.blocking_get() {
                    match fetch(&page, page.num_requeues()) {
                        Ok(()) => {
                            println!("worker {worker}: {} after {} failures", *page, page.num_requeues());
                            finished.send(*page).expect("main listens until the workers are gone");
                            page.succeed(); // its failures are forgotten
                        }
                        Err(why) => {
                            println!("worker {worker}: {}: {why}", *page);
                            page.retry(); // comes back, later each time
                        }
                    } // without a word, by a panic say, it would be a retry as well
                }
            })
        })
        .collect();

    // Anybody may add, from any thread, at any time. It never waits, and says what happened.
    for page in ["/", "/news", "/about", "/flaky"] {
        println!("main: {page} is {:?}", queue.add(page)?);
    }
    queue.add_after("/later", Duration::from_millis(5))?;
    queue.add_after("/tomorrow", Duration::from_secs(24 * 60 * 60))?;
    let done: Vec<_> = results.iter().take(5).collect();
    assert!(done.contains(&"/later") && done.contains(&"/flaky"));

    // Refuses new adds and lets leased keys finish. Keys that were not served are returned.
    let left = queue.blocking_drain_timeout(Duration::from_secs(10));
    println!("main: left over: {:?}", left.waiting);
    assert_eq!(left.waiting, ["/tomorrow"]);
    for worker in workers {
        worker.join().expect("workers do not panic");
    }
    Ok(())
}

/// Stands for real work: one page needs four attempts.
fn fetch(page: &str, failures: u32) -> Result<(), &'static str> {
    if page == "/flaky" && failures < 3 { Err("connection reset") } else { Ok(()) }
}
