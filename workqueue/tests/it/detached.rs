//! Detached leases. A detached lease is ended once, by a call of `done` with its key; `done` has no effect on other keys.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::{ManualClock, Nanos};
use flyball_workqueue::{Added, DrainOptions, KeyState, NotDetached, Priority, Queue, TryGetError};
use testkit::panicking::{PanicSwitch, Point};

use crate::support::{backoff, ns, timed};
use crate::task::{Task, lists, serve};

#[test]
fn a_detached_key_is_leased_until_done() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let key = queue.try_get().unwrap().detach();
    assert_eq!((key, queue.state(&"a")), ("a", KeyState::Leased));
    assert_eq!(queue.add("a").unwrap(), Added::Dirty);
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty, "a leased key was handed out again");
    let mut getter = Task::waiting(queue.get());
    queue.done(&key).unwrap();
    assert!(getter.was_woken());
    getter.finish().unwrap().done();
    assert_eq!(queue.state(&"a"), KeyState::Absent);
    queue.check().unwrap();
}

/// `done` on a key without a detached lease returns an error and changes nothing.
#[test]
fn done_ends_only_what_is_detached() {
    let (queue, _clock) = timed();
    assert_eq!(queue.done(&"absent"), Err(NotDetached));
    queue.add("ready").unwrap();
    queue.add_after("waits", ns(5)).unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("ready too").unwrap();
    let before = queue.keys();
    for key in ["ready", "ready too", "waits"] {
        assert_eq!(queue.done(&key), Err(NotDetached), "{key}");
    }
    assert_eq!(queue.keys(), before);
    assert_eq!(*lease, "ready");
    lease.done();
    assert_eq!(NotDetached.to_string(), "no detached lease holds the key");
}

/// A stale `done` has no effect on a key that was added again after its lease ended, whatever the state of the key.
#[test]
fn a_stale_done_ends_nothing() {
    let (queue, _clock) = timed();
    queue.add("a").unwrap();
    let key = queue.try_get().unwrap().detach();
    queue.done(&key).unwrap();
    assert_eq!(queue.done(&key), Err(NotDetached), "absent");
    queue.add(key).unwrap();
    assert_eq!(queue.done(&key), Err(NotDetached), "Ready");
    let lease = queue.try_get().unwrap();
    assert_eq!(queue.done(&key), Err(NotDetached), "leased again, and not detached");
    assert_eq!(queue.state(&key), KeyState::Leased);
    queue.add(key).unwrap();
    lease.retry();
    let again = queue.try_get().unwrap();
    assert_eq!(queue.done(&key), Err(NotDetached), "leased a third time");
    let again = again.detach();
    queue.done(&again).unwrap();
    assert_eq!(queue.state(&key), KeyState::Absent);
    queue.check().unwrap();
}

/// `done` makes a dirty key Ready, and a second `done` has no effect on the Ready key.
#[test]
fn a_second_done_does_not_take_the_next_run() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let key = queue.try_get().unwrap().detach();
    queue.add("a").unwrap();
    queue.done(&key).unwrap();
    assert_eq!(queue.done(&key), Err(NotDetached));
    assert_eq!(serve(&queue), 1);
}

/// `done` counts neither as a success nor as a failure.
#[test]
fn done_keeps_failures_and_waits() {
    let (queue, _clock) = backoff();
    queue.add_rate_limited("a").unwrap();
    queue.add("a").unwrap();
    let key = queue.try_get().unwrap().detach();
    queue.add_after("a", ns(5)).unwrap();
    queue.done(&key).unwrap();
    assert_eq!((queue.state(&"a"), queue.num_requeues(&"a")), (KeyState::Waiting(Nanos::new(5)), 1));
}

/// A drain waits for a detached lease. A stop does not wait, and `done` then has no effect.
/// With strict backoff, a failed key waits for its backoff even if it is dirty: the failure of a detached lease is counted by `add_rate_limited`.
#[test]
fn a_dirty_key_that_fails_waits_for_a_strict_backoff() {
    let (clock, seconds) = (ManualClock::new(), Duration::from_secs);
    let backoff = Exponential::new(seconds(10)..=seconds(60));
    let queue = Queue::builder().timer(clock.timer()).limiter(backoff).strict_backoff().build();
    for is_due in [false, true] {
        queue.add("a").unwrap();
        let key = queue.try_get().unwrap().detach();
        if is_due {
            queue.add_after("a", seconds(1)).unwrap(); // an event, which is due before the failure
            clock.advance(seconds(1));
        } else {
            queue.add("a").unwrap(); // an event
        }
        assert_eq!(queue.state(&"a"), KeyState::LeasedDirty);
        assert_eq!(queue.add_rate_limited("a").unwrap(), Added::Merged);
        let until = queue.now() + seconds(10);
        assert_eq!(queue.state(&"a"), KeyState::LeasedWaiting(until));
        queue.done(&key).unwrap();
        assert_eq!(queue.state(&"a"), KeyState::Waiting(until));
        queue.check().unwrap();
        queue.cancel(&"a");
        queue.forget(&"a");
    }
}

#[test]
fn the_end_and_a_detached_lease() {
    for stop in [false, true] {
        let queue = Queue::new();
        queue.add("a").unwrap();
        let key = queue.try_get().unwrap().detach();
        let mut drain = Task::waiting(queue.drain(DrainOptions::unlimited()));
        if stop {
            assert_eq!(lists(queue.stop_now()), (vec![], vec![], vec!["a"]));
            assert!(drain.was_woken());
            assert_eq!(lists(drain.finish()).2, ["a"]);
            queue.done(&key).unwrap();
        } else {
            queue.done(&key).unwrap();
            assert!(drain.was_woken());
            assert_eq!(lists(drain.finish()), (vec![], vec![], vec![]));
        }
        assert_eq!((queue.done(&key), queue.state(&"a")), (Err(NotDetached), KeyState::Absent));
        queue.check().unwrap();
    }
}

/// If `Clone` of the key panics in `detach`, the lease ends as a failure, and the key is not lost.
#[test]
fn a_detach_that_panics_is_a_failure() {
    let switch = PanicSwitch::new();
    let queue = Queue::new();
    queue.add(switch.key(1)).unwrap();
    let lease = queue.try_get().unwrap();
    switch.arm(Point::Clone, 1);
    assert!(catch_unwind(AssertUnwindSafe(|| lease.detach())).is_err());
    assert_eq!(queue.stats().ready, 1);
    let key = queue.try_get().unwrap().detach();
    switch.arm(Point::Hash, 1);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.done(&key))).is_err());
    queue.check().unwrap();
    queue.done(&key).unwrap();
    assert!(crate::support::holds_nothing(&queue.stats()));
    drop((key, queue));
    assert_eq!(switch.live(), 0);
}

/// A detached key that is never ended does not run again; `next_overdue` reports its lease.
#[test]
fn an_unended_detached_key_is_overdue() {
    let (queue, clock) = timed();
    queue.track_ages();
    _ = queue.add_many(["a", "b"]);
    let _ = queue.try_get().unwrap().detach();
    queue.try_get().unwrap().done();
    clock.advance(ns(50));
    assert_eq!(queue.stats().oldest_lease, Some(ns(50)));
    let mut overdue = Task::new(queue.next_overdue(ns(50)));
    assert_eq!(overdue.finish().unwrap().key, "a");
    queue.done(&"a").unwrap();
    queue.check().unwrap();
}

/// If dropping the lease's own copy of the key panics, `detach` does not return the key to the caller, so the lease ends as a failure.
#[test]
fn a_detach_that_panics_in_a_drop_loses_no_key() {
    let switch = PanicSwitch::new();
    let queue = Queue::new();
    queue.add(switch.key(1)).unwrap();
    let lease = queue.try_get().unwrap();
    switch.arm(Point::Drop, 1);
    assert!(catch_unwind(AssertUnwindSafe(|| lease.detach())).is_err());
    assert_eq!((queue.stats().ready, queue.stats().leased), (1, 0));
    queue.check().unwrap();
}

/// Methods that find a key take a borrowed form of it, so a caller that has a `&str` allocates no `String`.
#[test]
fn keys_are_found_by_a_borrowed_form() {
    let queue = Queue::builder().order(Priority::new()).build();
    queue.add(String::from("a")).unwrap();
    assert_eq!(queue.state("a"), KeyState::Ready);
    assert!(queue.set_priority("a", 3));
    assert_eq!(queue.priority("a"), Some(3));
    assert!(queue.postpone("a", Duration::from_secs(3_600)));
    assert!(queue.cancel("a"));
    queue.add(String::from("a")).unwrap();
    drop(queue.try_get().unwrap().detach());
    assert!(queue.done("a").is_ok() && queue.done("a").is_err());
}
