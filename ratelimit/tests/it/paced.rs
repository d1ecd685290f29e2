//! Tests `RetryBudget` step by step, compared with client-go's rule, and with a quota that changes inside nested policies.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{
    Capped, Exponential, Failure, FastSlow, Limiter, MaxOf, OncePerBackoff, Policy, Quota, RetryBudget,
    TokenBucket,
};
use flyball_sync::{ManualClock, Nanos};
use testkit::random::Random;

fn nz(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("a quota value must not be zero")
}

fn per_second(rate: u32, burst: u32) -> Quota {
    Quota::per_second(nz(rate)).allow_burst(nz(burst))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn at(after: u64) -> Nanos {
    Nanos::ZERO + secs(after)
}

/// A policy that uses the key as the wait, in seconds.
#[derive(Debug)]
struct AsTheKeySays;

impl Policy<u64> for AsTheKeySays {
    fn record_failure(&mut self, key: &u64, _: Nanos, _: u64, _: &mut dyn FnMut(&u64) -> bool) -> Failure {
        Failure { wait: secs(*key), counted: true }
    }
    fn forget(&mut self, _: &u64) {}
    fn num_requeues(&self, _: &u64) -> u32 {
        0
    }
    fn tracked_keys(&self) -> usize {
        0
    }
}

fn waits<const N: usize>(policy: &mut RetryBudget<AsTheKeySays>, now: u64, keys: [u64; N]) -> [u64; N] {
    keys.map(|key| policy.record_failure(&key, at(now), 0, &mut |_| false).wait.as_secs())
}

#[test]
fn a_long_wait_delays_no_other_key_and_the_next_free_token_is_taken() {
    let mut policy = RetryBudget::new(AsTheKeySays, per_second(1, 1));
    assert_eq!(waits(&mut policy, 0, [1_000, 0, 1_000, 0, 999]), [1_000, 0, 1_001, 1, 999]);
    assert_eq!(waits(&mut policy, 0, [999, 2, 2]), [1_002, 2, 3], "taken tokens are skipped");
    policy.check().unwrap();
}

#[test]
fn a_burst_is_there_at_any_moment_and_not_more() {
    let mut policy = RetryBudget::new(AsTheKeySays, per_second(1, 3));
    assert_eq!(waits(&mut policy, 0, [10; 6]), [10, 10, 10, 11, 12, 13]);
    assert_eq!(waits(&mut policy, 0, [0; 5]), [0, 0, 0, 1, 2], "the earlier tokens are free");
    assert_eq!(waits(&mut policy, 0, [8]), [8], "tokens 8 to 10 are available at 8; 8 and 9 are free");
}

/// 1000 keys wait 30 s each with a budget of 10 retries a second: client-go's rule compared with `RetryBudget`.
#[test]
fn what_waited_elsewhere_comes_within_the_budget() {
    let slow = || FastSlow::new(secs(30), secs(30), 0);
    let (mut charged, mut paced) = (
        MaxOf::new(slow(), TokenBucket::new(per_second(10, 100))),
        RetryBudget::new(slow(), per_second(10, 100)),
    );
    let most_in_a_second = |wait: &mut dyn FnMut(&u32) -> Duration| {
        let mut seconds = [0_u32; 1_000];
        (0..1_000_u32).for_each(|key| seconds[wait(&key).as_secs() as usize] += 1);
        seconds.into_iter().max()
    };
    assert_eq!(
        most_in_a_second(&mut |key| charged.record_failure(key, at(0), 0, &mut |_| false).wait),
        Some(409),
        "far above 100 + 10"
    );
    assert_eq!(
        most_in_a_second(&mut |key| paced.record_failure(key, at(0), 0, &mut |_| false).wait),
        Some(109)
    );
}

/// With random keys and times, no span of time contains the ends of more waits than the budget allows.
#[test]
fn no_span_holds_more_than_burst_and_rate() {
    for (rate, burst) in [(1, 1), (3, 1), (7, 5), (100, 20)] {
        let mut random = Random::new(rate.into());
        let mut policy = RetryBudget::new(AsTheKeySays, per_second(rate, burst));
        let (mut now, mut ends) = (Nanos::ZERO, Vec::new());
        for _ in 0..2_000 {
            now = now + Duration::from_millis(random.below(2_000 / u64::from(rate)));
            let failure = policy.record_failure(&random.below(100), now, 0, &mut |_| false);
            ends.push((now + failure.wait).get());
        }
        ends.sort_unstable();
        for (i, first) in ends.iter().enumerate() {
            for (more, last) in ends[i..].iter().enumerate() {
                let arrived = (u128::from(last - first) * u128::from(rate)).div_ceil(1_000_000_000);
                assert!((more as u128) < u128::from(burst) + arrived, "{first} to {last}: {}", more + 1);
            }
        }
    }
}

#[test]
fn a_clock_that_jumps_back_finds_no_token_again() {
    let clock = ManualClock::new();
    clock.set(at(100));
    let limiter = Limiter::with_clock(RetryBudget::new(AsTheKeySays, per_second(1, 2)), clock.clone());
    assert_eq!([0, 0, 0].map(|key| limiter.record_failure(&key)), [0, 0, 1].map(secs));
    clock.set(at(90));
    assert_eq!(limiter.record_failure(&0), secs(12));
}

#[test]
fn a_changed_quota_keeps_what_is_there_and_what_is_booked() {
    let mut policy = RetryBudget::new(AsTheKeySays, per_second(10, 10));
    assert_eq!(waits(&mut policy, 0, [0; 4]), [0; 4]);
    policy.set_quota(per_second(1, 8), at(0));
    assert_eq!(waits(&mut policy, 0, [0; 8]), [0, 0, 0, 0, 0, 0, 1, 2], "six of ten were left");
    policy.set_quota(per_second(1, 12), at(0));
    assert_eq!(waits(&mut policy, 0, [0, 0]), [3, 4], "a larger burst fills up at the rate");
    policy.set_quota(per_second(2, 1), at(0));
    assert_eq!(
        waits(&mut policy, 0, [3]),
        [3],
        "four tokens are reserved ahead; at two a second, the fifth arrives at 2.5 s"
    );
    policy.check().unwrap();
}

#[test]
fn changes_of_the_quota_in_a_row_win_nothing() {
    let mut policy = RetryBudget::new(AsTheKeySays, per_second(1, 1));
    let mut now = Nanos::ZERO;
    let mut at_once = 0;
    for change in 0..1_000 {
        policy.set_quota(per_second(1 + change % 2, 1), now);
        at_once += usize::from(policy.record_failure(&0, now, 0, &mut |_| false).wait.is_zero());
        now = now + Duration::from_millis(10);
    }
    assert_eq!(at_once, 1, "each change of the quota discards the part of a token that has arrived");
}

#[test]
fn a_backlog_is_one_range_and_past_ranges_go_away() {
    let mut policy = RetryBudget::new(AsTheKeySays, per_second(1_000, 1));
    for _ in 0..100_000 {
        let _ = policy.record_failure(&1, at(0), 0, &mut |_| false);
    }
    assert!(format!("{policy:?}").contains("ranges: 1 "), "{policy:?}");
    for now in 0..10_000 {
        let _ = policy.record_failure(&0, at(100 + now), 0, &mut |_| false);
        policy.check().unwrap();
    }
    assert!(format!("{policy:?}").contains("ranges: 1 "), "{policy:?}");
}

#[test]
fn beyond_a_million_ranges_the_earliest_grow_together() {
    let mut policy = RetryBudget::new(AsTheKeySays, per_second(1, 1));
    let far = |range: u64| range * 2;
    for range in 1..=1 << 20 {
        let _ = policy.record_failure(&far(range), at(0), 0, &mut |_| false);
    }
    assert!(format!("{policy:?}").contains("ranges: 1048576 "), "{policy:?}");
    let _ = policy.record_failure(&far((1 << 20) + 1), at(0), 0, &mut |_| false);
    assert!(format!("{policy:?}").contains("ranges: 1048576 "), "{policy:?}");
    policy.check().unwrap();
    assert_eq!(
        waits(&mut policy, 0, [1, 3, 7]),
        [1, 5, 7],
        "the ranges of 2 and 4 are merged, so token 3 is lost"
    );
}

#[test]
fn a_bucket_is_reached_wherever_it_is() {
    let clock = ManualClock::new();
    let bucket = || TokenBucket::new(per_second(1, 1));
    let quick = || Exponential::new(Duration::from_nanos(1)..=Duration::from_nanos(1));
    let first = MaxOf::new(MaxOf::new(bucket(), quick()), quick());
    let deep =
        OncePerBackoff::new(Capped::new(RetryBudget::new(first, per_second(1_000, 1_000)), secs(1_000)));
    let limiter = Limiter::<u32, _, _>::with_clock(deep, clock.clone());
    limiter.record_failure(&1);
    limiter.record_failure(&2);
    let four = per_second(4, 1);
    let before = limiter.update_policy(|once, now| {
        let bucket = once.get_mut().get_mut().get_mut().get_mut().0.get_mut().0;
        let before = bucket.quota();
        bucket.set_quota(four, now);
        before
    });
    assert_eq!((before, limiter.record_failure(&3)), (per_second(1, 1), Duration::from_millis(500)));
}
