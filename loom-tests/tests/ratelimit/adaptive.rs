//! Models of the adaptive limiter, in which permits are never lost and never granted twice, and of a policy that is
//! changed while it is in use.

use std::num::NonZeroU32;
use std::task::Poll;
use std::time::Duration;

use flyball_ratelimit::{AimdLimit, Capped, ConcurrencyLimiter, Limiter, Quota, TokenBucket};
use flyball_sync::{Clock, ManualClock, Nanos};
use loom_tests::wakers::{Counting, poll_with};
use loom_tests::{Arc, Model, block_on, model, thread};

/// A clock without a lock: these models do not depend on time.
struct FrozenClock;

impl Clock for FrozenClock {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
}

fn limiter(limit: u32) -> ConcurrencyLimiter<FrozenClock> {
    ConcurrencyLimiter::with_clock(
        AimdLimit::new(1..=100, Duration::from_secs(1)).initial_limit(limit),
        FrozenClock,
    )
}

#[test]
fn permit_end_vs_acquire() {
    let claim = Model {
        name: "ratelimit::permit_end_vs_acquire",
        threads: 2,
        floor: 12,
        catches: "a task that finds no permit in one critical section and joins the wait queue in another",
    };
    model(claim, || {
        let limiter = limiter(1);
        let permit = limiter.try_acquire().unwrap();
        let other = limiter.clone();
        let waiting = thread::spawn(move || block_on(other.acquire()).succeed());
        permit.succeed();
        waiting.join().unwrap();
        assert_eq!((limiter.in_flight(), limiter.waiters()), (0, 0));
    });
}

#[test]
fn cancelled_waiter_vs_permit_end() {
    let claim = Model {
        name: "ratelimit::cancelled_waiter_vs_permit_end",
        threads: 3,
        floor: 237,
        catches: "a cancelled waiter that checks in one critical section whether it was granted a permit and leaves the wait queue in another",
    };
    model(claim, || {
        let limiter = limiter(1);
        let permit = limiter.try_acquire().unwrap();
        let (_counter, waker) = Counting::waker();
        let mut first = Box::pin(limiter.acquire());
        assert!(matches!(poll_with(first.as_mut(), &waker), Poll::Pending));
        let leaving = thread::spawn(move || drop(first));
        let other = limiter.clone();
        let second = thread::spawn(move || block_on(other.acquire()).succeed());
        permit.succeed();
        leaving.join().unwrap();
        second.join().unwrap();
        assert_eq!((limiter.in_flight(), limiter.waiters()), (0, 0));
    });
}

#[test]
fn unpolled_grant_vs_acquire() {
    let claim = Model {
        name: "ratelimit::unpolled_grant_vs_acquire",
        threads: 2,
        floor: 14,
        catches: "a waiter that checks in one critical section whether its permit is still granted and takes it in another",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let adaptive = AimdLimit::new(1..=1, Duration::from_secs(1));
        let limiter = ConcurrencyLimiter::with_clock(adaptive, clock.clone());
        let permit = limiter.try_acquire().unwrap();
        let (_counter, waker) = Counting::waker();
        let mut kept = Box::pin(limiter.acquire());
        assert!(poll_with(kept.as_mut(), &waker).is_pending());
        permit.succeed();
        let other = limiter.clone();
        let newcomer = thread::spawn(move || {
            clock.advance(Duration::from_millis(100));
            other.try_acquire()
        });
        let first = poll_with(kept.as_mut(), &waker);
        let second = newcomer.join().unwrap();
        assert_ne!(first.is_ready(), second.is_some(), "one place");
        assert_eq!(limiter.in_flight(), 1);
    });
}

#[test]
fn two_starts_and_one_place() {
    let claim = Model {
        name: "ratelimit::two_starts_and_one_place",
        threads: 3,
        floor: 14,
        catches: "a `try_acquire` that checks for a permit in one critical section and takes it in another",
    };
    model(claim, || {
        let limiter = limiter(1);
        let starting = [(); 2].map(|()| {
            let limiter = limiter.clone();
            thread::spawn(move || limiter.try_acquire())
        });
        let permits = starting.map(|thread| thread.join().unwrap());
        assert_eq!(permits.iter().flatten().count(), 1);
        assert_eq!(limiter.in_flight(), 1);
    });
}

#[test]
fn two_ends_are_one_step() {
    let claim = Model {
        name: "ratelimit::two_ends_are_one_step",
        threads: 3,
        floor: 16,
        catches: "a permit end that counts while the limit is unlocked, and restores an older count",
    };
    model(claim, || {
        let limiter = limiter(10);
        let mut permits: Vec<_> = (0..10).filter_map(|_| limiter.try_acquire()).collect();
        let last = [permits.pop().unwrap(), permits.pop().unwrap()];
        permits.into_iter().for_each(|permit| permit.fail());
        let ending = last.map(|permit| thread::spawn(move || permit.fail()));
        for thread in ending {
            thread.join().unwrap();
        }
        assert_eq!((limiter.limit(), limiter.in_flight()), (7, 0), "ten answers, one step");
        assert_eq!(limiter.check(), Ok(()));
    });
}

#[test]
fn update_vs_when() {
    let claim = Model {
        name: "ratelimit::update_vs_when",
        threads: 2,
        floor: 10,
        catches: "a change made while the policy is unlocked",
    };
    model(claim, || {
        let quota = |rate| Quota::per_second(NonZeroU32::new(rate).unwrap()).allow_burst(NonZeroU32::MIN);
        let nested = Capped::new(TokenBucket::new(quota(1)), Duration::from_secs(60));
        let limiter = Arc::new(Limiter::with_clock(nested, ManualClock::new()).seed(7));
        let other = limiter.clone();
        let failing = thread::spawn(move || other.record_failure(&1));
        limiter.update_policy(|capped, now| capped.get_mut().set_quota(quota(2), now));
        assert_eq!(failing.join().unwrap(), Duration::ZERO);
        assert_eq!(limiter.record_failure(&2), Duration::from_millis(500), "the token was not taken");
    });
}
