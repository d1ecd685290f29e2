//! The memory of a burst of keys is released as the keys leave.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{
    Exponential, FastSlow, KeyedRateLimiter, Limiter, MaxElapsed, OncePerBackoff, Policy, Quota,
};
use flyball_sync::ManualClock;
use testkit::allocator::{CountingAllocator, live_bytes};
use testkit::random::thorough;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A few hundred slots of each map.
const SMALL: isize = 100_000;
const SECOND: Duration = Duration::from_secs(1);

fn burst() -> u32 {
    if thorough() { 1_000_000 } else { 100_000 }
}

/// Returns the bytes that `limiter` keeps after a burst of failures, and after all of them are forgotten.
fn kept(policy: impl Policy<u32>) -> (isize, isize) {
    let before = live_bytes();
    let limiter = Limiter::with_clock(policy, ManualClock::new());
    (0..burst()).for_each(|key| _ = limiter.record_failure(&key));
    assert_eq!(limiter.tracked_keys(), burst() as usize);
    let full = live_bytes() - before;
    (0..burst()).for_each(|key| limiter.forget(&key));
    assert!(limiter.is_empty());
    (full, live_bytes() - before)
}

#[test]
fn forgotten_failures_leave_no_memory() {
    for (full, empty) in [
        kept(Exponential::new(SECOND..=SECOND)),
        kept(FastSlow::new(SECOND, SECOND, 1)),
        kept(OncePerBackoff::new(Exponential::new(SECOND..=SECOND))),
        kept(MaxElapsed::new(Exponential::new(SECOND..=SECOND), SECOND)),
    ] {
        assert!(full > 20 * burst() as isize, "{full} bytes");
        assert!(empty < SMALL, "{empty} of {full} bytes are left");
    }
}

#[test]
fn expired_failures_leave_no_memory() {
    let before = live_bytes();
    let clock = ManualClock::new();
    let backoff = Exponential::new(SECOND..=SECOND).forget_after(SECOND);
    let limiter = Limiter::with_clock(backoff, clock.clone());
    (0..burst()).for_each(|key| _ = limiter.record_failure(&key));
    clock.advance(SECOND * 10);
    // Each failure evicts two expired keys.
    (0..burst() / 2).for_each(|_| _ = limiter.record_failure(&0));
    assert_eq!((limiter.tracked_keys(), limiter.update_policy(|policy, _| policy.check())), (1, Ok(())));
    let left = live_bytes() - before;
    assert!(left < SMALL, "{left} bytes");
}

#[test]
fn full_buckets_leave_no_memory() {
    let before = live_bytes();
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(Quota::per_second(NonZeroU32::MIN), clock.clone());
    (0..burst()).for_each(|key| _ = keyed.try_acquire(&key));
    let full = live_bytes() - before;
    assert!(full > 20 * burst() as isize, "{full} bytes");
    // Each new key evicts up to two keys with a full bucket.
    for key in burst()..burst() * 3 {
        clock.advance(Duration::from_millis(10));
        assert!(keyed.try_acquire(&key).is_ok());
    }
    assert_eq!(keyed.check(), Ok(()));
    let left = live_bytes() - before;
    // 64 locks, each with a few hundred slots.
    assert!(left < 64 * SMALL / 2, "{left} of {full} bytes are left");
}
