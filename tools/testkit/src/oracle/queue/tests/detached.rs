//! Tests of detached leases.

use super::*;
use crate::queue_answers::NotDetached;

#[test]
fn a_detached_key_is_leased_until_it_is_done() {
    let mut queue = leased(with_limiter());
    assert_eq!(queue.done('a', 0), Err(NotDetached));
    queue.detach('a', 0);
    assert_eq!(queue.seen('a', 0), OracleKeyState::Leased);
    assert_eq!(queue.add('a', 0), Ok(Outcome::Marked));
    assert_eq!(queue.done('a', 0), Ok(()));
    assert_eq!(queue.seen('a', 0), OracleKeyState::Ready);
    assert_eq!(queue.done('a', 0), Err(NotDetached));
    assert_eq!(queue.done('b', 0), Err(NotDetached));
}

#[test]
fn a_detached_key_keeps_its_wait() {
    let mut queue = leased(with_limiter());
    queue.detach('a', 0);
    queue.add_after('a', ns(5), 0).unwrap();
    assert_eq!(queue.done('a', 0), Ok(()));
    assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(5));
}

#[test]
fn a_detached_key_is_done_after_the_stop_as_well() {
    let mut queue = leased(with_limiter());
    queue.detach('a', 0);
    assert_eq!(queue.stop_now(0).leased, ['a']);
    assert_eq!(queue.done('a', 0), Ok(()));
    assert_eq!(queue.tally(0), Tally::default());
}
