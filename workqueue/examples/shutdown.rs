//! Ways to come to an end: one worker is sent home, what waits is served for a while longer, the rest comes back by name.
//!
//! `cargo run -p flyball-workqueue --example shutdown`

use std::thread;
use std::time::Duration;

use flyball_workqueue::{AddErrorKind, Queue};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = Queue::<&str>::builder().with_delays().build();
    let getters = [queue.consumer(), queue.consumer()];
    let workers = getters.clone().map(|getter| {
        thread::spawn(move || {
            let mut served = 0;
            while let Some(lease) = getter.blocking_get() {
                served += 1;
                lease.done();
            }
            served
        })
    });
    queue.add_many(["a", "b", "c"]);

    // One worker less; the queue and the other worker go on.
    let [first, second] = workers;
    getters[0].stop();
    let by_first = first.join().expect("workers do not panic");
    queue.blocking_wait_idle_timeout(Duration::from_secs(10));

    // No more adds. What waits for less than ten seconds is still served in its time, and the call ends with it.
    queue.add_after("soon", Duration::from_millis(1))?;
    queue.add_after("tomorrow", Duration::from_secs(24 * 60 * 60))?;
    let left = queue.blocking_drain_all_timeout(Duration::from_secs(10));
    assert_eq!((left.ready.len(), left.leased.len(), left.waiting), (0, 0, vec!["tomorrow"]));
    let by_second = second.join().expect("workers do not panic");
    assert_eq!(by_first + by_second, 4);
    println!("served {by_first} and {by_second}");

    // Now even that is taken out; put it where the next process finds it.
    assert_eq!(queue.add("late").unwrap_err().kind(), AddErrorKind::ShutDown);
    println!("for the next process: {:?}", queue.stop_now().waiting);
    Ok(())
}
