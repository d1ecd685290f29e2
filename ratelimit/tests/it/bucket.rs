//! Tests token buckets step by step: returned tokens, changes of the quota, and the rate over a long time.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{Limiter, MaxOf, Quota, RateLimiter, TokenBucket, TryAcquireError};
use flyball_sync::{ManualClock, ManualTimer, Nanos};
use testkit::random::Random;

fn nz(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("a quota value must not be zero")
}

fn per_second(rate: u32, burst: u32) -> Quota {
    Quota::per_second(nz(rate)).allow_burst(nz(burst))
}

/// A `RateLimiter` whose operations have the time as an argument, like those of a `TokenBucket`.
struct Shared {
    clock: ManualClock,
    limiter: RateLimiter<ManualTimer>,
}

impl Shared {
    fn new(quota: Quota) -> Self {
        let clock = ManualClock::new();
        Self { limiter: RateLimiter::with_timer(quota, clock.timer()), clock }
    }

    fn at(&self, now: Nanos) -> &RateLimiter<ManualTimer> {
        self.clock.set(now);
        &self.limiter
    }
}

fn at(millis: u64) -> Nanos {
    Nanos::ZERO + Duration::from_millis(millis)
}

#[test]
fn a_rate_that_no_nanosecond_divides_is_kept_to_the_nanosecond() {
    // At three tokens a second, floating-point arithmetic, or a period that is rounded to nanoseconds, would give wrong times after many tokens.
    let mut bucket = TokenBucket::new(per_second(3, 1));
    for token in 0..10_000_000_u64 {
        let due = bucket.reserve(Nanos::ZERO).due().get();
        assert_eq!(u128::from(due), (u128::from(token) * 1_000_000_000).div_ceil(3));
    }
}

#[test]
fn many_at_once_are_all_there_or_none_is_taken() {
    let mut bucket = TokenBucket::new(per_second(10, 5));
    assert_eq!(bucket.try_acquire_many(nz(3), at(0)), Ok(()));
    let Err(TryAcquireError::NotYet(not_yet)) = bucket.try_acquire_many(nz(4), at(0)) else {
        panic!("four tokens were taken of two")
    };
    assert_eq!((not_yet.retry_after(), bucket.available_tokens(at(0))), (Duration::from_millis(200), 2));
    let Err(TryAcquireError::InsufficientCapacity(too_many)) = bucket.try_acquire_many(nz(6), at(9_000))
    else {
        panic!("six tokens are above the burst")
    };
    assert_eq!((too_many.burst(), bucket.available_tokens(at(9_000))), (nz(5), 5));
    let all = bucket.reserve_many(nz(5), at(9_000)).unwrap();
    let ahead = bucket.reserve_many(nz(5), at(9_000)).unwrap();
    assert_eq!((all.due(), ahead.due()), (at(9_000), at(9_500)));
    assert!(bucket.cancel(ahead, at(9_000)) && bucket.cancel(all, at(9_000)));
    assert_eq!(bucket.available_tokens(at(9_000)), 5);
}

#[test]
fn a_burst_comes_back_after_a_rest_and_not_more() {
    let mut bucket = TokenBucket::new(per_second(10, 5));
    let grant =
        |bucket: &mut TokenBucket, now| (0..100).take_while(|_| bucket.try_acquire(now).is_ok()).count();
    assert_eq!(grant(&mut bucket, at(0)), 5);
    assert_eq!(grant(&mut bucket, at(99)), 0);
    assert_eq!(grant(&mut bucket, at(100)), 1);
    assert_eq!(bucket.available_tokens(at(350)), 2);
    assert_eq!(grant(&mut bucket, at(3_600_000)), 5);
}

#[test]
fn a_refusal_takes_nothing() {
    let mut bucket = TokenBucket::new(per_second(1, 1));
    bucket.try_acquire(at(0)).unwrap();
    for _ in 0..1_000 {
        assert_eq!(bucket.try_acquire(at(10)).unwrap_err().retry_after(), Duration::from_millis(990));
    }
    assert_eq!(bucket.try_acquire(at(1_000)), Ok(()));
}

#[test]
fn the_last_token_can_be_given_back_and_is_there_again() {
    let mut bucket = TokenBucket::new(per_second(1, 1));
    let first = bucket.reserve(at(0));
    let second = bucket.reserve(at(0));
    assert!(bucket.cancel(second, at(500)));
    assert_eq!(bucket.reserve(at(500)).due(), at(1_000));
    assert!(!bucket.cancel(first, at(500)), "its time has passed");
}

#[test]
fn tokens_due_at_once_can_be_given_back_in_any_order() {
    let mut bucket = TokenBucket::new(per_second(1, 3));
    let [first, second, third] = [(); 3].map(|()| bucket.reserve(at(0)));
    assert!(bucket.cancel(second, at(0)));
    assert!(bucket.cancel(first, at(0)));
    assert!(bucket.cancel(third, at(0)));
    assert_eq!(bucket.available_tokens(at(0)), 3);
}

#[test]
fn a_token_with_a_later_reservation_is_not_given_back() {
    // If the second reservation were given back, the next one would be due at 2000 ms, too: two tokens at the same time, although the burst is one.
    let mut bucket = TokenBucket::new(per_second(1, 1));
    let [_, second, third] = [(); 3].map(|()| bucket.reserve(at(0)));
    assert_eq!((second.due(), third.due()), (at(1_000), at(2_000)));
    assert!(!bucket.cancel(second, at(0)));
    assert_eq!(bucket.reserve(at(0)).due(), at(3_000));
}

#[test]
fn a_token_may_be_given_back_until_its_nanosecond_is_over() {
    for (late, returned) in [(0, true), (1, false)] {
        let mut bucket = TokenBucket::new(per_second(1, 1));
        bucket.try_acquire(at(0)).unwrap();
        let token = bucket.reserve(at(0));
        assert_eq!(bucket.cancel(token, at(1_000) + Duration::from_nanos(late)), returned);
    }
}

#[test]
fn a_changed_quota_keeps_what_is_available_and_what_is_owed() {
    let mut bucket = TokenBucket::new(per_second(10, 10));
    for _ in 0..4 {
        bucket.try_acquire(at(0)).unwrap();
    }
    bucket.set_quota(per_second(1, 8), at(0));
    assert_eq!(bucket.available_tokens(at(0)), 6, "four of ten tokens are taken");
    assert_eq!(bucket.available_tokens(at(1_999)), 7, "the rate is one token a second now");
    bucket.set_quota(per_second(1, 3), at(1_999));
    assert_eq!(bucket.available_tokens(at(1_999)), 3, "no more than the new burst");
    bucket.set_quota(per_second(1, 100), at(1_999));
    assert_eq!(bucket.available_tokens(at(1_999)), 3, "a larger burst fills up at the rate");

    let mut owing = TokenBucket::new(per_second(1, 1));
    for _ in 0..5 {
        let _ = owing.reserve(at(0));
    }
    owing.set_quota(per_second(10, 1), at(0));
    assert_eq!(owing.reserve(at(0)).due(), at(500), "four owed tokens arrive at ten a second");
}

#[test]
fn tokens_of_the_old_quota_are_not_given_back() {
    let mut bucket = TokenBucket::new(per_second(1, 1));
    bucket.try_acquire(at(0)).unwrap();
    let token = bucket.reserve(at(0));
    bucket.set_quota(per_second(1, 1), at(0));
    assert_eq!(bucket.quota(), per_second(1, 1));
    let other = bucket.reserve(at(0));
    assert!(bucket.cancel(other, at(0)), "the same quota is no change");
    assert!(bucket.cancel(token, at(0)), "the same quota is no change");
    let token = bucket.reserve(at(0));
    bucket.set_quota(per_second(2, 1), at(0));
    assert!(!bucket.cancel(token, at(0)));
}

#[test]
fn the_quota_of_a_limiter_can_be_changed() {
    let clock = ManualClock::new();
    let alone = Limiter::with_clock(TokenBucket::new(per_second(1, 1)), clock.clone());
    let within = Limiter::with_clock(
        MaxOf::new(TokenBucket::new(per_second(1, 100)), TokenBucket::new(per_second(1, 1))),
        clock.clone(),
    );
    clock.advance(Duration::from_secs(5));
    alone.update_policy(|bucket, now| bucket.set_quota(per_second(4, 1), now));
    within.update_policy(|both, now| both.get_mut().1.set_quota(per_second(4, 1), now));
    for wait in [0, 250, 500].map(Duration::from_millis) {
        assert_eq!((alone.record_failure(&()), within.record_failure(&())), (wait, wait));
    }
}

#[test]
fn the_word_of_a_rate_limiter_wraps_around_and_stays_exact() {
    // Prime rates, which share no divisor with a second: 2^63 parts are two seconds at the first rate, and two and a half hours at the second rate.
    for (rate, step) in [(4_294_967_291, 400_000_000), (1_000_003, 1_700_000_000_000)] {
        let quota = per_second(rate, rate);
        let (mut exact, shared) = (TokenBucket::new(quota), Shared::new(quota));
        let mut random = Random::new(0x5EED);
        let mut now = Nanos::ZERO;
        for round in 0..100_000_u64 {
            now = now + Duration::from_nanos(random.below(step));
            let count = nz(1 + random.below(rate.into()) as u32);
            let said = exact.try_acquire_many(count, now);
            assert_eq!(shared.at(now).try_acquire_many(count), said, "{count} in round {round}, at {now:?}");
            assert_eq!(
                shared.at(now).available_tokens(),
                exact.available_tokens(now),
                "in round {round}, at {now:?}"
            );
        }
    }
}

#[test]
fn what_does_not_fit_into_the_word_is_exact_as_well() {
    // With 100 tokens an hour and a burst of four billion, the bucket takes thousands of years to fill.
    let quota = Quota::per_hour(nz(100)).allow_burst(NonZeroU32::MAX);
    let (mut exact, shared) = (TokenBucket::new(quota), Shared::new(quota));
    for step in 0..1_000_u64 {
        let now = at(step * 1_000_000);
        let count = nz(1 + (step * 10_000_000 % 3_000_000_000) as u32);
        assert_eq!(shared.at(now).try_acquire_many(count), exact.try_acquire_many(count, now), "{step}");
    }
    for now in [Nanos::MAX, Nanos::ZERO, at(5), Nanos::MAX] {
        assert_eq!(shared.at(now).try_acquire(), exact.try_acquire(now), "{now:?}");
        assert_eq!(shared.at(now).available_tokens(), exact.available_tokens(now), "{now:?}");
    }
}

#[test]
fn at_the_end_of_time_a_rate_limiter_gives_the_same_results() {
    let quota = per_second(2, 2);
    let (mut exact, shared) = (TokenBucket::new(quota), Shared::new(quota));
    for now in [Nanos::new(u64::MAX - 1), Nanos::MAX] {
        for _ in 0..4 {
            assert_eq!(shared.at(now).try_acquire(), exact.try_acquire(now), "{now:?}");
            assert_eq!(shared.at(now).available_tokens(), exact.available_tokens(now), "{now:?}");
        }
    }
}
