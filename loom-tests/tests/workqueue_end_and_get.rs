//! Models of a worker that completes a lease and gets its next key in one call.

use flyball_workqueue::{LeaseOutcome, Queue};
use loom_tests::{Model, block_on, model, thread};

#[test]
fn end_and_get_vs_closing() {
    let claim = Model {
        name: "workqueue::end_and_get_vs_closing",
        threads: 2,
        floor: 11,
        catches: "an `end_and_get` that checks before it locks whether there is a waiter: another worker waits forever",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        queue.add(1).unwrap();
        queue.shut_down();
        let other = queue.clone();
        // The key is dirty, so it becomes Ready again when its lease ends. Until then the queue is not closed, and the getter waits. Exactly one of
        // the two workers gets the key.
        let getter = thread::spawn(move || block_on(other.get()).map(|lease| lease.done()).is_some());
        let again = queue.try_end_and_get(lease, LeaseOutcome::Done).ok();
        // The getter is joined before the lease in `again` ends, because the end of that lease would wake the getter, too.
        assert_ne!(again.is_some(), getter.join().unwrap());
    });
}

#[test]
fn end_and_get_vs_add_when_room() {
    let claim = Model {
        name: "workqueue::end_and_get_vs_add_when_room",
        threads: 2,
        floor: 11,
        catches: "an `end_and_get` that checks before it locks whether there is a waiter for room",
    };
    model(claim, || {
        let queue = Queue::<u32>::builder().capacity(1).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let other = queue.clone();
        let adder = thread::spawn(move || block_on(other.add_when_room(2)).unwrap());
        let next = queue.try_end_and_get(lease, LeaseOutcome::Succeeded);
        adder.join().unwrap();
        let next = next.or_else(|_| queue.try_get()).unwrap();
        assert_eq!(*next, 2);
    });
}

#[test]
fn blocking_end_and_get_vs_add_while_leased() {
    let claim = Model {
        name: "workqueue::blocking_end_and_get_vs_add_while_leased",
        threads: 3,
        floor: 352,
        catches: "an `end_and_get` that checks the dirty flag in one critical section and ends the lease in another: an event is lost",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let (adder, other) = (queue.clone(), queue.clone());
        let adder = thread::spawn(move || adder.add(1).unwrap());
        // If key 1 becomes Ready again, this worker may lease it before `blocking_end_and_get` does. In that case the worker requeues the key.
        let other_worker =
            thread::spawn(move || other.try_get().map(|lease| lease.end(LeaseOutcome::Requeued)).is_ok());
        let next = queue.blocking_end_and_get(lease, LeaseOutcome::Done).unwrap();
        assert_eq!(*next, 1);
        adder.join().unwrap();
        other_worker.join().unwrap();
        next.done();
        assert!(!queue.has_ready());
    });
}
