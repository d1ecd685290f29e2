//! State per key is bounded and expires by itself, and the cost of each call is bounded.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{
    Exponential, FastSlow, Jitter, MaxOf, OncePerBackoff, Policy, Quota, RetryBudget, TokenBucket,
    controller_default,
};
use flyball_sync::Nanos;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn forgetting_to_forget_leaks_nothing() {
    // A key is kept during its wait of 1 s, and for 600 s after that. One new key fails per second, so only the keys of the last 601 s are kept.
    let mut backoff = Exponential::new(SECOND..=SECOND);
    let mut now = Nanos::ZERO;
    for key in 0..1_000_000_u32 {
        let _ = backoff.record_failure(&key, now, 0, &mut |_| false);
        now = now + SECOND;
    }
    assert_eq!(backoff.tracked_keys(), 602);
    assert_eq!(backoff.check(), Ok(()));
}

#[test]
fn evicts_expired_keys_two_at_a_time() {
    let mut backoff = Exponential::new(SECOND..=SECOND);
    for key in 0..1_000_u32 {
        let _ = backoff.record_failure(&key, Nanos::ZERO, 0, &mut |_| false);
    }
    let later = Nanos::ZERO + SECOND * 1_000;
    let mut dead = Vec::new();
    for call in 1..=500 {
        let _ = backoff.record_failure(&9_999, later, 0, &mut |_| false);
        backoff.take_evicted(&mut dead);
        assert_eq!(dead.len(), 2 * call, "each call evicts two keys");
    }
    assert_eq!(backoff.tracked_keys(), 1);
    assert_eq!(dead, (0..1_000).collect::<Vec<_>>(), "the keys that were idle longest are evicted first");
}

#[test]
fn evicts_the_longest_idle_key_at_the_bound() {
    let mut backoff = Exponential::new(SECOND..=SECOND * 60).max_keys(NonZeroU32::new(3).unwrap());
    let mut wait = |key| backoff.record_failure(&key, Nanos::ZERO, 0, &mut |_| false).wait.as_secs();
    assert_eq!([wait("a"), wait("b"), wait("c"), wait("a")], [1, 1, 1, 2]);
    assert_eq!(wait("d"), 1, "d replaces b");
    assert_eq!([wait("a"), wait("c"), wait("d")], [4, 2, 2], "the other keys keep their failures");
    assert_eq!(wait("b"), 1, "b starts from zero failures and replaces a");
    assert_eq!((backoff.tracked_keys(), backoff.num_requeues(&"a")), (3, 0));
}

#[test]
fn keeps_a_million_keys_by_default() {
    let mut steps = FastSlow::new(SECOND, SECOND, 1);
    for key in 0..(1 << 20) + 5_u32 {
        let _ = steps.record_failure(&key, Nanos::ZERO, 0, &mut |_| false);
    }
    assert_eq!((steps.tracked_keys(), steps.num_requeues(&4), steps.num_requeues(&5)), (1 << 20, 0, 1));
}

#[test]
fn failures_are_kept_for_the_rest_after_the_wait_and_no_longer() {
    for (waits, rest) in [(100, None), (1_000, None), (100, Some(7)), (100, Some(0))] {
        let longest = SECOND * waits;
        // The default rest is the longer of the cap and ten minutes.
        let kept = longest + SECOND * rest.unwrap_or(600.max(waits));
        let mut backoff = Exponential::new(SECOND..=longest);
        let mut steps = FastSlow::new(SECOND, longest, 1);
        if let Some(rest) = rest {
            backoff = backoff.forget_after(SECOND * rest);
            steps = steps.forget_after(SECOND * rest);
        }
        let (first, second) = (Nanos::ZERO + kept, Nanos::ZERO + kept + kept + Duration::from_nanos(1));
        assert_eq!(backoff.record_failure(&1, Nanos::ZERO, 0, &mut |_| false).wait, SECOND);
        assert_eq!(
            backoff.record_failure(&1, first, 0, &mut |_| false).wait,
            SECOND * 2,
            "counted after {kept:?}"
        );
        assert_eq!(
            backoff.record_failure(&1, second, 0, &mut |_| false).wait,
            SECOND,
            "expired a nanosecond later"
        );
        assert_eq!(steps.record_failure(&1, Nanos::ZERO, 0, &mut |_| false).wait, SECOND);
        assert_eq!(
            steps.record_failure(&1, first, 0, &mut |_| false).wait,
            longest,
            "counted after {kept:?}"
        );
        assert_eq!(
            steps.record_failure(&1, second, 0, &mut |_| false).wait,
            SECOND,
            "expired a nanosecond later"
        );
    }
}

#[test]
fn settings_may_come_in_any_order_and_late() {
    let three = NonZeroU32::new(3).unwrap();
    let mut backoff = Exponential::new(SECOND..=SECOND);
    for key in 0..10 {
        let _ = backoff.record_failure(&key, Nanos::ZERO, 0, &mut |_| false);
    }
    let backoff = backoff.max_keys(three).forget_after(SECOND).immediate_first();
    assert_eq!((backoff.tracked_keys(), backoff.num_requeues(&6), backoff.num_requeues(&7)), (3, 0, 1));
    assert_eq!(backoff.check(), Ok(()));
}

#[test]
fn every_part_of_a_combination_returns_its_evicted_keys() {
    let mut policy = controller_default();
    let _ = policy.record_failure(&1, Nanos::ZERO, 0, &mut |_| false);
    policy.forget(&1);
    let mut dead = vec![0];
    policy.take_evicted(&mut dead);
    assert_eq!(dead, [0, 1], "evicted keys are appended");
    policy.take_evicted(&mut dead);
    assert_eq!(dead, [0, 1], "each evicted key is handed over once");
}

/// Lets 100 000 keys fail once each and forgets none of them. `FLYBALL_KEYS` sets a different number of keys; the full run has 10 000 000.
fn stream<P: Policy<u64>>(name: &str, mut policy: P, step: Duration, most: usize) -> P {
    let keys = std::env::var("FLYBALL_KEYS").map_or(100_000, |keys| keys.parse().expect("a number"));
    let mut now = Nanos::ZERO;
    let mut dead = Vec::new();
    for key in 0..keys {
        let _ = policy.record_failure(&key, now, key, &mut |_| false);
        policy.take_evicted(&mut dead);
        assert!(dead.len() <= 6, "{name}: one call evicted {} keys", dead.len());
        dead.clear();
        assert!(policy.tracked_keys() <= most, "{name}: {} after {key} keys", policy.tracked_keys());
        now = now + step;
    }
    policy
}

#[test]
fn a_stream_of_distinct_keys_does_not_grow_a_limiter() {
    let (milli, rest) = (Duration::from_millis(1), Duration::from_secs(1));
    let thousand = NonZeroU32::new(1_000).unwrap();
    let backoff = || Exponential::new(milli..=rest).jitter(Jitter::Decorrelated);
    // One key fails per millisecond, and each key is kept for the longest wait plus the rest: 2001 keys.
    let expire = 2_002;
    stream("exponential", backoff().forget_after(rest), milli, expire).check().unwrap();
    stream("fast and slow", FastSlow::new(milli, rest, 1).forget_after(rest), milli, expire).check().unwrap();
    // No time passes, so only `max_keys` bounds the number of keys.
    stream("exponential at once", backoff().max_keys(thousand), Duration::ZERO, 1_000).check().unwrap();
    let steps = FastSlow::new(milli, rest, 1).max_keys(thousand);
    stream("fast and slow at once", steps, Duration::ZERO, 1_000).check().unwrap();
    // The stored entries are open waits of 1 ms to 3 ms, and some finished waits that were not yet checked for eviction.
    let once = OncePerBackoff::new(backoff().forget_after(rest));
    stream("once per wait", once, milli, expire).check().unwrap();
    let bucket = || TokenBucket::new(Quota::per_second(thousand));
    stream("a bucket once per wait", OncePerBackoff::new(bucket()), milli, 16).check().unwrap();
    let both = MaxOf::new(backoff().forget_after(rest), bucket());
    stream("the longer of two", both, milli, expire);
    let paced =
        RetryBudget::new(backoff().forget_after(rest), Quota::per_second(thousand).allow_burst(thousand));
    stream("paced", paced, milli, expire).check().unwrap();
}

#[test]
fn a_stream_with_the_settings_as_they_come_stays_at_a_million_keys() {
    // One key fails per microsecond and waits for 1000 s, so all waits stay open and no key expires.
    let (micro, wait) = (Duration::from_micros(1), Duration::from_secs(1_000));
    let once = OncePerBackoff::new(Exponential::new(wait..=wait));
    let mut once = stream("once per wait", once, micro, 1 << 20);
    once.check().unwrap();
    once.get_mut().check().unwrap();
    let paced = RetryBudget::new(Exponential::new(wait..=wait), Quota::per_second(NonZeroU32::MIN));
    stream("paced", paced, micro, 1 << 20).check().unwrap();
}

/// While keys are in use, their failures neither expire nor are evicted. Afterwards the failures are evicted.
#[test]
fn keeps_what_is_in_use() {
    let backoff = Exponential::new(SECOND..=SECOND).max_keys(NonZeroU32::new(2).unwrap());
    let mut policy = MaxOf::new(backoff, FastSlow::new(SECOND, SECOND, 1));
    let mut now = Nanos::ZERO;
    for round in 1..=3 {
        for key in 0..10 {
            let wait = policy.record_failure(&key, now, 0, &mut |key| *key < 10).wait;
            assert_eq!((wait, policy.num_requeues(&key)), (SECOND, round));
        }
        now = now + SECOND * 10_000;
    }
    assert_eq!(policy.tracked_keys(), 10, "keys in use are kept beyond the bound");
    for key in 10..20 {
        // Now only key 3 is in use.
        let _ = policy.record_failure(&key, now, 0, &mut |key| *key == 3);
        assert_eq!(policy.get_mut().0.check(), Ok(()));
    }
    assert_eq!((policy.num_requeues(&3), policy.num_requeues(&4)), (3, 0));
    assert_eq!(Policy::<i32>::tracked_keys(policy.get_mut().0), 3, "the bound of two, plus the key in use");
}
