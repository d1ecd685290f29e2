//! `OncePerBackoff` counts one failure per wait, and evicts finished waits.

use std::time::Duration;

use flyball_ratelimit::{
    Capped, Exponential, Failure, FastSlow, MaxOf, OncePerBackoff, Policy, Quota, RetryBudget, TokenBucket,
};
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
            policy.record_failure(&"a", at(now), 0, &mut |_| false),
            Failure { wait: millis(100 - now), counted: now == 0 },
            "the rest of the first wait"
        );
        assert_eq!(policy.num_requeues(&"a"), 1);
    }
    assert_eq!(
        policy.record_failure(&"a", at(100), 0, &mut |_| false),
        Failure { wait: millis(200), counted: true },
        "the first wait is over, so the second one starts"
    );
    assert_eq!(policy.num_requeues(&"a"), 2);
    policy.forget(&"a");
    assert_eq!((policy.num_requeues(&"a"), policy.tracked_keys()), (0, 0));
    assert_eq!(policy.record_failure(&"a", at(100), 0, &mut |_| false).wait, millis(100));
    policy.check().unwrap();
}

#[test]
fn duplicates_of_one_failure_take_one_token() {
    let bucket = TokenBucket::new(Quota::per_second(1.try_into().unwrap()));
    let mut policy = OncePerBackoff::new(bucket);
    let mut wait = |key, now| policy.record_failure(&key, at(now), 0, &mut |_| false).wait;
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
        fn record_failure(
            &mut self,
            key: &u64,
            _: Nanos,
            _: u64,
            _: &mut dyn FnMut(&u64) -> bool,
        ) -> Failure {
            Failure { wait: if *key == 0 { Duration::MAX } else { millis(5) }, counted: true }
        }
        fn forget(&mut self, _: &u64) {}
        fn num_requeues(&self, _: &u64) -> u32 {
            0
        }
        fn tracked_keys(&self) -> usize {
            0
        }
    }
    let mut policy = OncePerBackoff::new(By);
    for key in 0..10_000 {
        let _ = policy.record_failure(&key, at(key * 10), 0, &mut |_| false);
        policy.check().unwrap();
        assert!(policy.tracked_keys() <= 4, "{} after {key} keys", policy.tracked_keys());
    }
    assert!(
        policy.record_failure(&0, at(100_000), 0, &mut |_| false).wait > millis(1_000_000),
        "the long wait is still open"
    );
}

/// A combination counts a failure if one of its parts does.
#[test]
fn a_combination_counts_what_a_part_counts() {
    let once = |wait| OncePerBackoff::new(Exponential::new(millis(wait)..=millis(10_000)));
    let mut policy = Capped::new(MaxOf::new(once(10), once(100)), millis(50));
    let mut fail = |now| policy.record_failure(&"a", at(now), 0, &mut |_| false);
    assert_eq!(fail(0), Failure { wait: millis(50), counted: true });
    assert_eq!(fail(5), Failure { wait: millis(50), counted: false }, "both backoffs are open");
    assert_eq!(fail(10), Failure { wait: millis(50), counted: true }, "the first backoff is over");
    let mut paced = RetryBudget::new(once(100), Quota::per_second(1.try_into().unwrap()));
    assert!(paced.record_failure(&"a", at(0), 0, &mut |_| false).counted);
    assert!(!paced.record_failure(&"a", at(1), 0, &mut |_| false).counted);
}

/// Restored failures reach each policy that counts, through all that wrap it. An open wait stays open, and its failures are not counted.
#[test]
fn restored_failures_reach_each_counting_policy() {
    let ms = millis;
    let exponential = Exponential::new(ms(1)..=ms(10_000));
    let bucket = TokenBucket::new(Quota::per_second(std::num::NonZeroU32::MAX));
    let both = MaxOf::new(FastSlow::new(ms(2), ms(300), 4), MaxOf::new(exponential, bucket));
    let plenty = Quota::per_second(std::num::NonZeroU32::MAX);
    let mut policy = OncePerBackoff::new(RetryBudget::new(Capped::new(both, ms(5_000)), plenty));
    let restore = |policy: &mut OncePerBackoff<_, _>, key, failures, now| {
        policy.restore_failures(&key, failures, at(now), &mut |_| false);
    };
    restore(&mut policy, "a", 3, 0);
    assert_eq!((policy.num_requeues(&"a"), policy.num_requeues(&"b")), (3, 0));
    let fail =
        |policy: &mut OncePerBackoff<_, _>, now| policy.record_failure(&"a", at(now), 0, &mut |_| false);
    assert_eq!(
        fail(&mut policy, 0),
        Failure { wait: ms(8), counted: true },
        "the fourth failure of the backoff"
    );
    restore(&mut policy, "a", 9, 1);
    assert_eq!(fail(&mut policy, 2), Failure { wait: ms(6), counted: false }, "the wait stays open");
    assert_eq!(policy.num_requeues(&"a"), 9);
    assert_eq!(fail(&mut policy, 8), Failure { wait: ms(512), counted: true });
    restore(&mut policy, "a", 2, 8);
    assert_eq!(policy.num_requeues(&"a"), 10, "the failures only rise");
    assert_eq!(fail(&mut policy, 520).wait, ms(1_024));
    policy.forget(&"a");
    assert_eq!(policy.num_requeues(&"a"), 0);
}
