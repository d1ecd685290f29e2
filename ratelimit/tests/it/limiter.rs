//! What a `Limiter` calls, what it does in one step, and that its `Debug` runs no user code under the lock.

use std::fmt::{Debug, Write};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use flyball_ratelimit::{
    AimdLimit, Capped, ConcurrencyLimiter, Exponential, Failure, KeyedRateLimiter, Limiter, MaxElapsed,
    MaxOf, Nanos, OncePerBackoff, Policy, Quota, RateLimiter, RetryBudget, TokenBucket,
};
use flyball_sync::ManualClock;

const SECOND: Duration = Duration::from_secs(1);

/// A policy that never waits, such as that of a queue without a limiter.
struct Never;

impl Policy<u32> for Never {
    const COUNTS_FAILURES: bool = false;
    const LIMITS: bool = false;

    fn record_failure(&mut self, _: &u32, _: Nanos, _: u64, _: &mut dyn FnMut(&u32) -> bool) -> Failure {
        Failure { wait: Duration::ZERO, counted: false }
    }

    fn forget(&mut self, _: &u32) {}

    fn num_requeues(&self, _: &u32) -> u32 {
        0
    }

    fn tracked_keys(&self) -> usize {
        0
    }
}

/// Otherwise the check of an owner that needs a limiter could be evaded by accident.
#[test]
fn a_combination_of_policies_limits_only_if_one_of_them_does() {
    fn limits<P: Policy<u32>>() -> bool {
        P::LIMITS
    }
    type Backoff = Exponential<u32>;
    assert_eq!(
        [
            limits::<Capped<Never>>(),
            limits::<MaxElapsed<u32, Never>>(),
            limits::<MaxOf<Never, Never>>(),
            limits::<OncePerBackoff<u32, Never>>(),
        ],
        [false; 4]
    );
    assert_eq!(
        [
            limits::<Capped<Backoff>>(),
            limits::<MaxElapsed<u32, Backoff>>(),
            limits::<MaxOf<Never, Backoff>>(),
            limits::<OncePerBackoff<u32, Backoff>>(),
            limits::<RetryBudget<Never>>(),
        ],
        [true; 5]
    );
}

/// A policy that counts how often `forget` and `num_requeues` are called.
#[derive(Default)]
struct Calls {
    failures: u32,
    calls: Arc<AtomicU32>,
}

impl Policy<u32> for Calls {
    fn record_failure(&mut self, key: &u32, _: Nanos, _: u64, _: &mut dyn FnMut(&u32) -> bool) -> Failure {
        self.failures += 1;
        assert_ne!(*key, 13, "the policy panics after it has counted the failure");
        Failure { wait: SECOND, counted: true }
    }

    fn forget(&mut self, _: &u32) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.failures = 0;
    }

    fn num_requeues(&self, _: &u32) -> u32 {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.failures
    }

    fn tracked_keys(&self) -> usize {
        usize::from(self.failures > 0)
    }
}

#[test]
fn calls_no_policy_while_no_key_has_failures() {
    let policy = Calls::default();
    let calls = policy.calls.clone();
    let limiter = Limiter::with_clock(policy, ManualClock::new());
    let called = || calls.swap(0, Ordering::SeqCst);
    limiter.forget(&1);
    assert_eq!((limiter.num_requeues(&1), limiter.is_empty(), called()), (0, true, 0));
    limiter.record_failure(&1);
    assert_eq!((limiter.num_requeues(&1), limiter.is_empty(), called()), (1, false, 1));
    limiter.forget(&1);
    assert_eq!((limiter.num_requeues(&1), limiter.is_empty(), called()), (0, true, 1));
    // A policy that panics may have counted the failure.
    assert!(catch_unwind(AssertUnwindSafe(|| limiter.record_failure(&13))).is_err());
    assert_eq!((limiter.num_requeues(&13), limiter.is_empty(), called()), (1, false, 1));
    limiter.forget(&13);
    assert!(limiter.is_empty());
    // A change of the policy may add failures.
    limiter.update_policy(|policy, _| policy.failures = 5);
    assert_eq!((limiter.num_requeues(&1), limiter.is_empty()), (5, false));
}

#[test]
fn a_limiter_starts_with_the_failures_of_its_policy() {
    let mut policy = Calls::default();
    let _ = policy.record_failure(&1, Nanos::ZERO, 0, &mut |_| false);
    let limiter = Limiter::without_clock(policy).seed(7);
    assert_eq!((limiter.is_empty(), limiter.num_requeues(&1)), (false, 1));
    let bucket = Limiter::<u32, _>::new(TokenBucket::new(Quota::per_second(NonZeroU32::MIN)));
    bucket.record_failure(&1);
    bucket.forget(&1);
    assert!(bucket.is_empty(), "a bucket stores nothing per key");
}

/// Each third failure of the key gives up, however the threads interleave.
#[test]
fn a_step_with_several_operations_is_one_step() {
    let limiter = Limiter::without_clock(Exponential::new(SECOND..=SECOND));
    let given_up = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    given_up.fetch_add(
                        limiter.record_failure_with(|policy, random| {
                            let _ = policy.record_failure(&1, Nanos::ZERO, random, &mut |_| false);
                            let last = policy.num_requeues(&1) == 3;
                            if last {
                                policy.forget(&1);
                            }
                            u32::from(last)
                        }),
                        Ordering::SeqCst,
                    );
                }
            });
        }
    });
    assert_eq!((given_up.into_inner(), limiter.tracked_keys()), (400, 0));
}

/// A writer that calls the limiter that it prints. Under the lock, this call would deadlock.
struct CallsBack<F>(F);

impl<F: Fn()> Write for CallsBack<F> {
    fn write_str(&mut self, _: &str) -> std::fmt::Result {
        (self.0)();
        Ok(())
    }
}

#[test]
fn debug_writes_outside_the_lock() {
    fn print(limiter: &impl Debug, call: impl Fn()) {
        write!(CallsBack(call), "{limiter:?}").unwrap();
    }
    let quota = Quota::per_second(NonZeroU32::MIN);
    let failures = Limiter::new(Exponential::<u32>::new(SECOND..=SECOND));
    print(&failures, || _ = failures.tracked_keys());
    let bucket = RateLimiter::new(quota);
    print(&bucket, || _ = bucket.reserve());
    let keyed = KeyedRateLimiter::<u32>::new(quota);
    print(&keyed, || _ = keyed.reserve(&1));
    let adaptive = ConcurrencyLimiter::new(AimdLimit::new(1..=10, SECOND));
    print(&adaptive, || _ = adaptive.in_flight());
    assert_eq!(format!("{failures:?}"), "Limiter { tracked: 0, .. }");
    assert!(format!("{adaptive:?}").contains("in_flight: 0, waiting: 0"), "{adaptive:?}");
}
