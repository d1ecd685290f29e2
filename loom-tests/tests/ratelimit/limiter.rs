//! Models of the limiter and of the manual clock.

use std::num::NonZeroU32;
use std::sync::Weak;
use std::time::Duration;

use flyball_ratelimit::{Exponential, Jitter, Limiter};
use flyball_sync::{Clock, ManualClock, Nanos, Timer};
use loom_tests::wakers::Counting;
use loom_tests::{Arc, Model, model, thread};

const SECOND: Duration = Duration::from_secs(1);

fn at(secs: u32) -> Nanos {
    Nanos::ZERO + SECOND * secs
}

// === the limiter ===

#[test]
fn when_vs_when() {
    let claim = Model {
        name: "ratelimit::when_vs_when",
        threads: 3,
        floor: 27,
        catches: "a random number drawn in one critical section and used for a failure counted in another",
    };
    model(claim, || {
        let fresh = || {
            let backoff = Exponential::new(SECOND..=SECOND * 8).jitter(Jitter::Full);
            Limiter::with_clock(backoff, ManualClock::new()).seed(7)
        };
        let limiter = Arc::new(fresh());
        let failing = [(); 2].map(|()| {
            let limiter = limiter.clone();
            thread::spawn(move || limiter.record_failure(&1))
        });
        let mut waits = failing.map(|thread| thread.join().unwrap());
        waits.sort_unstable();
        let alone = fresh();
        let mut one_by_one = [alone.record_failure(&1), alone.record_failure(&1)];
        one_by_one.sort_unstable();
        assert_eq!(waits, one_by_one, "the delays fit no order of the two failures");
        assert_eq!(limiter.num_requeues(&1), 2);
    });
}

/// A key that calls its limiter when it is dropped. If the limiter drops the key while the limiter's lock is held, this call deadlocks, and the model
/// fails.
#[derive(Clone)]
struct ReentrantKey(u32, Weak<Limiter<ReentrantKey, Exponential<ReentrantKey>, ManualClock>>);

impl PartialEq for ReentrantKey {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for ReentrantKey {}

impl std::hash::Hash for ReentrantKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Drop for ReentrantKey {
    fn drop(&mut self) {
        if let Some(limiter) = self.1.upgrade() {
            assert!(limiter.tracked_keys() <= 2);
        }
    }
}

#[test]
fn when_vs_forget() {
    let claim = Model {
        name: "ratelimit::when_vs_forget",
        threads: 2,
        floor: 19,
        catches: "a forgotten key that stays in the policy while it is unlocked, and is dropped under another thread's lock",
    };
    model(claim, || {
        let backoff = Exponential::new(SECOND..=SECOND * 8);
        let limiter = Arc::new(Limiter::with_clock(backoff, ManualClock::new()).seed(7));
        let key = |id| ReentrantKey(id, Arc::downgrade(&limiter));
        limiter.record_failure(&key(1));
        let (other, failing) = (limiter.clone(), key(2));
        let failing = thread::spawn(move || other.record_failure(&failing));
        limiter.forget(&key(1));
        assert_eq!(failing.join().unwrap(), SECOND);
        assert_eq!(
            (limiter.num_requeues(&key(1)), limiter.num_requeues(&key(2)), limiter.tracked_keys()),
            (0, 1, 1)
        );
    });
}

#[test]
fn two_failures_vs_eviction() {
    let claim = Model {
        name: "ratelimit::two_failures_vs_eviction",
        threads: 3,
        floor: 124,
        catches: "an evicted key that stays in the policy while it is unlocked, and is dropped under another thread's lock",
    };
    model(claim, || {
        let backoff = Exponential::new(SECOND..=SECOND * 8).max_keys(NonZeroU32::MIN);
        let limiter = Arc::new(Limiter::with_clock(backoff, ManualClock::new()).seed(7));
        let key = |id| ReentrantKey(id, Arc::downgrade(&limiter));
        limiter.record_failure(&key(0));
        let failing = [1, 2].map(|id| {
            let (limiter, key) = (limiter.clone(), key(id));
            thread::spawn(move || limiter.record_failure(&key))
        });
        for thread in failing {
            assert_eq!(thread.join().unwrap(), SECOND);
        }
        assert_eq!(
            limiter.num_requeues(&key(1)) + limiter.num_requeues(&key(2)),
            1,
            "the later failure is missing"
        );
    });
}

// === the manual clock ===

#[test]
fn advance_vs_wake_at() {
    let claim = Model {
        name: "ratelimit::advance_vs_wake_at",
        threads: 2,
        floor: 14,
        catches: "an alarm that is set for a deadline which passes between the check and the set",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let timer = clock.timer();
        let (counter, waker) = Counting::waker();
        let setting = thread::spawn(move || {
            timer.wake_at(at(1), &waker);
            timer
        });
        clock.advance(SECOND);
        let _timer = setting.join().unwrap();
        assert_eq!((counter.wakes(), clock.next_alarm()), (1, None));
    });
}

#[test]
fn timer_dropped_vs_advance() {
    let claim = Model {
        name: "ratelimit::timer_dropped_vs_advance",
        threads: 2,
        floor: 13,
        catches: "an alarm that is read in one critical section and removed in the next, where another alarm may have replaced it",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let (dropped, kept) = (clock.timer(), clock.timer());
        let (gone, first) = Counting::waker();
        let (counter, second) = Counting::waker();
        dropped.wake_at(at(1), &first);
        kept.wake_at(at(5), &second);
        drop(first);
        let dropping = thread::spawn(move || drop(dropped));
        clock.advance(SECOND);
        dropping.join().unwrap();
        assert!(gone.wakes() <= 1);
        assert_eq!(Arc::strong_count(&gone), 1, "the waker was not dropped");
        assert_eq!((counter.wakes(), clock.next_alarm()), (0, Some(at(5))));
    });
}

#[test]
fn advance_vs_advance() {
    let claim = Model {
        name: "ratelimit::advance_vs_advance",
        threads: 2,
        floor: 14,
        catches: "a time that is read in one critical section and written in another",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let (counter, waker) = Counting::waker();
        let timer = clock.timer();
        timer.wake_at(at(2), &waker);
        let other = clock.clone();
        let advancing = thread::spawn(move || other.advance(SECOND));
        clock.advance(SECOND);
        advancing.join().unwrap();
        assert_eq!((clock.now(), counter.wakes()), (at(2), 1));
    });
}

#[test]
fn two_timers_are_two() {
    let claim = Model {
        name: "ratelimit::two_timers_are_two",
        threads: 2,
        floor: 25,
        catches: "two concurrently created timers that share one alarm",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let (counter, waker) = Counting::waker();
        let (other, other_waker) = (clock.clone(), waker.clone());
        let making = thread::spawn(move || {
            let timer = other.timer();
            timer.wake_at(at(1), &other_waker);
            timer
        });
        let here = clock.timer();
        here.wake_at(at(1), &waker);
        let _there = making.join().unwrap();
        clock.advance(SECOND);
        assert_eq!(counter.wakes(), 2);
    });
}
