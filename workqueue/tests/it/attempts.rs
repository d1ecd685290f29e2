//! Ending a lease with a limit on the attempts, and `Requeued`, which ends a lease as if the key had not been handed out.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drivers::queue::metrics_sink::Reports;
use flyball_ratelimit::{Exponential, Quota, TokenBucket};
use flyball_sync::{ManualClock, Nanos};
use flyball_workqueue::{AddOptions, Added, DrainOptions, KeyState, Lease, LeaseOutcome, Priority, Queue};
use testkit::queue_answers::{Ending, Report};

use crate::support::{Answers, BackoffQueue, ns, timed, times};
use crate::task::{deadline, lists, serve};

type Held = Lease<&'static str>;

/// Returns a queue with a backoff of 10 ns, 20 ns, …, its clock, and its metrics sink.
fn measured() -> (BackoffQueue, ManualClock, Reports) {
    let (clock, reports) = (ManualClock::new(), Reports::default());
    let limiter = Exponential::new(ns(10)..=ns(1_000));
    let queue = Queue::builder().timer(clock.timer()).limiter(limiter).metrics(reports.clone()).build();
    (queue, clock, reports)
}

/// Returns the reported events, without hand-outs.
fn taken(reports: &Reports) -> Vec<Report> {
    let mut taken = reports.take();
    taken.retain(|taken| !matches!(taken, Report::HandedOut { .. }));
    taken
}

const FAILED: [Report; 2] = [Report::Ended(Ending::Retry, 0), Report::Failed];

// === a limit of attempts ===

#[test]
fn the_last_failure_hands_the_lease_back() {
    let ends: [fn(Held); 4] = [Lease::done, Lease::succeed, |lease| lease.requeue_after(ns(7)), Lease::retry];
    for (which, end) in ends.into_iter().enumerate() {
        let (queue, clock, reports) = measured();
        queue.add("a").unwrap();
        for until in [10, 30] {
            assert!(queue.try_get().unwrap().retry_up_to(times(3), Duration::ZERO).is_ok());
            assert_eq!(deadline(&queue, "a"), until);
            assert_eq!(taken(&reports), FAILED);
            clock.set(Nanos::new(until));
        }
        let lease = queue.try_get().unwrap().retry_up_to(times(3), Duration::ZERO).unwrap_err();
        assert_eq!((*lease, lease.num_requeues(), queue.state(&"a")), ("a", 0, KeyState::Leased));
        assert_eq!(taken(&reports), [Report::Failed, Report::GaveUp(3)], "not counted, or the lease ended");
        end(lease);
        let (state, after): (_, &[Report]) = match which {
            0 => (KeyState::Absent, &[Report::Ended(Ending::Done, 0)]),
            1 => (KeyState::Absent, &[Report::Ended(Ending::Succeed, 0)]),
            2 => (KeyState::Waiting(Nanos::new(37)), &[Report::Ended(Ending::RequeueAfter(ns(0)), 0)]),
            // The failures were forgotten, so this failure counts as the first one.
            _ => (KeyState::Waiting(Nanos::new(40)), &FAILED),
        };
        assert_eq!((queue.state(&"a"), &*taken(&reports)), (state, after));
        queue.check().unwrap();
    }
}

/// A key that its worker gives up counts as given up in the metrics, as one that the queue gives up.
#[test]
fn the_first_failure_may_be_the_last_one() {
    let (queue, _, reports) = measured();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry_up_to(times(1), Duration::ZERO).unwrap_err().done();
    assert_eq!(taken(&reports), [Report::Failed, Report::GaveUp(1), Report::Ended(Ending::Done, 0)]);
}

/// If a key runs and fails before its backoff is over, the failure is not counted.
#[test]
fn a_failure_that_is_not_counted_is_never_the_last_one() {
    let (queue, clock, reports) = measured();
    queue.add("a").unwrap();
    for (until, failures) in [(10, 1), (30, 2)] {
        queue.try_get().unwrap().retry();
        for most in 1..=3 {
            queue.add("a").unwrap();
            assert!(queue.try_get().unwrap().retry_up_to(times(most), Duration::ZERO).is_ok(), "{most}");
            assert_eq!((queue.num_requeues(&"a"), deadline(&queue, "a")), (failures, until));
        }
        let failed = taken(&reports).iter().filter(|taken| **taken == Report::Failed).count();
        assert_eq!(failed, 1);
        clock.set(Nanos::new(until));
    }
    // The third failure is counted, and exceeds the limit of 2.
    queue.try_get().unwrap().retry_up_to(times(2), Duration::ZERO).unwrap_err().done();
    assert_eq!(queue.num_requeues(&"a"), 0);
}

#[test]
fn without_failure_counts_no_failure_is_the_last_one() {
    let (queue, _) = timed();
    queue.add("a").unwrap();
    for most in [1, 2] {
        assert!(queue.try_get().unwrap().retry_up_to(times(most), Duration::ZERO).is_ok());
    }
    assert!(queue.try_get().unwrap().retry_up_to(times(1), ns(5)).is_ok());
    assert_eq!(deadline(&queue, "a"), 5);
    // A token bucket makes failed keys wait, but does not count failures.
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Quota::per_second(NonZeroU32::MIN));
    let queue = Queue::builder().timer(clock.timer()).limiter(bucket).build();
    queue.add("a").unwrap();
    for most in [1, 2, 1] {
        assert!(queue.try_get().unwrap().retry_up_to(times(most), Duration::ZERO).is_ok());
        clock.advance(Duration::from_secs(1));
    }
}

/// As with `retry`, if the policy panics, the lease ends as a failure that is not counted, and the key is Ready.
#[test]
fn a_policy_that_panics_ends_the_lease() {
    let reports = Reports::default();
    let queue = Queue::builder()
        .timer(ManualClock::new().timer())
        .limiter(Answers(|_| panic!("the policy panics")))
        .metrics(reports.clone())
        .build();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| lease.retry_up_to(times(2), ns(50)).is_ok()));
    assert!(panicked.is_err());
    assert_eq!(queue.state(&"a"), KeyState::Ready);
    assert_eq!(taken(&reports), [Report::Ended(Ending::Retry, 0)]);
}

#[test]
fn waits_at_least_the_given_minimum() {
    let (queue, _, _) = measured();
    queue.add("a").unwrap();
    assert!(queue.try_get().unwrap().retry_up_to(times(2), ns(50)).is_ok());
    assert_eq!(deadline(&queue, "a"), 50);
    queue.add("b").unwrap();
    assert!(queue.try_get().unwrap().retry_up_to(times(2), ns(5)).is_ok());
    assert_eq!(deadline(&queue, "b"), 10);
}

/// If both the queue and the caller set a limit, the lower one applies. If the limits are equal, the caller's limit applies.
#[test]
fn beside_the_limit_of_the_queue_the_lower_one_holds() {
    for (most, given_up) in [(1, false), (2, false), (3, true)] {
        let (clock, dead) = (ManualClock::new(), Arc::new(Mutex::new(Vec::new())));
        let (note, reports) = (dead.clone(), Reports::default());
        let queue = Queue::builder()
            .timer(clock.timer())
            .limiter(Exponential::new(ns(10)..=ns(1_000)))
            .metrics(reports.clone())
            .give_up_after(times(2), move |key: &&'static str, failures| {
                note.lock().unwrap().push((*key, failures))
            })
            .build();
        queue.add("a").unwrap();
        let mut lease = None;
        while let Ok(next) = queue.try_get() {
            lease = next.retry_up_to(times(most), Duration::ZERO).err();
            if lease.is_some() {
                break;
            }
            clock.advance(ns(100));
        }
        assert_eq!(lease.is_none(), given_up, "at most {most}");
        assert_eq!(*dead.lock().unwrap(), if given_up { vec![("a", 2)] } else { vec![] });
        assert!(reports.take().contains(&Report::GaveUp(most.min(2))), "at most {most}");
        lease.into_iter().for_each(Lease::done);
        assert_eq!((queue.state(&"a"), queue.num_requeues(&"a")), (KeyState::Absent, 0));
    }
}

#[test]
fn ending_a_lease_after_stop_has_no_effect() {
    let (queue, _, _) = measured();
    _ = queue.add_many(["a", "b"]);
    let [a, b] = [(); 2].map(|()| queue.try_get().unwrap());
    let _ = queue.stop_now();
    assert!(a.retry_up_to(times(2), Duration::ZERO).is_ok());
    b.retry_up_to(times(1), Duration::ZERO).unwrap_err().end(LeaseOutcome::Requeued);
    assert!(!queue.has_ready());
    queue.check().unwrap();
}

// === as if it had not been handed out ===

#[test]
fn a_requeued_key_is_ready_at_the_tail_and_counts_no_failure() {
    let (queue, clock, reports) = measured();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    reports.take();
    clock.advance(ns(10));
    let lease = queue.try_get().unwrap();
    queue.add("b").unwrap();
    clock.advance(ns(3));
    lease.end(LeaseOutcome::Requeued);
    assert_eq!((queue.num_requeues(&"a"), queue.stats().ready), (1, 2));
    assert_eq!(
        reports.take(),
        [Report::HandedOut { queued: 0, delayed: true }],
        "a requeue was reported as an end or as a failure"
    );
    assert_eq!(*queue.try_get().unwrap(), "b");
    queue.check().unwrap();
}

#[test]
fn a_requeued_dirty_key_runs_once() {
    let (queue, clock, _) = measured();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    assert_eq!(queue.add("a").unwrap(), Added::Dirty);
    lease.end(LeaseOutcome::Requeued);
    assert_eq!(serve(&queue), 1);
    // The result is the same if the key was added with a delay while it was leased.
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add_after("a", ns(50)).unwrap();
    lease.end(LeaseOutcome::Requeued);
    assert_eq!(queue.state(&"a"), KeyState::Ready);
    assert_eq!(serve(&queue), 1);
    clock.advance(ns(50));
    assert_eq!(serve(&queue), 0);
    queue.check().unwrap();
}

#[test]
fn a_requeued_key_keeps_the_priority_of_its_lease() {
    let queue = Queue::builder().order(Priority::new()).build();
    queue.add_with("a", AddOptions { priority: -5, ..AddOptions::default() }).unwrap();
    queue.add_with("a", AddOptions { priority: 5, ..AddOptions::default() }).unwrap();
    queue.add_with("b", AddOptions { priority: 1, ..AddOptions::default() }).unwrap();
    queue.try_get().unwrap().end(LeaseOutcome::Requeued);
    assert_eq!(queue.priority(&"a"), Some(5));
    assert_eq!(*queue.try_get().unwrap(), "a");
}

#[test]
fn a_requeued_key_is_left_over_after_shutdown() {
    let (queue, _, reports) = measured();
    _ = queue.add_many(["a", "b"]);
    let [a, b] = [(); 2].map(|()| queue.try_get().unwrap());
    queue.shut_down();
    a.end(LeaseOutcome::Requeued);
    let left = queue.blocking_drain(DrainOptions::within(Duration::ZERO));
    assert_eq!(lists(left), (vec![], vec!["a"], vec!["b"]));
    b.end(LeaseOutcome::Requeued);
    reports.take();
    assert!(!queue.has_ready());
}

/// A requeue is not counted as an add. This also holds if a delayed add gave the key a deadline while it was leased, and if the requeued key becomes
/// a leftover because a drain that serves waiting keys no longer serves delayed keys.
#[test]
fn a_requeue_is_no_add() {
    let (queue, clock, _) = measured();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add_after("a", ns(50)).unwrap();
    lease.end(LeaseOutcome::Requeued);
    assert_eq!((queue.stats().adds, queue.stats().ready), (1, 1));
    let lease = queue.try_get().unwrap();
    queue.add_after("a", ns(50)).unwrap();
    clock.advance(ns(50));
    assert_eq!(queue.stats().adds, 2);
    lease.end(LeaseOutcome::Requeued);
    assert_eq!((queue.stats().adds, queue.stats().ready), (2, 1));

    let lease = queue.try_get().unwrap();
    drop(queue.blocking_drain(DrainOptions::serve_waiting(Duration::ZERO)));
    clock.advance(ns(1));
    lease.end(LeaseOutcome::Requeued);
    assert_eq!((queue.stats().adds, queue.stats().waiting), (2, 1));
    queue.check().unwrap();
}

/// A requeued key that becomes a leftover stays counted as an add, even if the statistics were not read before the requeue.
#[test]
fn a_key_left_over_by_a_requeue_stays_counted() {
    let (queue, clock, _) = measured();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    drop(queue.blocking_drain(DrainOptions::serve_waiting(Duration::ZERO)));
    clock.advance(ns(1));
    lease.end(LeaseOutcome::Requeued);
    assert_eq!((queue.stats().adds, queue.stats().waiting), (1, 1));
}

/// With strict backoff, if `add_rate_limited` starts a backoff while the key is leased, a requeue does not end this backoff.
#[test]
fn a_requeue_in_a_strict_backoff_waits() {
    let clock = ManualClock::new();
    let limiter = Exponential::new(ns(10)..=ns(100));
    let reports = Reports::default();
    let queue =
        Queue::builder().timer(clock.timer()).limiter(limiter).strict_backoff().metrics(reports).build();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add_rate_limited("a").unwrap();
    lease.end(LeaseOutcome::Requeued);
    assert_eq!((queue.stats().adds, queue.stats().waiting), (1, 1));
}
