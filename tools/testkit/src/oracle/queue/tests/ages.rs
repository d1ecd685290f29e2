//! Tests of the ages of Ready and leased keys.

use super::*;
use crate::queue_answers::{OldestAges, Overdue};

#[test]
fn a_key_is_ready_from_its_deadline() {
    let ages = |ready, leased| Some(OldestAges { ready, leased });
    let mut queue = plain();
    assert_eq!(queue.ages(0), None);
    queue.track_ages(0);
    queue.add_after('a', ns(5), 0).unwrap();
    queue.add('b', 6).unwrap();
    assert_eq!(queue.ages(9), ages(Some(4), None));
    queue.try_get(10).unwrap();
    assert_eq!(queue.ages(12), ages(Some(6), Some(2)));
    assert_eq!((queue.lease_age('a', 12), queue.lease_age('b', 12)), (Some(2), None));
    queue.end('a', Ending::Retry, 12);
    assert_eq!(queue.ages(12), ages(Some(6), None));
}

#[test]
fn what_was_there_counts_from_when_ages_are_kept() {
    let mut queue = plain();
    queue.add_many(&['a', 'b'], 0);
    queue.try_get(1).unwrap();
    queue.track_ages(5);
    queue.track_ages(6);
    assert_eq!(queue.ages(9), Some(OldestAges { ready: Some(4), leased: Some(4) }));
}

#[test]
fn each_lease_is_overdue_once() {
    let mut queue = plain();
    queue.track_ages(0);
    assert_eq!(queue.next_overdue(ns(0), 0), Overdue::NotYet);
    queue.add_many(&['a', 'b'], 0);
    queue.try_get(1).unwrap();
    queue.try_get(2).unwrap();
    assert_eq!(queue.next_overdue(ns(5), 5), Overdue::NotYet);
    assert_eq!(queue.next_overdue(ns(5), 6), Overdue::Lease('a', 5));
    assert_eq!(queue.next_overdue(ns(5), 6), Overdue::NotYet);
    queue.detach('a', 6);
    assert_eq!(queue.next_overdue(ns(0), 6), Overdue::Lease('b', 4));
    queue.shut_down(6);
    assert_eq!(
        queue.next_overdue(ns(0), 9),
        Overdue::NotYet,
        "a key is leased, so a lease may become overdue"
    );
    queue.done('a', 9).unwrap();
    queue.end('b', Ending::Done, 9);
    assert_eq!(queue.next_overdue(ns(0), 9), Overdue::Never);
}

#[test]
fn another_lease_of_the_same_key_is_overdue_again() {
    let mut queue = leased(OracleSetup::default());
    assert_eq!(queue.next_overdue(ns(0), 3), Overdue::Lease('a', 0), "ages are kept from this call on");
    queue.add('a', 3).unwrap();
    queue.end('a', Ending::Done, 3);
    queue.try_get(4).unwrap();
    assert_eq!(queue.next_overdue(ns(1), 5), Overdue::Lease('a', 1));
}
