//! Three queues with the same keys, each stopped by a different method.

use std::time::Duration;

use flyball_workqueue::{DrainOptions, Leftovers, ManualClock, ManualTimer, Queue};

type Keys =
    Queue<&'static str, flyball_workqueue::Fifo, flyball_workqueue::NoLimiter, ManualTimer>;

/// Returns a queue with two keys: `later` waits for a minute, and `now` is Ready.
fn queue(clock: &ManualClock) -> Keys {
    let queue = Queue::builder().timer(clock.timer()).build();
    queue.add_after("later", Duration::from_secs(60)).expect("the queue is open");
    queue.add("now").expect("the queue is open");
    queue
}

fn print(how: &str, left: &Leftovers<&str>) {
    println!("{how}: ready {:?}, waiting {:?}, leased {:?}", left.ready, left.waiting, left.leased);
}

fn main() {
    let clock = ManualClock::new();
    let one = queue(&clock);
    one.shut_down();
    println!("an add after shut_down: {}", one.add("more").unwrap_err());
    while let Some(lease) = one.blocking_get() {
        println!("worked on {}", *lease);
        lease.done();
    }
    print("shut_down, then drain", &one.blocking_drain(DrainOptions::unlimited()));

    let two = queue(&clock);
    let lease = two.try_get().expect("one key is Ready");
    print("stop_now", &two.stop_now());
    lease.retry(); // after `stop_now`, the key is not queued again

    let three = queue(&clock);
    let lease = three.try_get().expect("one key is Ready");
    print("drain, with a limit", &three.blocking_drain(DrainOptions::within(Duration::from_millis(10))));
    lease.done();
}
