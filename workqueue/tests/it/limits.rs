//! Waiting with a time limit. Tasks measure the limit with the queue's clock, threads in real time.

use std::thread;
use std::time::Duration;

use flyball_sync::ManualClock;
use flyball_workqueue::{AddErrorKind, GetTimeoutError, Lease, Queue};

use crate::support::{TimedQueue, ns, timed};
use crate::task::Task;

fn bounded() -> (TimedQueue, ManualClock) {
    let clock = ManualClock::new();
    (Queue::builder().timer(clock.timer()).capacity(1).build(), clock)
}

#[test]
fn get_timeout_waits_until_its_limit_and_no_longer() {
    let (queue, clock) = timed();
    let mut get = Task::waiting(queue.get_timeout(ns(10)));
    clock.advance(ns(9));
    assert!(!get.was_woken());
    clock.advance(ns(1));
    assert!(get.was_woken());
    assert_eq!(get.finish().unwrap_err(), GetTimeoutError::TimedOut);
}

#[test]
fn get_timeout_takes_a_key_that_comes_in_time() {
    let (queue, clock) = timed();
    let mut get = Task::waiting(queue.get_timeout(ns(10)));
    queue.add_after("a", ns(5)).unwrap();
    clock.advance(ns(5));
    let lease = get.finish().unwrap();
    assert_eq!(*lease, "a");
    lease.done();
    let mut none = Task::waiting(queue.get_timeout(ns(10)));
    queue.shut_down();
    assert_eq!(none.finish().unwrap_err(), GetTimeoutError::Closed);
}

/// With a limit of zero, `get_timeout` returns a Ready key, even if `get` would yield to other tasks.
#[test]
fn a_limit_of_zero_takes_what_is_there() {
    let clock = ManualClock::new();
    let queue = Queue::builder().timer(clock.timer()).build();
    queue.add_many(0..300_u32);
    for key in 0..300 {
        let lease = Task::new(queue.get_timeout(Duration::ZERO)).finish().unwrap();
        assert_eq!(*lease, key);
        lease.done();
    }
    let none = Task::new(queue.get_timeout(Duration::ZERO)).finish();
    assert_eq!(none.unwrap_err(), GetTimeoutError::TimedOut);
}

#[test]
fn an_expired_timeout_wakes_no_other_getter() {
    let (queue, clock) = timed();
    let mut tasks: Vec<_> = (1..=20).map(|limit| Task::waiting(queue.get_timeout(ns(limit)))).collect();
    for now in 1..=20 {
        clock.advance(ns(1));
        let woken: Vec<_> = tasks.iter().map(Task::was_woken).collect();
        assert_eq!(woken.iter().filter(|knows| **knows).count(), 1, "at {now}: {woken:?}");
        assert!(tasks.remove(0).finish().is_err());
    }
}

/// There are more tasks than fit into one batch of wakers.
#[test]
fn all_getters_with_an_expired_timeout_are_woken() {
    let (queue, clock) = timed();
    let mut tasks: Vec<_> = (0..50).map(|_| Task::waiting(queue.get_timeout(ns(5)))).collect();
    clock.advance(ns(5));
    assert!(tasks.iter_mut().all(|task| task.finish().is_err()));
}

#[test]
fn a_getter_that_gives_up_passes_its_key_on() {
    let (queue, clock) = timed();
    let limited = Task::waiting(queue.get_timeout(ns(5)));
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
    let mut get = Task::waiting(queue.get_timeout(ns(10)));
    clock.set(flyball_sync::Nanos::new(50));
    assert!(get.poll().is_pending());
    clock.advance(ns(59));
    assert!(get.poll().is_pending());
    clock.advance(ns(1));
    assert!(get.finish().is_err());
}

#[test]
fn get_many_timeout_takes_a_batch() {
    let (queue, clock) = timed();
    queue.add_many(["a", "b", "c"]);
    let batch = Task::new(queue.get_many_timeout(2, ns(5))).finish().unwrap();
    assert_eq!(batch.iter().map(|lease| **lease).collect::<Vec<_>>(), ["a", "b"]);
    let rest = queue.blocking_get_many_timeout(2, Duration::ZERO).unwrap();
    assert_eq!(rest.len(), 1);
    batch.into_iter().chain(rest).for_each(Lease::done);
    let mut none = Task::waiting(queue.get_many_timeout(2, ns(5)));
    clock.advance(ns(5));
    assert_eq!(none.finish().unwrap_err(), GetTimeoutError::TimedOut);
}

#[test]
fn a_key_that_finds_no_room_in_time_comes_back() {
    let (queue, clock) = bounded();
    queue.add("a").unwrap();
    let mut adding = Task::waiting(queue.add_when_room_timeout("b", ns(5)));
    clock.advance(ns(5));
    let refused = adding.finish().unwrap_err();
    assert_eq!((refused.kind(), refused.into_key()), (AddErrorKind::Full, "b"));

    let mut adding = Task::waiting(queue.add_when_room_timeout("b", ns(5)));
    queue.try_get().unwrap().done();
    adding.finish().unwrap();
    let refused = queue.blocking_add_when_room_timeout("c", Duration::ZERO).unwrap_err();
    assert_eq!((refused.kind(), refused.into_key()), (AddErrorKind::Full, "c"));
    let short = Duration::from_millis(1);
    assert_eq!(queue.blocking_add_when_room_timeout("c", short).unwrap_err().kind(), AddErrorKind::Full);
    assert_eq!(
        queue.blocking_add_when_room_timeout("b", Duration::ZERO).unwrap(),
        flyball_workqueue::Added::Merged
    );
}

#[test]
fn a_blocked_adder_finds_room_in_time() {
    let (queue, _clock) = bounded();
    queue.add("a").unwrap();
    let adder = thread::spawn({
        let queue = queue.clone();
        move || queue.blocking_add_when_room_timeout("b", Duration::from_secs(600)).is_ok()
    });
    queue.try_get().unwrap().done();
    assert!(adder.join().unwrap());
}

#[test]
fn wait_idle_has_a_timeout() {
    let (queue, clock) = timed();
    queue.add_after("later", ns(100)).unwrap();
    assert!(Task::new(queue.wait_idle_timeout(Duration::ZERO)).finish());
    assert!(!Task::new(queue.wait_empty_timeout(Duration::ZERO)).finish());
    assert!(!queue.blocking_wait_empty_timeout(Duration::ZERO));
    queue.add("a").unwrap();
    let mut idle = Task::waiting(queue.wait_idle_timeout(ns(5)));
    let mut empty = Task::waiting(queue.wait_empty_timeout(ns(500)));
    clock.advance(ns(5));
    assert!(!idle.finish());
    queue.try_get().unwrap().done();
    clock.advance(ns(95));
    queue.try_get().unwrap().done();
    assert!(empty.finish());
    queue.blocking_wait_empty();
    assert!(queue.blocking_wait_empty_timeout(Duration::ZERO));
}

#[test]
fn a_thread_waits_for_an_empty_queue() {
    let (queue, _clock) = timed();
    queue.add_after("later", ns(100)).unwrap();
    queue.add("a").unwrap();
    let waiter = thread::spawn({
        let queue = queue.clone();
        move || queue.blocking_wait_empty()
    });
    queue.try_get().unwrap().done();
    assert!(queue.cancel(&"later"));
    waiter.join().unwrap();
}

#[test]
fn drain_timeout_leaves_over_what_is_leased_then() {
    let (queue, clock) = timed();
    queue.add_many(["a", "b"]);
    queue.add_after("later", ns(2)).unwrap();
    let lease = queue.try_get().unwrap();
    let mut drain = Task::waiting(queue.drain_timeout(ns(5)));
    clock.advance(ns(5));
    let left = drain.finish();
    assert_eq!((left.ready, left.waiting, left.leased), (vec!["b"], vec!["later"], vec!["a"]));
    lease.done();
    queue.try_get().unwrap().done();
    let left = Task::new(queue.drain_timeout(ns(5))).finish();
    assert_eq!((left.ready, left.waiting, left.leased), (vec![], vec!["later"], vec![]));
}
