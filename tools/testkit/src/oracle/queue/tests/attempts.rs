//! Tests that the queue gives up a key that fails too often.

use super::*;

fn attempts(most: u32, strict: bool) -> OracleSetup {
    OracleSetup { give_up_after: Some(most), strict, ..with_limiter() }
}

#[test]
fn the_last_failure_ends_the_lease() {
    let mut queue = leased(attempts(2, false));
    queue.end('a', Ending::Retry, 0);
    queue.add('a', 5).unwrap();
    queue.try_get(5).unwrap();
    queue.end('a', Ending::Dropped, 5);
    assert_eq!(
        (queue.requeues('a'), queue.seen('a', 5)),
        (1, OracleKeyState::Waiting(10)),
        "a failure within the backoff is not counted"
    );
    queue.try_get(10).unwrap();
    queue.end('a', Ending::Dropped, 10);
    assert_eq!((queue.requeues('a'), queue.seen('a', 10)), (0, OracleKeyState::Absent));
    assert_eq!(queue.dead, [('a', 2)]);
}

#[test]
fn what_came_meanwhile_is_still_to_do() {
    for strict in [false, true] {
        let mut queue = leased(attempts(1, strict));
        queue.add('a', 0).unwrap();
        queue.end('a', Ending::Retry, 0);
        assert_eq!(queue.seen('a', 0), OracleKeyState::Ready);
        queue.try_get(0).unwrap();
        queue.add_after('a', ns(5), 0).unwrap();
        queue.end('a', Ending::Retry, 0);
        assert_eq!(queue.seen('a', 0), OracleKeyState::Waiting(5));
        assert_eq!(queue.dead, [('a', 1), ('a', 1)]);
    }
}

#[test]
fn an_add_after_one_failure_too_many_is_refused() {
    let mut queue = OracleQueue::new(attempts(2, true));
    queue.add_rate_limited('a', 0).unwrap();
    assert_eq!(
        queue.add_rate_limited('a', 9),
        Ok(Outcome::Merged),
        "a failure within the backoff is not counted"
    );
    assert_eq!(queue.add_rate_limited('a', 10), Err(Refused::Exhausted));
    assert_eq!(
        (queue.requeues('a'), queue.seen('a', 10)),
        (0, OracleKeyState::Ready),
        "the state of the key is unchanged"
    );
    assert_eq!(queue.dead, [('a', 2)]);
    assert_eq!(queue.add_rate_limited('b', 10), Ok(Outcome::New));
    queue.shut_down(20);
    assert_eq!(queue.add_rate_limited('b', 20), Err(Refused::ShutDown));
    assert_eq!(queue.requeues('b'), 1, "a refused add counts no failure");
}
