//! Waits with a time limit: a wait that cannot end in time fails at once, the timer wakes the waiter in time, and a waiter that timed out leaves no
//! state.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use flyball_ratelimit::{AimdLimit, ConcurrencyLimiter, Quota, RateLimiter, TryAcquireError};
use flyball_sync::{ManualClock, ManualTimer, Nanos, block_on_timeout};
use testkit::wakers::{Counting, poll_once, poll_with};

const SECOND: Duration = Duration::from_secs(1);

fn nz(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("a quota value must not be zero")
}

fn at(secs: u32) -> Nanos {
    Nanos::ZERO + SECOND * secs
}

/// Creates an empty bucket whose rate is one token a second.
fn empty(burst: u32) -> (ManualClock, RateLimiter<ManualTimer>) {
    let clock = ManualClock::new();
    let quota = Quota::per_second(nz(1)).allow_burst(nz(burst));
    let bucket = RateLimiter::with_timer(quota, clock.timer());
    bucket.try_acquire_many(nz(burst)).unwrap();
    (clock, bucket)
}

#[test]
fn a_wait_that_cannot_end_in_time_fails_at_the_first_poll() {
    let (clock, bucket) = empty(5);
    let (wakes, waker) = Counting::waker();
    let polled = poll_with(pin!(bucket.acquire_many_timeout(nz(3), SECOND * 2)), &waker);
    let Poll::Ready(Err(TryAcquireError::NotYet(not_yet))) = polled else { panic!("{polled:?}") };
    assert_eq!(not_yet.retry_after(), SECOND * 3);
    assert_eq!((wakes.wakes(), bucket.waiters(), clock.next_alarm()), (0, 0, None));
    let almost = SECOND - Duration::from_nanos(1);
    assert!(poll_once(pin!(bucket.acquire_timeout(almost))).is_ready());
    assert!(poll_once(pin!(bucket.acquire_timeout(SECOND))).is_pending());
    clock.advance(SECOND);
    assert_eq!(bucket.try_acquire(), Ok(()), "a token was taken");
}

/// The future has timed out, and is polled only when a token is available and no other waiter waits for it.
#[test]
fn a_late_poll_after_the_time_limit_takes_an_available_token() {
    let (clock, bucket) = empty(1);
    let mut first = Box::pin(bucket.acquire());
    assert!(poll_once(first.as_mut()).is_pending());
    let mut limited = [0, 1].map(|_| Box::pin(bucket.acquire_timeout(SECOND)));
    assert!(limited.iter_mut().all(|future| poll_once(future.as_mut()).is_pending()));
    clock.advance(SECOND); // both time out, because the token goes to the first one
    assert!(poll_once(first.as_mut()).is_ready());
    assert!(matches!(poll_once(limited[0].as_mut()), Poll::Ready(Err(_))), "no token is available yet");
    clock.advance(SECOND);
    assert_eq!(poll_once(limited[1].as_mut()), Poll::Ready(Ok(())));
    assert_eq!(bucket.available_tokens(), 0);
    bucket.check().unwrap();
}

#[test]
fn a_wait_that_ends_in_time_if_the_waiters_before_it_leave_is_not_refused() {
    let (clock, bucket) = empty(5);
    let mut first = Box::pin(bucket.acquire_many(nz(5)));
    assert!(poll_once(first.as_mut()).is_pending());
    let mut second = pin!(bucket.acquire_timeout(SECOND));
    assert!(poll_once(second.as_mut()).is_pending());
    assert!(
        poll_once(pin!(bucket.acquire_timeout(SECOND / 2))).is_ready(),
        "too late even without the first"
    );
    drop(first);
    clock.advance(SECOND);
    assert_eq!(poll_once(second.as_mut()), Poll::Ready(Ok(())));
}

#[test]
fn a_wait_is_not_refused_while_a_granted_token_can_still_come_back() {
    let (clock, bucket) = empty(1);
    let mut first = Box::pin(bucket.acquire());
    assert!(poll_once(first.as_mut()).is_pending());
    clock.advance(SECOND); // grants the token; the future is not polled
    let mut second = pin!(bucket.acquire_timeout(SECOND / 2));
    assert!(poll_once(second.as_mut()).is_pending());
    drop(first);
    assert_eq!(poll_once(second.as_mut()), Poll::Ready(Ok(())));
}

#[test]
fn a_wait_is_not_refused_while_a_promised_token_can_still_come_back() {
    let (clock, bucket) = empty(1);
    let mut first = Box::pin(bucket.acquire());
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(bucket.cancel(bucket.reserve()), "a reservation fixes the due time of the first");
    let mut second = pin!(bucket.acquire_timeout(SECOND));
    assert!(poll_once(second.as_mut()).is_pending());
    drop(first);
    clock.advance(SECOND);
    assert_eq!(poll_once(second.as_mut()), Poll::Ready(Ok(())));
}

#[test]
fn a_wait_behind_a_reservation_is_refused() {
    let (_clock, bucket) = empty(1);
    let reserved = bucket.reserve();
    assert!(poll_once(pin!(bucket.acquire_timeout(SECOND))).is_ready());
    assert!(bucket.cancel(reserved));
    assert!(poll_once(pin!(bucket.acquire_timeout(SECOND))).is_pending());
}

#[test]
fn the_timer_wakes_a_waiter_at_its_limit_before_its_token() {
    let (clock, bucket) = empty(5);
    let mut first = Box::pin(bucket.acquire_many(nz(5)));
    assert!(poll_once(first.as_mut()).is_pending());
    let mut acquire = pin!(bucket.acquire_timeout(SECOND * 2));
    let (wakes, waker) = Counting::waker();
    assert!(poll_with(acquire.as_mut(), &waker).is_pending());
    assert_eq!(
        clock.next_alarm(),
        Some(at(2)),
        "the alarm is for the limit at 2 s, not for the tokens at 5 s"
    );
    clock.set(Nanos::new(at(2).get() - 1));
    assert_eq!(wakes.wakes(), 0, "a nanosecond early");
    clock.set(at(2));
    assert_eq!((wakes.wakes(), bucket.waiters()), (1, 1));
    let Poll::Ready(Err(not_yet)) = poll_with(acquire.as_mut(), &waker) else { panic!("no error") };
    assert_eq!(not_yet.retry_after(), SECOND * 4, "after the tokens of the waiter before it");
    drop(first);
    assert_eq!(
        (bucket.try_acquire_many(nz(2)), clock.next_alarm()),
        (Ok(()), None),
        "the waiter that timed out left an alarm or took tokens"
    );
}

#[test]
fn a_token_that_comes_within_the_limit_is_taken() {
    let (clock, bucket) = empty(1);
    let mut acquire = pin!(bucket.acquire_timeout(SECOND));
    assert!(poll_once(acquire.as_mut()).is_pending());
    clock.advance(SECOND);
    assert_eq!(poll_once(acquire.as_mut()), Poll::Ready(Ok(())));
    assert!(bucket.try_acquire().is_err());
}

#[test]
fn a_late_timer_refuses_no_token_that_is_there() {
    let (clock, bucket) = empty(2);
    let mut first = pin!(bucket.acquire());
    assert!(poll_once(first.as_mut()).is_pending());
    let mut acquire = pin!(bucket.acquire_timeout(SECOND));
    assert!(poll_once(acquire.as_mut()).is_pending());
    clock.advance(SECOND * 2);
    assert_eq!(poll_once(acquire.as_mut()), Poll::Ready(Ok(())));
}

#[test]
fn waiters_behind_a_timed_out_waiter_move_up_without_a_poll_of_it() {
    let (clock, bucket) = empty(5);
    let mut first = pin!(bucket.acquire_many(nz(2)));
    assert!(poll_once(first.as_mut()).is_pending());
    let mut large = pin!(bucket.acquire_many_timeout(nz(3), SECOND * 3));
    assert!(poll_once(large.as_mut()).is_pending());
    let (wakes, waker) = Counting::waker();
    let mut small = pin!(bucket.acquire_many(nz(1)));
    assert!(poll_with(small.as_mut(), &waker).is_pending());
    clock.advance(SECOND * 3 - Duration::from_nanos(1));
    assert_eq!(wakes.wakes(), 0, "the small request overtook the large one");
    clock.set(at(3));
    assert_eq!(wakes.wakes(), 1);
    assert_eq!(poll_with(small.as_mut(), &waker), Poll::Ready(Ok(())));
}

#[test]
fn promised_tokens_of_a_timed_out_waiter_go_back() {
    let (clock, bucket) = empty(1);
    let mut first = pin!(bucket.acquire());
    assert!(poll_once(first.as_mut()).is_pending());
    let mut acquire = pin!(bucket.acquire_timeout(SECOND));
    assert!(poll_once(acquire.as_mut()).is_pending());
    let reservation = bucket.reserve();
    assert_eq!(reservation.due(), at(3));
    assert!(bucket.cancel(reservation));
    clock.advance(SECOND);
    assert!(matches!(poll_once(acquire.as_mut()), Poll::Ready(Err(_))));
    assert_eq!(bucket.reserve().due(), at(2));
}

#[test]
fn a_waiter_dropped_before_its_limit_leaves_nothing() {
    let (clock, bucket) = empty(1);
    let mut acquire = Box::pin(bucket.acquire_timeout(SECOND));
    assert!(poll_once(acquire.as_mut()).is_pending());
    drop(acquire);
    assert_eq!((bucket.waiters(), bucket.check()), (0, Ok(())));
    clock.advance(SECOND);
    assert_eq!(bucket.try_acquire(), Ok(()));
}

#[test]
fn one_that_gave_up_and_is_dropped_unseen_leaves_nothing() {
    let (clock, bucket) = empty(1);
    let mut first = pin!(bucket.acquire());
    assert!(poll_once(first.as_mut()).is_pending());
    let mut acquire = Box::pin(bucket.acquire_timeout(SECOND));
    assert!(poll_once(acquire.as_mut()).is_pending());
    clock.advance(SECOND);
    assert_eq!(poll_once(first.as_mut()), Poll::Ready(()));
    drop(acquire);
    assert_eq!((bucket.waiters(), bucket.check()), (0, Ok(())));
    clock.advance(SECOND);
    assert_eq!(bucket.try_acquire(), Ok(()));
}

#[test]
fn no_time_at_all_is_a_try() {
    let (clock, bucket) = empty(1);
    let (wakes, waker) = Counting::waker();
    let polled = poll_with(pin!(bucket.acquire_timeout(Duration::ZERO)), &waker);
    assert_eq!((polled, wakes.wakes(), clock.next_alarm()), (Poll::Ready(bucket.try_acquire()), 0, None));
    clock.advance(SECOND);
    assert_eq!(poll_once(pin!(bucket.acquire_timeout(Duration::ZERO))), Poll::Ready(Ok(())));
    let many = poll_once(pin!(bucket.acquire_many_timeout(nz(2), SECOND)));
    assert!(matches!(many, Poll::Ready(Err(TryAcquireError::InsufficientCapacity(_)))));
}

/// There are more waiters than one batch of wakers holds.
#[test]
fn a_hundred_waiters_time_out_at_the_same_time() {
    let (clock, bucket) = empty(1);
    let mut waiters: Vec<_> = (0..100).map(|_| Box::pin(bucket.acquire_timeout(SECOND * 3))).collect();
    for waiter in &mut waiters {
        assert!(poll_once(waiter.as_mut()).is_pending());
    }
    clock.set(at(1));
    clock.set(at(2));
    clock.set(at(3));
    assert_eq!((bucket.waiters(), bucket.check()), (0, Ok(())));
    let served = waiters.iter_mut().map(|waiter| poll_once(waiter.as_mut()));
    assert_eq!(
        served.filter(|served| *served == Poll::Ready(Ok(()))).count(),
        3,
        "the token that arrives at the limit is granted, too"
    );
}

fn send<F: Future + Send>(_: &F) {}

#[test]
fn a_future_with_a_limit_may_move_between_threads() {
    let (_clock, bucket) = empty(1);
    send(&bucket.acquire_timeout(SECOND));
    send(&bucket.acquire_many_timeout(nz(1), SECOND));
}

#[test]
fn a_thread_waits_for_a_permit_no_longer_than_its_limit() {
    let limiter = ConcurrencyLimiter::new(AimdLimit::new(1..=1, SECOND));
    let held = limiter.try_acquire().expect("a permit is free");
    assert!(block_on_timeout(limiter.acquire(), Duration::from_millis(1)).is_none());
    assert_eq!(
        (limiter.waiters(), limiter.in_flight()),
        (0, 1),
        "a waiter that timed out has left the wait queue"
    );
    thread::scope(|scope| {
        let waiter = scope
            .spawn(|| block_on_timeout(limiter.acquire(), SECOND * 1_000).map(|permit| permit.succeed()));
        while limiter.waiters() == 0 {
            thread::yield_now();
        }
        held.succeed();
        assert_eq!(waiter.join().unwrap(), Some(()));
    });
}
