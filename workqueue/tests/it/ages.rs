//! Ages of keys and leases, and reports of overdue leases.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use flyball_ratelimit::Quota;
use flyball_sync::{Clock, ManualClock, Nanos};
use flyball_workqueue::{DrainOptions, Fair, KeyState, OverdueLease, Queue};
use futures_util::FutureExt;
use testkit::panicking::{PanicSwitch, Point};
use testkit::wakers::{Counting, poll_with};

use crate::support::{TimedQueue, backoff, ns, timed, times};
use crate::task::{Task, keys};

fn ages(queue: &TimedQueue) -> (Option<u64>, Option<u64>) {
    let stats = queue.stats();
    assert!(stats.ages_tracked);
    let nanos = |age: Option<Duration>| age.map(|age| age.as_nanos() as u64);
    (nanos(stats.oldest_ready), nanos(stats.oldest_lease))
}

fn overdue(key: &'static str, age: u64) -> Option<(&'static str, Duration)> {
    Some((key, ns(age)))
}

fn name_and_bound(overdue: Option<OverdueLease<&'static str>>) -> Option<(&'static str, Duration)> {
    overdue.map(|overdue| (overdue.key, overdue.age))
}

#[test]
fn ages_are_kept_on_request() {
    let (queue, clock) = timed();
    _ = queue.add_many(["leased", "ready"]);
    let lease = queue.try_get().unwrap();
    clock.advance(ns(100));
    assert!(!queue.stats().ages_tracked && lease.age().is_none());
    queue.track_ages();
    assert_eq!(
        (ages(&queue), lease.age()),
        ((Some(0), Some(0)), Some(Duration::ZERO)),
        "the ages do not start now"
    );
    clock.advance(ns(5));
    queue.track_ages();
    assert_eq!(
        (ages(&queue), lease.age()),
        ((Some(5), Some(5)), Some(ns(5))),
        "the second call changed the ages"
    );
    lease.done();
    assert_eq!(ages(&queue), (Some(5), None));
    queue.try_get().unwrap().done();
    assert_eq!(ages(&queue), (None, None));
}

/// The stats report the ages of the oldest Ready key and of the oldest lease. A key counts only while it is Ready.
#[test]
fn the_oldest_counts() {
    let (queue, clock) = timed();
    queue.track_ages();
    queue.add_after("waits", ns(30)).unwrap();
    clock.advance(ns(10));
    assert_eq!(ages(&queue), (None, None), "a waiting key has an age");
    queue.add("at 10").unwrap();
    clock.advance(ns(10));
    queue.add("at 20").unwrap();
    queue.add("at 10").unwrap();
    clock.advance(ns(15));
    assert_eq!(ages(&queue), (Some(25), None), "a merged add changed the age");
    let first = queue.try_get().unwrap();
    assert_eq!(ages(&queue), (Some(15), Some(0)));
    clock.advance(ns(2));
    let second = queue.try_get().unwrap();
    assert_eq!((*first, *second), ("at 10", "at 20"));
    assert_eq!(ages(&queue), (Some(7), Some(2)), "the age does not start at the deadline, 30");
    first.done();
    assert_eq!((ages(&queue), second.age()), ((Some(7), Some(0)), Some(ns(0))));
}

/// The age of a dirty key is measured from the end of its lease. If an add makes a waiting key Ready before its deadline, the key's age is measured
/// from that add.
#[test]
fn ready_since_when() {
    let (queue, clock) = timed();
    queue.track_ages();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    clock.advance(ns(10));
    queue.add("a").unwrap();
    queue.add_after("b", ns(100)).unwrap();
    clock.advance(ns(10));
    lease.done();
    assert_eq!(ages(&queue), (Some(0), None));
    clock.advance(ns(10));
    queue.add("b").unwrap();
    queue.cancel(&"a");
    clock.advance(ns(1));
    assert_eq!(ages(&queue), (Some(1), None));
    queue.postpone(&"b", ns(50));
    assert_eq!(ages(&queue), (None, None));
}

/// If the clock has jumped back, ages are zero, not negative.
#[test]
fn a_clock_that_jumps_back() {
    let (queue, clock) = timed();
    clock.set(Nanos::new(100));
    queue.track_ages();
    _ = queue.add_many(["a", "b"]);
    let lease = queue.try_get().unwrap();
    clock.set(Nanos::new(50));
    assert_eq!((ages(&queue), lease.age()), ((Some(0), Some(0)), Some(Duration::ZERO)));
}

// ---- overdue leases --------------------------------------------------------------------------------------------

#[test]
fn overdue_oldest_first_and_once_each() {
    let (queue, clock) = timed();
    queue.track_ages();
    _ = queue.add_many(["a", "b", "c"]);
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(queue.try_get().unwrap());
        clock.advance(ns(10));
    }
    let next = || queue.next_overdue(ns(20)).now_or_never().map(name_and_bound);
    assert_eq!(next(), Some(overdue("a", 30)));
    assert_eq!(next(), Some(overdue("b", 20)));
    assert_eq!(next(), None, "a lease was reported before it was overdue");
    clock.advance(ns(10));
    assert_eq!(next(), Some(overdue("c", 20)));
    clock.advance(ns(1_000));
    assert_eq!(next(), None, "a lease was reported twice");
    assert_eq!(queue.stats().oldest_lease, Some(ns(1_040)), "a reported lease has no age");
    // A new lease of the same key is reported again.
    leases.drain(..).for_each(flyball_workqueue::Lease::done);
    queue.add("a").unwrap();
    let _lease = queue.try_get().unwrap();
    clock.advance(ns(20));
    assert_eq!(next(), Some(overdue("a", 20)));
    queue.check().unwrap();
}

/// A future of `next_overdue` (a watcher) does not check the leases periodically: the alarm is set for the time at which the oldest lease becomes
/// overdue.
#[test]
fn overdue_waits_for_the_moment() {
    let (queue, clock) = timed();
    let mut watcher = Task::waiting(queue.next_overdue(ns(50)));
    assert_eq!(clock.next_alarm(), None, "an alarm is set without a lease");
    _ = queue.add_many(["a", "b"]);
    clock.advance(ns(7));
    let a = queue.try_get().unwrap();
    assert!(watcher.was_woken(), "the first lease did not wake the watcher");
    assert!(watcher.poll().is_pending());
    assert_eq!(clock.next_alarm(), Some(Nanos::new(57)));
    clock.advance(ns(10));
    let b = queue.try_get().unwrap();
    a.done();
    clock.set(Nanos::new(57));
    assert!(watcher.poll().is_pending(), "a lease that has ended was reported");
    assert_eq!(clock.next_alarm(), Some(Nanos::new(67)));
    clock.set(Nanos::new(67));
    assert!(watcher.was_woken());
    assert_eq!(name_and_bound(watcher.finish()), overdue("b", 50));
    b.done();
}

/// If a lease began before the queue tracked ages, its age is measured from the first poll of `next_overdue`.
#[test]
fn overdue_time_counts_from_the_first_poll() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    clock.advance(ns(1_000));
    let mut watcher = Task::waiting(queue.next_overdue(ns(50)));
    assert_eq!(lease.age(), Some(Duration::ZERO), "the age does not start now");
    clock.advance(ns(50));
    assert_eq!(name_and_bound(watcher.finish()), overdue("a", 50));
}

/// With a bound of zero, each lease is reported as soon as it begins.
#[test]
fn overdue_at_once() {
    let (queue, _clock) = timed();
    _ = queue.add_many(["a", "b"]);
    let _a = queue.try_get().unwrap();
    let mut watcher = Task::new(queue.next_overdue(Duration::ZERO));
    assert_eq!(name_and_bound(watcher.finish()), overdue("a", 0));
    let mut watcher = Task::waiting(queue.next_overdue(Duration::ZERO));
    let _b = queue.try_get().unwrap();
    assert!(watcher.was_woken());
    assert_eq!(name_and_bound(watcher.finish()), overdue("b", 0));
    assert!(queue.next_overdue(Duration::MAX).now_or_never().is_none());
}

/// A watcher without a lease to report completes only when the queue is drained, because a lease may become overdue until then.
#[test]
fn overdue_ends_with_the_queue() {
    let (queue, clock) = timed();
    _ = queue.add_many(["a", "b"]);
    let a = queue.try_get().unwrap();
    let mut watchers: Vec<_> =
        [10, 10, 1_000].map(|bound| Task::waiting(queue.next_overdue(ns(bound)))).into();
    queue.shut_down();
    assert!(
        watchers.iter_mut().all(|watcher| watcher.poll().is_pending()),
        "a watcher completed before the queue was drained"
    );
    a.done();
    let b = queue.try_get().unwrap();
    clock.advance(ns(10));
    let reports_of_b = watchers.iter_mut().filter_map(|watcher| match watcher.poll() {
        std::task::Poll::Ready(overdue) => name_and_bound(overdue),
        std::task::Poll::Pending => None,
    });
    assert_eq!(
        reports_of_b.collect::<Vec<_>>(),
        [overdue("b", 10).unwrap()],
        "the lease was not reported to exactly one watcher"
    );
    let mut last = Task::waiting(queue.next_overdue(ns(5)));
    b.done();
    assert!(last.was_woken());
    assert_eq!(last.finish(), None);
    assert_eq!(queue.next_overdue(ns(1)).now_or_never(), Some(None));
}

/// Each watcher has another bound, and a lease becomes overdue for one of them at a time: no other one is woken.
#[test]
fn overdue_wakes_only_the_watchers_whose_bound_has_passed() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let watchers: Vec<_> = (1..=100)
        .map(|bound| {
            let (wakes, waker) = Counting::waker();
            let mut watcher = Box::pin(queue.next_overdue(ns(bound)));
            assert!(poll_with(watcher.as_mut(), &waker).is_pending());
            (watcher, wakes, waker)
        })
        .collect();
    let wakes = || watchers.iter().map(|(_, wakes, _)| wakes.wakes()).sum::<usize>();
    for passed in 1..=50 {
        clock.advance(ns(1));
        assert_eq!(wakes(), passed);
    }
    lease.done();
    assert_eq!(wakes(), 50, "the end of a lease wakes no watcher");
    queue.shut_down();
    assert!(
        watchers.iter().all(|(_, wakes, _)| wakes.wakes() > 0),
        "the end of the queue wakes all watchers"
    );
}

/// A watcher that is dropped leaves no alarm behind.
#[test]
fn a_watcher_that_is_dropped_takes_its_alarm_along() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    let _lease = queue.try_get().unwrap();
    let soon = Task::waiting(queue.next_overdue(ns(5)));
    let late = Task::waiting(queue.next_overdue(ns(50)));
    assert_eq!(clock.next_alarm(), Some(Nanos::new(5)));
    drop(soon);
    queue.add("b").unwrap();
    clock.set(Nanos::new(5));
    assert_eq!(clock.next_alarm(), Some(Nanos::new(50)));
    drop(late);
    assert_eq!(clock.next_alarm(), None);
}

/// A lease that begins after a jump of the clock is reported on time, although the watcher has begun to wait before.
#[test]
fn a_lease_that_begins_after_a_jump_back_is_reported_on_time() {
    let (queue, clock) = timed();
    clock.set(Nanos::new(1_000));
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let mut watcher = Task::waiting(queue.next_overdue(ns(50)));
    clock.set(Nanos::new(10));
    lease.done();
    queue.add("b").unwrap();
    let _lease = queue.try_get().unwrap();
    assert!(watcher.poll().is_pending());
    clock.set(Nanos::new(60));
    assert!(watcher.was_woken());
    assert_eq!(name_and_bound(watcher.finish()), overdue("b", 50));
}

#[test]
fn overdue_ends_with_a_stop() {
    let (queue, _clock) = timed();
    queue.add("a").unwrap();
    let _a = queue.try_get().unwrap();
    let mut watcher = Task::waiting(queue.next_overdue(ns(50)));
    drop(queue.stop_now());
    assert!(watcher.was_woken());
    assert_eq!(watcher.finish(), None);
}

/// Several watchers with different bounds: each is woken at its own time, and each lease is reported once.
#[test]
fn watchers_with_different_bounds() {
    let (queue, clock) = timed();
    queue.track_ages();
    _ = queue.add_many(["a", "b"]);
    let _leases = queue.try_get_many(2).unwrap();
    let mut slow = Task::waiting(queue.next_overdue(ns(90)));
    let mut quick = Task::waiting(queue.next_overdue(ns(30)));
    assert_eq!(clock.next_alarm(), Some(Nanos::new(30)));
    clock.set(Nanos::new(30));
    assert_eq!(name_and_bound(quick.finish()), overdue("a", 30));
    assert!(slow.poll().is_pending());
    assert_eq!(clock.next_alarm(), Some(Nanos::new(90)));
    clock.set(Nanos::new(90));
    assert!(slow.was_woken());
    assert_eq!(name_and_bound(slow.finish()), overdue("b", 90));
}

/// Getters and watchers share one alarm, which is set for the earliest time that any of them needs.
#[test]
fn the_alarm_is_shared_with_getters() {
    for (deadline, bound) in [(20, 50), (50, 20), (30, 30)] {
        for watcher_first in [true, false] {
            let (queue, clock) = timed();
            queue.track_ages();
            queue.add("stuck").unwrap();
            let _stuck = queue.try_get().unwrap();
            queue.add_after("late", ns(deadline)).unwrap();
            let (mut getter, mut watcher);
            if watcher_first {
                watcher = Task::waiting(queue.next_overdue(ns(bound)));
                getter = Task::waiting(queue.get());
            } else {
                getter = Task::waiting(queue.get());
                watcher = Task::waiting(queue.next_overdue(ns(bound)));
            }
            let (mut lease, mut seen) = (None, None);
            while lease.is_none() || seen.is_none() {
                let alarm = clock.next_alarm().expect("an alarm is set");
                assert!(alarm <= Nanos::new(deadline.max(bound)));
                clock.set(alarm);
                let now = clock.now().get();
                if lease.is_none() && getter.was_woken() {
                    if let std::task::Poll::Ready(got) = getter.poll() {
                        assert_eq!(now, deadline);
                        lease = got;
                    }
                }
                if seen.is_none() && watcher.was_woken() {
                    if let std::task::Poll::Ready(got) = watcher.poll() {
                        assert_eq!((now, name_and_bound(got.clone())), (bound, overdue("stuck", bound)));
                        seen = got;
                    }
                }
            }
            assert_eq!(*lease.unwrap(), "late");
        }
    }
}

/// If a watcher is dropped, before or after a lease becomes overdue, the next watcher still reports the lease.
#[test]
fn a_dropped_watcher_reports_nothing() {
    for dropped_at in [0, 49, 50, 60] {
        let (queue, clock) = timed();
        queue.track_ages();
        queue.add("a").unwrap();
        let _a = queue.try_get().unwrap();
        let watcher = Task::waiting(queue.next_overdue(ns(50)));
        clock.set(Nanos::new(dropped_at));
        drop(watcher);
        let mut next = Task::new(queue.next_overdue(ns(50)));
        if dropped_at < 50 {
            assert!(next.poll().is_pending());
            assert_eq!(clock.next_alarm(), Some(Nanos::new(50)));
            clock.set(Nanos::new(50));
            assert!(next.was_woken());
        }
        assert_eq!(name_and_bound(next.finish()), overdue("a", dropped_at.max(50)));
    }
}

/// A report does not change the lease: every outcome works as before, and a drain still returns the key.
#[test]
fn a_reported_lease_goes_on() {
    let (queue, clock) = backoff();
    _ = queue.add_many(["a", "b", "c", "d"]);
    let mut leases = queue.try_get_many(4).unwrap();
    assert!(queue.next_overdue(ns(9)).now_or_never().is_none());
    clock.advance(ns(9));
    for key in ["a", "b", "c", "d"] {
        assert_eq!(name_and_bound(queue.next_overdue(ns(9)).now_or_never().unwrap()), overdue(key, 9));
        queue.check().unwrap();
    }
    assert_eq!(keys(&leases), ["a", "b", "c", "d"]);
    queue.add("a").unwrap();
    queue.add_after("b", ns(5)).unwrap();
    let d = leases.pop().unwrap().detach();
    let c = leases.pop().unwrap();
    c.retry();
    leases.into_iter().for_each(flyball_workqueue::Lease::done);
    queue.check().unwrap();
    assert_eq!(queue.state(&"a"), KeyState::Ready);
    assert_eq!(queue.state(&"b"), KeyState::Waiting(Nanos::new(14)));
    assert_eq!(queue.state(&"c"), KeyState::Waiting(Nanos::new(19)));
    let left = queue.blocking_drain(DrainOptions::within(Duration::ZERO));
    assert_eq!((left.ready, left.waiting, left.leased), (vec!["a"], vec!["b", "c"], vec!["d"]));
    queue.done(&d).unwrap();
    queue.check().unwrap();
}

/// If `Clone` of an overdue key panics at the first poll, nothing has changed: no later lease has the age of the time since then.
#[test]
fn a_panic_in_the_first_report_begins_no_ages() {
    let clock = ManualClock::new();
    let queue = Queue::builder().timer(clock.timer()).build();
    let switch = PanicSwitch::new();
    queue.add(switch.key(1)).unwrap();
    let lease = queue.try_get().unwrap();
    switch.arm(Point::Clone, 1);
    let report = catch_unwind(AssertUnwindSafe(|| Task::new(queue.next_overdue(Duration::ZERO)).is_ready()));
    assert!(report.is_err());
    lease.done();
    clock.advance(Duration::from_secs(3_600));
    queue.add(switch.key(2)).unwrap();
    let _lease = queue.try_get().unwrap();
    let late = Task::new(queue.next_overdue(Duration::from_secs(60))).is_ready();
    assert!(!late, "a lease of no age is overdue");
}

/// A key whose group is at its limit, suspended, or without a token is the oldest Ready key, but not the oldest available one.
#[test]
fn keys_that_their_group_holds_back_are_not_available() {
    const RATE: u32 = 3;
    let clock = ManualClock::new();
    let order = Fair::by_group(|key: &(u32, u32)| key.0)
        .max_leased(|group| match group {
            0 => 0,
            1 => 1,
            _ => u32::MAX,
        })
        .rate(|group| (*group == RATE).then(|| Quota::new(times(1), ns(100)).unwrap().allow_burst(times(1))));
    let queue = Queue::builder().order(order).timer(clock.timer()).build();
    queue.track_ages();
    let ages = || {
        let stats = queue.stats();
        [stats.oldest_ready, stats.oldest_available].map(|age| age.map(|age| age.as_nanos() as u64))
    };
    queue.add((0, 0)).unwrap();
    clock.advance(ns(1));
    assert_eq!(ages(), [Some(1), None], "its group is suspended");
    queue.add((1, 0)).unwrap();
    let lease = queue.try_get().unwrap();
    queue.add((1, 1)).unwrap();
    clock.advance(ns(1));
    assert_eq!(ages(), [Some(2), None], "its group is at its limit");
    lease.done();
    assert_eq!(ages(), [Some(2), Some(1)]);
    queue.add((RATE, 0)).unwrap();
    let taken = [queue.try_get().unwrap(), queue.try_get().unwrap()];
    queue.add((RATE, 1)).unwrap();
    queue.add_after((RATE, 2), ns(1)).unwrap();
    clock.advance(ns(99));
    assert_eq!(ages(), [Some(101), None], "its group has no token");
    clock.advance(ns(1));
    assert_eq!(ages(), [Some(102), Some(100)], "a token has arrived, and no operation has noted it");
    assert_eq!(*queue.try_get().unwrap(), (RATE, 1));
    drop(taken);
    queue.check().unwrap();
}

#[test]
fn the_next_deadline() {
    let (queue, clock) = timed();
    let next = || queue.stats().next_deadline.map(Nanos::get);
    assert_eq!(next(), None);
    queue.add_after("a", ns(5)).unwrap();
    queue.add_after("b", ns(9)).unwrap();
    assert_eq!(next(), Some(5));
    clock.advance(ns(5));
    assert_eq!(next(), Some(9), "a deadline that has passed is not the next");
    queue.pause();
    assert_eq!(next(), Some(9), "a key becomes Ready in a paused queue, too");
    queue.shut_down();
    assert_eq!(next(), None, "after a shutdown, no key becomes Ready at a deadline");
}
