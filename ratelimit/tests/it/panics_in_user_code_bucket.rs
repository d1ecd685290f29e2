//! A `RateLimiter` with wakers, timers and clocks that panic or call back, and with futures that are dropped at every stage; and maps of keys that panic in
//! their drop.

use std::future::Future;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use flyball_ratelimit::{
    AimdLimit, ConcurrencyLimiter, Exponential, KeyedRateLimiter, Limiter, Policy, Quota, RateLimiter,
};
use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos, Timer};
use testkit::wakers::{Counting, HostileWaker, Panicking, WakerCall, poll_with};

const SECOND: Duration = Duration::from_secs(1);

fn nz(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("not zero")
}

fn per_second(rate: u32, burst: u32) -> Quota {
    Quota::per_second(nz(rate)).allow_burst(nz(burst))
}

fn panics(step: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(step)).is_err()
}

fn waiter<T: Timer>(bucket: &RateLimiter<T>) -> Pin<Box<dyn Future<Output = ()> + '_>> {
    Box::pin(bucket.acquire())
}

/// A manual timer that panics in `now` and `wake_at` as often as its counters say, and that can wake too early.
struct Moody {
    inner: ManualTimer,
    clock: AtomicI32,
    alarm: AtomicI32,
    early: AtomicI32,
}

/// A handle to a [`Moody`] timer, with which a test changes the counters.
#[derive(Clone)]
struct Shared(Arc<Moody>);

impl Shared {
    fn new(clock: &ManualClock) -> Self {
        let zero = || AtomicI32::new(0);
        Self(Arc::new(Moody { inner: clock.timer(), clock: zero(), alarm: zero(), early: zero() }))
    }
}

fn burns(fuse: &AtomicI32) -> bool {
    fuse.load(Ordering::SeqCst) > 0 && fuse.fetch_sub(1, Ordering::SeqCst) > 0
}

impl Clock for Shared {
    fn now(&self) -> Nanos {
        assert!(!burns(&self.0.clock), "a hostile clock panics");
        self.0.inner.now()
    }
}

impl Timer for Shared {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        assert!(!burns(&self.0.alarm), "a hostile timer panics");
        if self.0.early.load(Ordering::SeqCst) > 0 {
            waker.wake_by_ref();
        }
        self.0.inner.wake_at(at, waker);
    }
}

fn faulty(quota: Quota) -> (ManualClock, Shared, RateLimiter<Shared>) {
    let clock = ManualClock::new();
    let shared = Shared::new(&clock);
    let bucket = RateLimiter::with_timer(quota, shared.clone());
    bucket.try_acquire_many(quota.burst_size()).unwrap();
    (clock, shared, bucket)
}

#[test]
fn a_panicking_waker_takes_no_token_of_another() {
    let (clock, _, bucket) = faulty(per_second(2, 2));
    let (mut first, mut second) = (waiter(&bucket), waiter(&bucket));
    let hostile = Waker::from(Arc::new(Panicking));
    let (woken, waker) = Counting::waker();
    assert!(poll_with(first.as_mut(), &hostile).is_pending());
    assert!(poll_with(second.as_mut(), &waker).is_pending());
    // The alarm is set for the first waiter, but the clock moves past the due times of both waiters.
    clock.advance(SECOND);
    assert_eq!(woken.wakes(), 1);
    assert!(poll_with(second.as_mut(), &waker).is_ready());
    assert!(poll_with(first.as_mut(), &waker).is_ready(), "the waiter whose waker panicked has no token");
    assert_eq!((bucket.available_tokens(), bucket.waiters(), bucket.check()), (0, 0, Ok(())));
}

#[test]
fn a_panicking_timer_is_set_again_by_the_first_waiter() {
    let (clock, shared, bucket) = faulty(per_second(1, 1));
    let (woken, waker) = Counting::waker();
    let mut future = waiter(&bucket);
    shared.0.alarm.store(1, Ordering::SeqCst);
    assert!(panics(|| _ = poll_with(future.as_mut(), &waker)));
    assert_eq!((bucket.waiters(), woken.wakes()), (1, 1), "the waiter is queued, and is woken to check");
    assert!(poll_with(future.as_mut(), &waker).is_pending());
    clock.advance(SECOND);
    assert!(woken.wakes() == 2 && poll_with(future.as_mut(), &waker).is_ready());
}

/// If no alarm could be set, the waiters do not depend on the first one being polled.
#[test]
fn a_panicking_timer_wakes_all_waiters() {
    let (clock, shared, bucket) = faulty(per_second(1, 1));
    let mut others: Vec<_> = (0..100)
        .map(|_| {
            let (woken, waker) = Counting::waker();
            let mut future = waiter(&bucket);
            assert!(poll_with(future.as_mut(), &waker).is_pending());
            (future, woken, waker)
        })
        .collect();
    shared.0.alarm.store(1, Ordering::SeqCst);
    let mut soon = Box::pin(bucket.acquire_timeout(SECOND * 200));
    let (woken, waker) = Counting::waker();
    assert!(poll_with(soon.as_mut(), &waker).is_pending());
    // The first waiter gets its token, and the alarm for the next one cannot be set.
    assert!(panics(|| clock.advance(SECOND)) || others[0].1.wakes() == 1);
    assert!(others[1..].iter().all(|(_, woken, _)| woken.wakes() == 1) && woken.wakes() == 1);
    // The first one is not polled. Any other one sets the alarm again.
    let (future, _, waker) = &mut others[57];
    assert!(poll_with(future.as_mut(), waker).is_pending());
    clock.advance(SECOND);
    assert_eq!(others[1].1.wakes(), 1, "it was woken to check, and has no waker");
    let (future, _, waker) = &mut others[1];
    assert!(poll_with(future.as_mut(), waker).is_ready());
}

#[test]
fn a_clock_that_panics_takes_nothing_along() {
    let (clock, shared, bucket) = faulty(per_second(1, 1));
    let (woken, waker) = Counting::waker();
    let (mut first, mut second) = (waiter(&bucket), waiter(&bucket));
    shared.0.clock.store(1, Ordering::SeqCst);
    assert!(panics(|| _ = poll_with(first.as_mut(), &waker)));
    assert_eq!(bucket.waiters(), 0);
    assert!(poll_with(first.as_mut(), &waker).is_pending());
    assert!(poll_with(second.as_mut(), &waker).is_pending());
    shared.0.clock.store(1, Ordering::SeqCst);
    assert!(panics(|| drop(first)));
    assert_eq!(bucket.waiters(), 1, "the dropped waiter has left, and the other still waits");
    // When the alarm fires and the clock panics, the first waiter is woken, so that its next poll reads the clock again.
    shared.0.clock.store(1, Ordering::SeqCst);
    clock.advance(SECOND);
    assert_eq!(woken.wakes(), 1);
    assert!(poll_with(second.as_mut(), &waker).is_ready());
}

/// The alarm fires in tokio's timer driver, where a panic would take the wake-ups of other tasks along.
#[cfg(feature = "tokio")]
#[test]
fn a_panicking_waker_does_not_reach_tokio() {
    use flyball_sync::TokioTimer;
    use tokio::runtime::Builder;
    use tokio::time::sleep;

    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let bucket = RateLimiter::with_timer(per_second(1, 1), TokioTimer::current());
        bucket.try_acquire().unwrap();
        let (woken, waker) = Counting::waker();
        let hostile = Waker::from(Arc::new(Panicking));
        let mut waiters: Vec<_> = (0..10).map(|_| waiter(&bucket)).collect();
        for (number, future) in waiters.iter_mut().enumerate() {
            assert!(poll_with(future.as_mut(), if number % 2 == 0 { &hostile } else { &waker }).is_pending());
        }
        tokio::spawn(sleep(SECOND * 20)).await.unwrap();
        assert_eq!(woken.wakes(), 5);
        assert!(waiters.iter_mut().all(|future| poll_with(future.as_mut(), &waker).is_ready()));
        assert_eq!((bucket.waiters(), bucket.check()), (0, Ok(())));
    });
}

#[test]
fn a_timer_that_rings_at_once_and_always_is_got_rid_of() {
    let (clock, shared, bucket) = faulty(per_second(1, 1));
    shared.0.early.store(1, Ordering::SeqCst);
    let (woken, waker) = Counting::waker();
    let mut future = waiter(&bucket);
    for polls in 1..10 {
        assert!(poll_with(future.as_mut(), &waker).is_pending());
        assert_eq!(woken.wakes(), polls, "each poll wakes the waiter once");
    }
    clock.advance(SECOND);
    assert!(poll_with(future.as_mut(), &waker).is_ready());
}

#[test]
fn every_waiter_is_served_although_the_clock_jumps() {
    let (clock, _, bucket) = faulty(per_second(1, 1));
    let (woken, waker) = Counting::waker();
    let mut waiters: Vec<_> = (0..5).map(|_| waiter(&bucket)).collect();
    for future in &mut waiters {
        assert!(poll_with(future.as_mut(), &waker).is_pending());
    }
    clock.advance(SECOND);
    clock.set(Nanos::ZERO);
    assert_eq!(woken.wakes(), 1);
    clock.set(Nanos::ZERO + SECOND * 86_400);
    assert_eq!(woken.wakes(), 2, "no more than the burst after a jump forwards");
    clock.set(Nanos::ZERO + SECOND * 5);
    assert_eq!(woken.wakes(), 2);
    clock.set(Nanos::ZERO + SECOND * 86_401);
    clock.advance(SECOND);
    clock.advance(SECOND);
    assert_eq!((woken.wakes(), bucket.waiters()), (5, 0));
    clock.set(Nanos::MAX);
    assert_eq!(bucket.try_acquire(), Ok(()));
}

#[test]
fn futures_dropped_at_any_stage_lose_nothing() {
    // Each of three futures is dropped before its first poll, while it waits, after its grant, or not at all.
    for stages in 0..4_usize.pow(3) {
        let (clock, _, bucket) = faulty(per_second(1, 3));
        let mut waiters: Vec<_> = (0..3).map(|_| Some(waiter(&bucket))).collect();
        let stage = |who: usize| stages / 4_usize.pow(who as u32) % 4;
        let (_, waker) = Counting::waker();
        for (who, future) in waiters.iter_mut().enumerate() {
            if stage(who) == 0 {
                *future = None;
            } else if let Some(future) = future {
                assert!(poll_with(future.as_mut(), &waker).is_pending());
            }
        }
        for (who, future) in waiters.iter_mut().enumerate() {
            if stage(who) == 1 {
                *future = None;
            }
        }
        clock.advance(SECOND * 3);
        let mut served = 0;
        for (who, future) in waiters.iter_mut().enumerate() {
            match future {
                Some(future) if stage(who) == 3 => {
                    served += 1;
                    assert!(poll_with(future.as_mut(), &waker).is_ready());
                }
                _ => *future = None,
            }
        }
        assert_eq!((bucket.available_tokens(), bucket.waiters()), (3 - served, 0), "{stages}");
    }
}

/// A waker that calls the limiter: under the lock, this call would deadlock.
struct CallsBack(RateLimiter<Shared>);

impl Wake for CallsBack {
    fn wake(self: Arc<Self>) {
        assert!(self.0.try_acquire().is_err());
        self.0.set_quota(per_second(2, 1));
    }
}

#[test]
fn a_waker_may_call_back() {
    let (clock, _, bucket) = faulty(per_second(1, 1));
    let mut future = waiter(&bucket);
    assert!(poll_with(future.as_mut(), &Arc::new(CallsBack(bucket.clone())).into()).is_pending());
    clock.advance(SECOND);
    assert_eq!(bucket.quota(), per_second(2, 1));
}

static KEYS_ARE_HOSTILE: AtomicBool = AtomicBool::new(false);
static DROPS: AtomicI32 = AtomicI32::new(0);

/// A key that panics in each of its drops, while the test says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Undroppable(u32);

impl Drop for Undroppable {
    fn drop(&mut self) {
        if KEYS_ARE_HOSTILE.load(Ordering::SeqCst) {
            DROPS.fetch_add(1, Ordering::SeqCst);
            panic!("a hostile key panics in its drop");
        }
    }
}

/// Returns how many keys `step` has dropped, all of which have panicked.
fn hostile_drops(step: impl FnOnce()) -> i32 {
    DROPS.store(0, Ordering::SeqCst);
    KEYS_ARE_HOSTILE.store(true, Ordering::SeqCst);
    let panicked = panics(step);
    KEYS_ARE_HOSTILE.store(false, Ordering::SeqCst);
    assert!(panicked);
    DROPS.load(Ordering::SeqCst)
}

/// Two drops that panic in one operation abort nothing: the first panic is resumed, and every key is dropped.
#[test]
fn several_keys_that_panic_in_their_drop_do_not_abort() {
    let clock = ManualClock::new();
    let keyed = |most, keys| {
        let keyed = KeyedRateLimiter::with_clock(per_second(1, 1), clock.clone()).max_keys(nz(most));
        (0..keys).for_each(|key| keyed.try_acquire(&Undroppable(key)).unwrap());
        keyed
    };
    let full = keyed(100, 50);
    clock.advance(SECOND);
    let new = Undroppable(99);
    assert_eq!(hostile_drops(|| _ = full.try_acquire(&new)), 2, "two full buckets");
    let other = Undroppable(98);
    assert_eq!(hostile_drops(|| _ = full.reserve(&other)), 2);
    full.check().unwrap();
    assert_eq!(hostile_drops(|| full.set_quota(per_second(2, 2))), 46);
    assert_eq!(full.tracked_keys(), 2);

    let failed = |most| {
        let mut policy = Exponential::new(SECOND..=SECOND).forget_after(SECOND);
        for key in 0..9 {
            let _ = policy.record_failure(&Undroppable(key), clock.now(), 0, &mut |_| false);
        }
        policy.max_keys(nz(most))
    };
    let limiter = Limiter::with_clock(failed(9), clock.clone());
    clock.advance(SECOND * 9);
    assert_eq!(hostile_drops(|| _ = limiter.record_failure(&new)), 2, "two failures have expired");
    assert_eq!(limiter.tracked_keys(), 8);
    // Without an owner that takes them, the next operation drops the evicted keys.
    let mut policy = failed(3);
    assert_eq!(hostile_drops(|| _ = policy.record_failure(&new, clock.now(), 0, &mut |_| false)), 6);
    policy.check().unwrap();
}

/// A task that panics drops its futures while the panic unwinds.
#[test]
fn a_waker_that_panics_in_its_drop_while_a_panic_unwinds_does_not_abort() {
    let bucket = RateLimiter::with_timer(per_second(1, 1), ManualClock::new().timer());
    bucket.try_acquire().unwrap();
    let limiter = ConcurrencyLimiter::new(AimdLimit::new(1..=1, SECOND));
    let permit = limiter.try_acquire().unwrap();
    let hostile = HostileWaker::new();
    let waker = hostile.waker();
    let (mut acquiring, mut starting) = (waiter(&bucket), Box::pin(limiter.acquire()));
    assert!(
        poll_with(acquiring.as_mut(), &waker).is_pending()
            && poll_with(starting.as_mut(), &waker).is_pending()
    );
    hostile.panic_in(Some(WakerCall::Drop));
    assert!(panics(|| {
        let _futures = (acquiring, starting);
        panic!("the task panics");
    }));
    hostile.panic_in(None);
    assert_eq!((bucket.waiters(), limiter.waiters(), hostile.live()), (0, 0, 1));
    permit.succeed();
}
