//! Tests of a drain that serves waiting keys up to its horizon.

use super::*;

/// Creates a queue that is being drained with the horizon 10. `l` is leased; `w`, `v` and `x` wait until 5, 10 and 11.
fn serving(setup: OracleSetup) -> OracleQueue<char> {
    let mut queue = OracleQueue::new(setup);
    queue.add('l', 0).unwrap();
    queue.try_get(0).unwrap();
    for (key, until) in [('w', 5), ('v', 10), ('x', 11)] {
        queue.add_after(key, ns(until), 0).unwrap();
    }
    queue.pause();
    assert_eq!(queue.drain_all_timeout(ns(10), 0), None);
    assert!(!queue.is_paused());
    queue
}

#[test]
fn waits_are_served_in_their_time() {
    let mut queue = serving(OracleSetup::default());
    assert!(queue.is_shutting_down());
    assert_eq!(queue.add('l', 0), Err(Refused::ShutDown));
    assert_eq!(queue.try_get(4), Err(GetError::Empty));
    assert_eq!(queue.try_get(5), Ok('w'));
    queue.end('w', Ending::RequeueAfter(ns(4)), 5);
    assert_eq!(queue.seen('w', 5), OracleKeyState::Waiting(9));
    assert_eq!(queue.try_get(9), Ok('w'));
    queue.end('w', Ending::RequeueAfter(ns(4)), 9);
    queue.end('l', Ending::Retry, 9);
    assert_eq!(queue.try_get(9), Ok('l'), "the failed key is Ready at the tail");
    queue.end('l', Ending::Done, 9);
    assert_eq!(queue.drain_all_timeout(ns(99), 9), None, "only the first call sets the horizon");
    assert_eq!(queue.try_get(9), Err(GetError::Empty));
    assert_eq!(queue.try_get(20), Ok('v'));
    assert_eq!(queue.try_get(20), Err(GetError::Closed), "v is leased, but the horizon has passed");
    queue.end('v', Ending::Retry, 20);
    assert_eq!(queue.try_get(20), Err(GetError::Closed));
    let left = queue.drain_all_timeout(ns(0), 20).unwrap();
    assert_eq!(
        (left.ready, left.waiting, left.late, left.leased),
        (vec![], vec!['x'], vec!['v', 'w'], vec![])
    );
}

#[test]
fn at_the_end_everything_is_left() {
    let mut queue = serving(with_limiter());
    assert_eq!(queue.drain_all_timeout(ns(99), 9), None);
    assert_eq!(queue.drain_all_timeout(ns(99), 10), None, "each call waits for its own limit");
    let left = queue.drain_all_timeout(ns(0), 10).unwrap();
    assert_eq!((left.ready, left.waiting, left.leased), (vec!['w', 'v'], vec!['x'], vec!['l']));
    queue.end('l', Ending::Retry, 10);
    assert_eq!(queue.try_get(99), Ok('w'), "Ready keys are still served");
}

#[test]
fn a_key_that_is_due_at_the_horizon_keeps_the_queue_open_until_its_lease_ends() {
    let mut queue = leased(OracleSetup::default());
    queue.add_after('a', ns(5), 0).unwrap();
    assert_eq!(queue.drain_all_timeout(ns(10), 0), None);
    assert_eq!(queue.try_get(20), Err(GetError::Empty));
    queue.end('a', Ending::Done, 20);
    assert_eq!(queue.try_get(20), Ok('a'));
    queue.end('a', Ending::Retry, 20);
    assert_eq!(queue.try_get(99), Err(GetError::Closed));
}

#[test]
fn a_failed_key_is_served_within_the_horizon() {
    let mut queue = serving(with_limiter());
    queue.end('l', Ending::Retry, 0);
    assert_eq!(queue.len(10), 3);
    assert_eq!(queue.dequeue_order(), ['w', 'v', 'l']);
}

#[test]
fn a_plain_end_cuts_it_short() {
    let mut queue = serving(OracleSetup::default());
    queue.shut_down(5);
    assert_eq!(queue.try_get(99), Ok('w'));
    assert_eq!(queue.try_get(99), Err(GetError::Closed));
    queue.end('w', Ending::Retry, 99);
    queue.end('l', Ending::Done, 99);
    let left = queue.drain(99).unwrap();
    assert_eq!((left.waiting, left.late), (vec!['v', 'x'], vec!['w']));
}

#[test]
fn a_lease_whose_wait_is_due_is_dirty_when_it_is_cut_short() {
    let mut queue = OracleQueue::new(OracleSetup::default());
    queue.add_many(&['a', 'b'], 0);
    queue.try_get_many(2, 0).unwrap();
    queue.add_after('a', ns(5), 0).unwrap();
    queue.add_after('b', ns(6), 0).unwrap();
    queue.drain_all_timeout(ns(9), 0);
    queue.shut_down(5);
    assert_eq!(queue.seen('a', 9), OracleKeyState::LeasedDirty);
    assert_eq!(queue.seen('b', 9), OracleKeyState::LeasedWaiting(6));
}

#[test]
fn after_a_plain_end_it_only_waits_as_long() {
    let mut queue = leased(OracleSetup::default());
    queue.add_after('w', ns(5), 0).unwrap();
    queue.shut_down(0);
    assert_eq!(queue.drain_all_timeout(ns(9), 0), None);
    assert_eq!(queue.try_get(9), Err(GetError::Closed));
    let left = queue.drain_all_timeout(ns(0), 9).unwrap();
    assert_eq!((left.waiting, left.leased), (vec!['w'], vec!['a']));
    queue.stop_now(9);
    assert_eq!(queue.drain_all_timeout(ns(9), 9).unwrap().leased, ['a']);
}

#[test]
fn drain_ignores_infinite_deadlines() {
    let mut queue = OracleQueue::new(OracleSetup::default());
    queue.add_after('a', Duration::MAX, 0).unwrap();
    assert_eq!(queue.drain_all_timeout(Duration::MAX, 0).unwrap().waiting, ['a']);
    assert_eq!(queue.try_get(0), Err(GetError::Closed));
}
