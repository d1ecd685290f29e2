//! Tests of strict mode: no add shortens a backoff.

use super::*;
use crate::queue_setup::{Delay, Mode};

fn strict() -> OracleSetup {
    OracleSetup { strict: true, ..with_limiter() }
}

/// Creates a queue in which `a` failed at 0 and waits until 10.
fn failed() -> OracleQueue<char> {
    let mut queue = leased(strict());
    queue.end('a', Ending::Retry, 0);
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(10));
    queue
}

/// Creates a queue in which `a` is leased and waits until 10 for its next run, because a rate-limited add counted a failure during the lease.
fn failed_beside_its_lease() -> OracleQueue<char> {
    let mut queue = leased(strict());
    assert_eq!(queue.add_rate_limited('a', 0), Ok(Outcome::Marked));
    assert_eq!(queue.seen('a', 0), OracleKeyState::LeasedWaiting(10));
    queue
}

#[test]
fn no_add_shortens_a_backoff() {
    for (mut queue, seen) in [
        (failed(), OracleKeyState::Waiting as fn(Time) -> OracleKeyState),
        (failed_beside_its_lease(), OracleKeyState::LeasedWaiting as fn(Time) -> OracleKeyState),
    ] {
        assert_eq!(queue.add('a', 1), Ok(Outcome::Merged));
        for mode in [Mode::Earliest, Mode::Replace, Mode::Latest(Delay(ns(50))), Mode::Latest(Delay(ns(1)))] {
            for after in [0, 8] {
                assert_eq!(queue.add_after_with('a', ns(after), mode, 1), Ok(Outcome::Merged));
                assert_eq!(queue.seen('a', 1), seen(10), "{mode:?}");
            }
        }
    }
}

#[test]
fn a_later_deadline_holds_and_is_a_backoff_still() {
    let mut queue = failed();
    assert_eq!(queue.add_after_with('a', ns(29), Mode::Replace, 1), Ok(Outcome::Merged));
    assert_eq!(queue.seen('a', 1), OracleKeyState::Waiting(30));
    assert_eq!(queue.add('a', 1), Ok(Outcome::Merged));
    assert!(queue.postpone('a', ns(39), 1));
    assert_eq!(queue.seen('a', 1), OracleKeyState::Waiting(40));
    assert_eq!(queue.add('a', 1), Ok(Outcome::Merged));
    assert_eq!(queue.seen('a', 1), OracleKeyState::Waiting(40));
    assert!(queue.cancel('a', 1));
    assert_eq!(queue.add('a', 1), Ok(Outcome::New));
    assert_eq!(queue.seen('a', 1), OracleKeyState::Ready);
}

#[test]
fn a_shorter_one_leaves_the_cap_as_well() {
    let mut queue = failed();
    // The backoff becomes a debounced wait, with 10 as its deadline and its cap.
    queue.add_after_with('a', ns(50), Mode::Latest(Delay(ns(50))), 0).unwrap();
    queue.add_after_with('a', ns(50), Mode::Replace, 0).unwrap();
    queue.add_after_with('a', ns(50), Mode::Latest(Delay(ns(60))), 0).unwrap();
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(50));
    queue.add_after_with('a', ns(20), Mode::Earliest, 0).unwrap();
    queue.add_after_with('a', ns(70), Mode::Latest(Delay(ns(70))), 0).unwrap();
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(50));
}

#[test]
fn a_failure_makes_any_wait_a_backoff() {
    // A wait that ends before the backoff is replaced by the backoff.
    let mut queue = OracleQueue::new(strict());
    queue.add_after('a', ns(4), 0).unwrap();
    assert_eq!(queue.add_rate_limited('a', 0), Ok(Outcome::Merged));
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(10));
    assert_eq!(queue.add('a', 0), Ok(Outcome::Merged));
    // A wait that ends together with the backoff becomes a backoff.
    let mut queue = OracleQueue::new(strict());
    queue.add_after('a', ns(10), 0).unwrap();
    queue.add_rate_limited('a', 0).unwrap();
    assert_eq!(queue.add('a', 0), Ok(Outcome::Merged));
    // A wait that ends after the backoff is shortened to the end of the backoff.
    let mut queue = OracleQueue::new(strict());
    queue.add_after('a', ns(40), 0).unwrap();
    queue.add_rate_limited('a', 0).unwrap();
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(10));
    assert_eq!(queue.add('a', 0), Ok(Outcome::Merged));
    // Without strict mode, the earlier deadline applies.
    let mut queue = limited();
    queue.add_after('a', ns(4), 0).unwrap();
    queue.add_rate_limited('a', 0).unwrap();
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(4));
    assert_eq!(queue.add('a', 0), Ok(Outcome::Promoted));
}

#[test]
fn a_failure_counted_beside_a_lease_holds_a_dirty_key() {
    let mut queue = leased(strict());
    queue.add('a', 0).unwrap();
    assert_eq!(queue.add_rate_limited('a', 0), Ok(Outcome::Merged));
    assert_eq!(queue.seen('a', 0), OracleKeyState::LeasedWaiting(10));
    queue.end('a', Ending::Done, 0);
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(10));
}

#[test]
fn a_failed_lease_waits_whatever_came_meanwhile() {
    let dirty = || {
        let mut queue = leased(strict());
        queue.add('a', 0).unwrap();
        queue
    };
    let waiting = |until: u64| {
        let mut queue = leased(strict());
        queue.add_after('a', ns(until), 0).unwrap();
        queue
    };
    let backoff_twice = || {
        let mut queue = failed_beside_its_lease();
        queue.add_after_with('a', ns(40), Mode::Replace, 0).unwrap();
        queue
    };
    for (mut queue, ending, seen) in [
        (dirty(), Ending::Retry, OracleKeyState::Waiting(10)),
        (dirty(), Ending::RetryNoSooner(ns(12)), OracleKeyState::Waiting(12)),
        (dirty(), Ending::Done, OracleKeyState::Ready),
        (dirty(), Ending::Succeed, OracleKeyState::Ready),
        (dirty(), Ending::RequeueAfter(ns(50)), OracleKeyState::Ready),
        (waiting(5), Ending::Dropped, OracleKeyState::Waiting(10)),
        (waiting(50), Ending::Dropped, OracleKeyState::Waiting(10)),
        (waiting(50), Ending::RetryNoSooner(ns(9)), OracleKeyState::Waiting(10)),
        (waiting(50), Ending::RetryNoSooner(ns(11)), OracleKeyState::Waiting(11)),
        (waiting(5), Ending::RequeueAfter(ns(3)), OracleKeyState::Waiting(3)),
        (waiting(5), Ending::DoneAfter(ns(3)), OracleKeyState::Waiting(3)),
        (waiting(5), Ending::Done, OracleKeyState::Waiting(5)),
        (failed_beside_its_lease(), Ending::Retry, OracleKeyState::Waiting(10)),
        (failed_beside_its_lease(), Ending::RequeueAfter(ns(3)), OracleKeyState::Waiting(10)),
        (failed_beside_its_lease(), Ending::RequeueAfter(ns(30)), OracleKeyState::Waiting(10)),
        (failed_beside_its_lease(), Ending::Done, OracleKeyState::Waiting(10)),
        (backoff_twice(), Ending::Retry, OracleKeyState::Waiting(40)),
    ] {
        queue.end('a', ending, 0);
        assert_eq!(queue.seen('a', 0), seen, "{ending:?}");
    }
}
