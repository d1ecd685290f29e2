//! A model in which two threads request a rebuild of the same page. loom runs the model in every interleaving, shuttle in many random schedules.
#![cfg(any(flyball_loom, flyball_shuttle))]

#[cfg(flyball_loom)]
use loom::thread;
#[cfg(flyball_shuttle)]
use shuttle::thread;

use checked::request_rebuild;
use flyball_workqueue::Queue;

fn two_requests_are_one_rebuild() {
    flyball_sync::assert_modelled(); // with ordinary locks, a model would explore one interleaving and pass
    let queue = Queue::new();
    let other = queue.clone();
    let thread = thread::spawn(move || request_rebuild(&other, "index"));
    let (mine, theirs) = (request_rebuild(&queue, "index"), thread.join().unwrap());
    assert!(mine != theirs, "exactly one request is the first");
    queue.try_get().unwrap().succeed();
    assert!(queue.try_get().is_err(), "the queue has a second entry");
}

#[test]
#[cfg(flyball_loom)]
fn in_every_interleaving() {
    loom::model(two_requests_are_one_rebuild);
}

#[test]
#[cfg(flyball_shuttle)]
fn in_many_schedules() {
    shuttle::check_random(two_requests_are_one_rebuild, 1_000);
    shuttle::check_pct(two_requests_are_one_rebuild, 1_000, 3);
}
