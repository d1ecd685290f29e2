//! Tests of how each delay mode combines the wait of a key with a new delay.

use super::*;
use crate::queue_setup::{Delay, Mode};

const EARLIEST: Mode = Mode::Earliest;
const REPLACE: Mode = Mode::Replace;

fn latest(longest: u64) -> Mode {
    Mode::Latest(Delay(ns(longest)))
}

/// Makes one delayed add of the same key at each of the times 0 ns, 1 ns, 2 ns and so on, and checks the outcome and the deadline after each add.
fn waits(mut queue: OracleQueue<char>, adds: &[(u64, Mode, Outcome, OracleKeyState)]) {
    for (now, &(after, mode, outcome, seen)) in (0..).zip(adds) {
        assert_eq!(queue.add_after_with('a', ns(after), mode, now), Ok(outcome), "at {now}");
        assert_eq!(queue.seen('a', now), seen, "at {now}");
    }
}

/// Runs [`waits`] twice: for a key that is not in the queue, and for a leased key.
fn both(adds: &[(u64, Mode, Time)]) {
    let row = |seen: fn(Time) -> OracleKeyState, first: Outcome| {
        let mut outcome = first;
        let row = adds.iter().map(|&(after, mode, until)| {
            (after, mode, std::mem::replace(&mut outcome, Outcome::Merged), seen(until))
        });
        row.collect::<Vec<_>>()
    };
    waits(plain(), &row(OracleKeyState::Waiting, Outcome::New));
    waits(leased(OracleSetup::default()), &row(OracleKeyState::LeasedWaiting, Outcome::Marked));
}

#[test]
fn the_earlier_wins() {
    both(&[(10, EARLIEST, 10), (20, EARLIEST, 10), (3, EARLIEST, 5)]);
}

#[test]
fn the_new_one_replaces() {
    both(&[(10, REPLACE, 10), (20, REPLACE, 21), (3, REPLACE, 5)]);
}

#[test]
fn the_latest_wins_up_to_the_cap() {
    both(&[
        (5, latest(12), 5),
        (5, latest(12), 6),
        (2, latest(12), 6),
        (7, latest(99), 10),
        (50, latest(99), 12),
        (50, latest(2), 7),
        (50, latest(50), 7),
    ]);
}

#[test]
fn the_first_is_capped_at_once() {
    both(&[(9, latest(4), 4)]);
}

#[test]
fn a_fixed_wait_is_the_cap_of_the_debounced() {
    both(&[(10, EARLIEST, 10), (4, latest(50), 5), (50, latest(50), 10)]);
    both(&[(10, EARLIEST, 10), (4, latest(8), 5), (50, latest(50), 9)]);
    both(&[(10, EARLIEST, 10), (50, latest(3), 4)]);
}

#[test]
fn an_earliest_lowers_the_cap() {
    both(&[(5, latest(20), 5), (10, EARLIEST, 5), (50, latest(50), 11)]);
    both(&[(5, latest(20), 5), (2, EARLIEST, 3), (50, latest(50), 3)]);
}

#[test]
fn a_replaced_wait_has_no_cap() {
    both(&[(5, latest(20), 5), (50, REPLACE, 51), (30, latest(99), 32), (99, latest(99), 51)]);
}

#[test]
fn what_is_due_at_once_is_ready_at_once() {
    for mode in [EARLIEST, REPLACE, latest(9)] {
        let mut queue = plain();
        assert_eq!(queue.add_after_with('a', ns(0), mode, 3), Ok(Outcome::New));
        assert_eq!(queue.seen('a', 3), OracleKeyState::Ready);
        assert_eq!(queue.add_after_with('a', ns(5), mode, 3), Ok(Outcome::Merged));
        assert_eq!(queue.try_get(3), Ok('a'));
        assert_eq!(queue.add_after_with('a', ns(0), mode, 3), Ok(Outcome::Marked));
        assert_eq!(queue.seen('a', 3), OracleKeyState::LeasedDirty);
        assert_eq!(queue.add_after_with('a', ns(5), mode, 3), Ok(Outcome::Merged));
    }
    for mode in [EARLIEST, REPLACE, latest(0)] {
        let mut queue = plain();
        queue.add_after_with('a', ns(9), EARLIEST, 0).unwrap();
        assert_eq!(queue.add_after_with('a', ns(0), mode, 3), Ok(Outcome::Promoted));
        queue.try_get(3).unwrap();
        queue.add_after_with('a', ns(9), EARLIEST, 3).unwrap();
        assert_eq!(queue.add_after_with('a', ns(0), mode, 3), Ok(Outcome::Marked));
        assert_eq!(queue.seen('a', 3), OracleKeyState::LeasedDirty);
    }
    // In the mode `Latest`, the later deadline applies, so a delay of zero does not make the key due.
    let mut queue = plain();
    queue.add_after_with('a', ns(9), latest(20), 0).unwrap();
    assert_eq!(queue.add_after_with('a', ns(0), latest(20), 3), Ok(Outcome::Merged));
    assert_eq!(queue.seen('a', 3), OracleKeyState::Waiting(9));
}

#[test]
fn a_changed_deadline_moves_the_key_behind_equal_deadlines() {
    for (again, line) in [
        (vec![(9, EARLIEST)], ['a', 'b']),
        (vec![(9, REPLACE)], ['a', 'b']),
        (vec![(9, latest(99))], ['a', 'b']),
        (vec![(8, EARLIEST), (9, REPLACE)], ['b', 'a']),
        (vec![(10, REPLACE), (9, EARLIEST)], ['b', 'a']),
        (vec![(10, REPLACE), (10, latest(9))], ['b', 'a']),
    ] {
        let mut queue = plain();
        queue.add_after_with('a', ns(9), EARLIEST, 0).unwrap();
        queue.add_after_with('b', ns(9), EARLIEST, 0).unwrap();
        for (after, mode) in &again {
            queue.add_after_with('a', ns(*after), *mode, 0).unwrap();
        }
        assert_eq!(queue.len(9), 2);
        assert_eq!(queue.dequeue_order(), line, "{again:?}");
    }
}

#[test]
fn the_end_of_a_lease_lowers_deadline_and_cap() {
    for (ending, until, last) in [
        (Ending::Done, 5, 20),
        (Ending::RequeueAfter(ns(3)), 3, 3),
        (Ending::RequeueAfter(ns(9)), 5, 9),
        (Ending::Retry, 5, 10),
    ] {
        let mut queue = leased(with_limiter());
        queue.add_after_with('a', ns(5), latest(20), 0).unwrap();
        queue.end('a', ending, 0);
        assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(until), "{ending:?}");
        queue.add_after_with('a', ns(99), latest(99), 0).unwrap();
        assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(last), "{ending:?}");
    }
}

#[test]
fn without_a_limiter_a_failure_does_not_wait() {
    let mut queue = leased(OracleSetup::default());
    queue.add_after_with('a', ns(5), latest(20), 0).unwrap();
    queue.end('a', Ending::Retry, 0);
    assert_eq!(queue.seen('a', 0), OracleKeyState::Ready);
}
