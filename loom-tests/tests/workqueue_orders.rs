//! Models of the queue's orders: what only they have is a Ready key that nobody can take, until a lease ends.

use std::time::Duration;

use flyball_sync::ManualClock;
use flyball_workqueue::{Fair, Priority, Queue};
use loom_tests::{Model, block_on, model, thread};

const SECOND: Duration = Duration::from_secs(1);

/// All keys are of one group, of which one at a time is leased.
fn one_at_a_time() -> Fair<u32, ()> {
    Fair::by_group(|_: &u32| ()).max_leased(1)
}

#[test]
fn capped_lease_end_vs_get() {
    let claim = Model {
        name: "workqueue::capped_lease_end_vs_get",
        threads: 2,
        floor: 11,
        catches: "the end of a lease that decides before it locks that nobody waits for its group",
    };
    model(claim, || {
        let queue = Queue::builder().order(one_at_a_time()).build();
        queue.add_many([1, 2]);
        let first = queue.try_get().unwrap();
        let getter = thread::spawn(move || block_on(queue.get()).unwrap().done());
        first.done();
        getter.join().unwrap();
    });
}

#[test]
fn capped_lease_end_vs_task_and_thread() {
    let claim = Model {
        name: "workqueue::capped_lease_end_vs_task_and_thread",
        threads: 3,
        floor: 526,
        catches: "the end of a lease that decides before it locks that nobody waits for its group",
    };
    model(claim, || {
        let queue = Queue::builder().order(one_at_a_time()).build();
        queue.add_many([1, 2, 3]);
        let first = queue.try_get().unwrap();
        let other = queue.clone();
        let task = thread::spawn(move || block_on(other.get()).unwrap().done());
        let blocked = thread::spawn(move || queue.blocking_get().unwrap().done());
        first.done();
        task.join().unwrap();
        blocked.join().unwrap();
    });
}

/// A key becomes Ready by its deadline while its group is capped: whichever comes first, deadline or lease end.
#[test]
fn capped_deadline_vs_lease_end() {
    let claim = Model {
        name: "workqueue::capped_deadline_vs_lease_end",
        threads: 3,
        floor: 3200,
        catches: "the end of a lease that decides before it locks that nobody waits for its group",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::builder().order(one_at_a_time()).timer(clock.timer()).build();
        queue.add(1).unwrap();
        let first = queue.try_get().unwrap();
        queue.add_after(2, SECOND).unwrap();
        let getter = thread::spawn(move || block_on(queue.get()).unwrap().done());
        let ender = thread::spawn(move || first.done());
        clock.advance(SECOND);
        ender.join().unwrap();
        getter.join().unwrap();
    });
}

/// A key whose lease ends while it is raised is in the line of its new priority, whichever comes first.
#[test]
fn set_priority_vs_lease_end() {
    let claim = Model {
        name: "workqueue::set_priority_vs_lease_end",
        threads: 2,
        floor: 4,
        catches: "a priority set by what was seen of the key under an earlier lock",
    };
    model(claim, || {
        let queue = Queue::<u32>::builder().order(Priority::new()).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        queue.with_priority(-2).add(1).unwrap();
        queue.add(2).unwrap();
        let other = queue.clone();
        let raiser = thread::spawn(move || other.set_priority(&1, 3));
        lease.done();
        assert!(raiser.join().unwrap());
        queue.check().unwrap();
        let first = queue.try_get().unwrap();
        assert_eq!(*first, 1);
        first.done();
    });
}
