//! A task whose futures are always ready yields from time to time.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use flyball_ratelimit::{AimdLimit, ConcurrencyLimiter, Quota, RateLimiter};
use flyball_sync::{ManualClock, ManualTimer};
use testkit::wakers::{Counting, poll_once, poll_with};

/// Creates a bucket that is never empty, or one without tokens.
fn bucket(full: bool) -> RateLimiter<ManualTimer> {
    let (burst, clock) = (if full { NonZeroU32::MAX } else { NonZeroU32::MIN }, ManualClock::new());
    let bucket =
        RateLimiter::with_timer(Quota::per_second(NonZeroU32::MIN).allow_burst(burst), clock.timer());
    if !full {
        bucket.try_acquire().unwrap();
    }
    bucket
}

/// Polls the future until it is ready; each pending poll must have woken the task. Returns the number of polls.
fn polls(work: impl Future<Output = ()>) -> usize {
    let mut work = pin!(work);
    let (counter, waker) = Counting::waker();
    let mut polls = 1;
    while poll_with(work.as_mut(), &waker).is_pending() {
        assert!(counter.wakes() >= polls, "a pending poll did not wake the task");
        polls += 1;
    }
    polls
}

#[test]
fn a_task_that_is_always_served_lets_others_run() {
    let tokens = bucket(true);
    let many = polls(async {
        for _ in 0..2_000 {
            tokens.acquire().await;
        }
    });
    assert!((10..=100).contains(&many), "{many} polls for 2000 tokens");
    let limiter = ConcurrencyLimiter::new(AimdLimit::new(1..=1, Duration::from_secs(1)));
    let many = polls(async {
        for _ in 0..2_000 {
            limiter.acquire().await.succeed();
        }
    });
    assert!((10..=100).contains(&many), "{many} polls for 2000 permits");
}

/// Like a `select!` in a loop: each iteration polls one future that is never ready and one that is always ready.
#[test]
fn a_pending_future_in_the_same_task_does_not_prevent_yielding() {
    let (full, empty) = (&bucket(true), &bucket(false));
    let gives_way = |mut beside: Option<Pin<&mut dyn Future<Output = ()>>>, first: bool| {
        (0..10_000).any(|_| {
            let mut look = || match beside.as_mut() {
                Some(kept) => assert!(poll_once(kept.as_mut()).is_pending()),
                None => assert!(poll_once(pin!(empty.acquire())).is_pending()),
            };
            if first {
                look();
            }
            let served = poll_once(pin!(full.acquire()));
            if !first {
                look();
            }
            served.is_pending()
        })
    };
    for first in [true, false] {
        assert!(gives_way(None, first), "the task does not yield beside a new pending future");
        let mut kept = pin!(empty.acquire());
        // The task yields in each of the five loops, even if `kept` itself has yielded in an earlier loop.
        for time in 0..5 {
            assert!(
                gives_way(Some(kept.as_mut()), first),
                "the task does not yield beside a kept pending future, time {time}"
            );
        }
    }
}

/// Other futures that are served between two polls of the yielded future do not delay it.
#[test]
fn a_future_that_yielded_is_served_at_its_next_poll() {
    let full = bucket(true);
    let mut gave_way = 0;
    for _ in 0..1_000 {
        let mut acquire = pin!(full.acquire());
        if poll_once(acquire.as_mut()).is_ready() {
            continue;
        }
        gave_way += 1;
        let mut others = 0;
        while others < 127 {
            let mut other = pin!(full.acquire());
            while poll_once(other.as_mut()).is_pending() {}
            others += 1;
        }
        assert_eq!(poll_once(acquire.as_mut()), Poll::Ready(()));
    }
    assert!(gave_way > 0);
}

/// Like `now_or_never` in a loop: each future is dropped after its first poll.
#[test]
fn futures_that_are_polled_only_once_are_served_again_after_a_yield() {
    let tokens = bucket(true);
    let limiter = ConcurrencyLimiter::new(AimdLimit::new(1..=1, Duration::from_secs(1)));
    let (mut token_yields, mut permit_yields) = (0, 0);
    for _ in 0..1_000 {
        token_yields += usize::from(poll_once(pin!(tokens.acquire())).is_pending());
        match poll_once(pin!(limiter.acquire())) {
            Poll::Ready(permit) => permit.succeed(),
            Poll::Pending => permit_yields += 1,
        }
    }
    assert!((1..=200).contains(&(token_yields + permit_yields)), "{token_yields}, {permit_yields} of 1000");
}
