//! The cases of client-go 0.37's `default_rate_limiters_test.go`, each as a test with the same name, followed by cases that upstream does not test.
//! Two of these have no counterpart here: a `MaxOf` of no policies cannot be built, and the tests of the queue cover limiters at shutdown.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{
    Capped, Exponential, Failure, FastSlow, Limiter, MaxOf, Policy, Quota, TokenBucket, controller_default,
};
use flyball_sync::{ManualClock, Nanos};

#[test]
fn test_item_exponential_failure_rate_limiter() {
    let limiter = limiter(Exponential::new(millis(1)..=secs(1)));
    assert_eq!(waits(&limiter, "one", 5), [1, 2, 4, 8, 16].map(millis));
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(waits(&limiter, "two", 2), [1, 2].map(millis));
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    assert_eq!(limiter.record_failure(&"one"), millis(1));
    assert_eq!(limiter.num_requeues(&"two"), 2);
}

#[test]
fn test_item_exponential_failure_rate_limiter_over_flow() {
    let short = limiter(Exponential::new(millis(1)..=secs(1_000)));
    waits(&short, "one", 5);
    assert_eq!(short.record_failure(&"one"), millis(32));
    waits(&short, "overflow1", 1_000);
    assert_eq!(short.record_failure(&"overflow1"), secs(1_000));

    let long = limiter(Exponential::new(secs(60)..=secs(1_000 * 3_600)));
    waits(&long, "two", 2);
    assert_eq!(long.record_failure(&"two"), secs(4 * 60));
    waits(&long, "overflow2", 1_000);
    assert_eq!(long.record_failure(&"overflow2"), secs(1_000 * 3_600));
}

#[test]
fn test_item_fast_slow_rate_limiter() {
    let limiter = limiter(FastSlow::new(millis(5), secs(10), 3));
    let steps = [millis(5), millis(5), millis(5), secs(10), secs(10)];
    assert_eq!(waits(&limiter, "one", 5), steps);
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(waits(&limiter, "two", 2), steps[..2]);
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    assert_eq!(limiter.record_failure(&"one"), millis(5));
}

#[test]
fn test_max_of_rate_limiter() {
    let steps = FastSlow::new(millis(5), secs(3), 3);
    let limiter = limiter(MaxOf::new(steps, Exponential::new(millis(1)..=secs(1))));
    assert_eq!(waits(&limiter, "one", 5), [millis(5), millis(5), millis(5), secs(3), secs(3)]);
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(waits(&limiter, "two", 2), [5, 5].map(millis));
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    assert_eq!(limiter.record_failure(&"one"), millis(5));
}

/// A policy of the program: the first hundred failures of all keys together wait for a short time, and all others for a long time.
struct Steps(u32);

impl Policy<u32> for Steps {
    const COUNTS_FAILURES: bool = false;

    fn record_failure(&mut self, _: &u32, _: Nanos, _: u64, _: &mut dyn FnMut(&u32) -> bool) -> Failure {
        self.0 += 1;
        Failure { wait: if self.0 <= 100 { millis(5) } else { secs(1_000) }, counted: true }
    }

    fn forget(&mut self, _: &u32) {}

    fn num_requeues(&self, _: &u32) -> u32 {
        0
    }

    fn tracked_keys(&self) -> usize {
        0
    }
}

#[test]
fn test_with_max_wait_rate_limiter() {
    let steps = limiter(Capped::new(Steps(0), secs(500)));
    for key in 0..200 {
        assert_eq!(steps.record_failure(&key), if key < 100 { millis(5) } else { secs(500) });
    }
    let one = limiter(Capped::new(FastSlow::new(millis(5), secs(1_000), 100), secs(500)));
    assert!(waits(&one, "one", 100).iter().all(|wait| *wait == millis(5)));
    assert_eq!(waits(&one, "one", 100), [secs(500); 100]);
    assert_eq!(one.num_requeues(&"one"), 200);
}

// Cases that upstream does not test.

#[test]
fn an_immediate_first_retry_and_then_1_s_doubling_to_5_min() {
    let limiter = limiter(Exponential::new(secs(1)..=secs(300)).immediate_first());
    let series = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300].map(secs);
    assert_eq!(waits(&limiter, "one", 13), series);
    limiter.forget(&"one");
    assert_eq!(waits(&limiter, "one", 2), series[..2], "`forget` restarts the series");
}

#[test]
fn a_base_of_zero_is_refused() {
    let refused = Exponential::<&str>::try_new(Duration::ZERO..=secs(1)).unwrap_err();
    assert!(refused.to_string().ends_with("not base 0ns and cap 1s"), "{refused}");
}

#[test]
fn a_base_above_the_cap_is_refused() {
    let refused = Exponential::<&str>::try_new(secs(2)..=secs(1)).unwrap_err();
    assert!(refused.to_string().ends_with("not base 2s and cap 1s"), "{refused}");
    assert_eq!(limiter(Exponential::new(secs(1)..=secs(1))).record_failure(&"one"), secs(1));
}

#[test]
fn a_wait_of_exactly_2_to_the_63_is_a_wait() {
    let limiter = limiter(Exponential::new(Duration::from_nanos(1)..=Duration::MAX));
    let waits = waits(&limiter, "one", 70);
    assert_eq!(waits[62], Duration::from_nanos(1 << 62));
    assert_eq!(waits[63], Duration::from_nanos(1 << 63));
    assert_eq!(waits[64..], [Duration::from_nanos(u64::MAX); 6]);
}

#[test]
fn no_number_of_failures_overflows() {
    let limiter = limiter(Exponential::new(millis(3)..=secs(1_000)));
    assert_eq!(waits(&limiter, "one", 100_000)[99_999], secs(1_000));
    assert_eq!(limiter.num_requeues(&"one"), 100_000);
}

#[test]
fn without_a_fast_attempt_all_are_slow() {
    assert_eq!(waits(&limiter(FastSlow::new(millis(1), secs(1), 0)), "one", 2), [secs(1), secs(1)]);
}

#[test]
fn a_bucket_grants_its_burst_and_then_its_rate() {
    let limiter = limiter(bucket(10, 3));
    assert_eq!(waits(&limiter, "one", 5), [0, 0, 0, 100, 200].map(millis));
    assert_eq!((limiter.num_requeues(&"one"), limiter.tracked_keys()), (0, 0));
    limiter.forget(&"one");
    assert_eq!(limiter.record_failure(&"two"), millis(300), "all keys share the bucket");
}

#[test]
fn every_part_of_a_max_of_is_charged() {
    let clock = ManualClock::new();
    let slow = FastSlow::new(secs(5), secs(5), 0);
    let limiter = Limiter::with_clock(MaxOf::new(slow, bucket(1, 2)), clock.clone());
    assert_eq!(waits(&limiter, "one", 6), [secs(5); 6]);
    // The six failures have taken six tokens, although no key waited for a token.
    assert_eq!(limiter.record_failure(&"one"), secs(5));
    assert_eq!(limiter.record_failure(&"one"), secs(6));
}

#[test]
fn the_inside_of_a_cap_is_charged() {
    let limiter = limiter(Capped::new(bucket(1, 1), millis(1_500)));
    assert_eq!(waits(&limiter, "one", 4), [0, 1_000, 1_500, 1_500].map(millis));
    let available =
        |at| limiter.update_policy(|capped, _| capped.get_mut().available_tokens(Nanos::ZERO + at));
    assert_eq!((available(millis(3_999)), available(secs(4))), (0, 1));
}

#[test]
fn the_controller_default_is_5_ms_to_1000_s_and_10_a_second() {
    let limiter = limiter(controller_default());
    let first: Vec<u32> = (0..100).collect();
    assert!(
        first.iter().all(|key| limiter.record_failure(key) == millis(5)),
        "the burst does not wait for tokens"
    );
    assert_eq!(limiter.record_failure(&100), millis(100), "the 101st key waits for a token");
    let one = limiter_of_default_alone();
    let waits = waits(&one, "one", 19);
    assert_eq!(waits[..4], [5, 10, 20, 40].map(millis));
    assert_eq!(waits[17..], [Duration::from_micros(655_360_000), secs(1_000)]);
}

#[test]
fn a_clock_that_jumps_makes_tokens_late_by_the_jump_and_never_early() {
    let clock = ManualClock::new();
    clock.advance(secs(100));
    let limiter = Limiter::with_clock(bucket(1, 2), clock.clone());
    assert_eq!(waits(&limiter, "one", 3), [0, 0, 1].map(secs));
    clock.set(Nanos::ZERO + secs(90));
    assert_eq!(limiter.record_failure(&"one"), secs(12), "the token stays due at 102 s after the jump");
    clock.set(Nanos::MAX);
    assert_eq!(waits(&limiter, "one", 2), [0, 0].map(secs));
}

#[test]
fn a_clock_that_jumps_does_not_disturb_a_backoff() {
    let clock = ManualClock::new();
    clock.advance(secs(100));
    let limiter = Limiter::with_clock(Exponential::new(millis(1)..=secs(1)), clock.clone());
    limiter.record_failure(&"one");
    clock.set(Nanos::ZERO);
    assert_eq!(limiter.record_failure(&"one"), millis(2));
    clock.set(Nanos::ZERO + secs(100));
    assert_eq!(limiter.record_failure(&"one"), millis(4));
}

fn limiter_of_default_alone() -> Limiter<&'static str, impl Policy<&'static str>, ManualClock> {
    limiter(controller_default())
}

fn limiter<K, P: Policy<K>>(policy: P) -> Limiter<K, P, ManualClock> {
    Limiter::with_clock(policy, ManualClock::new())
}

fn waits<P: Policy<&'static str>>(
    limiter: &Limiter<&'static str, P, ManualClock>,
    key: &'static str,
    times: usize,
) -> Vec<Duration> {
    (0..times).map(|_| limiter.record_failure(&key)).collect()
}

fn bucket(per_second: u32, burst: u32) -> TokenBucket {
    let nz = |value| NonZeroU32::new(value).expect("a quota value must not be zero");
    TokenBucket::new(Quota::per_second(nz(per_second)).allow_burst(nz(burst)))
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
