//! `MaxElapsed` gives a key up when its next attempt would start too late after its first failure.

use std::time::Duration;

use flyball_ratelimit::{
    Capped, Exponential, Failure, FastSlow, Limiter, MaxElapsed, MaxOf, OncePerBackoff, Policy, Quota,
    RetryBudget,
};
use flyball_sync::{ManualClock, Nanos};

const SECOND: Duration = Duration::from_secs(1);

fn at(secs: u32) -> Nanos {
    Nanos::ZERO + SECOND * secs
}

fn wait<P: Policy<&'static str>>(policy: &mut P, key: &'static str, secs: u32) -> Duration {
    policy.record_failure(&key, at(secs), 0, &mut |_| false).wait
}

/// Every failure of a key waits for a second.
fn steady(limit: u32) -> MaxElapsed<&'static str, FastSlow<&'static str>> {
    MaxElapsed::new(FastSlow::new(SECOND, SECOND, 0), SECOND * limit)
}

#[test]
fn gives_a_key_up_if_its_next_attempt_starts_after_the_limit() {
    let mut policy = steady(10);
    assert_eq!(wait(&mut policy, "a", 5), SECOND);
    assert_eq!(wait(&mut policy, "b", 10), SECOND, "each key has a limit of its own");
    assert_eq!(wait(&mut policy, "a", 14), SECOND, "the next attempt starts at the limit");
    assert_eq!(wait(&mut policy, "a", 15), Duration::MAX);
    assert_eq!(wait(&mut policy, "a", 16), Duration::MAX, "until the key is forgotten");
    assert_eq!((policy.num_requeues(&"a"), policy.tracked_keys()), (4, 2));
    policy.forget(&"a");
    assert_eq!((policy.num_requeues(&"a"), policy.tracked_keys()), (0, 1));
    assert_eq!(wait(&mut policy, "a", 17), SECOND);
}

#[test]
fn a_first_failure_expires_with_its_key_unless_the_key_is_in_use() {
    let mut policy = steady(600);
    for in_use in [true, false] {
        policy.forget(&"a");
        assert_eq!(wait(&mut policy, "a", 0), SECOND);
        let late = policy.record_failure(&"a", at(1_201), 0, &mut |_| in_use).wait;
        assert_eq!(late, if in_use { Duration::MAX } else { SECOND }, "in use: {in_use}");
    }
}

#[test]
fn a_clock_that_jumps_back_gives_no_key_up() {
    let mut policy = steady(10);
    assert_eq!(wait(&mut policy, "a", 100), SECOND);
    assert_eq!(wait(&mut policy, "a", 0), SECOND);
    assert_eq!(wait(&mut policy, "a", 110), Duration::MAX);
}

#[test]
fn a_limit_beyond_the_end_of_time_gives_no_key_up() {
    let mut policy = MaxElapsed::new(FastSlow::new(SECOND, SECOND, 0), Duration::MAX);
    let last = Nanos::new(u64::MAX - 1);
    assert_eq!(wait(&mut policy, "a", 1), SECOND);
    assert_eq!(policy.record_failure(&"a", last, 0, &mut |_| true).wait, SECOND);
}

/// A policy around a policy that gives a key up gives the key up, too.
#[test]
fn no_combination_turns_giving_up_into_a_wait() {
    let gives_up = || steady(0);
    assert_eq!(wait(&mut Capped::new(gives_up(), SECOND), "a", 0), Duration::MAX);
    let backoff = || Exponential::new(SECOND..=SECOND);
    assert_eq!(wait(&mut MaxOf::new(backoff(), gives_up()), "a", 0), Duration::MAX);
    assert_eq!(wait(&mut MaxElapsed::new(gives_up(), SECOND), "a", 0), Duration::MAX);
    let mut budget = RetryBudget::new(gives_up(), Quota::per_second(1.try_into().unwrap()));
    assert_eq!(wait(&mut budget, "a", 0), Duration::MAX);
    budget.check().unwrap();
    let mut once = OncePerBackoff::new(gives_up());
    assert_eq!(wait(&mut once, "a", 0), Duration::MAX);
    let again = once.record_failure(&"a", at(1), 0, &mut |_| false);
    assert_eq!(again, Failure { wait: Duration::MAX, counted: false });
}

#[test]
fn a_limiter_without_a_queue_returns_that_the_key_is_given_up() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(steady(2), clock.clone());
    let waits = [(); 3].map(|()| {
        let wait = limiter.record_failure(&"a");
        clock.advance(SECOND);
        wait
    });
    assert_eq!(waits, [SECOND, SECOND, Duration::MAX]);
    limiter.forget(&"a");
    assert!(limiter.is_empty());
}
