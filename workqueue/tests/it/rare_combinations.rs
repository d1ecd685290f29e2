//! Rare combinations of features, each of which once gave a wrong result.

use std::future::Future;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::regressions::UnfiredTimer;
use flyball_ratelimit::{Exponential, FastSlow, MaxElapsed, Quota};
use flyball_sync::{Clock, ManualTimer, Timer, steps};
use flyball_workqueue::{
    AddOptions, DrainOptions, Fair, KeyState, LeaseOutcome, ManualClock, Nanos, Queue, QueueMetrics,
};
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

const SECOND: Duration = Duration::from_secs(1);
const TEN: NonZeroU32 = NonZeroU32::new(10).unwrap();

type Key = (u8, u8);

#[test]
fn the_oldest_available_key_may_be_due_behind_one_of_a_suspended_group() {
    let clock = ManualClock::new();
    let order = Fair::by_group(|key: &Key| key.0).max_leased(|group| u32::from(*group != 0));
    let queue = Queue::builder().order(order).timer(clock.timer()).build();
    queue.track_ages();
    queue.add_after((0, 0), SECOND).unwrap();
    queue.add_after((1, 0), SECOND * 2).unwrap();
    clock.advance(SECOND * 10);
    let stats = queue.stats();
    assert_eq!((stats.oldest_ready, stats.oldest_available), (Some(SECOND * 9), Some(SECOND * 8)));
}

#[test]
fn an_adder_that_yields_brings_a_new_rate_at_the_present_time() {
    let clock = ManualClock::new();
    let rate = Arc::new(Mutex::new(Quota::new(NonZeroU32::MIN, SECOND).unwrap().allow_burst(TEN)));
    let own = rate.clone();
    let order =
        Fair::by_group(|key: &Key| key.0).rate(move |group| (*group == 0).then(|| *own.lock().unwrap()));
    let queue = Queue::builder().order(order).timer(clock.timer()).build();
    for key in 0..10 {
        queue.add((0, key)).unwrap();
        queue.try_get().unwrap().done();
    }
    queue.add((0, 200)).unwrap(); // waits for a token
    for key in 0..127 {
        assert!(poll_once(pin!(queue.add_when_room((1, key))).as_mut()).is_ready());
        queue.try_get().unwrap().done();
    }
    clock.advance(SECOND * 100); // the bucket is full
    *rate.lock().unwrap() = Quota::new(NonZeroU32::MIN, SECOND * 86_400).unwrap().allow_burst(TEN);
    let mut adding = pin!(queue.add_when_room((0, 0)));
    assert!(poll_once(adding.as_mut()).is_pending(), "it yields");
    assert!(poll_once(adding.as_mut()).is_ready());
    (1..20).for_each(|key| _ = queue.add((0, key)).unwrap());
    let served = std::iter::from_fn(|| queue.try_get().ok()).map(|lease| lease.done()).count();
    assert_eq!(served, 10, "a full bucket stays full");
}

#[test]
fn a_backoff_beyond_the_end_of_time_gives_no_key_up() {
    let queue = Queue::builder()
        .timer(ManualClock::new().timer())
        .limiter(Exponential::new(SECOND..=Duration::MAX))
        .give_up_after(NonZeroU32::MAX, |_: &u8, _| panic!("given up"))
        .build();
    queue.add_with(1, AddOptions { failures: 40, ..AddOptions::default() }).unwrap();
    queue.try_get().unwrap().retry();
    assert_eq!(queue.state(&1), KeyState::Waiting(Nanos::MAX));
    queue.add(1).unwrap();
    queue.try_get().unwrap().retry(); // within its backoff
    assert_ne!(queue.state(&1), KeyState::Absent);
    assert_eq!(queue.num_requeues(&1), 41);
}

/// A sink that ignores everything; with it, the queue measures.
struct Ignore;

impl QueueMetrics for Ignore {}

#[test]
fn a_requeue_at_the_end_of_a_drain_does_not_take_an_add_back() {
    for at in [9, 10, 11] {
        let clock = ManualClock::new();
        let queue = Queue::builder().timer(clock.timer()).metrics(Ignore).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let (_, waker) = Counting::waker();
        let mut drain = Box::pin(queue.drain(DrainOptions::serve_waiting(Duration::from_nanos(10))));
        assert!(poll_with(drain.as_mut(), &waker).is_pending());
        clock.advance(Duration::from_nanos(at));
        lease.end(LeaseOutcome::Requeued);
        assert_eq!(queue.stats().adds, 1, "at {at} ns");
    }
}

/// A waker whose last drop panics.
struct Hostile;

impl Wake for Hostile {
    fn wake(self: Arc<Self>) {
        std::mem::forget(self);
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_getter_receives_its_key_although_the_drop_of_its_old_waker_panics() {
    let queue = Queue::new();
    let (_, first) = Counting::waker();
    let mut woken = pin!(queue.get());
    assert!(woken.as_mut().poll(&mut Context::from_waker(&first)).is_pending());
    let mut getting = pin!(queue.get());
    let waker = Waker::from(Arc::new(Hostile));
    assert!(getting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // Only the waker that is parked is left. It is dropped when the getter is polled again.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(waker)));
    queue.add_many([7]).refused.clear();
    let (_, other) = Counting::waker();
    let polled = getting.as_mut().poll(&mut Context::from_waker(&other));
    assert!(matches!(polled, Poll::Ready(Some(lease)) if *lease == 7));
}

#[test]
fn the_backlog_is_handed_out_after_a_shutdown_although_another_waker_panics() {
    let queue = Queue::new();
    let mut watching = Box::pin(queue.next_overdue(SECOND));
    assert!(poll_with(watching.as_mut(), &Waker::from(Arc::new(Panicking))).is_pending());
    queue.add(1).unwrap();
    queue.shut_down();
    let lease = queue.try_get().unwrap(); // wakes the watcher
    assert_eq!(*lease, 1);
}

#[test]
fn an_overdue_lease_is_reported_although_the_drop_of_the_old_waker_panics() {
    let timer = UnfiredTimer::default();
    let queue = Queue::builder().timer(timer.clone()).build();
    queue.track_ages();
    queue.add(1).unwrap();
    let _lease = queue.try_get().unwrap();
    let mut watching = pin!(queue.next_overdue(SECOND * 9));
    let waker = Waker::from(Arc::new(Hostile));
    assert!(watching.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let _ = catch_unwind(AssertUnwindSafe(|| drop(waker)));
    timer.clock.advance(SECOND * 9); // no alarm wakes the watcher
    let (_, other) = Counting::waker();
    let polled = watching.as_mut().poll(&mut Context::from_waker(&other));
    assert!(matches!(polled, Poll::Ready(Some(overdue)) if overdue.key == 1));
}

#[test]
fn a_sink_that_panics_leaks_nothing() {
    struct Panics(Arc<()>);
    impl QueueMetrics for Panics {
        fn dequeued(&self, _: Duration, _: bool) {
            resume_unwind(Box::new(self.0.clone()));
        }
    }
    let payload = Arc::new(());
    let queue = Queue::builder().metrics(Panics(payload.clone())).build();
    queue.add(1).unwrap();
    queue.try_get().unwrap().done();
    assert_eq!(Arc::strong_count(&payload), 2, "the sink and the test");
}

/// An empty queue with many kept groups does not look at each of them whenever a lease ends, also while an adder waits.
#[test]
fn an_empty_queue_looks_at_no_kept_group_while_an_adder_waits() {
    let clock = ManualClock::new();
    let open = Arc::new(AtomicBool::new(true));
    let own = open.clone();
    let slow = Quota::new(NonZeroU32::MIN, SECOND * 86_400).unwrap();
    let order = Fair::by_group(|key: &(u32, u32)| key.0)
        .capacity(move |group| if *group == 0 && !own.load(Ordering::Relaxed) { 0 } else { usize::MAX })
        .rate(move |group| (*group < 1_000).then_some(slow));
    let queue = Queue::builder().order(order).timer(clock.timer()).build();
    let cycle = |key| {
        queue.add(key).unwrap();
        queue.try_get().unwrap().done();
    };
    (0..1_000).for_each(|group| cycle((group, 0)));
    open.store(false, Ordering::Relaxed);
    let mut adding = Box::pin(queue.add_when_room((0, 1)));
    assert!(poll_once(adding.as_mut()).is_pending());
    assert_eq!(queue.add_many((1_000..20_000).map(|group| (group, 0))).new, 19_000);
    while let Ok(lease) = queue.try_get() {
        lease.done();
    }
    steps::take();
    (0..9).for_each(|key| cycle((30_000, key)));
    assert!(steps::take() < 100);
}

#[test]
fn statistics_do_not_visit_groups_that_no_longer_have_keys() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Fair::by_group(|key: &u32| *key)).timer(clock.timer()).build();
    queue.add_after(u32::MAX, SECOND).unwrap(); // so the queue does not become empty
    _ = queue.add_many(0..10_000);
    while let Ok(lease) = queue.try_get() {
        lease.done();
    }
    steps::take();
    assert_eq!(queue.stats_by_group(10).groups.len(), 1);
    queue.refresh_groups();
    assert!(steps::take() < 20);
}

#[test]
fn a_wait_without_end_does_not_give_a_key_up() {
    let clock = ManualClock::new();
    let policies = FastSlow::new(SECOND, Duration::MAX, 2);
    let queue = Queue::builder().timer(clock.timer()).limiter(policies).build();
    queue.add("k").unwrap();
    for _ in 0..3 {
        queue.try_get().unwrap().retry();
        clock.advance(SECOND);
    }
    assert!(matches!(queue.state("k"), KeyState::Waiting(_)), "{:?}", queue.state("k"));
    queue.add("k").unwrap();
    assert_eq!(queue.num_requeues(&"k"), 3);
}

#[test]
fn a_lease_is_returned_if_the_limiter_gives_the_key_up_before_the_limit_of_the_queue() {
    let limiter = MaxElapsed::new(Exponential::new(SECOND * 9..=SECOND * 9), SECOND);
    let queue = Queue::builder()
        .timer(ManualClock::new().timer())
        .limiter(limiter)
        .give_up_after(NonZeroU32::new(3).unwrap(), |_, _| unreachable!("the caller has the key"))
        .build();
    queue.add("k").unwrap();
    let lease = queue.try_get().unwrap().retry_up_to(TEN, Duration::ZERO).unwrap_err();
    assert_eq!((*lease, queue.num_requeues(&"k")), ("k", 0));
    lease.done();
}

/// A timer that counts how often its clock is read.
struct CountingTimer(ManualTimer, Arc<AtomicUsize>);

impl Clock for CountingTimer {
    fn now(&self) -> Nanos {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.now()
    }
}

impl Timer for CountingTimer {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        self.0.wake_at(at, waker);
    }

    fn disarm(&self) {
        self.0.disarm();
    }
}

#[test]
fn a_blocked_thread_sleeps_while_a_virtual_clock_stands_still() {
    let (clock, reads) = (ManualClock::new(), Arc::<AtomicUsize>::default());
    let queue = Queue::builder().timer(CountingTimer(clock.timer(), reads.clone())).build();
    queue.add_after(1, Duration::from_nanos(1)).unwrap();
    let own = queue.clone();
    let getting = std::thread::spawn(move || own.blocking_get().map(|lease| *lease));
    // The thread has read the clock for its wait, and then again when it had set the alarm.
    while reads.load(Ordering::SeqCst) < 3 {
        std::thread::yield_now();
    }
    std::thread::park_timeout(Duration::from_millis(5));
    let before = reads.load(Ordering::SeqCst);
    std::thread::park_timeout(Duration::from_millis(20));
    assert!(reads.load(Ordering::SeqCst) - before < 5);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(getting.join().unwrap(), Some(1));
}
