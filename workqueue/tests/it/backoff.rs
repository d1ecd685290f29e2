//! Backoff: a key has one backoff at a time, and the next backoff is longer only after the key has waited for the previous one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use flyball_ratelimit::{Exponential, Failure, Policy};
use flyball_sync::{Clock, ManualClock, Nanos};
use flyball_workqueue::{KeyState, Lease, LeaseOutcome, Queue};

use crate::support::{BackoffQueue, backoff, ns};

fn waits_until(queue: &BackoffQueue, key: &'static str) -> u64 {
    match queue.state(&key) {
        KeyState::Waiting(until) => until.get(),
        state => panic!("{state:?}"),
    }
}

/// After a failure with a minimum, the key waits for the given minimum or for the limiter's delay, whichever is longer. The minimum does not change the
/// limiter's own backoff.
#[test]
fn a_retry_waits_for_the_later_of_backoff_and_minimum() {
    let (queue, clock) = backoff();
    let fails = |least: u64| {
        queue.add("a").unwrap();
        queue.try_get().unwrap().end(LeaseOutcome::Failed { at_least: ns(least) });
        (queue.num_requeues(&"a"), waits_until(&queue, "a"))
    };
    assert_eq!(fails(0), (1, 10), "not the same as `retry`");
    assert_eq!(fails(9), (1, 10), "a failure within the backoff was counted");
    assert_eq!(fails(25), (1, 25), "the failure was counted, or the key does not wait longer");
    clock.set(Nanos::new(10));
    assert_eq!(fails(5), (2, 30), "the limiter's backoff did not end at 10, before the end of the wait");
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap();
    lease.end(LeaseOutcome::Failed { at_least: ns(50) });
    assert_eq!(queue.state(&"a"), KeyState::Ready, "a dirty key is not Ready immediately");
    let lease = queue.try_get().unwrap();
    queue.add_after("a", ns(7)).unwrap();
    lease.end(LeaseOutcome::Failed { at_least: ns(50) });
    assert_eq!(waits_until(&queue, "a"), 17, "the minimum postponed a delayed add");
    queue.check().unwrap();
}

#[test]
fn a_minimum_is_kept_without_a_limiter() {
    let clock = ManualClock::new();
    for strict in [false, true] {
        let builder = Queue::builder().timer(clock.timer());
        let queue = if strict { builder.strict_backoff().build() } else { builder.build() };
        queue.add("a").unwrap();
        queue.try_get().unwrap().end(LeaseOutcome::Failed { at_least: ns(5) });
        assert_eq!(queue.state(&"a"), KeyState::Waiting(clock.now() + ns(5)));
        assert_eq!(queue.num_requeues(&"a"), 0);
        queue.add("a").unwrap();
        assert_eq!(queue.stats().waiting, usize::from(strict), "no add shortens a strict backoff");
        clock.advance(ns(5));
        queue.try_get().unwrap().end(LeaseOutcome::Failed { at_least: Duration::ZERO });
        assert_eq!(queue.state(&"a"), KeyState::Ready);
        queue.check().unwrap();
    }
}

/// In kubernetes#136853, eighteen failures within a few moments made a key wait for a thousand seconds. In this queue, all failures during one
/// backoff count as one.
#[test]
fn a_storm_of_events_cannot_drive_the_exponent_up() {
    let (queue, clock) = backoff();
    for _ in 0..1_000 {
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        lease.retry();
        assert_eq!((queue.num_requeues(&"a"), waits_until(&queue, "a")), (1, 10));
    }
    clock.advance(ns(9));
    queue.add("a").unwrap();
    drop(queue.try_get().unwrap());
    assert_eq!(
        (queue.num_requeues(&"a"), waits_until(&queue, "a")),
        (1, 10),
        "the dropped lease did not count as the same failure"
    );
    clock.advance(ns(1));
    queue.try_get().unwrap().retry();
    assert_eq!((queue.num_requeues(&"a"), waits_until(&queue, "a")), (2, 30));
}

/// If a key is added with `add_rate_limited` many times, and no worker takes it in between, this counts as one failure.
#[test]
fn a_storm_of_limited_adds_counts_once() {
    let (queue, _clock) = backoff();
    for _ in 0..1_000 {
        queue.add_rate_limited("a").unwrap();
    }
    assert_eq!((queue.num_requeues(&"a"), waits_until(&queue, "a")), (1, 10));
}

#[test]
fn each_served_wait_doubles_the_next() {
    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    let mut delays = Vec::new();
    for failures in 0..40 {
        let lease = queue.try_get().unwrap();
        assert_eq!(lease.num_requeues(), failures);
        lease.retry();
        let until = Nanos::new(waits_until(&queue, "a"));
        delays.push(until.since(clock.now()));
        clock.set(until);
    }
    let expected: Vec<_> =
        (0..40).map(|n| Duration::from_nanos(10 << n.min(36)).min(Duration::from_secs(1))).collect();
    assert_eq!(delays, expected);
}

#[test]
fn outcomes_forget_or_keep() {
    type End = fn(Lease<&'static str>);
    let ends: [(End, u32); 5] = [
        (|lease| lease.done(), 1),
        (|lease| lease.succeed(), 0),
        (|lease| lease.requeue_after(ns(1)), 0),
        (|lease| lease.retry(), 1),
        (drop, 1),
    ];
    for (end, left) in ends {
        let (queue, _clock) = backoff();
        queue.add_rate_limited("a").unwrap();
        queue.add("a").unwrap();
        end(queue.try_get().unwrap());
        assert_eq!(queue.num_requeues(&"a"), left);
    }
}

/// Forgetting the failures also ends the limiter's backoff: the next failure counts as the first one.
#[test]
fn after_a_success_the_first_delay_again() {
    for forget in [false, true] {
        let (queue, clock) = backoff();
        for _ in 0..5 {
            queue.add("a").unwrap();
            queue.try_get().unwrap().retry();
            clock.set(Nanos::new(waits_until(&queue, "a")));
        }
        assert_eq!(queue.num_requeues(&"a"), 5);
        if forget {
            queue.forget(&"a");
            drop(queue.try_get().unwrap());
        } else {
            queue.try_get().unwrap().succeed();
            queue.add_rate_limited("a").unwrap();
        }
        let now = clock.now().get();
        assert_eq!((queue.num_requeues(&"a"), waits_until(&queue, "a")), (1, now + 10));
    }
}

/// `done` counts neither as a success nor as a failure, as in client-go. So it does not end the backoff of the key.
#[test]
fn done_keeps_the_open_backoff() {
    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    queue.add("a").unwrap();
    queue.try_get().unwrap().done();
    assert_eq!(queue.state(&"a"), KeyState::Absent);
    clock.advance(ns(4));
    queue.add_rate_limited("a").unwrap();
    assert_eq!((queue.num_requeues(&"a"), waits_until(&queue, "a")), (1, 10));
}

/// A dirty key is Ready immediately after a failure, and the failure is still counted.
#[test]
fn a_failure_under_a_dirty_mark_counts() {
    let (queue, _clock) = backoff();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap();
    lease.retry();
    assert_eq!((queue.num_requeues(&"a"), queue.state(&"a")), (1, KeyState::Ready));
    queue.try_get().unwrap().retry();
    assert_eq!((queue.num_requeues(&"a"), waits_until(&queue, "a")), (1, 10));
}

#[test]
fn keys_do_not_share_failures() {
    let (queue, clock) = backoff();
    for times in 1..=3 {
        queue.add("a").unwrap();
        queue.try_get().unwrap().retry();
        clock.set(Nanos::new(waits_until(&queue, "a")));
        assert_eq!((queue.num_requeues(&"a"), queue.num_requeues(&"b")), (times, 0));
    }
    assert!(queue.cancel(&"a"), "a due key could not be cancelled");
    queue.add_rate_limited("b").unwrap();
    assert_eq!((queue.num_requeues(&"a"), queue.num_requeues(&"b")), (3, 1));
}

/// Cancelling a wait does not forget the failures.
#[test]
fn cancel_keeps_failures() {
    let (queue, _clock) = backoff();
    queue.add_rate_limited("a").unwrap();
    assert!(queue.cancel(&"a"));
    assert_eq!(queue.num_requeues(&"a"), 1);
}

/// A policy that counts its calls and always returns the same delay.
struct Counted(Arc<AtomicU32>);

impl Policy<u32> for Counted {
    fn record_failure(&mut self, _: &u32, _: Nanos, _: u64, _: &mut dyn FnMut(&u32) -> bool) -> Failure {
        self.0.fetch_add(1, Ordering::SeqCst);
        Failure { wait: ns(10), counted: true }
    }

    fn forget(&mut self, _: &u32) {}

    fn num_requeues(&self, _: &u32) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    fn tracked_keys(&self) -> usize {
        1
    }
}

/// In controller-runtime#1594 and flyte#6025, each duplicate took a token although only the earliest duplicate ran. This queue calls the limiter once
/// per wait.
#[test]
fn the_limiter_is_asked_once_per_wait() {
    let (clock, asked) = (ManualClock::new(), Arc::new(AtomicU32::new(0)));
    let queue = Queue::builder().timer(clock.timer()).limiter(Counted(asked.clone())).build();
    for wait in 1..=3 {
        for _ in 0..100 {
            queue.add_rate_limited(1).unwrap();
        }
        assert_eq!(asked.load(Ordering::SeqCst), wait);
        clock.advance(ns(10));
        queue.try_get().unwrap().done();
    }
}

/// A policy that returns a delay of zero makes the key Ready immediately.
#[test]
fn no_delay_is_no_wait() {
    struct NoDelay;
    impl Policy<u32> for NoDelay {
        fn record_failure(&mut self, _: &u32, _: Nanos, _: u64, _: &mut dyn FnMut(&u32) -> bool) -> Failure {
            Failure { wait: Duration::ZERO, counted: true }
        }
        fn forget(&mut self, _: &u32) {}
        fn num_requeues(&self, _: &u32) -> u32 {
            0
        }
        fn tracked_keys(&self) -> usize {
            0
        }
    }
    let clock = ManualClock::new();
    let queue = Queue::builder().timer(clock.timer()).limiter(NoDelay).build();
    queue.add(1).unwrap();
    queue.add(2).unwrap();
    queue.try_get().unwrap().retry();
    assert_eq!(queue.state(&1), KeyState::Ready);
    assert_eq!(*queue.try_get().unwrap(), 2, "the key is not at the tail");
}

/// A new limiter applies to the next failure. A key that waits keeps its deadline, and its failure under the new limiter waits for that deadline, too.
#[test]
fn a_limiter_is_changed_while_the_queue_is_in_use() {
    let (queue, clock) = backoff();
    queue.add_rate_limited("a").unwrap();
    clock.advance(ns(3));
    let old = queue.update_limiter(|limiter, now| {
        assert_eq!(now, Nanos::new(3));
        std::mem::replace(limiter, Exponential::new(ns(50)..=ns(1_000)))
    });
    assert_eq!((old.num_requeues(&"a"), queue.num_requeues(&"a")), (1, 0));
    assert_eq!(waits_until(&queue, "a"), 10);
    queue.add_rate_limited("b").unwrap();
    assert_eq!(waits_until(&queue, "b"), 53);
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    assert_eq!((waits_until(&queue, "a"), queue.num_requeues(&"a")), (10, 0), "still in its backoff");
    clock.advance(ns(7));
    queue.try_get().unwrap().retry();
    assert_eq!((waits_until(&queue, "a"), queue.num_requeues(&"a")), (60, 1));
    queue.check().unwrap();
}

#[test]
fn a_change_of_the_limiter_that_panics_leaves_the_queue_usable() {
    let (queue, _clock) = backoff();
    queue.add_rate_limited("a").unwrap();
    let change = || queue.update_limiter(|_, _| panic!("in the change"));
    assert!(catch_unwind(AssertUnwindSafe(change)).is_err());
    queue.add_rate_limited("b").unwrap();
    assert_eq!((queue.num_requeues(&"a"), waits_until(&queue, "b")), (1, 10));
}
