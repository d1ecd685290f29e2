//! Tests `RateLimiter` step by step: the order of the waiters, returned tokens, and blocked threads.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use flyball_ratelimit::{Quota, RateLimiter, TryAcquireError};
use flyball_sync::{ManualClock, ManualTimer, Nanos, Timer, block_on, steps};
use testkit::wakers::{Counting, poll_once, poll_with};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn nz(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("a quota value must not be zero")
}

fn per_second(rate: u32, burst: u32) -> Quota {
    Quota::per_second(nz(rate)).allow_burst(nz(burst))
}

fn at(millis: u64) -> Nanos {
    Nanos::ZERO + Duration::from_millis(millis)
}

fn empty(rate: u32, burst: u32) -> (ManualClock, RateLimiter<ManualTimer>) {
    let clock = ManualClock::new();
    let bucket = RateLimiter::with_timer(per_second(rate, burst), clock.timer());
    bucket.try_acquire_many(nz(burst)).unwrap();
    (clock, bucket)
}

/// A waiter that counts how often it is woken.
struct Waiter<'a> {
    future: Pin<Box<dyn Future<Output = bool> + 'a>>,
    wakes: Arc<Counting>,
    waker: Waker,
    polls: usize,
}

impl<'a> Waiter<'a> {
    /// Creates a waiter that is in the wait queue.
    fn new(bucket: &'a RateLimiter<ManualTimer>, count: u32) -> Self {
        let (wakes, waker) = Counting::waker();
        let future = Box::pin(async move { bucket.acquire_many(nz(count)).await.is_ok() });
        let mut waiter = Self { future, wakes, waker, polls: 0 };
        assert!(waiter.poll().is_pending());
        waiter
    }

    fn poll(&mut self) -> Poll<bool> {
        self.polls += 1;
        poll_with(self.future.as_mut(), &self.waker)
    }

    fn is_woken(&self) -> bool {
        self.wakes.wakes() > 0
    }
}

#[test]
fn a_hundred_waiters_are_polled_twice_each_and_come_in_their_order() {
    let (clock, bucket) = empty(50, 1);
    let mut waiters: Vec<_> = (0..100).map(|_| Waiter::new(&bucket, 1)).collect();
    assert_eq!(bucket.waiters(), 100);
    for next in 0..100 {
        let due = clock.next_alarm().unwrap();
        assert_eq!(due, at(20 * (next as u64 + 1)), "the alarm is not set for the due time");
        clock.set(Nanos::new(due.get() - 1));
        assert_eq!(waiters.iter().filter(|waiter| waiter.is_woken()).count(), next, "a nanosecond early");
        clock.set(due);
        let woken: Vec<_> = (0..100).filter(|&index| waiters[index].is_woken()).collect();
        assert_eq!(woken, (0..=next).collect::<Vec<_>>());
        assert_eq!(waiters[next].poll(), Poll::Ready(true));
    }
    assert!(waiters.iter().map(|waiter| waiter.polls).sum::<usize>() <= 200);
    assert!(waiters.iter().map(|waiter| waiter.wakes.wakes()).sum::<usize>() <= 100);
    assert_eq!(
        (bucket.waiters(), clock.next_alarm()),
        (0, None),
        "an idle limiter has no waiter and no alarm"
    );
}

#[test]
fn a_burst_is_served_beside_endless_small_requests() {
    let (clock, bucket) = empty(100, 100);
    let mut small: Vec<_> = (0..20).map(|_| Waiter::new(&bucket, 1)).collect();
    let mut large = Waiter::new(&bucket, 100);
    let mut after = Waiter::new(&bucket, 1);
    for _ in 0..119 {
        clock.advance(Duration::from_millis(10));
        assert!(bucket.try_acquire().is_err(), "`try_acquire` overtook the waiters");
        assert!(large.poll().is_pending() && !after.is_woken());
        small.push(Waiter::new(&bucket, 1));
    }
    clock.advance(Duration::from_millis(10));
    assert!(
        large.is_woken() && large.poll() == Poll::Ready(true),
        "20 small requests and its own 100 tokens take 1.2 s"
    );
    assert!(!after.is_woken());
    clock.advance(Duration::from_millis(10));
    assert!(after.is_woken() && after.poll() == Poll::Ready(true));
}

#[test]
fn try_acquire_does_not_overtake_a_waiter_when_tokens_are_available() {
    let (clock, bucket) = empty(1, 5);
    let mut large = Waiter::new(&bucket, 5);
    clock.advance(SECOND * 3);
    let Err(TryAcquireError::NotYet(not_yet)) = bucket.try_acquire_many(nz(2)) else {
        panic!("`try_acquire_many` overtook the waiter")
    };
    assert_eq!(
        (not_yet.retry_after(), bucket.available_tokens()),
        (SECOND * 4, 0),
        "due after five tokens for the waiter and two more"
    );
    clock.advance(SECOND * 2);
    assert!(large.is_woken());
    assert_eq!(
        bucket.try_acquire().unwrap_err().retry_after(),
        SECOND,
        "the waiter is granted its tokens before it is polled"
    );
    assert_eq!(large.poll(), Poll::Ready(true));
}

#[test]
fn dropping_the_first_waiter_serves_the_next_immediately() {
    let (clock, bucket) = empty(10, 10);
    let large = Waiter::new(&bucket, 10);
    let mut small = Waiter::new(&bucket, 3);
    clock.advance(SECOND / 2);
    assert!(!small.is_woken());
    drop(large);
    assert!(small.is_woken() && small.poll() == Poll::Ready(true));
    assert_eq!(bucket.available_tokens(), 2);
}

#[test]
fn a_dropped_grant_goes_back() {
    let (clock, bucket) = empty(1, 2);
    let first = Waiter::new(&bucket, 1);
    let second = Waiter::new(&bucket, 1);
    let mut third = Waiter::new(&bucket, 2);
    clock.advance(SECOND);
    assert!(first.is_woken() && !second.is_woken());
    drop(first);
    assert!(second.is_woken(), "the second waiter did not get the token of the first");
    drop(second);
    assert!(!third.is_woken());
    clock.advance(SECOND);
    assert!(third.is_woken(), "both were given back");
    assert_eq!(third.poll(), Poll::Ready(true));
    assert_eq!(bucket.available_tokens(), 0);
}

#[test]
fn all_grants_of_one_batch_go_back_when_dropped() {
    // There are more waiters than one batch wakes.
    let (clock, bucket) = empty(1, 40);
    let waiters: Vec<_> = (0..40).map(|_| Waiter::new(&bucket, 1)).collect();
    clock.set(at(60_000));
    assert!(waiters.iter().all(Waiter::is_woken));
    drop(waiters);
    assert_eq!(bucket.available_tokens(), 40);
}

/// Each wake-up advances the clock and reads the bucket, so the clock also advances between two batches of one grant.
#[test]
fn all_grants_of_one_batch_go_back_when_dropped_with_reads_between_batches() {
    struct Looks(ManualClock, RateLimiter<ManualTimer>);

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.0.advance(Duration::from_nanos(1));
            std::hint::black_box(self.1.available_tokens());
        }
    }

    let (clock, bucket) = empty(1, 40);
    let waker = Waker::from(Arc::new(Looks(clock.clone(), bucket.clone())));
    let mut waiters: Vec<_> = (0..40).map(|_| Box::pin(bucket.acquire())).collect();
    for waiter in &mut waiters {
        assert!(poll_with(waiter.as_mut(), &waker).is_pending());
    }
    clock.set(at(60_000));
    bucket.check().unwrap();
    assert_eq!(bucket.waiters(), 0);
    drop(waiters);
    assert_eq!(bucket.available_tokens(), 40);
}

#[test]
fn what_was_granted_long_ago_goes_back_as_far_as_it_has_not_flowed_over() {
    for (rest, back) in [(0, 4), (1, 4), (6, 4), (7, 3), (9, 1), (10, 0), (1_000, 0)] {
        let (clock, bucket) = empty(1, 10);
        let waiter = Waiter::new(&bucket, 4);
        clock.advance(SECOND * 4);
        assert!(waiter.is_woken());
        clock.advance(SECOND * rest);
        let before = bucket.available_tokens();
        drop(waiter);
        assert_eq!(bucket.available_tokens() - before, back, "{rest} s after the grant");
    }
}

#[test]
fn a_waiter_that_is_never_polled_costs_its_tokens_and_nothing_else() {
    let (clock, bucket) = empty(10, 10);
    let kept = Waiter::new(&bucket, 10);
    let mut next = Waiter::new(&bucket, 10);
    clock.advance(SECOND);
    assert!(kept.is_woken());
    clock.advance(SECOND);
    assert!(next.is_woken() && next.poll() == Poll::Ready(true));
    clock.advance(SECOND * 60);
    assert_eq!(bucket.try_acquire_many(nz(10)), Ok(()));
    drop(kept);
    assert_eq!(
        bucket.available_tokens(),
        0,
        "the bucket has been full since the grant, so the dropped tokens are lost"
    );
}

#[test]
fn a_new_quota_changes_the_times_of_waiters() {
    let (clock, bucket) = empty(1, 1);
    let waiters = [(); 3].map(|()| Waiter::new(&bucket, 1));
    clock.advance(SECOND / 2);
    bucket.set_quota(per_second(10, 1));
    assert_eq!(clock.next_alarm(), Some(at(550)), "half a token is missing, at ten a second");
    clock.set(at(550));
    assert!(waiters[0].is_woken() && !waiters[1].is_woken());
    bucket.set_quota(per_second(1, 1));
    clock.set(at(1_000));
    assert!(!waiters[1].is_woken());
    clock.set(at(1_550));
    assert!(waiters[1].is_woken() && !waiters[2].is_woken());
    drop(waiters);
    assert_eq!(bucket.quota(), per_second(1, 1));
}

#[test]
fn waiters_above_the_new_burst_are_refused() {
    let (clock, bucket) = empty(1, 10);
    let mut large = Waiter::new(&bucket, 10);
    let mut other = Waiter::new(&bucket, 1);
    let mut future = pin!(bucket.acquire_many(nz(7)));
    assert!(poll_once(future.as_mut()).is_pending());
    bucket.set_quota(per_second(1, 5));
    assert!(large.is_woken() && large.poll() == Poll::Ready(false));
    let Poll::Ready(Err(error)) = poll_once(future.as_mut()) else {
        panic!("a request above the new burst was not refused")
    };
    assert_eq!(error.burst(), nz(5));
    assert!(!other.is_woken());
    clock.advance(SECOND);
    assert!(other.poll() == Poll::Ready(true));
}

/// Wakers are woken in batches; waiters beyond the first batch are served and refused, too.
#[test]
fn serves_and_refuses_any_number_of_waiters() {
    let (clock, bucket) = empty(100, 100);
    let mut waiters: Vec<_> = (0..100).map(|_| Waiter::new(&bucket, 1)).collect();
    clock.advance(SECOND);
    assert!(waiters.iter_mut().all(|waiter| waiter.is_woken() && waiter.poll() == Poll::Ready(true)));

    let mut large: Vec<_> = (0..100).map(|_| Waiter::new(&bucket, 2)).collect();
    let mut small = Waiter::new(&bucket, 1);
    bucket.set_quota(per_second(100, 1));
    assert!(large.iter_mut().all(|waiter| waiter.is_woken() && waiter.poll() == Poll::Ready(false)));
    clock.advance(SECOND / 100);
    assert!(small.is_woken() && small.poll() == Poll::Ready(true));
}

#[test]
fn too_many_are_refused_at_once_and_handed_back() {
    let (clock, bucket) = empty(1, 2);
    clock.advance(SECOND * 5);
    assert!(
        matches!(bucket.try_acquire_many(nz(3)), Err(TryAcquireError::InsufficientCapacity(error)) if error.burst() == nz(2))
    );
    assert!(matches!(poll_once(pin!(bucket.acquire_many(nz(3)))), Poll::Ready(Err(_))));
    assert_eq!(block_on(bucket.acquire_many(nz(3))).unwrap_err().burst(), nz(2));
    let timeout = block_on(bucket.acquire_many_timeout(nz(3), SECOND));
    assert!(matches!(timeout, Err(TryAcquireError::InsufficientCapacity(_))));
    assert_eq!(bucket.reserve_many(nz(3)).unwrap_err().burst(), nz(2));
    assert_eq!((bucket.available_tokens(), bucket.waiters()), (2, 0));
}

#[test]
fn a_reservation_is_due_after_all_waiters_and_fixes_their_times() {
    let (clock, bucket) = empty(1, 2);
    let mut first = Waiter::new(&bucket, 1);
    let second = Waiter::new(&bucket, 2);
    let reservation = bucket.reserve_many(nz(2)).unwrap();
    assert_eq!(reservation.due(), at(5_000));
    let mut last = Waiter::new(&bucket, 1);
    clock.advance(SECOND);
    assert!(first.is_woken() && !second.is_woken());
    assert_eq!(first.poll(), Poll::Ready(true));
    drop(second);
    assert_eq!(clock.next_alarm(), Some(at(3_000)));
    clock.set(at(3_000));
    assert!(!last.is_woken(), "the gap before a reservation was used");
    assert!(bucket.cancel(reservation));
    assert_eq!(clock.next_alarm(), Some(at(4_000)));
    clock.set(at(4_000));
    assert_eq!(last.poll(), Poll::Ready(true));
}

#[test]
fn a_promise_is_kept_by_a_slower_quota() {
    let (clock, bucket) = empty(1, 1);
    let mut promised = Waiter::new(&bucket, 1);
    let reservation = bucket.reserve();
    let moved = Waiter::new(&bucket, 1);
    bucket.set_quota(Quota::per_minute(nz(1)));
    assert!(bucket.try_acquire().is_err());
    clock.advance(SECOND);
    assert!(promised.is_woken() && promised.poll() == Poll::Ready(true));
    assert_eq!(reservation.due(), at(2_000));
    clock.advance(SECOND);
    assert!(
        !moved.is_woken() && !bucket.cancel(reservation),
        "a reservation of the old quota was given back"
    );
}

#[test]
fn no_waiter_overtakes_a_promise_that_a_faster_quota_left_behind() {
    let (clock, bucket) = empty(1, 1);
    let mut promised = Waiter::new(&bucket, 1);
    let _reservation = bucket.reserve();
    bucket.set_quota(per_second(1_000, 1_000));
    assert_eq!(bucket.try_acquire().unwrap_err().retry_after(), SECOND);
    clock.advance(SECOND);
    assert!(promised.poll() == Poll::Ready(true));
    assert_eq!(bucket.try_acquire(), Ok(()));
}

#[test]
fn a_moved_future_is_woken_where_it_was_polled_last() {
    let (clock, bucket) = empty(1, 1);
    let mut future = pin!(bucket.acquire());
    let (old, first) = Counting::waker();
    let (new, second) = Counting::waker();
    assert!(poll_with(future.as_mut(), &first).is_pending());
    assert!(poll_with(future.as_mut(), &second).is_pending());
    drop(first);
    assert_eq!(Arc::strong_count(&old), 1, "the old waker was not dropped");
    clock.advance(SECOND);
    assert_eq!((old.wakes(), new.wakes()), (0, 1));
    assert!(poll_with(future.as_mut(), &second).is_ready());
}

#[test]
fn a_dropped_bucket_is_not_kept_by_its_alarm() {
    let (clock, bucket) = empty(1, 1);
    let mut waiter = Waiter::new(&bucket, 1);
    assert!(waiter.poll().is_pending());
    // A waiter that is dropped removes the alarm itself.
    std::mem::forget(waiter);
    assert!(clock.next_alarm().is_some());
    drop(bucket);
    assert_eq!(clock.next_alarm(), None, "dropping the limiter drops its timer and the alarm");
}

// === threads ===

/// Spins until there are `so_many` waiters.
fn until_waiting<T: Timer>(bucket: &RateLimiter<T>, so_many: usize) {
    while bucket.waiters() != so_many {
        thread::yield_now();
    }
}

#[test]
fn threads_and_tasks_share_one_fifo_queue() {
    let (clock, bucket) = empty(1, 1);
    let mut first = Waiter::new(&bucket, 1);
    let (said, heard) = channel();
    let threads = [1, 2].map(|name| {
        let (bucket, said) = (bucket.clone(), said.clone());
        let thread = thread::spawn({
            let bucket = bucket.clone();
            move || {
                block_on(bucket.acquire());
                said.send(name).unwrap();
            }
        });
        until_waiting(&bucket, 1 + name);
        thread
    });
    let mut last = Waiter::new(&bucket, 1);
    clock.advance(SECOND);
    assert_eq!(first.poll(), Poll::Ready(true));
    for name in [1, 2] {
        clock.advance(SECOND);
        assert_eq!(heard.recv(), Ok(name));
    }
    assert!(!last.is_woken());
    clock.advance(SECOND);
    assert_eq!(last.poll(), Poll::Ready(true));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn threads_need_no_runtime() {
    // At 1000 tokens a second, the test takes about 20 ms of real time.
    let bucket = RateLimiter::new(per_second(1_000, 1));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5).for_each(|_| block_on(bucket.acquire())));
        }
    });
    assert_eq!(bucket.waiters(), 0);
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_wait_on_tokios_clock() {
    use flyball_sync::TokioTimer;
    use tokio::time::Instant;

    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let bucket = RateLimiter::with_timer(per_second(50, 5), TokioTimer::current());
        let start = Instant::now();
        let tasks: Vec<_> = (0..105)
            .map(|_| {
                let bucket = bucket.clone();
                tokio::spawn(async move { bucket.acquire().await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let took = start.elapsed();
        assert!((SECOND * 2..SECOND * 2 + Duration::from_millis(5)).contains(&took), "{took:?}");
    });
}

/// An alarm that stayed set would keep the thread of a `ThreadTimer` alive, and a paused clock would advance to it.
#[test]
fn an_alarm_is_removed_when_its_last_waiter_leaves() {
    let (clock, bucket) = empty(1, 1);
    let stays = Waiter::new(&bucket, 1);
    drop(Waiter::new(&bucket, 1));
    assert_eq!(clock.next_alarm(), Some(at(1_000)));
    drop(stays);
    assert_eq!(clock.next_alarm(), None, "an alarm outlives its wait");
    let mut granted = Waiter::new(&bucket, 1);
    bucket.set_quota(per_second(1_000, 1));
    clock.advance(Duration::from_millis(1));
    assert_eq!(granted.poll(), Poll::Ready(true));
    assert_eq!(clock.next_alarm(), None);
}

#[test]
fn a_new_quota_examines_each_waiter_once() {
    let five = NonZeroU32::new(5).unwrap();
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_timer(Quota::per_hour(five), clock.timer());
    limiter.try_acquire_many(five).unwrap();
    let mut ones: Vec<_> = (0..500).map(|_| Box::pin(limiter.acquire())).collect();
    ones.iter_mut().for_each(|one| assert!(poll_once(one.as_mut()).is_pending()));
    let mut fives: Vec<_> = (0..500).map(|_| Box::pin(limiter.acquire_many(five))).collect();
    fives.iter_mut().for_each(|five| assert!(poll_once(five.as_mut()).is_pending()));
    steps::take();
    limiter.set_quota(Quota::per_hour(NonZeroU32::MIN));
    let steps = steps::take();
    assert!((1000..1200).contains(&steps), "{steps}");
    assert!(fives.iter_mut().all(|five| poll_once(five.as_mut()).is_ready()));
}
