//! Models of the buckets that threads and tasks share.
//!
//! A thread of the model advances a manual clock, because a condition variable never times out in a model.

use std::num::NonZeroU32;
use std::task::Waker;
use std::time::Duration;

use flyball_ratelimit::{KeyedRateLimiter, Quota, RateLimiter, TokenBucket};
use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos, Timer};
use loom_tests::wakers::{Counting, poll_with};
use loom_tests::{Arc, Model, block_on, model, thread};

const SECOND: Duration = Duration::from_secs(1);

fn nz(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).unwrap()
}

fn per_second(rate: u32, burst: u32) -> Quota {
    Quota::per_second(nz(rate)).allow_burst(nz(burst))
}

/// A bucket of one token per second, and its clock.
fn timed(burst: u32) -> (ManualClock, RateLimiter<ManualTimer>) {
    let clock = ManualClock::new();
    let bucket = RateLimiter::with_timer(per_second(1, burst), clock.timer());
    (clock, bucket)
}

fn empty() -> (ManualClock, RateLimiter<ManualTimer>) {
    let (clock, bucket) = timed(1);
    bucket.try_acquire().unwrap();
    (clock, bucket)
}

// === the atomic state word ===

/// A clock that stands still, so that reading it adds no interleavings.
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }
}

impl Timer for Stopped {
    fn wake_at(&self, _: Nanos, _: &Waker) {}
}

#[test]
fn try_acquire_vs_try_acquire() {
    let claim = Model {
        name: "ratelimit_bucket::try_acquire_vs_try_acquire",
        threads: 3,
        floor: 30,
        catches: "a token that is taken by a plain store, after another thread has taken it",
    };
    model(claim, || {
        let bucket = RateLimiter::with_timer(per_second(1, 1), Stopped);
        let takers = [(); 2].map(|()| {
            let bucket = bucket.clone();
            thread::spawn(move || bucket.try_acquire().is_ok())
        });
        let taken = takers.map(|taker| taker.join().unwrap());
        assert_ne!(taken[0], taken[1], "not exactly one thread has the token");
    });
}

#[test]
fn try_acquire_vs_reserve() {
    let claim = Model {
        name: "ratelimit_bucket::try_acquire_vs_reserve",
        threads: 2,
        floor: 20,
        catches: "a word that is closed by a plain store: tokens taken since it was read are lost",
    };
    model(claim, || {
        let bucket = RateLimiter::with_timer(per_second(1, 1), Stopped);
        let other = bucket.clone();
        let taker = thread::spawn(move || other.try_acquire().is_ok());
        let at_once = bucket.reserve().due() == Nanos::ZERO;
        assert_ne!(taker.join().unwrap(), at_once, "not exactly one thread has the token");
    });
}

#[test]
fn try_acquire_vs_set_quota() {
    let claim = Model {
        name: "ratelimit_bucket::try_acquire_vs_set_quota",
        threads: 2,
        floor: 3900,
        catches: "an epoch that begins with a value of the previous one: a thread takes a token at the old rate",
    };
    model(claim, || {
        let (old, new) = (per_second(1, 2), per_second(4, 1));
        let bucket = RateLimiter::with_timer(old, Stopped);
        let other = bucket.clone();
        let taker = thread::spawn(move || other.try_acquire());
        bucket.set_quota(new);
        let taken = taker.join().unwrap();
        // The results of both sequential orders.
        let serial = [true, false].map(|taken_first| {
            let mut bucket = TokenBucket::new(old);
            let mut taken = None;
            if taken_first {
                taken = Some(bucket.try_acquire(Nanos::ZERO));
            }
            bucket.set_quota(new, Nanos::ZERO);
            let taken = taken.unwrap_or_else(|| bucket.try_acquire(Nanos::ZERO));
            (taken, bucket.reserve(Nanos::ZERO).due())
        });
        let both = (taken, bucket.reserve().due());
        assert!(serial.contains(&both), "{both:?} is not one of {serial:?}");
    });
}

// === the wait queue ===

#[test]
fn try_acquire_vs_first_waiter() {
    let claim = Model {
        name: "ratelimit_bucket::try_acquire_vs_first_waiter",
        threads: 2,
        floor: 35,
        catches: "a first waiter that closes the word by the value it read, not by the current one: both get the token",
    };
    model(claim, || {
        let (clock, bucket) = timed(2);
        bucket.try_acquire().unwrap();
        let other = bucket.clone();
        // The waiter requests two tokens, but at most one is left, so it must take the lock to wait.
        let waiter = thread::spawn(move || {
            let (woken, waker) = Counting::waker();
            let mut acquire = Box::pin(async move { other.acquire_many(nz(2)).await });
            assert!(poll_with(acquire.as_mut(), &waker).is_pending());
            (acquire, woken, waker)
        });
        let taken = bucket.try_acquire().is_ok();
        let (mut acquire, woken, waker) = waiter.join().unwrap();
        clock.advance(SECOND);
        assert_eq!(woken.wakes() == 1, !taken, "the waiter was not woken by exactly one new token");
        clock.advance(SECOND);
        assert!(poll_with(acquire.as_mut(), &waker).is_ready());
    });
}

#[test]
fn acquire_vs_clock() {
    let claim = Model {
        name: "ratelimit_bucket::acquire_vs_clock",
        threads: 2,
        floor: 77,
        catches: "an alarm that is not set because its deadline passed in the meantime, and so never fires",
    };
    model(claim, || {
        let (clock, bucket) = empty();
        let waiter = thread::spawn(move || block_on(bucket.acquire()));
        clock.advance(SECOND);
        waiter.join().unwrap();
    });
}

#[test]
fn dropped_waiter_vs_clock() {
    let claim = Model {
        name: "ratelimit_bucket::dropped_waiter_vs_clock",
        threads: 2,
        floor: 107,
        catches: "a waiter that checks in one critical section whether it was granted its token and leaves in another: the token is lost",
    };
    model(claim, || {
        let (clock, bucket) = empty();
        let waiter = |bucket: RateLimiter<ManualTimer>| {
            let (woken, waker) = Counting::waker();
            let mut acquire = Box::pin(async move { bucket.acquire().await });
            assert!(poll_with(acquire.as_mut(), &waker).is_pending());
            (acquire, woken)
        };
        let (first, _) = waiter(bucket.clone());
        let (_second, woken) = waiter(bucket.clone());
        let dropper = thread::spawn(move || drop(first));
        clock.advance(SECOND);
        dropper.join().unwrap();
        assert_eq!(woken.wakes(), 1, "the remaining waiter was not woken");
    });
}

#[test]
fn timeout_vs_new_waker() {
    let claim = Model {
        name: "ratelimit_bucket::timeout_vs_new_waker",
        threads: 2,
        floor: 148,
        catches: "a waiter that checks in one critical section and replaces its waker in another: its timeout wakes a stale waker",
    };
    model(claim, || {
        let (clock, bucket) = empty();
        let (before, other) = (bucket.clone(), bucket.clone());
        let mut first = Box::pin(async move { before.acquire().await });
        assert!(poll_with(first.as_mut(), Waker::noop()).is_pending());
        let mut acquire = Box::pin(async move { other.acquire_timeout(SECOND).await });
        assert!(poll_with(acquire.as_mut(), &Counting::waker().1).is_pending());
        let waiter = thread::spawn(move || block_on(acquire));
        clock.advance(SECOND);
        assert!(waiter.join().unwrap().is_err());
        assert_eq!(bucket.waiters(), 0);
        assert!(poll_with(first.as_mut(), Waker::noop()).is_ready());
        clock.advance(SECOND);
        assert!(bucket.try_acquire().is_ok(), "the expired waiter took a token");
    });
}

#[test]
fn set_quota_vs_acquire() {
    let claim = Model {
        name: "ratelimit_bucket::set_quota_vs_acquire",
        threads: 2,
        floor: 37400,
        catches: "an earlier alarm that is lost because another thread is in the timer",
    };
    model(claim, || {
        let (clock, bucket) = empty();
        let other = bucket.clone();
        let waiter = thread::spawn(move || block_on(other.acquire()));
        bucket.set_quota(per_second(10, 1));
        clock.advance(SECOND / 10);
        waiter.join().unwrap();
    });
}

#[test]
fn task_and_thread_vs_clock() {
    let claim = Model {
        name: "ratelimit_bucket::task_and_thread_vs_clock",
        threads: 3,
        floor: 12500,
        catches: "a thread that unlocks between its check and its sleep",
    };
    model(claim, || {
        let (clock, bucket) = timed(2);
        bucket.try_acquire_many(nz(2)).unwrap();
        let (task, sleeper) = (bucket.clone(), bucket.clone());
        let task = thread::spawn(move || block_on(task.acquire()));
        let sleeper = thread::spawn(move || flyball_sync::block_on(sleeper.acquire()));
        clock.advance(SECOND);
        clock.advance(SECOND);
        task.join().unwrap();
        sleeper.join().unwrap();
        assert_eq!(bucket.waiters(), 0);
    });
}

#[test]
fn cancel_vs_acquire() {
    let claim = Model {
        name: "ratelimit_bucket::cancel_vs_acquire",
        threads: 2,
        floor: 1000,
        catches: "a reservation that is returned without serving the waiters in the same critical section",
    };
    model(claim, || {
        let (clock, bucket) = empty();
        let other = bucket.clone();
        let reservation = bucket.reserve();
        let waiter = thread::spawn(move || block_on(other.acquire()));
        assert!(bucket.cancel(reservation));
        clock.advance(SECOND);
        waiter.join().unwrap();
    });
}

// === keys ===

#[test]
fn two_of_one_key() {
    let claim = Model {
        name: "ratelimit_bucket::two_of_one_key",
        threads: 3,
        floor: 34,
        catches: "a token that is found in one critical section and taken in another",
    };
    model(claim, || {
        let keyed = KeyedRateLimiter::with_clock(per_second(1, 1), ManualClock::new()).max_keys(nz(1));
        let keyed = Arc::new(keyed);
        let takers = [(); 2].map(|()| {
            let keyed = keyed.clone();
            thread::spawn(move || keyed.try_acquire(&7).is_ok())
        });
        let taken = takers.map(|taker| taker.join().unwrap());
        assert_ne!(taken[0], taken[1], "not exactly one thread has the token");
    });
}

#[test]
fn keyed_cancel_vs_quota() {
    let claim = Model {
        name: "ratelimit_bucket::keyed_cancel_vs_quota",
        threads: 2,
        floor: 10,
        catches: "a reservation that is checked in one critical section and returned in another",
    };
    model(claim, || {
        let keyed = KeyedRateLimiter::with_clock(per_second(1, 1), ManualClock::new()).max_keys(nz(1));
        let keyed = Arc::new(keyed);
        let reservation = keyed.reserve(&7);
        let other = keyed.clone();
        let setter = thread::spawn(move || other.set_quota(per_second(1, 3)));
        let cancelled = keyed.cancel(&7, reservation);
        setter.join().unwrap();
        // A bucket that is full when the quota changes is full under the new quota; after the change, the reservation can no longer be cancelled.
        assert_eq!(keyed.available_tokens(&7), if cancelled { 3 } else { 0 });
    });
}

#[test]
fn two_quotas_for_all_keys() {
    let claim = Model {
        name: "ratelimit_bucket::two_quotas_for_all_keys",
        threads: 2,
        floor: 18,
        catches: "two changes of the quota that are reordered between two locks",
    };
    model(claim, || {
        // Two locks.
        let keyed = KeyedRateLimiter::with_clock(per_second(1, 1), ManualClock::new()).max_keys(nz(256));
        let keyed = Arc::new(keyed);
        let other = keyed.clone();
        let setter = thread::spawn(move || other.set_quota(per_second(1, 2)));
        keyed.set_quota(per_second(1, 3));
        setter.join().unwrap();
        let bursts: Vec<_> = (0..16).map(|key| keyed.available_tokens(&key)).collect();
        assert!(bursts.iter().all(|burst| *burst == bursts[0]), "{bursts:?}");
    });
}
