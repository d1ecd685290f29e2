//! Models of the queue orders other than `Fifo`. In some of these orders, a key can be Ready although no getter may
//! lease it before another lease ends.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flyball_ratelimit::Quota;
use flyball_sync::ManualClock;
use flyball_workqueue::{AddOptions, Fair, Priority, Queue};
use loom_tests::{Model, block_on, model, thread};

const SECOND: Duration = Duration::from_secs(1);

/// Puts all keys into one group, of which at most one key is leased at a time.
fn one_at_a_time() -> Fair<u32, ()> {
    Fair::by_group(|_: &u32| ()).max_leased(|_| 1)
}

#[test]
fn capped_lease_end_vs_get() {
    let claim = Model {
        name: "workqueue::capped_lease_end_vs_get",
        threads: 2,
        floor: 11,
        catches: "the end of a lease that checks before it locks whether there is a waiter for its group",
    };
    model(claim, || {
        let queue = Queue::builder().order(one_at_a_time()).build();
        _ = queue.add_many([1, 2]);
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
        catches: "the end of a lease that checks before it locks whether there is a waiter for its group",
    };
    model(claim, || {
        let queue = Queue::builder().order(one_at_a_time()).build();
        _ = queue.add_many([1, 2, 3]);
        let first = queue.try_get().unwrap();
        let other = queue.clone();
        let task = thread::spawn(move || block_on(other.get()).unwrap().done());
        let blocked = thread::spawn(move || queue.blocking_get().unwrap().done());
        first.done();
        task.join().unwrap();
        blocked.join().unwrap();
    });
}

/// The deadline of a key passes while its group is at its lease limit, and a lease of the group ends. The two events
/// happen in either order.
#[test]
fn capped_deadline_vs_lease_end() {
    let claim = Model {
        name: "workqueue::capped_deadline_vs_lease_end",
        threads: 3,
        floor: 2700,
        catches: "the end of a lease that checks before it locks whether there is a waiter for its group",
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

/// A token of a group arrives while a getter registers. The first key was handed out at the start, so the bucket is empty.
#[test]
fn token_vs_get() {
    let claim = Model {
        name: "workqueue::token_vs_get",
        threads: 2,
        floor: 73,
        catches: "a getter that sets no alarm for a token that has arrived since it read the clock",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let quota = Quota::new(NonZeroU32::MIN, SECOND).unwrap();
        let order = Fair::by_group(|_: &u32| ()).rate(move |_| Some(quota));
        let queue = Queue::builder().order(order).timer(clock.timer()).build();
        _ = queue.add_many([1, 2]);
        queue.try_get().unwrap().done();
        let getter = thread::spawn(move || block_on(queue.get()).unwrap().done());
        clock.advance(SECOND);
        getter.join().unwrap();
    });
}

/// The same for a task and a thread, which both wait for tokens of the same group.
#[test]
fn tokens_vs_task_and_thread() {
    let claim = Model {
        name: "workqueue::tokens_vs_task_and_thread",
        threads: 3,
        floor: 8281,
        catches: "a thread that sets no alarm for a token that has arrived since it read the clock",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let quota = Quota::new(NonZeroU32::MIN, SECOND).unwrap().allow_burst(NonZeroU32::new(2).unwrap());
        let order = Fair::by_group(|_: &u32| ()).rate(move |_| Some(quota));
        let queue = Queue::builder().order(order).timer(clock.timer()).build();
        _ = queue.add_many([1, 2, 3, 4]);
        for _ in 0..2 {
            queue.try_get().unwrap().done();
        }
        let other = queue.clone();
        let task = thread::spawn(move || block_on(other.get()).unwrap().done());
        let blocked = thread::spawn(move || queue.blocking_get().unwrap().done());
        clock.advance(SECOND);
        clock.advance(SECOND);
        task.join().unwrap();
        blocked.join().unwrap();
    });
}

/// A getter waits for a token that arrives in an hour, and the rate of the group is removed.
#[test]
fn rate_change_vs_get() {
    let claim = Model {
        name: "workqueue::rate_change_vs_get",
        threads: 2,
        floor: 228,
        catches: "a change of the limits that checks before it locks whether there is a waiter",
    };
    model(claim, || {
        let limited = Arc::new(AtomicBool::new(true));
        let own = limited.clone();
        let quota = Quota::per_hour(NonZeroU32::MIN);
        let order = Fair::by_group(|_: &u32| ()).rate(move |()| own.load(Ordering::Relaxed).then_some(quota));
        let queue = Queue::builder().order(order).timer(ManualClock::new().timer()).build();
        _ = queue.add_many([1, 2]);
        queue.try_get().unwrap().done();
        limited.store(false, Ordering::Relaxed);
        let other = queue.clone();
        let getter = thread::spawn(move || block_on(other.get()).unwrap().done());
        queue.refresh_groups();
        getter.join().unwrap();
    });
}

/// Groups keys by their remainder modulo three. The group of the keys with the remainder 1 has a capacity of one key.
fn one_of_the_second() -> Fair<u32, u32> {
    Fair::by_group(|key: &u32| key % 3).capacity(|group| if *group == 1 { 1 } else { usize::MAX })
}

#[test]
fn adder_of_a_group_vs_lease_end() {
    let claim = Model {
        name: "workqueue::adder_of_a_group_vs_lease_end",
        threads: 2,
        floor: 41,
        catches: "an adder that checks for room in its group in one critical section and registers its waker in another",
    };
    model(claim, || {
        let queue = Queue::builder().order(one_of_the_second()).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let ender = thread::spawn(move || lease.done());
        block_on(queue.add_when_room(4)).unwrap();
        ender.join().unwrap();
        queue.check().unwrap();
    });
}

/// Two adders wait for room in the queue. When the queue gets room, one of them still cannot add its key, because the group of its key is full.
#[test]
fn adders_of_two_groups_vs_lease_ends() {
    let claim = Model {
        name: "workqueue::adders_of_two_groups_vs_lease_ends",
        threads: 3,
        floor: 9500,
        catches: "a task that is woken for room, finds none in its group, and waits again without waking the next waiter",
    };
    model(claim, || {
        let queue = Queue::builder().order(one_of_the_second()).capacity(2).build();
        _ = queue.add_many([3, 6]);
        let (first, second) = (queue.try_get().unwrap(), queue.try_get().unwrap());
        let (held_up, other) = (queue.clone(), queue.clone());
        let held_up = thread::spawn(move || block_on(held_up.add_when_room(4)).unwrap());
        let other = thread::spawn(move || block_on(other.add_when_room(2)).unwrap());
        first.done();
        let _ = queue.add(1);
        second.done();
        other.join().unwrap();
        queue.cancel(&1);
        held_up.join().unwrap();
        queue.check().unwrap();
    });
}

/// The priority of a key is raised while its lease ends. Whichever of the two happens first, the key is queued at its new priority.
#[test]
fn set_priority_vs_lease_end() {
    let claim = Model {
        name: "workqueue::set_priority_vs_lease_end",
        threads: 2,
        floor: 4,
        catches: "a priority that is set according to a key state read under an earlier lock",
    };
    model(claim, || {
        let queue = Queue::<u32>::builder().order(Priority::new()).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        queue.add_with(1, AddOptions { priority: -2, ..AddOptions::default() }).unwrap();
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
