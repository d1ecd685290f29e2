//! Situations from the issues of other rate limiters.
//!
//! | issue | test |
//! |---|---|
//! | governor#249: one token too many after a rest | [`a_rest_fills_the_burst_and_no_more`] |
//! | governor#102, #157: the reported capacity is not replenished, or only on a clock that begins at zero | [`the_reported_tokens_come_back_on_a_clock_that_began_long_ago`] |
//! | governor#203: rejections at more than a token per nanosecond, from several threads | [`more_than_a_token_per_nanosecond_from_several_threads`] |
//! | leaky-bucket#35: a task that waits for several requests of one limiter stops | [`a_task_may_wait_for_several_requests`] |
//! | leaky-bucket#39: refused requests beside others write an old state back, and the limiter is never refilled | [`refused_requests_beside_waiters_lose_no_token`] |

use std::future::{Future, poll_fn};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use flyball_ratelimit::{KeyedRateLimiter, ManualTimer, Quota, RateLimiter, TokenBucket};
use flyball_sync::{Clock, ManualClock, Nanos, block_on};
use testkit::wakers::{Counting, poll_with};

const SECOND: Duration = Duration::from_secs(1);

fn nz(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("not zero")
}

/// The three buckets with one quota, on one clock.
struct Buckets {
    clock: ManualClock,
    pure: TokenBucket,
    shared: RateLimiter<ManualTimer>,
    keyed: KeyedRateLimiter<&'static str, ManualClock>,
}

impl Buckets {
    fn new(quota: Quota, start: Nanos) -> Self {
        let clock = ManualClock::new();
        clock.set(start);
        let (pure, shared) = (TokenBucket::new(quota), RateLimiter::with_timer(quota, clock.timer()));
        Self { pure, shared, keyed: KeyedRateLimiter::with_clock(quota, clock.clone()), clock }
    }

    /// Takes as many tokens as there are, one by one.
    fn take_all(&mut self) -> [usize; 3] {
        let now = self.clock.now();
        let count = |take: &mut dyn FnMut() -> bool| std::iter::from_fn(|| take().then_some(())).count();
        [
            count(&mut || self.pure.try_acquire(now).is_ok()),
            count(&mut || self.shared.try_acquire().is_ok()),
            count(&mut || self.keyed.try_acquire(&"a").is_ok()),
        ]
    }

    fn available(&self) -> [u32; 3] {
        let pure = self.pure.available_tokens(self.clock.now());
        [pure, self.shared.available_tokens(), self.keyed.available_tokens(&"a")]
    }
}

#[test]
fn a_rest_fills_the_burst_and_no_more() {
    let mut buckets = Buckets::new(Quota::per_second(nz(5)), Nanos::ZERO);
    assert_eq!(buckets.take_all(), [5; 3]);
    buckets.clock.advance(SECOND * 2);
    assert_eq!(buckets.take_all(), [5; 3]);
    buckets.clock.advance(SECOND / 5);
    assert_eq!(buckets.take_all(), [1; 3]);
}

#[test]
fn the_reported_tokens_come_back_on_a_clock_that_began_long_ago() {
    for start in [0, 1, 1 << 40, u64::MAX / 2] {
        let mut buckets = Buckets::new(Quota::per_minute(nz(5)), Nanos::new(start));
        assert_eq!(buckets.take_all(), [5; 3]);
        for tokens in 1..=5 {
            buckets.clock.advance(SECOND * 12 - Duration::from_nanos(1));
            assert_eq!(buckets.available(), [tokens - 1; 3], "from {start}");
            buckets.clock.advance(Duration::from_nanos(1));
            assert_eq!(buckets.available(), [tokens; 3], "from {start}");
        }
        buckets.clock.advance(SECOND * 600);
        assert_eq!(buckets.available(), [5; 3], "from {start}");
    }
}

#[test]
fn more_than_a_token_per_nanosecond_from_several_threads() {
    let quota = Quota::per_second(nz(1_000_000_001)).allow_burst(nz(40_001));
    let buckets = Buckets::new(quota, Nanos::new(1 << 50));
    let (shared, keyed) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    buckets.shared.try_acquire().expect("no thread has to wait");
                    buckets.keyed.try_acquire(&"a").expect("no thread has to wait");
                }
                shared.fetch_add(10_000, Ordering::Relaxed);
                keyed.fetch_add(10_000, Ordering::Relaxed);
            });
        }
    });
    assert_eq!((shared.into_inner(), keyed.into_inner()), (40_000, 40_000));
    assert_eq!((buckets.shared.available_tokens(), buckets.keyed.available_tokens(&"a")), (1, 1));
}

type Acquiring<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Completes when all futures have, or with `false` when the first one has, whose others are then dropped, as with `try_join!`.
async fn join(mut futures: Vec<Acquiring<'_>>, all: bool) -> bool {
    poll_fn(|context| {
        let before = futures.len();
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        match futures.len() {
            0 => Poll::Ready(true),
            now if now < before && !all => Poll::Ready(false),
            _ => Poll::Pending,
        }
    })
    .await
}

#[test]
fn a_task_may_wait_for_several_requests() {
    let quota = Quota::per_second(nz(10));
    let clock = ManualClock::new();
    let bucket = RateLimiter::with_timer(quota, clock.timer());
    let acquire = |count| -> Acquiring<'_> {
        let acquiring = bucket.acquire_many(nz(count));
        Box::pin(async move { acquiring.await.unwrap() })
    };
    let (_, waker) = Counting::waker();
    for round in 0..10 {
        // The second round ends when the first request has its tokens; the others are dropped while they wait.
        let mut task = Box::pin(join(vec![acquire(7), acquire(9), acquire(10)], round % 2 == 0));
        let mut alarms = 0;
        while poll_with(task.as_mut(), &waker).is_pending() {
            clock.set(clock.next_alarm().expect("an alarm is set while a request waits"));
            alarms += 1;
            assert!(alarms <= 3, "a request needs one alarm");
        }
        drop(task);
        assert_eq!((bucket.waiters(), clock.next_alarm()), (0, None));
        bucket.check().unwrap();
    }
    clock.advance(SECOND);
    assert_eq!(bucket.available_tokens(), 10);
}

#[test]
fn refused_requests_beside_waiters_lose_no_token() {
    let bucket = RateLimiter::new(Quota::new(nz(1), Duration::from_micros(20)).unwrap().allow_burst(nz(8)));
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let _ = bucket.try_acquire_many(nz(3));
                }
            });
        }
        (0..500).for_each(|_| block_on(bucket.acquire()));
        ends.store(true, Ordering::Relaxed);
    });
    block_on(bucket.acquire_many(nz(8))).unwrap();
    bucket.check().unwrap();
    block_on(bucket.acquire_many(nz(8))).unwrap();
    assert_eq!(bucket.waiters(), 0);
}
