//! `OncePerBackoff` counts one failure per wait, and evicts finished waits.

use std::time::Duration;

use flyball_ratelimit::{Exponential, OncePerBackoff, Policy, Quota, TokenBucket};
use flyball_sync::Nanos;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(after: u64) -> Nanos {
    Nanos::ZERO + millis(after)
}

#[test]
fn a_storm_of_failures_counts_once_per_wait() {
    let mut policy = OncePerBackoff::new(Exponential::new(millis(100)..=millis(10_000)));
    for now in 0..100 {
        assert_eq!(
            policy.record_failure(&"a", at(now), 0).0,
            millis(100 - now),
            "the rest of the first wait"
        );
        assert_eq!(policy.num_requeues(&"a"), 1);
    }
    assert_eq!(
        policy.record_failure(&"a", at(100), 0).0,
        millis(200),
        "the first wait is over, so the second one starts"
    );
    assert_eq!(policy.num_requeues(&"a"), 2);
    policy.forget(&"a");
    assert_eq!((policy.num_requeues(&"a"), policy.tracked_keys()), (0, 0));
    assert_eq!(policy.record_failure(&"a", at(100), 0).0, millis(100));
    policy.check().unwrap();
}

#[test]
fn duplicates_of_one_failure_take_one_token() {
    let bucket = TokenBucket::new(Quota::per_second(1.try_into().unwrap()));
    let mut policy = OncePerBackoff::new(bucket);
    let mut wait = |key, now| policy.record_failure(&key, at(now), 0).0;
    assert_eq!(wait("a", 0), millis(0));
    assert_eq!(wait("b", 0), millis(1_000));
    assert_eq!([wait("b", 100), wait("b", 200), wait("b", 999)], [millis(900), millis(800), millis(1)]);
    assert_eq!(wait("c", 999), millis(1_001), "b took one token, not four");
}

/// A long wait at the head of the list must not block the eviction of the waits behind it.
#[test]
fn an_open_wait_hides_nothing_behind_it() {
    struct By;
    impl Policy<u64> for By {
        type Reservation = ();
        fn record_failure(&mut self, key: &u64, _: Nanos, _: u64) -> (Duration, ()) {
            (if *key == 0 { Duration::MAX } else { millis(5) }, ())
        }
        fn forget(&mut self, _: &u64) {}
        fn num_requeues(&self, _: &u64) -> u32 {
            0
        }
        fn cancel(&mut self, (): (), _: Nanos) -> bool {
            false
        }
        fn tracked_keys(&self) -> usize {
            0
        }
    }
    let mut policy = OncePerBackoff::new(By);
    for key in 0..10_000 {
        policy.record_failure(&key, at(key * 10), 0);
        policy.check().unwrap();
        assert!(policy.tracked_keys() <= 4, "{} after {key} keys", policy.tracked_keys());
    }
    assert!(policy.record_failure(&0, at(100_000), 0).0 > millis(1_000_000), "the long wait is still open");
}
