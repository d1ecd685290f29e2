//! Tests `AimdLimit` round by round, the outcomes of permits, and the wait queue of `ConcurrencyLimiter`.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use flyball_ratelimit::{AcquirePermit, AimdLimit, ConcurrencyLimiter, Outcome, Permit};
use flyball_sync::{Clock, ManualClock, Nanos, block_on};
use testkit::random::Random;
use testkit::wakers::{Counting, Panicking};

const BOUND: Duration = Duration::from_millis(100);

/// Runs `answers` operations one after the other: `failed` of them fail, and `slow` are slow. Returns the new limit.
fn round(limit: &mut AimdLimit, answers: u32, failed: u32, slow: u32) -> u32 {
    for number in 0..answers {
        let started = limit.start(Nanos::ZERO).expect("no other operation is in flight");
        let outcome = if number < failed { Outcome::Failure } else { Outcome::Success };
        let is_slow = (failed..failed + slow).contains(&number);
        let took = if is_slow { BOUND + Duration::from_nanos(1) } else { BOUND };
        limit.end(started, outcome, Nanos::ZERO + took);
    }
    limit.limit()
}

fn from_20() -> AimdLimit {
    AimdLimit::new(1..=1_000, BOUND).initial_limit(20)
}

#[test]
fn a_tenth_may_fail_and_half_may_be_slow() {
    for (failed, slow, after) in
        [(0, 0, 20), (2, 0, 20), (3, 0, 14), (0, 10, 20), (0, 11, 14), (2, 10, 20), (20, 0, 14)]
    {
        assert_eq!(round(&mut from_20(), 20, failed, slow), after, "{failed} failed and {slow} slow of 20");
    }
}

#[test]
fn one_bad_answer_changes_nothing_however_low_the_limit() {
    for start_at in 1..=30 {
        let mut limit = AimdLimit::new(1..=1_000, BOUND).initial_limit(start_at);
        assert_eq!(round(&mut limit, start_at.max(10), 1, 0), start_at.max(1) + u32::from(start_at == 1));
        let mut limit = AimdLimit::new(1..=1_000, BOUND).initial_limit(start_at);
        assert!(round(&mut limit, start_at.max(10), 0, 1) >= start_at);
    }
}

#[test]
fn one_round_is_one_step_whatever_comes_at_once() {
    // All 100 operations in flight fail: they are one round and lower the limit once.
    let mut limit = AimdLimit::new(1..=1_000, BOUND).initial_limit(100);
    let started: Vec<_> = std::iter::from_fn(|| limit.start(Nanos::ZERO)).collect();
    assert_eq!(started.len(), 100);
    for operation in started {
        limit.end(operation, Outcome::Failure, Nanos::ZERO);
    }
    assert_eq!((limit.limit(), limit.in_flight()), (70, 0));
    // 35 operations are in flight while 35 others fail. Then the first 35 fail, too. All 70 failures are one round.
    let first: Vec<_> = (0..35).filter_map(|_| limit.start(Nanos::ZERO)).collect();
    for _ in 0..35 {
        let other = limit.start(Nanos::ZERO).unwrap();
        limit.end(other, Outcome::Failure, Nanos::ZERO);
    }
    for operation in first {
        limit.end(operation, Outcome::Failure, Nanos::ZERO);
    }
    assert_eq!(limit.limit(), 49);
}

#[test]
fn answers_of_an_older_round_say_nothing() {
    let mut limit = AimdLimit::new(1..=1_000, BOUND).initial_limit(40);
    let old: Vec<_> = (0..20).filter_map(|_| limit.start(Nanos::ZERO)).collect();
    assert_eq!(round(&mut limit, 40, 40, 0), 28);
    for operation in old {
        limit.end(operation, Outcome::Failure, Nanos::ZERO);
    }
    assert_eq!(round(&mut limit, 28, 2, 0), 28, "the failures of the older round are counted");
}

#[test]
fn only_a_limit_that_is_reached_rises() {
    let mut limit = AimdLimit::new(1..=22, BOUND).initial_limit(20);
    assert_eq!(round(&mut limit, 20, 0, 0), 20, "the limit was not reached");
    let full = |limit: &mut AimdLimit| {
        let started: Vec<_> = std::iter::from_fn(|| limit.start(Nanos::ZERO)).collect();
        started.into_iter().for_each(|operation| limit.end(operation, Outcome::Success, Nanos::ZERO));
        limit.limit()
    };
    assert_eq!(
        [full(&mut limit), full(&mut limit), full(&mut limit)],
        [21, 22, 22],
        "the limit rises to its maximum and not above"
    );
    assert_eq!(round(&mut limit, 22, 0, 0), 22);
}

#[test]
fn ignored_outcomes_do_not_count() {
    let mut limit = from_20();
    for _ in 0..1_000 {
        let operation = limit.start(Nanos::ZERO).unwrap();
        limit.end(operation, Outcome::Ignored, Nanos::MAX);
    }
    assert_eq!((limit.limit(), limit.in_flight()), (20, 0));
    assert_eq!(round(&mut limit, 19, 19, 0), 20, "the round has not ended");
    assert_eq!(round(&mut limit, 1, 1, 0), 14);
}

#[test]
fn the_least_is_kept_and_the_ends_of_the_range_do_not_overflow() {
    let mut limit = AimdLimit::new(3..=u32::MAX, Duration::MAX).initial_limit(0);
    assert_eq!(limit.limit(), 3);
    assert_eq!([round(&mut limit, 10, 10, 0), round(&mut limit, 10, 10, 0)], [3, 3]);
    assert_eq!(AimdLimit::new(1..=u32::MAX, BOUND).initial_limit(u32::MAX).limit(), u32::MAX);
}

#[test]
fn limits_that_allow_nothing_are_refused() {
    for (least, most) in [(0, 5), (6, 5)] {
        let refused = AimdLimit::try_new(least..=most, BOUND).unwrap_err();
        let message = format!("a concurrency limit needs 1 <= min <= max, not {least} and {most}");
        assert_eq!(refused.to_string(), message);
    }
}

// === permits ===

fn limiter(limit: u32) -> (ConcurrencyLimiter<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    let adaptive = AimdLimit::new(1..=1_000, BOUND).initial_limit(limit);
    (ConcurrencyLimiter::with_clock(adaptive, clock.clone()), clock)
}

/// Runs a round of ten permits, each ended by `end`. Returns the new limit.
fn ten(limiter: &ConcurrencyLimiter<ManualClock>, end: impl Fn(Permit<ManualClock>)) -> u32 {
    for _ in 0..10 {
        end(limiter.try_acquire().expect("no other operation is in flight"));
    }
    limiter.check().unwrap();
    limiter.limit()
}

#[test]
fn a_permit_dropped_without_outcome_counts_as_failure() {
    assert_eq!(ten(&limiter(10).0, Permit::succeed), 10);
    assert_eq!(ten(&limiter(10).0, Permit::fail), 7);
    assert_eq!(ten(&limiter(10).0, drop), 7);
    assert_eq!(ten(&limiter(10).0, Permit::ignore), 10);
    let (slow, clock) = limiter(10);
    let end = |permit: Permit<_>| {
        clock.advance(BOUND * 2);
        permit.succeed();
    };
    assert_eq!(ten(&slow, end), 7);
    let (panics, _) = limiter(10);
    let end = |permit: Permit<_>| {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _permit = permit;
            panic!("the operation panics");
        }));
        assert!(caught.is_err());
    };
    assert_eq!((ten(&panics, end), panics.in_flight()), (7, 0));
}

fn poll<C: Clock>(future: &mut Pin<&mut AcquirePermit<C>>, waker: &Waker) -> Poll<Permit<C>> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

#[test]
fn waiters_are_served_in_order_and_polled_twice() {
    let (limiter, _) = limiter(1);
    let mut permit = Some(limiter.try_acquire().unwrap());
    let mut line: Vec<_> = (0..100)
        .map(|_| {
            let (counter, waker) = Counting::waker();
            (Box::pin(limiter.acquire()), counter, waker)
        })
        .collect();
    for (future, _, waker) in &mut line {
        assert!(poll(&mut future.as_mut(), waker).is_pending());
    }
    assert_eq!(limiter.waiters(), 100);
    for served in 0..100 {
        drop(permit.take());
        limiter.check().unwrap();
        assert!(limiter.try_acquire().is_none(), "`try_acquire` overtook the waiters");
        let woken: Vec<_> = line.iter().map(|(_, counter, _)| counter.wakes()).collect();
        assert!(woken.iter().enumerate().all(|(at, wakes)| *wakes == usize::from(at <= served)), "{woken:?}");
        let (future, _, waker) = &mut line[served];
        match poll(&mut future.as_mut(), waker) {
            Poll::Ready(ready) => permit = Some(ready),
            Poll::Pending => panic!("waiter {served} was woken without a slot"),
        }
    }
    assert_eq!((limiter.waiters(), limiter.in_flight()), (0, 1));
}

#[test]
fn a_dropped_waiter_passes_its_slot_on() {
    let (limiter, _) = limiter(1);
    let permit = limiter.try_acquire().unwrap();
    let mut futures: Vec<_> = (0..3).map(|_| Box::pin(limiter.acquire())).collect();
    let wakers: Vec<_> = (0..3).map(|_| Counting::waker()).collect();
    for (future, (_, waker)) in futures.iter_mut().zip(&wakers) {
        assert!(poll(&mut future.as_mut(), waker).is_pending());
    }
    let mut futures = futures.into_iter();
    let (first, second, third) = (futures.next().unwrap(), futures.next().unwrap(), futures.next().unwrap());
    drop(second);
    assert_eq!(limiter.waiters(), 2);
    permit.succeed();
    assert_eq!(wakers.iter().map(|(counter, _)| counter.wakes()).collect::<Vec<_>>(), [1, 0, 0]);
    // The first waiter has been given the slot, and is not polled again.
    drop(first);
    assert_eq!(wakers.iter().map(|(counter, _)| counter.wakes()).collect::<Vec<_>>(), [1, 0, 1]);
    let mut third = third;
    assert!(poll(&mut third.as_mut(), &wakers[2].1).is_ready());
    limiter.check().unwrap();
}

/// A task may keep a future without polling it, and poll a different future.
#[test]
fn a_waiter_that_is_never_polled_loses_its_slot_after_some_time() {
    let (limiter, clock) = limiter(1);
    let permit = limiter.try_acquire().unwrap();
    let wakers: Vec<_> = (0..3).map(|_| Counting::waker()).collect();
    let mut line: Vec<_> = (0..3).map(|_| Box::pin(limiter.acquire())).collect();
    for (future, (_, waker)) in line.iter_mut().zip(&wakers) {
        assert!(poll(&mut future.as_mut(), waker).is_pending());
    }
    permit.succeed();
    let woken = || wakers.iter().map(|(counter, _)| counter.wakes()).collect::<Vec<_>>();
    assert_eq!(woken(), [1, 0, 0]);
    clock.advance(Duration::from_millis(99));
    assert!(limiter.try_acquire().is_none(), "the slot is reserved for the first waiter");
    assert_eq!(woken(), [1, 0, 0]);
    clock.advance(Duration::from_millis(1));
    assert!(limiter.try_acquire().is_none(), "waiters are served before new calls");
    assert_eq!(woken(), [1, 1, 0]);
    // When the first waiter is polled, it is at the head of the wait queue again.
    assert!(poll(&mut line[0].as_mut(), &wakers[0].1).is_pending());
    let Poll::Ready(second) = poll(&mut line[1].as_mut(), &wakers[1].1) else {
        panic!("the second waiter was woken without a slot")
    };
    second.succeed();
    assert_eq!(woken(), [2, 1, 0]);
    assert!(poll(&mut line[0].as_mut(), &wakers[0].1).is_ready());
    assert_eq!(woken(), [2, 1, 1]);
    // The last waiter is not polled, so it loses its slot. No waiter is behind it, so the slot is free for a new caller.
    clock.advance(Duration::from_millis(100));
    let newcomer = limiter.try_acquire();
    assert!(newcomer.is_some());
    drop(line);
    assert_eq!(
        (limiter.in_flight(), limiter.waiters()),
        (1, 0),
        "a waiter that had lost its slot released one"
    );
    limiter.check().unwrap();
}

#[test]
fn the_waker_of_the_last_poll_is_woken_and_the_older_one_dropped() {
    let (limiter, _) = limiter(1);
    let permit = limiter.try_acquire().unwrap();
    let mut future = pin!(limiter.acquire());
    let (old, old_waker) = Counting::waker();
    let (new, new_waker) = Counting::waker();
    assert!(poll(&mut future, &old_waker).is_pending());
    assert!(poll(&mut future, &new_waker).is_pending());
    drop(old_waker);
    assert_eq!(Arc::strong_count(&old), 1);
    permit.succeed();
    assert_eq!((old.wakes(), new.wakes()), (0, 1));
    assert!(poll(&mut future, &new_waker).is_ready());
}

#[test]
fn a_waker_that_panics_takes_no_other_wake_up_with_it() {
    let (limiter, _) = limiter(4);
    let permits: Vec<_> = (0..4).map(|_| limiter.try_acquire().unwrap()).collect();
    let mut hostile = pin!(limiter.acquire());
    let mut friendly = pin!(limiter.acquire());
    let (counter, waker) = Counting::waker();
    assert!(poll(&mut hostile, &Arc::new(Panicking).into()).is_pending());
    assert!(poll(&mut friendly, &waker).is_pending());
    for permit in permits {
        let _ = catch_unwind(AssertUnwindSafe(|| permit.succeed()));
    }
    assert_eq!((counter.wakes(), limiter.waiters(), limiter.in_flight()), (1, 0, 2));
    assert!(poll(&mut hostile, &waker).is_ready() && poll(&mut friendly, &waker).is_ready());
}

#[test]
fn a_future_dropped_at_every_poll_leaks_no_place() {
    let mut random = Random::new(5);
    let (limiter, clock) = limiter(3);
    let (mut permits, mut futures) = (Vec::new(), Vec::new());
    let (_, waker) = Counting::waker();
    for _ in 0..20_000 {
        match random.below(6) {
            0 => permits.extend(limiter.try_acquire()),
            1 => futures.push(Box::pin(limiter.acquire())),
            2 if !futures.is_empty() => {
                let at = random.below(futures.len() as u64) as usize;
                drop(futures.swap_remove(at));
            }
            3 if !permits.is_empty() => {
                let permit: Permit<_> = permits.swap_remove(random.below(permits.len() as u64) as usize);
                [Permit::succeed, Permit::fail, Permit::ignore][random.below(3) as usize](permit);
            }
            4 => clock.advance(Duration::from_millis(random.below(50))),
            _ if !futures.is_empty() => {
                let at = random.below(futures.len() as u64) as usize;
                if let Poll::Ready(permit) = poll(&mut futures[at].as_mut(), &waker) {
                    permits.push(permit);
                    drop(futures.swap_remove(at));
                }
            }
            _ => {}
        }
        limiter.check().unwrap();
    }
    drop((permits, futures));
    assert_eq!((limiter.in_flight(), limiter.waiters()), (0, 0));
}

#[test]
fn threads_respect_the_limit() {
    let limiter = ConcurrencyLimiter::new(AimdLimit::new(2..=2, Duration::MAX));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let permit = block_on(limiter.acquire());
                    assert!(limiter.in_flight() <= 2);
                    permit.succeed();
                }
            });
        }
    });
    assert_eq!((limiter.in_flight(), limiter.waiters(), limiter.limit()), (0, 0, 2));
    limiter.check().unwrap();
}

/// A clock that counts its readings.
struct Counted(ManualClock, Arc<AtomicUsize>);

impl Clock for Counted {
    fn now(&self) -> Nanos {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.now()
    }
}

#[test]
fn the_end_of_a_permit_reads_the_clock_once() {
    let reads = Arc::<AtomicUsize>::default();
    let clock = Counted(ManualClock::new(), reads.clone());
    let limiter = ConcurrencyLimiter::with_clock(AimdLimit::new(1..=4, BOUND), clock);
    let ends: [fn(Permit<Counted>); 4] = [Permit::succeed, Permit::fail, Permit::ignore, drop];
    let counts = ends.map(|end| {
        let permit = limiter.try_acquire().unwrap();
        reads.store(0, Ordering::Relaxed);
        end(permit);
        reads.load(Ordering::Relaxed)
    });
    assert_eq!(counts, [1; 4]);
}
