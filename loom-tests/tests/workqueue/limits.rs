//! A model of a get with a timeout.

use std::time::Duration;

use flyball_sync::{ManualClock, Nanos};
use flyball_workqueue::Queue;
use loom_tests::{Model, block_on, model, thread};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn get_timeout_vs_its_end() {
    let claim = Model {
        name: "workqueue::get_timeout_vs_its_end",
        threads: 2,
        floor: 288,
        catches: "a getter with a timeout that reads the time in one critical section and registers its waker in another",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        // At `Nanos::MAX` every deadline has been reached, even that of a wait that starts only then, because there is no later time.
        let mover = thread::spawn(move || clock.set(Nanos::MAX));
        assert!(block_on(queue.timeout(SECOND, queue.get())).is_none());
        mover.join().unwrap();
    });
}
