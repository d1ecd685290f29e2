//! Models of waits for room and for the end of a pause, of getters that are stopped, of batches, and of detached
//! leases.

use std::pin::pin;

use flyball_workqueue::{AddErrorKind, NotDetached, Queue};
use loom_tests::wakers::{Counting, poll_with};
use loom_tests::{Model, block_on, model, thread};

// === room ===

#[test]
fn add_when_room_vs_lease_end() {
    let claim = Model {
        name: "workqueue::add_when_room_vs_lease_end",
        threads: 2,
        floor: 11,
        catches: "a lease end that checks before it locks whether there is a waiter for room",
    };
    model(claim, || {
        let queue = Queue::<u32>::builder().capacity(1).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let other = queue.clone();
        let adder = thread::spawn(move || block_on(other.add_when_room(2)).unwrap());
        lease.done();
        adder.join().unwrap();
        assert_eq!(*queue.try_get().unwrap(), 2);
    });
}

#[test]
fn parking_adder_vs_lease_end() {
    let claim = Model {
        name: "workqueue::parking_adder_vs_lease_end",
        threads: 2,
        floor: 36,
        catches: "an adder that checks for room in one critical section and registers its waker in another",
    };
    model(claim, || {
        let queue = Queue::<u32>::builder().capacity(1).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let worker = thread::spawn(move || lease.done());
        block_on(queue.add_when_room(2)).unwrap();
        worker.join().unwrap();
    });
}

#[test]
fn cancelled_adder_passes_room_on() {
    let claim = Model {
        name: "workqueue::cancelled_adder_passes_room_on",
        threads: 3,
        floor: 670,
        catches: "an adder that checks in one critical section whether it was woken and leaves the wait queue in another",
    };
    model(claim, || {
        let queue = Queue::<u32>::builder().capacity(1).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let (cancelled, other) = (queue.clone(), queue.clone());
        let cancelled = thread::spawn(move || {
            let (_, waker) = Counting::waker();
            let mut add = pin!(cancelled.add_when_room(2));
            poll_with(add.as_mut(), &waker).is_ready()
        });
        let adder = thread::spawn(move || block_on(other.add_when_room(3)).unwrap());
        lease.done();
        if cancelled.join().unwrap() {
            // The adder that is dropped had already added its key 2. This key occupies the only slot, so it is removed to make room for the other
            // adder.
            assert!(queue.cancel(&2));
        }
        adder.join().unwrap();
    });
}

#[test]
fn adders_vs_shut_down() {
    let claim = Model {
        name: "workqueue::adders_vs_shut_down",
        threads: 3,
        floor: 450,
        catches: "a shutdown that checks before it locks whether there is a waiter for room",
    };
    model(claim, || {
        let queue = Queue::<u32>::builder().capacity(1).build();
        queue.add(1).unwrap();
        let (task, sleeper) = (queue.clone(), queue.clone());
        let refused = |added: Result<_, flyball_workqueue::AddError<u32>>| {
            assert_eq!(added.unwrap_err().kind(), AddErrorKind::ShutDown);
        };
        let task = thread::spawn(move || refused(block_on(task.add_when_room(2))));
        let sleeper = thread::spawn(move || refused(block_on(sleeper.add_when_room(3))));
        queue.shut_down();
        task.join().unwrap();
        sleeper.join().unwrap();
    });
}

#[test]
fn cancel_vs_adder() {
    let claim = Model {
        name: "workqueue::cancel_vs_adder",
        threads: 2,
        floor: 11,
        catches: "a cancel that checks before it locks whether there is a waiter for room",
    };
    model(claim, || {
        let queue = Queue::<u32>::builder().capacity(1).build();
        queue.add(1).unwrap();
        let other = queue.clone();
        let adder = thread::spawn(move || block_on(other.add_when_room(2)).unwrap());
        assert!(queue.cancel(&1));
        adder.join().unwrap();
    });
}

// === getters ===

#[test]
fn resume_vs_getters() {
    let claim = Model {
        name: "workqueue::resume_vs_getters",
        threads: 3,
        floor: 740,
        catches: "a resume that checks before it locks whether there is a waiter",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.pause();
        _ = queue.add_many([1, 2]);
        let (task, sleeper) = (queue.clone(), queue.clone());
        let task = thread::spawn(move || block_on(task.get()).unwrap().done());
        let sleeper = thread::spawn(move || sleeper.blocking_get().unwrap().done());
        queue.resume();
        task.join().unwrap();
        sleeper.join().unwrap();
    });
}

#[test]
fn add_many_vs_two_getters() {
    let claim = Model {
        name: "workqueue::add_many_vs_two_getters",
        threads: 3,
        floor: 740,
        catches: "an `add_many` that checks before it locks whether there is a waiter",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        let (task, sleeper) = (queue.clone(), queue.clone());
        let task = thread::spawn(move || block_on(task.get()).unwrap().done());
        let sleeper = thread::spawn(move || sleeper.blocking_get().unwrap().done());
        assert_eq!(queue.add_many([1, 2]).new, 2);
        task.join().unwrap();
        sleeper.join().unwrap();
        assert_eq!(queue.stats().leased, 0);
    });
}

#[test]
fn get_many_vs_add() {
    let claim = Model {
        name: "workqueue::get_many_vs_add",
        threads: 2,
        floor: 30,
        catches: "a batch that registers its waker without checking the queue again under that lock",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        let other = queue.clone();
        let batch = thread::spawn(move || {
            let leases = block_on(other.get_many(2));
            assert!(!leases.is_empty());
            leases.iter().map(|lease| **lease).collect::<Vec<_>>()
        });
        queue.add(1).unwrap();
        queue.add(2).unwrap();
        assert_eq!(batch.join().unwrap()[0], 1, "not in FIFO order");
        assert_eq!(queue.ready_len(), 2, "not both failed keys are Ready again");
    });
}

// === detached leases ===

#[test]
fn done_by_key_twice() {
    let claim = Model {
        name: "workqueue::done_by_key_twice",
        threads: 3,
        floor: 16,
        catches: "a lease that is found in one critical section and ended in another",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let key = queue.try_get().unwrap().detach();
        let enders = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || queue.done(&key))
        });
        let mut ends = enders.map(|ender| ender.join().unwrap());
        ends.sort_by_key(Result::is_err);
        assert_eq!(ends, [Ok(()), Err(NotDetached)], "the lease did not end exactly once");
        queue.check().unwrap();
        assert!(!queue.has_ready());
    });
}
