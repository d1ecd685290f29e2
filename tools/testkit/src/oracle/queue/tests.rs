//! Tests of the oracle itself: scenarios whose results were worked out by hand.

use std::time::Duration;

use super::{OracleQueue, OracleSetup};
use crate::oracle::backoff::OracleExponential;
use crate::queue_answers::{Ending, GetError, OracleKeyState, Outcome, Refused, Tally, Time, later};

mod ages;
mod attempts;
mod capacity;
mod detached;
mod modes;
mod pause;
mod postpone;
mod serving;
mod strict;

const LIMITER: OracleExponential =
    OracleExponential { base: Duration::from_nanos(10), cap: Duration::from_nanos(50) };

fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

fn limited() -> OracleQueue<char> {
    OracleQueue::new(with_limiter())
}

fn with_limiter() -> OracleSetup {
    OracleSetup { limiter: Some(LIMITER), ..OracleSetup::default() }
}

/// A queue with one leased key, `a`.
fn leased(setup: OracleSetup) -> OracleQueue<char> {
    let mut queue = OracleQueue::new(setup);
    queue.add('a', 0).unwrap();
    queue.try_get(0).unwrap();
    queue
}

fn plain() -> OracleQueue<char> {
    OracleQueue::new(OracleSetup::default())
}

#[test]
fn first_come_first_served_and_merged() {
    let mut queue = plain();
    assert_eq!(queue.add('a', 0), Ok(Outcome::New));
    assert_eq!(queue.add('b', 0), Ok(Outcome::New));
    assert_eq!(queue.add('a', 0), Ok(Outcome::Merged));
    assert_eq!(queue.try_get(0), Ok('a'));
    assert_eq!(queue.add('a', 0), Ok(Outcome::Marked));
    assert_eq!(queue.add('a', 0), Ok(Outcome::Merged));
    assert_eq!(queue.seen('a', 0), OracleKeyState::LeasedDirty);
    queue.end('a', Ending::Done, 0);
    assert_eq!(queue.dequeue_order(), ['b', 'a']);
}

#[test]
fn deadlines_and_adds_share_one_line() {
    let mut queue = plain();
    queue.add_after('w', ns(5), 0).unwrap();
    queue.add_after('v', ns(3), 0).unwrap();
    queue.add('x', 2).unwrap();
    queue.add('y', 5).unwrap(); // w became ready at 5, before this add
    queue.add_after('z', ns(0), 5).unwrap();
    assert_eq!(queue.dequeue_order(), ['x', 'v', 'w', 'y', 'z']);
}

#[test]
fn equal_deadlines_keep_the_order_of_their_adds() {
    let mut queue = plain();
    queue.add_after('a', ns(9), 0).unwrap();
    queue.add_after('b', ns(5), 0).unwrap();
    queue.add_after('c', ns(4), 1).unwrap();
    assert_eq!(queue.add_after('a', ns(3), 2), Ok(Outcome::Merged));
    assert_eq!(queue.add_after('b', ns(3), 2), Ok(Outcome::Merged));
    assert_eq!(queue.len(4), 0);
    assert_eq!(queue.len(5), 3);
    assert_eq!(queue.dequeue_order(), ['b', 'c', 'a']);
}

#[test]
fn an_add_supersedes_the_wait() {
    let mut queue = plain();
    queue.add_after('a', ns(5), 0).unwrap();
    assert_eq!(queue.add('a', 1), Ok(Outcome::Promoted));
    assert_eq!(queue.try_get(1), Ok('a'));
    queue.end('a', Ending::Done, 2);
    assert_eq!(queue.try_get(10), Err(GetError::Empty));
}

#[test]
fn a_leased_key_waits_for_the_earlier_of_both() {
    let mut queue = plain();
    queue.add('a', 0).unwrap();
    queue.try_get(0).unwrap();
    queue.add_after('a', ns(10), 0).unwrap();
    assert_eq!(queue.seen('a', 0), OracleKeyState::LeasedWaiting(10));
    queue.end('a', Ending::RequeueAfter(ns(4)), 0);
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(4));
    queue.try_get(4).unwrap();
    queue.add_after('a', ns(2), 4).unwrap();
    assert_eq!(queue.seen('a', 6), OracleKeyState::LeasedDirty);
    queue.end('a', Ending::RequeueAfter(ns(100)), 7);
    assert_eq!(queue.seen('a', 7), OracleKeyState::Ready);
}

#[test]
fn a_failure_counts_once_per_wait() {
    let mut queue = limited();
    for (now, failures, until) in [(0, 1, 10), (3, 1, 10), (9, 1, 10), (10, 2, 30), (29, 2, 30), (30, 3, 70)]
    {
        queue.add('a', now).unwrap();
        queue.try_get(now).unwrap();
        queue.end('a', Ending::Retry, now);
        assert_eq!((queue.requeues('a'), queue.seen('a', now)), (failures, OracleKeyState::Waiting(until)));
    }
    queue.add('a', 70).unwrap();
    queue.try_get(70).unwrap();
    queue.end('a', Ending::Dropped, 70);
    assert_eq!(queue.seen('a', 70), OracleKeyState::Waiting(120), "the wait is capped");
}

#[test]
fn what_forgets_and_what_keeps() {
    let mut queue = limited();
    for (ending, left) in [
        (Ending::Done, 1),
        (Ending::DoneAfter(ns(1)), 1),
        (Ending::Succeed, 0),
        (Ending::RequeueAfter(ns(1)), 0),
        (Ending::Retry, 1),
        (Ending::RetryNoSooner(ns(1)), 1),
        (Ending::Dropped, 1),
    ] {
        queue.forget('a');
        queue.cancel('a', 0);
        queue.add_rate_limited('a', 0).unwrap();
        queue.add('a', 0).unwrap();
        queue.try_get(0).unwrap();
        queue.end('a', ending, 0);
        assert_eq!(queue.requeues('a'), left, "{ending:?}");
    }
}

#[test]
fn a_dirty_key_runs_again_whatever_the_outcome() {
    for ending in [Ending::Done, Ending::Succeed, Ending::RequeueAfter(ns(9)), Ending::Retry, Ending::Dropped]
    {
        let mut queue = limited();
        queue.add('a', 0).unwrap();
        queue.try_get(0).unwrap();
        queue.add('a', 0).unwrap();
        queue.end('a', ending, 0);
        assert_eq!(queue.seen('a', 0), OracleKeyState::Ready);
    }
}

#[test]
fn cancel_never_touches_the_lease() {
    let mut queue = plain();
    assert!(!queue.cancel('a', 0));
    queue.add_after('a', ns(5), 0).unwrap();
    assert!(queue.cancel('a', 0));
    queue.add('a', 0).unwrap();
    assert!(queue.cancel('a', 0));
    assert_eq!(queue.seen('a', 0), OracleKeyState::Absent);
    queue.add('a', 0).unwrap();
    queue.try_get(0).unwrap();
    assert!(!queue.cancel('a', 0));
    queue.add('a', 0).unwrap();
    assert!(queue.cancel('a', 0));
    queue.add_after('a', ns(5), 0).unwrap();
    assert!(queue.cancel('a', 0));
    queue.end('a', Ending::Done, 0);
    assert_eq!(queue.seen('a', 0), OracleKeyState::Absent);
}

#[test]
fn shut_down_hands_out_what_was_due_and_freezes_the_rest() {
    let mut queue = limited();
    queue.add('d', 0).unwrap();
    queue.add('l', 0).unwrap();
    assert_eq!((queue.try_get(0), queue.try_get(0)), (Ok('d'), Ok('l')));
    queue.add('d', 0).unwrap();
    queue.add_after('a', ns(5), 0).unwrap();
    queue.add_after('b', ns(6), 0).unwrap();
    queue.shut_down(5);
    assert_eq!(queue.add('l', 5), Err(Refused::ShutDown));
    assert_eq!(queue.add_after('n', ns(0), 5), Err(Refused::ShutDown));
    assert_eq!(queue.try_get(99), Ok('a'));
    assert_eq!(queue.try_get(99), Err(GetError::Empty), "d is dirty, so the queue is not closed");
    queue.end('a', Ending::Retry, 99);
    queue.end('d', Ending::Retry, 99);
    assert_eq!(queue.try_get(99), Ok('d'));
    assert_eq!(queue.try_get(999), Err(GetError::Closed));
    assert_eq!(queue.drain(999), None);
    queue.end('d', Ending::Succeed, 999);
    queue.end('l', Ending::RequeueAfter(ns(0)), 999);
    let left = queue.drain(9999).unwrap();
    assert_eq!(
        (left.ready, left.waiting, left.late, left.leased),
        (vec![], vec!['b'], vec!['a', 'l'], vec![])
    );
}

#[test]
fn stop_now_empties_and_leases_end_into_nothing() {
    let mut queue = limited();
    for key in ['a', 'b', 'c', 'd'] {
        queue.add(key, 0).unwrap();
    }
    for _ in 0..3 {
        queue.try_get(0).unwrap();
    }
    queue.add('b', 0).unwrap();
    queue.add_after('c', ns(5), 0).unwrap();
    queue.add_after('w', ns(5), 0).unwrap();
    let left = queue.stop_now(0);
    assert_eq!((left.ready, left.waiting, left.leased), (vec!['d'], vec!['w'], vec!['a', 'b', 'c']));
    assert_eq!(queue.tally(9), Tally { leased: 3, ..Tally::default() });
    assert_eq!(queue.try_get(9), Err(GetError::Closed));
    for (key, ending) in [('a', Ending::Retry), ('b', Ending::Done), ('c', Ending::RequeueAfter(ns(0)))] {
        queue.end(key, ending, 9);
    }
    assert_eq!(queue.tally(9), Tally::default());
}

#[test]
fn time_has_an_end() {
    let mut queue = limited();
    queue.add_after('a', Duration::MAX, 5).unwrap();
    assert_eq!(queue.seen('a', Time::MAX - 1), OracleKeyState::Waiting(Time::MAX));
    assert_eq!(later(7, Duration::MAX), Time::MAX);
}
