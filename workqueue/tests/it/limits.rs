//! Waiting with a time limit. Tasks measure the limit with the queue's clock, threads in real time.

use flyball_sync::block_on;
use flyball_sync::block_on_timeout;
use std::thread;
use std::time::Duration;

use flyball_sync::ManualClock;
use flyball_workqueue::{DrainOptions, Lease, Queue};

use crate::support::{TimedQueue, ns, timed};
use crate::task::Task;

fn bounded() -> (TimedQueue, ManualClock) {
    let clock = ManualClock::new();
    (Queue::builder().timer(clock.timer()).capacity(1).build(), clock)
}

#[test]
fn a_get_with_a_limit_waits_until_its_limit_and_no_longer() {
    let (queue, clock) = timed();
    let mut get = Task::waiting(queue.timeout(ns(10), queue.get()));
    clock.advance(ns(9));
    assert!(!get.was_woken());
    clock.advance(ns(1));
    assert!(get.was_woken());
    assert!(get.finish().is_none());
}

#[test]
fn a_get_with_a_limit_takes_a_key_that_comes_in_time() {
    let (queue, clock) = timed();
    let mut get = Task::waiting(queue.timeout(ns(10), queue.get()));
    queue.add_after("a", ns(5)).unwrap();
    clock.advance(ns(5));
    let lease = get.finish().flatten().unwrap();
    assert_eq!(*lease, "a");
    lease.done();
    let mut none = Task::waiting(queue.timeout(ns(10), queue.get()));
    queue.shut_down();
    assert!(none.finish().unwrap().is_none(), "the queue is closed");
}

/// With a limit of zero, `get` returns a Ready key, even if it would yield to other tasks.
#[test]
fn a_limit_of_zero_takes_what_is_there() {
    let clock = ManualClock::new();
    let queue = Queue::builder().timer(clock.timer()).build();
    _ = queue.add_many(0..300_u32);
    for key in 0..300 {
        let lease = Task::new(queue.timeout(Duration::ZERO, queue.get())).finish().flatten().unwrap();
        assert_eq!(*lease, key);
        lease.done();
    }
    let none = Task::new(queue.timeout(Duration::ZERO, queue.get())).finish();
    assert!(none.is_none());
}

#[test]
fn an_expired_timeout_wakes_no_other_getter() {
    let (queue, clock) = timed();
    let mut tasks: Vec<_> =
        (1..=20).map(|limit| Task::waiting(queue.timeout(ns(limit), queue.get()))).collect();
    for now in 1..=20 {
        clock.advance(ns(1));
        let woken: Vec<_> = tasks.iter().map(Task::was_woken).collect();
        assert_eq!(woken.iter().filter(|knows| **knows).count(), 1, "at {now}: {woken:?}");
        assert!(tasks.remove(0).finish().is_none());
    }
}

/// There are more tasks than fit into one batch of wakers.
#[test]
fn all_getters_with_an_expired_timeout_are_woken() {
    let (queue, clock) = timed();
    let mut tasks: Vec<_> = (0..50).map(|_| Task::waiting(queue.timeout(ns(5), queue.get()))).collect();
    clock.advance(ns(5));
    assert!(tasks.iter_mut().all(|task| task.finish().is_none()));
}

#[test]
fn a_getter_that_gives_up_passes_its_key_on() {
    let (queue, clock) = timed();
    let limited = Task::waiting(queue.timeout(ns(5), queue.get()));
    let mut other = Task::waiting(queue.get());
    queue.add("a").unwrap();
    assert!(limited.was_woken() && !other.was_woken());
    drop(limited);
    assert_eq!(*other.finish().unwrap(), "a");
    clock.advance(ns(5));
}

/// The clock may jump back, and a timer may fire early.
#[test]
fn a_clock_that_jumps_back_makes_the_limit_later() {
    let (queue, clock) = timed();
    clock.advance(ns(100));
    let mut get = Task::waiting(queue.timeout(ns(10), queue.get()));
    clock.set(flyball_sync::Nanos::new(50));
    assert!(get.poll().is_pending());
    clock.advance(ns(59));
    assert!(get.poll().is_pending());
    clock.advance(ns(1));
    assert!(get.finish().is_none());
}

#[test]
fn a_get_many_with_a_limit_takes_a_batch() {
    let (queue, clock) = timed();
    _ = queue.add_many(["a", "b", "c"]);
    let batch = Task::new(queue.timeout(ns(5), queue.get_many(2))).finish().unwrap();
    assert_eq!(batch.iter().map(|lease| **lease).collect::<Vec<_>>(), ["a", "b"]);
    let rest = block_on_timeout(queue.get_many(2), Duration::ZERO).unwrap();
    assert_eq!(rest.len(), 1);
    batch.into_iter().chain(rest).for_each(Lease::done);
    let mut none = Task::waiting(queue.timeout(ns(5), queue.get_many(2)));
    clock.advance(ns(5));
    assert!(none.finish().is_none());
}

#[test]
fn a_key_that_finds_no_room_in_time_comes_back() {
    let (queue, clock) = bounded();
    queue.add("a").unwrap();
    let mut adding = queue.add_when_room("b");
    let mut limited = Task::waiting(queue.timeout(ns(5), &mut adding));
    clock.advance(ns(5));
    assert!(limited.finish().is_none());
    drop(limited);
    assert_eq!(adding.into_key(), Some("b"));

    let mut adding = queue.add_when_room("b");
    let mut limited = Task::waiting(queue.timeout(ns(5), &mut adding));
    queue.try_get().unwrap().done();
    limited.finish().unwrap().unwrap();
    drop(limited);
    assert_eq!(adding.into_key(), None, "it was added");
    for limit in [Duration::ZERO, Duration::from_millis(1)] {
        let mut adding = queue.add_when_room("c");
        assert!(block_on_timeout(&mut adding, limit).is_none());
        assert_eq!(adding.into_key(), Some("c"));
    }
    let added = block_on_timeout(queue.add_when_room("b"), Duration::ZERO).unwrap();
    assert_eq!(added.unwrap(), flyball_workqueue::Added::Merged);
}

#[test]
fn a_blocked_adder_finds_room_in_time() {
    let (queue, _clock) = bounded();
    queue.add("a").unwrap();
    let adder = thread::spawn({
        let queue = queue.clone();
        move || {
            block_on_timeout(queue.add_when_room("b"), Duration::from_secs(600))
                .is_some_and(|added| added.is_ok())
        }
    });
    queue.try_get().unwrap().done();
    assert!(adder.join().unwrap());
}

#[test]
fn a_wait_has_a_limit() {
    let (queue, clock) = timed();
    queue.add_after("later", ns(100)).unwrap();
    assert!(Task::new(queue.timeout(Duration::ZERO, queue.wait_idle())).finish().is_some());
    assert!(Task::new(queue.timeout(Duration::ZERO, queue.wait_empty())).finish().is_none());
    assert!(block_on_timeout(queue.wait_empty(), Duration::ZERO).is_none());
    queue.add("a").unwrap();
    let mut idle = Task::waiting(queue.timeout(ns(5), queue.wait_idle()));
    let mut empty = Task::waiting(queue.timeout(ns(500), queue.wait_empty()));
    clock.advance(ns(5));
    assert!(idle.finish().is_none());
    queue.try_get().unwrap().done();
    clock.advance(ns(95));
    queue.try_get().unwrap().done();
    assert!(empty.finish().is_some());
    block_on(queue.wait_empty());
    assert!(block_on_timeout(queue.wait_empty(), Duration::ZERO).is_some());
}

#[test]
fn a_thread_waits_for_an_empty_queue() {
    let (queue, _clock) = timed();
    queue.add_after("later", ns(100)).unwrap();
    queue.add("a").unwrap();
    let waiter = thread::spawn({
        let queue = queue.clone();
        move || block_on(queue.wait_empty())
    });
    queue.try_get().unwrap().done();
    assert!(queue.cancel(&"later"));
    waiter.join().unwrap();
}

#[test]
fn a_drain_with_a_limit_leaves_over_what_is_leased_then() {
    let (queue, clock) = timed();
    _ = queue.add_many(["a", "b"]);
    queue.add_after("later", ns(2)).unwrap();
    let lease = queue.try_get().unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::within(ns(5))));
    clock.advance(ns(5));
    let left = drain.finish();
    assert_eq!((left.ready, left.waiting, left.leased), (vec!["b"], vec!["later"], vec!["a"]));
    lease.done();
    queue.try_get().unwrap().done();
    let left = Task::new(queue.drain(DrainOptions::within(ns(5)))).finish();
    assert_eq!((left.ready, left.waiting, left.leased), (vec![], vec!["later"], vec![]));
}

/// A future that yields to other tasks although it is ready does not time out.
#[test]
fn a_limit_of_zero_serves_what_is_ready() {
    let queue = Queue::new();
    _ = queue.add_many(0..1_000_u32);
    for key in 0..1_000 {
        let leases = block_on_timeout(queue.get_many(1), Duration::ZERO).expect("a key is ready");
        assert_eq!(*leases[0], key);
        leases.into_iter().for_each(Lease::done);
        assert!(block_on_timeout(queue.add_when_room(2_000), Duration::ZERO).is_some());
        assert!(queue.cancel(&2_000));
    }
}
