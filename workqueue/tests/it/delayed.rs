//! Delayed adds: every row of the table in `src/state/wait.rs`, the effect of strict backoff, and `postpone`.

use std::time::Duration;

use flyball_ratelimit::FastSlow;
use flyball_sync::{ManualClock, Nanos};
use flyball_workqueue::{AddOptions, Added, DelayMode, KeyState, Queue};

use crate::support::{TimedQueue, backoff, ns, timed};
use crate::task::{Task, deadline, serve, strict};

const NEVER: Duration = Duration::MAX;

fn latest(longest: u64) -> DelayMode {
    DelayMode::Debounce { max_wait: ns(longest) }
}

/// The wait of a key, as far as the public interface shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Fixed(u64),
    /// The deadline and the limit of the wait.
    Debounced(u64, u64),
}
use Wait::{Debounced, Fixed};

/// Returns the wait of the key. This changes the wait, because two debounced adds are made to find out its kind: the first add shortens only a fixed
/// wait, and the second add moves a debounced wait to its limit.
fn probe(queue: &TimedQueue, key: &'static str) -> Wait {
    let debounce = DelayMode::Debounce { max_wait: NEVER };
    let at = deadline(queue, key);
    queue.add_with(key, AddOptions { delay: ns(1), mode: debounce, ..AddOptions::default() }).unwrap();
    if deadline(queue, key) != at {
        return Fixed(at);
    }
    queue.add_with(key, AddOptions { delay: NEVER, mode: debounce, ..AddOptions::default() }).unwrap();
    Debounced(at, deadline(queue, key))
}

/// Returns a queue at time 100. The key "a" has the wait `old`, and is leased if `leased` is true.
fn at_100(old: Option<Wait>, leased: bool) -> (TimedQueue, ManualClock) {
    let (queue, clock) = timed();
    clock.set(Nanos::new(100));
    if leased {
        queue.add("a").unwrap();
        let _ = queue.try_get().unwrap().detach();
    }
    wait(&queue, old);
    (queue, clock)
}

/// Makes the key wait, at the time 100.
fn wait(queue: &TimedQueue, old: Option<Wait>) {
    match old {
        None => {}
        Some(Fixed(at)) => drop(queue.add_after("a", ns(at - 100))),
        Some(Debounced(at, limit)) => drop(queue.add_with(
            "a",
            AddOptions { delay: ns(at - 100), mode: latest(limit - 100), ..AddOptions::default() },
        )),
    }
}

#[test]
fn every_row_of_the_table() {
    let (early, same, late) = (ns(30), ns(50), ns(80));
    let debounced = Some(Debounced(150, 200));
    let rows = [
        (None, DelayMode::Earliest, early, Fixed(130)),
        (Some(Fixed(150)), DelayMode::Earliest, early, Fixed(130)),
        (Some(Fixed(150)), DelayMode::Earliest, same, Fixed(150)),
        (Some(Fixed(150)), DelayMode::Earliest, late, Fixed(150)),
        (debounced, DelayMode::Earliest, early, Debounced(130, 130)),
        (debounced, DelayMode::Earliest, same, Debounced(150, 150)),
        (debounced, DelayMode::Earliest, late, Debounced(150, 180)),
        (debounced, DelayMode::Earliest, NEVER, Debounced(150, 200)),
        (None, latest(60), early, Debounced(130, 160)),
        (None, latest(60), late, Debounced(160, 160)),
        (Some(Fixed(150)), latest(60), early, Debounced(130, 150)),
        (Some(Fixed(150)), latest(60), late, Debounced(150, 150)),
        (Some(Fixed(150)), latest(20), ns(10), Debounced(110, 120)),
        (Some(Fixed(150)), latest(20), late, Debounced(120, 120)),
        (debounced, latest(60), early, Debounced(150, 160)),
        (debounced, latest(60), ns(55), Debounced(155, 160)),
        (debounced, latest(60), late, Debounced(160, 160)),
        (debounced, latest(20), ns(10), Debounced(120, 120)),
        (debounced, latest(500), late, Debounced(180, 200)),
        (debounced, latest(500), NEVER, Debounced(200, 200)),
        (None, DelayMode::Replace, late, Fixed(180)),
        (Some(Fixed(150)), DelayMode::Replace, early, Fixed(130)),
        (Some(Fixed(150)), DelayMode::Replace, late, Fixed(180)),
        (debounced, DelayMode::Replace, early, Fixed(130)),
        (debounced, DelayMode::Replace, late, Fixed(180)),
    ];
    for leased in [false, true] {
        for (old, mode, delay, new) in rows {
            let (queue, _clock) = at_100(old, leased);
            let added = queue.add_with("a", AddOptions { delay, mode, ..AddOptions::default() }).unwrap();
            let row = format!("{old:?}, leased: {leased}, {mode:?} after {delay:?}");
            let expected = match (old, leased) {
                (None, false) => Added::New,
                (None, true) => Added::Dirty,
                (Some(_), _) => Added::Merged,
            };
            assert_eq!(added, expected, "{row}");
            assert_eq!(matches!(queue.state(&"a"), KeyState::LeasedWaiting(_)), leased, "{row}");
            queue.check().unwrap();
            assert_eq!(probe(&queue, "a"), new, "{row}");
            if leased {
                queue.done(&"a").unwrap();
                assert!(matches!(queue.state(&"a"), KeyState::Waiting(_)), "{row}");
            }
            queue.check().unwrap();
        }
    }
}

/// A delayed add whose deadline is now has the effect of `add`: the key is Ready, or dirty if it is leased.
#[test]
fn a_deadline_that_is_now_is_an_add() {
    let ways = [
        (Duration::ZERO, DelayMode::Earliest),
        (Duration::ZERO, DelayMode::Replace),
        (Duration::ZERO, latest(0)),
        (ns(70), latest(0)),
    ];
    for (delay, mode) in ways {
        for old in [None, Some(Fixed(150)), Some(Debounced(150, 200))] {
            for leased in [false, true] {
                let (queue, clock) = at_100(old, leased);
                let added = queue.add_with("a", AddOptions { delay, mode, ..AddOptions::default() }).unwrap();
                let (expected, state) = match (old, leased) {
                    (_, true) => (Added::Dirty, KeyState::LeasedDirty),
                    (None, false) => (Added::New, KeyState::Ready),
                    (Some(_), false) => (Added::Promoted, KeyState::Ready),
                };
                let row = format!("{old:?}, leased: {leased}, {mode:?} after {delay:?}");
                assert_eq!((added, queue.state(&"a")), (expected, state), "{row}");
                clock.advance(ns(1_000));
                assert_eq!(serve(&queue), usize::from(!leased), "{row}: not served once");
                queue.check().unwrap();
            }
        }
    }
}

/// A debounced add with a delay of zero does not end a debounced wait; it ends only a fixed wait.
#[test]
fn a_debounced_add_of_nothing_does_not_end_a_debounce() {
    let (queue, _clock) = at_100(Some(Debounced(150, 200)), false);
    assert_eq!(
        queue
            .add_with("a", AddOptions { delay: Duration::ZERO, mode: latest(500), ..AddOptions::default() })
            .unwrap(),
        Added::Merged
    );
    assert_eq!(probe(&queue, "a"), Debounced(150, 200));
}

/// No mode delays a key that is Ready, due, or dirty.
#[test]
fn a_ready_key_stays_ready() {
    for mode in [DelayMode::Earliest, DelayMode::Replace, latest(80)] {
        for due in [false, true] {
            for leased in [false, true] {
                let (queue, clock) = at_100(due.then_some(Fixed(110)), leased);
                if due {
                    clock.advance(ns(10));
                } else {
                    queue.add("a").unwrap();
                }
                let state = if leased { KeyState::LeasedDirty } else { KeyState::Ready };
                assert_eq!(queue.state(&"a"), state);
                assert_eq!(
                    queue.add_with("a", AddOptions { delay: ns(50), mode, ..AddOptions::default() }).unwrap(),
                    Added::Merged,
                    "{mode:?}"
                );
                assert_eq!(queue.state(&"a"), state, "{mode:?}");
                queue.check().unwrap();
            }
        }
    }
}

/// A key loses its position among keys with equal deadlines exactly when its deadline is changed.
#[test]
fn a_new_deadline_gets_a_new_sequence_number() {
    type Change = fn(&TimedQueue);
    let changes: [(Change, bool); 8] =
        [
            (|queue| drop(queue.add_after("a", ns(50))), true),
            (|queue| drop(queue.add_after("a", ns(60))), true),
            (
                |queue| {
                    drop(queue.add_with(
                        "a",
                        AddOptions { delay: ns(50), mode: DelayMode::Replace, ..AddOptions::default() },
                    ))
                },
                true,
            ),
            (
                |queue| {
                    drop(queue.add_with(
                        "a",
                        AddOptions { delay: ns(50), mode: latest(500), ..AddOptions::default() },
                    ))
                },
                true,
            ),
            (|queue| assert!(queue.postpone(&"a", ns(20))), true),
            (
                |queue| {
                    drop(queue.add_with(
                        "a",
                        AddOptions { delay: ns(60), mode: DelayMode::Replace, ..AddOptions::default() },
                    ));
                    drop(queue.add_with(
                        "a",
                        AddOptions { delay: ns(50), mode: DelayMode::Replace, ..AddOptions::default() },
                    ));
                },
                false,
            ),
            (
                |queue| {
                    drop(queue.add_after("a", ns(40)));
                    assert!(queue.postpone(&"a", ns(50)));
                },
                false,
            ),
            (
                |queue| {
                    drop(queue.add("a"));
                    assert!(queue.postpone(&"a", ns(50)));
                },
                false,
            ),
        ];
    for (number, (change, keeps)) in changes.into_iter().enumerate() {
        for leased in [false, true] {
            let (queue, clock) = at_100(Some(Fixed(150)), leased);
            queue.add_after("b", ns(50)).unwrap();
            change(&queue);
            assert_eq!(deadline(&queue, "a"), 150, "change {number}");
            if leased {
                queue.done(&"a").unwrap();
            }
            clock.advance(ns(50));
            let first = if keeps { "a" } else { "b" };
            assert_eq!(*queue.try_get().unwrap(), first, "change {number}, leased: {leased}");
        }
    }
}

/// If a lease ends with a delay, the delay combines with the key's existing wait in the same way as an add in mode `Earliest`.
#[test]
fn a_lease_ends_into_a_wait() {
    for (old, after, new) in [
        (None, 50, Fixed(150)),
        (Some(Fixed(150)), 30, Fixed(130)),
        (Some(Fixed(150)), 80, Fixed(150)),
        (Some(Debounced(150, 200)), 30, Debounced(130, 130)),
        (Some(Debounced(150, 200)), 80, Debounced(150, 180)),
    ] {
        let (queue, _clock) = at_100(None, false);
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        wait(&queue, old);
        lease.requeue_after(ns(after));
        queue.check().unwrap();
        assert_eq!(probe(&queue, "a"), new, "{old:?} after {after}");
    }
    let (queue, _clock) = at_100(Some(Debounced(150, 200)), true);
    queue.done(&"a").unwrap();
    assert_eq!(probe(&queue, "a"), Debounced(150, 200), "`done` changed the wait");
}

/// An add that moves a deadline, earlier or later, also moves the alarm.
#[test]
fn a_replaced_deadline_moves_the_getter() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(50)).unwrap();
    let mut getter = Task::waiting(queue.get());
    queue
        .add_with("a", AddOptions { delay: ns(90), mode: DelayMode::Replace, ..AddOptions::default() })
        .unwrap();
    clock.set(Nanos::new(50));
    assert!(!getter.was_woken() || getter.poll().is_pending(), "too early");
    clock.set(Nanos::new(90));
    assert!(getter.was_woken());
    assert_eq!(*getter.finish().unwrap(), "a");
}

// ---- strict backoff --------------------------------------------------------------------------------------------

/// Returns a queue whose key failed once at time 0 and waits until 100.
fn failed() -> (crate::support::BackoffQueue, ManualClock) {
    let (queue, clock) = strict();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    assert_eq!(deadline(&queue, "a"), 100);
    (queue, clock)
}

#[test]
fn strict_no_add_shortens_a_backoff() {
    let (queue, clock) = failed();
    clock.advance(ns(40));
    for round in 0..3 {
        assert_eq!(queue.add("a").unwrap(), Added::Merged);
        for mode in [DelayMode::Earliest, DelayMode::Replace, latest(0), latest(30)] {
            for delay in [0, 1, 59] {
                assert_eq!(
                    queue
                        .add_with("a", AddOptions { delay: ns(delay), mode, ..AddOptions::default() })
                        .unwrap(),
                    Added::Merged
                );
                assert_eq!(deadline(&queue, "a"), 100, "{mode:?} after {delay}, round {round}");
            }
        }
        assert_eq!(queue.add_many(["a"]).merged, 1);
        assert_eq!(queue.add_rate_limited("a").unwrap(), Added::Merged);
        assert_eq!((deadline(&queue, "a"), queue.num_requeues(&"a")), (100, 1));
    }
    assert!(queue.try_get().is_err());
    clock.set(Nanos::new(100));
    let lease = queue.try_get().unwrap();
    assert_eq!(lease.num_requeues(), 1);
    lease.succeed();
    assert!(crate::support::holds_nothing(&queue.stats()), "one of the adds caused another run");
}

/// Without strict backoff an add makes the key Ready immediately.
#[test]
fn not_strict_an_add_ends_a_backoff() {
    let (queue, _clock) = backoff();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    assert_eq!(queue.add("a").unwrap(), Added::Promoted);
    assert_eq!(*queue.try_get().unwrap(), "a");
}

/// If a backoff is moved to a later deadline, the wait is still a backoff.
#[test]
fn strict_a_backoff_may_become_longer() {
    let longer: [fn(&crate::support::BackoffQueue); 2] = [
        |queue| {
            drop(queue.add_with(
                "a",
                AddOptions { delay: ns(300), mode: DelayMode::Replace, ..AddOptions::default() },
            ))
        },
        |queue| assert!(queue.postpone(&"a", ns(300))),
    ];
    for longer in longer {
        let (queue, clock) = failed();
        longer(&queue);
        assert_eq!(deadline(&queue, "a"), 300);
        assert_eq!(queue.add("a").unwrap(), Added::Merged);
        assert_eq!(
            queue
                .add_with(
                    "a",
                    AddOptions { delay: ns(299), mode: DelayMode::Replace, ..AddOptions::default() }
                )
                .unwrap(),
            Added::Merged
        );
        assert_eq!(deadline(&queue, "a"), 300);
        clock.set(Nanos::new(300));
        queue.try_get().unwrap().succeed();
    }
}

/// With strict backoff, an add still ends a wait that is not a backoff.
#[test]
fn strict_other_waits_are_shortened() {
    let (queue, _clock) = strict();
    queue.add_after("a", ns(100)).unwrap();
    queue.add_after("a", ns(50)).unwrap();
    assert_eq!(deadline(&queue, "a"), 50);
    assert_eq!(queue.add("a").unwrap(), Added::Promoted);
    queue.try_get().unwrap().requeue_after(ns(70));
    assert_eq!(queue.add("a").unwrap(), Added::Promoted, "a requeue after a success counts as a backoff");
}

#[test]
fn strict_a_backoff_can_be_cancelled() {
    let (queue, _clock) = failed();
    assert!(queue.cancel(&"a"));
    assert_eq!(queue.state(&"a"), KeyState::Absent);
    assert_eq!(queue.add("a").unwrap(), Added::New, "the cancelled key is still in the queue");
    assert_eq!((queue.state(&"a"), queue.num_requeues(&"a")), (KeyState::Ready, 1));
}

/// A dirty key waits for its backoff after a failure, but not after a success.
#[test]
fn strict_a_dirty_key_waits_for_the_backoff() {
    for fails in [true, false] {
        let (queue, clock) = strict();
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        queue.add("a").unwrap();
        if fails {
            drop(lease);
            assert_eq!(deadline(&queue, "a"), 100);
            clock.set(Nanos::new(100));
        } else {
            lease.requeue_after(ns(70));
        }
        queue.try_get().unwrap().done();
        clock.advance(ns(1_000));
        assert!(queue.try_get().is_err(), "the dirty key ran a second time");
        queue.check().unwrap();
    }
}

/// A failed key waits for its backoff even if it was added with a shorter delay while it was leased.
#[test]
fn strict_a_wait_under_a_lease_meets_the_backoff() {
    for after in [30, 100, 500] {
        let (queue, _clock) = strict();
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        queue.add_after("a", ns(after)).unwrap();
        lease.retry();
        assert_eq!(deadline(&queue, "a"), 100, "after {after}");
        assert_eq!(queue.add("a").unwrap(), Added::Merged, "an add ended the backoff");
    }
}

/// If a backoff starts while the key is leased, an add does not make the key dirty, and the end of the lease does not shorten the backoff.
#[test]
fn strict_a_backoff_under_a_lease() {
    type End = fn(flyball_workqueue::Lease<&'static str>);
    let ends: [End; 4] = [
        |lease| lease.done(),
        |lease| lease.requeue_after(ns(30)),
        |lease| lease.requeue_after(ns(900)),
        drop,
    ];
    for end in ends {
        let (queue, clock) = strict();
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        assert_eq!(queue.add_rate_limited("a").unwrap(), Added::Dirty);
        assert_eq!(queue.add("a").unwrap(), Added::Merged);
        assert_eq!(queue.state(&"a"), KeyState::LeasedWaiting(Nanos::new(100)));
        end(lease);
        assert_eq!(queue.state(&"a"), KeyState::Waiting(Nanos::new(100)));
        assert_eq!(queue.add("a").unwrap(), Added::Merged);
        clock.set(Nanos::new(100));
        queue.try_get().unwrap().done();
        queue.check().unwrap();
    }
}

/// Of two backoffs the later one applies.
#[test]
fn strict_the_later_of_two_backoffs() {
    let (queue, clock) = failed();
    clock.set(Nanos::new(100));
    let lease = queue.try_get().unwrap();
    queue.add_rate_limited("a").unwrap();
    assert_eq!(deadline(&queue, "a"), 300, "not the backoff of the second failure");
    queue.forget(&"a");
    lease.retry();
    assert_eq!((deadline(&queue, "a"), queue.num_requeues(&"a")), (300, 1));
}

/// With strict backoff, `add_rate_limited` turns any other wait into a backoff.
#[test]
fn strict_a_limited_add_makes_a_wait_a_backoff() {
    for (after, until) in [(30, 100), (100, 100), (500, 100)] {
        let (queue, _clock) = strict();
        queue.add_after("a", ns(after)).unwrap();
        assert_eq!(queue.add_rate_limited("a").unwrap(), Added::Merged);
        assert_eq!(deadline(&queue, "a"), until, "after {after}");
        assert_eq!(queue.add("a").unwrap(), Added::Merged, "after {after}: an add ended the backoff");
        assert_eq!(deadline(&queue, "a"), until);
    }
}

/// A wait that starts after a backoff is over is not a backoff.
#[test]
fn strict_a_backoff_ends() {
    let (queue, clock) = failed();
    clock.set(Nanos::new(100));
    assert_eq!(queue.add("a").unwrap(), Added::Merged, "the key is not Ready");
    assert!(queue.postpone(&"a", ns(50)));
    assert_eq!(queue.add("a").unwrap(), Added::Promoted, "the new wait counts as a backoff");
    queue.check().unwrap();
}

/// With a backoff of zero, a failed key is Ready immediately, whether it is dirty or not.
#[test]
fn strict_a_backoff_of_nothing() {
    for marked in [false, true] {
        let clock = ManualClock::new();
        let limiter = FastSlow::new(Duration::ZERO, Duration::ZERO, 1);
        let queue = Queue::builder().timer(clock.timer()).limiter(limiter).strict_backoff().build();
        queue.add("a").unwrap();
        queue.add("b").unwrap();
        let lease = queue.try_get().unwrap();
        if marked {
            queue.add("a").unwrap();
        }
        lease.retry();
        assert_eq!(queue.state(&"a"), KeyState::Ready);
        assert_eq!(*queue.try_get().unwrap(), "b", "the key is not at the tail");
        queue.check().unwrap();
    }
}

// ---- postpone --------------------------------------------------------------------------------------------------

#[test]
fn postpone_needs_something_to_postpone() {
    let (queue, _clock) = at_100(None, false);
    assert!(!queue.postpone(&"a", ns(50)), "absent");
    let (queue, _clock) = at_100(None, true);
    assert!(!queue.postpone(&"a", ns(50)), "leased");
    assert_eq!(queue.state(&"a"), KeyState::Leased);
    assert!(!queue.postpone(&"b", Duration::ZERO));
}

#[test]
fn postpone_makes_a_wait_longer_and_fixes_it() {
    for leased in [false, true] {
        for (old, by, new) in [
            (Fixed(150), 80, 180),
            (Fixed(150), 30, 150),
            (Fixed(150), 50, 150),
            (Debounced(150, 200), 80, 180),
            (Debounced(150, 200), 30, 150),
            (Debounced(150, 200), 500, 600),
        ] {
            let (queue, _clock) = at_100(Some(old), leased);
            assert!(queue.postpone(&"a", ns(by)));
            queue.check().unwrap();
            assert_eq!(probe(&queue, "a"), Fixed(new), "{old:?} by {by}, leased: {leased}");
        }
    }
}

/// `postpone` makes a Ready key wait, whether it was added Ready or its deadline has passed.
#[test]
fn postpone_takes_back_what_is_ready() {
    for due in [false, true] {
        let (queue, clock) = at_100(due.then_some(Debounced(110, 115)), false);
        clock.advance(ns(20));
        queue.add("a").unwrap();
        queue.add("b").unwrap();
        assert!(queue.postpone(&"a", ns(30)));
        assert_eq!(queue.state(&"a"), KeyState::Waiting(Nanos::new(150)));
        assert_eq!((queue.ready_len(), *queue.try_get().unwrap()), (1, "b"));
        assert_eq!(probe(&queue, "a"), Fixed(150), "due: {due}");
    }
}

/// A dirty key that is postponed waits after its lease has ended.
#[test]
fn postpone_takes_back_a_mark() {
    for due in [false, true] {
        let (queue, clock) = at_100(due.then_some(Fixed(110)), true);
        clock.advance(ns(20));
        queue.add("a").unwrap();
        assert_eq!(queue.state(&"a"), KeyState::LeasedDirty);
        assert!(queue.postpone(&"a", ns(30)));
        assert_eq!(queue.state(&"a"), KeyState::LeasedWaiting(Nanos::new(150)));
        assert_eq!(queue.stats().dirty, 0);
        queue.done(&"a").unwrap();
        assert_eq!(queue.state(&"a"), KeyState::Waiting(Nanos::new(150)));
        queue.check().unwrap();
    }
}

/// `postpone` with a delay of zero changes nothing, not even the limit of a debounced wait.
#[test]
fn postpone_by_nothing() {
    let (queue, _clock) = at_100(Some(Debounced(150, 200)), false);
    assert!(queue.postpone(&"a", Duration::ZERO));
    assert_eq!(probe(&queue, "a"), Debounced(150, 200));
    for leased in [false, true] {
        let (queue, _clock) = at_100(None, leased);
        queue.add("a").unwrap();
        let before = queue.state(&"a");
        assert!(queue.postpone(&"a", Duration::ZERO));
        assert_eq!(queue.state(&"a"), before);
    }
}

#[test]
fn postpone_for_ever() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    assert!(queue.postpone(&"a", NEVER));
    clock.set(Nanos::new(u64::MAX / 2));
    assert!(!queue.has_ready());
    assert_eq!(queue.add("a").unwrap(), Added::Promoted, "an add did not end the wait");
}

#[test]
fn postpone_after_shutdown_does_nothing() {
    let (queue, _clock) = timed();
    queue.add("ready").unwrap();
    queue.add_after("waits", ns(9)).unwrap();
    queue.shut_down();
    assert!(!queue.postpone(&"ready", ns(50)) && !queue.postpone(&"waits", ns(50)));
    assert_eq!(queue.state(&"waits"), KeyState::Waiting(Nanos::new(9)));
    assert_eq!(*queue.try_get().unwrap(), "ready");
}

/// If a key is postponed after a getter was woken for it, the getter waits again until the new deadline.
#[test]
fn postpone_while_a_getter_waits() {
    let (queue, clock) = timed();
    let mut getter = Task::waiting(queue.get());
    queue.add("a").unwrap();
    assert!(getter.was_woken());
    assert!(queue.postpone(&"a", ns(50)));
    assert!(getter.poll().is_pending());
    assert_eq!(clock.next_alarm(), Some(Nanos::new(50)));
    clock.set(Nanos::new(50));
    assert!(getter.was_woken());
    assert_eq!(*getter.finish().unwrap(), "a");
}
