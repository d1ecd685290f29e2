//! Shows how to stop one worker thread, how to serve delayed keys for a limited time during shutdown, and how to get the keys that are left.
//!
//! `cargo run -p flyball-workqueue --example shutdown`

use flyball_sync::block_on_timeout;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flyball_workqueue::{AddErrorKind, DrainOptions, GetTimeoutError, Queue};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = Queue::<&str>::new();
    let stops = [Arc::<AtomicBool>::default(), Arc::default()];
    let workers = stops.clone().map(|stop| {
        let queue = queue.clone();
        thread::spawn(move || {
            let mut served = 0;
            while !stop.load(Ordering::Relaxed) {
                match queue.blocking_get_timeout(Duration::from_millis(50)) {
                    Ok(lease) => {
                        served += 1;
                        lease.done();
                    }
                    Err(GetTimeoutError::Closed) => break,
                    Err(_) => {} // look at the flag again
                }
            }
            served
        })
    });
    _ = queue.add_many(["a", "b", "c"]);

    // Stops one worker. The queue and the other worker keep running. A task needs no flag: it drops its `get`, for example in a `select!`.
    let [first, second] = workers;
    stops[0].store(true, Ordering::Relaxed);
    let by_first = first.join().expect("workers do not panic");
    let _ = block_on_timeout(queue.wait_idle(), Duration::from_secs(10));

    // The drain refuses adds. Keys that fall due within the next ten seconds are still served at their deadlines, and the call returns after the last
    // of them.
    queue.add_after("soon", Duration::from_millis(1))?;
    queue.add_after("tomorrow", Duration::from_secs(24 * 60 * 60))?;
    let left = queue.blocking_drain(DrainOptions::serve_waiting(Duration::from_secs(10)));
    assert_eq!((left.ready.len(), left.leased.len(), left.waiting), (0, 0, vec!["tomorrow"]));
    let by_second = second.join().expect("workers do not panic");
    assert_eq!(by_first + by_second, 4);
    println!("served {by_first} and {by_second}");

    // Removes the keys that are still in the queue. A real program stores them for the next process.
    assert_eq!(queue.add("late").unwrap_err().kind(), AddErrorKind::ShutDown);
    println!("for the next process: {:?}", queue.stop_now().waiting);
    Ok(())
}
