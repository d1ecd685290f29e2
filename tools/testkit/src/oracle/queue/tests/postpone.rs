//! Tests of `postpone`.

use super::*;
use crate::queue_setup::{Delay, Mode};

#[test]
fn what_is_not_to_run_is_not_put_off() {
    assert!(!plain().postpone('a', ns(5), 0));
    assert!(!leased(OracleSetup::default()).postpone('a', ns(5), 0));
    let mut queue = plain();
    queue.add('a', 0).unwrap();
    queue.shut_down(0);
    assert!(!queue.postpone('a', ns(5), 0));
    assert_eq!(queue.seen('a', 0), OracleKeyState::Ready);
}

#[test]
fn postpones_pending_keys() {
    let mut queue = plain();
    queue.add('a', 0).unwrap();
    assert!(queue.postpone('a', ns(5), 0));
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(5));
    assert!(queue.postpone('a', ns(3), 0));
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(5));
    assert!(queue.postpone('a', ns(7), 0));
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(7));
    assert!(queue.postpone('a', ns(2), 7), "a due key is postponed");
    assert_eq!(queue.seen('a', 8), OracleKeyState::Waiting(9));
    assert!(queue.postpone('a', ns(0), 9), "the key is pending, but a delay of zero does not postpone it");
    assert_eq!(queue.try_get(9), Ok('a'));
    queue.add('a', 9).unwrap();
    assert!(queue.postpone('a', ns(5), 9));
    assert_eq!(queue.seen('a', 9), OracleKeyState::LeasedWaiting(14));
    assert!(queue.postpone('a', ns(1), 9));
    assert_eq!(queue.seen('a', 9), OracleKeyState::LeasedWaiting(14));
    assert!(queue.postpone('a', ns(9), 9));
    assert_eq!(queue.seen('a', 9), OracleKeyState::LeasedWaiting(18));
}

#[test]
fn a_wait_that_was_put_off_is_fixed() {
    let latest = Mode::Latest(Delay(ns(50)));
    let mut queue = plain();
    queue.add_after_with('a', ns(5), latest, 0).unwrap();
    queue.postpone('a', ns(2), 0);
    queue.add_after_with('a', ns(9), latest, 0).unwrap();
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(5));
    // A delay of zero does not postpone the key.
    let mut queue = plain();
    queue.add_after_with('a', ns(5), latest, 0).unwrap();
    queue.postpone('a', ns(0), 0);
    queue.add_after_with('a', ns(9), latest, 0).unwrap();
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(9));
}

#[test]
fn a_changed_deadline_moves_the_key_behind_equal_deadlines() {
    for (delay, line) in [(9, ['a', 'b']), (10, ['b', 'a'])] {
        let mut queue = plain();
        queue.add_after('a', ns(9), 0).unwrap();
        queue.add_after('b', ns(delay), 0).unwrap();
        queue.postpone('a', ns(delay), 0);
        assert_eq!(queue.len(10), 2);
        assert_eq!(queue.dequeue_order(), line);
    }
}
