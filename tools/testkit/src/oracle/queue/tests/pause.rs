//! Tests of `pause`, `resume`, `is_idle`, `try_get_many` and `snapshot`.

use super::*;
use crate::queue_answers::QueueSnapshot;

#[test]
fn nothing_is_handed_out_while_paused() {
    let mut queue = plain();
    queue.add('a', 0).unwrap();
    queue.add_after('b', ns(5), 0).unwrap();
    queue.pause();
    queue.pause();
    assert_eq!(queue.try_get(0), Err(GetError::Empty));
    assert_eq!(queue.len(5), 2, "deadlines pass while the queue is paused");
    queue.shut_down(5);
    assert_eq!(queue.try_get(5), Err(GetError::Empty), "the queue is not closed, because keys are Ready");
    queue.resume();
    assert_eq!(queue.try_get_many(9, 5), Ok(vec!['a', 'b']));
    queue.pause();
    assert_eq!(queue.try_get_many(9, 5), Err(GetError::Closed));
    assert!(queue.is_paused());
    assert!(queue.drain(5).is_none());
    assert!(!queue.is_paused());
}

#[test]
fn several_are_so_many_gets() {
    let mut queue = plain();
    queue.add_many(&['a', 'b', 'c'], 0);
    assert_eq!(queue.try_get_many(2, 0), Ok(vec!['a', 'b']));
    assert_eq!(queue.try_get_many(2, 0), Ok(vec!['c']));
    assert_eq!(queue.try_get_many(2, 0), Err(GetError::Empty));
}

#[test]
fn rest_is_nothing_ready_and_nothing_leased() {
    let mut queue = plain();
    assert!(queue.is_idle(0));
    queue.add_after('a', ns(5), 0).unwrap();
    assert!(queue.is_idle(4));
    assert!(!queue.is_idle(5));
    queue.try_get(5).unwrap();
    assert!(!queue.is_idle(5));
    queue.end('a', Ending::RequeueAfter(ns(5)), 5);
    assert!(queue.is_idle(5));
}

#[test]
fn everything_at_a_glance() {
    let mut queue = leased(with_limiter());
    queue.add_rate_limited('b', 0).unwrap();
    queue.pause();
    let keys = vec![('a', OracleKeyState::Leased, 0), ('b', OracleKeyState::Waiting(10), 1)];
    assert_eq!(queue.snapshot(0), QueueSnapshot { keys, paused: true, shut_down: false });
}
