//! Regression tests: one for each fault that was found by trying to break the queue. The name of a test describes the fault.

use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use flyball_ratelimit::{Exponential, FastSlow};
use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos, Timer, block_on};
use flyball_workqueue::{AddErrorKind, Added, DrainOptions, Queue, TryGetError};
use testkit::panicking::{PanicSwitch, Point};
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

use crate::support::{backoff, ns, timed, times};

/// A timer that fires only when the test calls `fire`. It stands for a timer that fires late, such as tokio's, which rounds up to the next
/// millisecond.
#[derive(Clone, Default)]
pub(crate) struct UnfiredTimer {
    pub(crate) clock: ManualClock,
    alarm: Arc<Mutex<Option<Waker>>>,
    broken: Arc<AtomicBool>,
}

impl UnfiredTimer {
    fn fire(&self) {
        let alarm = self.alarm.lock().unwrap().take();
        if let Some(waker) = alarm {
            waker.wake();
        }
    }
}

impl Clock for UnfiredTimer {
    fn now(&self) -> Nanos {
        self.clock.now()
    }
}

impl Timer for UnfiredTimer {
    fn wake_at(&self, _: Nanos, waker: &Waker) {
        assert!(!self.broken.load(Ordering::SeqCst), "a hostile timer panics");
        *self.alarm.lock().unwrap() = Some(waker.clone());
    }
}

/// A key whose deadline has passed at the shutdown counts as Ready. A waiting getter must be woken to take it, or the queue never closes.
#[test]
fn shutdown_wakes_a_getter_for_a_due_key() {
    let late = UnfiredTimer::default();
    let queue = Queue::builder().timer(late.clone()).build();
    let (woken, waker) = Counting::waker();
    let mut get = Box::pin(queue.get());
    assert!(poll_with(get.as_mut(), &waker).is_pending());
    queue.add_after("a", ns(2)).unwrap();
    late.clock.advance(ns(5));
    queue.shut_down();
    assert!(woken.wakes() > 0, "a key is Ready and the only getter was not woken");
    let Poll::Ready(Some(lease)) = poll_with(get.as_mut(), &waker) else { panic!("the key is Ready") };
    lease.done();
    assert!(block_on(queue.drain(DrainOptions::unlimited())).waiting.is_empty());
}

/// The timer wakes a getter, the queue is shut down, and the getter is dropped: it passes its wake-up to another getter.
#[test]
fn a_getter_dropped_after_shutdown_passes_its_deadline_on() {
    let (queue, clock) = timed();
    let (_, waker) = Counting::waker();
    let (other, others_waker) = Counting::waker();
    let mut first = Box::pin(queue.get());
    assert!(poll_with(first.as_mut(), &waker).is_pending());
    let mut second = Box::pin(queue.get());
    assert!(poll_with(second.as_mut(), &others_waker).is_pending());
    queue.add_after("a", ns(1)).unwrap();
    clock.advance(ns(1));
    queue.shut_down();
    drop(first);
    assert!(other.wakes() > 0);
    assert!(poll_with(second.as_mut(), &others_waker).is_ready());
}

/// A key whose `Drop` calls the queue that held it.
#[derive(Clone)]
struct CallingKey {
    id: u8,
    queue: Arc<Mutex<Option<Look>>>,
}

type Look = Box<dyn Fn() + Send + Sync>;

impl Hash for CallingKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl PartialEq for CallingKey {
    fn eq(&self, other: &Self) -> bool {
        assert!(self.id != 99 && other.id != 99, "a hostile key panics in Eq");
        self.id == other.id
    }
}

impl Eq for CallingKey {}

impl Drop for CallingKey {
    fn drop(&mut self) {
        if let Ok(Some(look)) = self.queue.try_lock().as_deref() {
            look();
        }
    }
}

/// Keys are dropped while neither the limiter nor the queue is locked, even if a panic unwinds.
#[test]
fn a_key_may_call_its_queue_in_its_drop() {
    let clock = ManualClock::new();
    let limiter = FastSlow::new(ns(0), ns(0), 1);
    let queue = Queue::builder().timer(clock.timer()).limiter(limiter).build();
    let looks = Arc::new(Mutex::new(None));
    let key = |id| CallingKey { id, queue: looks.clone() };
    let (looking, probe) = (queue.clone(), key(1));
    *looks.lock().unwrap() = Some(Box::new(move || {
        let _ = looking.num_requeues(&probe);
        let _ = looking.ready_len();
    }) as Look);

    queue.add(key(2)).unwrap();
    queue.add(key(2)).unwrap();
    queue.try_get().unwrap().retry();
    queue.try_get().unwrap().succeed();
    queue.add(key(3)).unwrap();
    // The key 99 is added twice: the hashes are equal, so the queue calls `Eq`, which panics for 99.
    queue.add(key(99)).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| queue.add(key(99)))).is_err());
    queue.check().unwrap();
    let left = queue.stop_now();
    assert_eq!(left.ready.len(), 2);
    drop(left);
    *looks.lock().unwrap() = None;
}

/// A sleeping thread is signalled and then panics: it signals the next thread.
#[test]
fn a_thread_that_panics_in_get_passes_its_signal_on() {
    for _ in 0..20 {
        let switch = PanicSwitch::new();
        let queue = Queue::new();
        let getters: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || match catch_unwind(AssertUnwindSafe(|| queue.blocking_get())) {
                    Ok(lease) => lease.map(flyball_workqueue::Lease::done).is_some(),
                    Err(_) => queue.blocking_get().map(flyball_workqueue::Lease::done).is_some(),
                })
            })
            .collect();
        switch.arm(Point::Clone, 1);
        queue.add(switch.key(1)).unwrap();
        // The drain completes only if the other thread takes the key.
        let left = queue.blocking_drain(DrainOptions::unlimited());
        assert!(left.ready.is_empty());
        let served =
            getters.into_iter().map(|getter| getter.join().unwrap()).filter(|served| *served).count();
        assert_eq!(served, 1);
        drop(queue);
    }
}

/// A clock that panics on demand.
#[derive(Clone, Default)]
struct PanickingClock(UnfiredTimer, Arc<AtomicBool>);

impl Clock for PanickingClock {
    fn now(&self) -> Nanos {
        assert!(!self.1.load(Ordering::SeqCst), "a hostile clock panics");
        self.0.clock.now()
    }
}

impl Timer for PanickingClock {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        self.0.wake_at(at, waker);
    }
}

/// Dropping a getter does not read the clock: if the clock has caused the panic that drops the getter, a second panic would abort the process.
#[test]
fn a_getter_is_dropped_without_the_clock() {
    let fragile = PanickingClock::default();
    let queue = Queue::builder().timer(fragile.clone()).build();
    queue.add_after("later", ns(9)).unwrap();
    let (_, waker) = Counting::waker();
    let (other, others_waker) = Counting::waker();
    let mut first = Box::pin(queue.get());
    assert!(poll_with(first.as_mut(), &waker).is_pending());
    let mut second = Box::pin(queue.get());
    assert!(poll_with(second.as_mut(), &others_waker).is_pending());
    fragile.0.clock.advance(ns(9));
    fragile.0.fire();
    fragile.1.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(poll_with(first.as_mut(), &waker)))).is_err());
    drop(first);
    fragile.1.store(false, Ordering::SeqCst);
    fragile.0.fire();
    assert!(other.wakes() > 0, "the wake-up was lost with the dropped getter");
    assert!(poll_with(second.as_mut(), &others_waker).is_ready());
}

/// A drain whose clock panics has not begun, and a later one does.
#[test]
fn a_drain_whose_clock_panics_has_not_begun() {
    let options =
        [DrainOptions::unlimited(), DrainOptions::within(ns(1)), DrainOptions::serve_waiting(ns(1))];
    for options in options {
        let fragile = PanickingClock::default();
        let queue = Queue::builder().timer(fragile.clone()).build();
        queue.add_after("later", ns(9)).unwrap();
        queue.pause();
        fragile.1.store(true, Ordering::SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(queue.blocking_drain(options)))).is_err());
        fragile.1.store(false, Ordering::SeqCst);
        assert!(!queue.is_shutting_down() && queue.stats().paused);
        assert_eq!(queue.blocking_drain(options).waiting, ["later"]);
        assert!(queue.is_shutting_down() && !queue.stats().paused);
        queue.check().unwrap();
    }
}

/// If the timer panics, no alarm is set, so a getter is woken to set it.
#[test]
fn a_panicking_timer_wakes_a_getter() {
    let late = UnfiredTimer::default();
    let queue = Queue::builder().timer(late.clone()).build();
    let (woken, waker) = Counting::waker();
    let mut get = Box::pin(queue.get());
    assert!(poll_with(get.as_mut(), &waker).is_pending());
    late.broken.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.add_after("a", ns(1)))).is_err());
    late.broken.store(false, Ordering::SeqCst);
    assert!(woken.wakes() > 0, "no alarm is set and no getter was woken");
    assert!(poll_with(get.as_mut(), &waker).is_pending());
    late.clock.advance(ns(1));
    late.fire();
    assert!(poll_with(get.as_mut(), &waker).is_ready());
}

/// If the timer panics, all `next_overdue` futures are woken to set the alarm, even if there are more of them than fit into one batch of wakers.
#[test]
fn a_panicking_timer_wakes_all_watchers() {
    let late = UnfiredTimer::default();
    let queue = Queue::builder().timer(late.clone()).build();
    queue.add("leased").unwrap();
    let lease = queue.try_get().unwrap();
    let mut watchers = Vec::new();
    for _ in 0..100 {
        let (woken, waker) = Counting::waker();
        let mut watch = Box::pin(queue.next_overdue(ns(100)));
        assert!(poll_with(watch.as_mut(), &waker).is_pending());
        watchers.push((woken, watch));
    }
    let (_, waker) = Counting::waker();
    let mut get = Box::pin(queue.get());
    assert!(poll_with(get.as_mut(), &waker).is_pending());
    late.broken.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.add_after("a", ns(1)))).is_err());
    assert!(
        watchers.iter().all(|(woken, _)| woken.wakes() > 0),
        "no alarm is set and a watcher was not woken"
    );
    drop((get, watchers));
    lease.done();
}

/// The timer also wakes a thread that is blocked in `blocking_get`. Sleeping until the deadline is not enough, because a test may move the clock by
/// hand.
#[test]
fn a_due_key_wakes_a_blocked_thread() {
    let (queue, clock) = timed();
    queue.add_after("a", Duration::from_secs(3600)).unwrap();
    let other = queue.clone();
    let getter = thread::spawn(move || *other.blocking_get().unwrap());
    while clock.next_alarm().is_none() {
        thread::yield_now();
    }
    clock.advance(Duration::from_secs(3600));
    assert_eq!(getter.join().unwrap(), "a");
}

/// A key becomes Ready while the clock is too far ahead. After the clock has jumped back, the key is still served.
#[test]
fn a_glitch_of_the_clock_starves_no_ready_key() {
    let (queue, clock) = timed();
    queue.add_after("keeps the clock in use", Duration::MAX).unwrap();
    clock.set(Nanos::new(1_000_000));
    queue.add("a").unwrap();
    clock.set(Nanos::ZERO);
    queue.add_after("b", ns(1)).unwrap();
    clock.advance(ns(1));
    assert_eq!(*queue.try_get().unwrap(), "a");
}

/// If `stop_now` cannot clone a leased key, the queue is not stopped.
#[test]
fn a_stop_that_panics_stops_nothing() {
    let switch = PanicSwitch::new();
    let queue = Queue::new();
    queue.add(switch.key(1)).unwrap();
    let lease = queue.try_get().unwrap();
    switch.arm(Point::Clone, 1);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.stop_now())).is_err());
    assert!(!queue.is_shutting_down());
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    lease.done();
}

/// `retry` counts a failure, but `Clone` of the key panics. The next success of the key still resets the failure count.
#[test]
fn a_counted_failure_can_be_forgotten() {
    let switch = PanicSwitch::new();
    let clock = ManualClock::new();
    let limiter = FastSlow::new(ns(0), ns(0), 1);
    let queue = Queue::builder().timer(clock.timer()).limiter(limiter).build();
    queue.add(switch.key(1)).unwrap();
    for nth in 1..4 {
        let lease = queue.try_get().unwrap();
        switch.arm(Point::Clone, nth);
        let _ = catch_unwind(AssertUnwindSafe(|| lease.retry()));
        switch.disarm(Point::Clone);
        queue.try_get().unwrap().succeed();
        assert_eq!(queue.num_requeues(&switch.key(1)), 0, "clone {nth} panicked");
        queue.add(switch.key(1)).unwrap();
    }
}

/// Each success resets the failure count, so failures before and after a success do not add up.
#[test]
fn a_success_forgets_the_failure_before_it() {
    let (queue, clock) = backoff();
    for _ in 0..3 {
        queue.add("a").unwrap();
        queue.try_get().unwrap().retry();
        clock.advance(ns(1000));
        queue.try_get().unwrap().succeed();
    }
    assert_eq!(queue.num_requeues(&"a"), 0);
    queue.check().unwrap();
}

/// A worker that always finds a key still yields, so other tasks of the runtime run.
#[cfg(feature = "tokio")]
#[tokio::test]
async fn get_spends_the_budget_of_its_task() {
    let queue = Queue::new();
    queue.add("always fails").unwrap();
    let other = tokio::spawn(async {});
    // The loop ends only if the other task runs.
    while !other.is_finished() {
        queue.get().await.unwrap().retry();
    }
}

/// A getter that was polled and then leaked does not block other getters.
#[test]
fn a_getter_that_is_never_polled_is_overtaken() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(1)).unwrap();
    let (_, waker) = Counting::waker();
    let mut forgotten = Box::pin(queue.get());
    assert!(poll_with(forgotten.as_mut(), &waker).is_pending());
    std::mem::forget(forgotten);
    clock.advance(ns(1));
    let mut live = Box::pin(queue.get());
    assert!(matches!(live.as_mut().poll(&mut std::task::Context::from_waker(&waker)), Poll::Ready(Some(_))));
}

/// A getter that was woken and is never polled again delays at most one key. The next deadline still wakes another getter, and a drain still times
/// out.
#[test]
fn a_getter_that_is_kept_does_not_stop_the_alarm() {
    let clock = ManualClock::new();
    let queue = Queue::<u32>::builder().timer(clock.timer()).build();
    let (mut kept, mut other) = (Box::pin(queue.get()), Box::pin(queue.get()));
    let (first, first_waker) = Counting::waker();
    let (second, second_waker) = Counting::waker();
    assert!(poll_with(kept.as_mut(), &first_waker).is_pending());
    assert!(poll_with(other.as_mut(), &second_waker).is_pending());
    for key in 1..=3 {
        queue.add_after(key, Duration::from_nanos(10 * u64::from(key))).unwrap();
    }
    clock.advance(Duration::from_nanos(10));
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    clock.advance(Duration::from_nanos(10));
    assert_eq!((first.wakes(), second.wakes()), (1, 1), "the second deadline wakes the second getter");

    let (drained, drain_waker) = Counting::waker();
    let mut drain = Box::pin(queue.drain(DrainOptions::serve_waiting(Duration::from_nanos(50))));
    assert!(poll_with(drain.as_mut(), &drain_waker).is_pending());
    clock.advance(Duration::from_nanos(50));
    assert_eq!(drained.wakes(), 1, "a drain keeps its limit");
    assert!(poll_with(drain.as_mut(), &drain_waker).is_ready());
}

/// `add_ref` does not clone a key that a full queue refuses.
#[test]
fn a_full_queue_clones_nothing() {
    #[derive(PartialEq, Eq, Hash)]
    struct Unclonable(u32);
    impl Clone for Unclonable {
        fn clone(&self) -> Self {
            panic!("cloned")
        }
    }
    let queue = Queue::builder().capacity(1).build();
    queue.add(Unclonable(1)).unwrap();
    assert_eq!(queue.add_ref(&Unclonable(1)), Ok(Added::Merged));
    assert_eq!(queue.add_ref(&Unclonable(2)), Err(AddErrorKind::Full));
}

/// `resume` wakes a task whose waker panics. The panic does not count as a failure: only the lease that the test drops afterwards counts as one.
#[test]
fn a_foreign_waker_costs_no_failure() {
    let clock = ManualClock::new();
    let backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(9));
    let queue = Queue::builder().timer(clock.timer()).limiter(backoff).build();
    let mut other = Box::pin(queue.get());
    queue.pause();
    assert!(poll_with(other.as_mut(), &Waker::from(Arc::new(Panicking))).is_pending());
    queue.add(1).unwrap();
    queue.add(2).unwrap();
    // `resume` wakes the hostile task, and the panic propagates to the caller of `resume`.
    assert!(catch_unwind(AssertUnwindSafe(|| queue.resume())).is_err());
    let mut third = Box::pin(queue.get());
    assert!(poll_with(third.as_mut(), &Waker::noop().clone()).is_ready());
    assert_eq!(
        (queue.num_requeues(&1), queue.num_requeues(&2)),
        (1, 0),
        "not exactly the dropped lease counted as a failure"
    );
}

/// The give-up hook is called even if the end of the lease wakes a task whose waker panics.
#[test]
fn the_give_up_hook_runs_even_if_a_waker_panics() {
    let told = Arc::new(AtomicU32::new(0));
    let clock = ManualClock::new();
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(Exponential::new(Duration::from_secs(1)..=Duration::from_secs(9)))
        .give_up_after(times(1), {
            let told = told.clone();
            move |_: &u32, failures| {
                told.fetch_add(failures, Ordering::Relaxed);
            }
        })
        .build();
    queue.add(1).unwrap();
    let lease = queue.try_get().unwrap();
    let mut idle = Box::pin(queue.wait_idle());
    assert!(poll_with(idle.as_mut(), &Waker::from(Arc::new(Panicking))).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| lease.retry())).is_err());
    assert_eq!(told.load(Ordering::Relaxed), 1);
}

/// `stop_now` returns the keys that it has removed, even if a waker panics.
#[test]
fn removed_keys_reach_the_caller() {
    let queue = Queue::<u32>::new();
    queue.add(1).unwrap();
    let mut idle = Box::pin(queue.wait_idle());
    assert!(poll_with(idle.as_mut(), &Waker::from(Arc::new(Panicking))).is_pending());
    assert_eq!(queue.stop_now().ready, [1]);
}

/// `next_overdue` reports an overdue lease only once, so it must return the report even if the waker of a different task panics.
#[test]
fn a_report_reaches_the_caller_even_if_user_code_panics() {
    let timer = UnfiredTimer::default();
    let queue = Queue::<u32>::builder().timer(timer.clone()).build();
    queue.track_ages();
    queue.add(1).unwrap();
    let _lease = queue.try_get().unwrap();
    let mut other = Box::pin(queue.get());
    assert!(poll_with(other.as_mut(), &Waker::from(Arc::new(Panicking))).is_pending());
    queue.add_after(2, Duration::from_nanos(10)).unwrap();
    // The timer has not fired, so `next_overdue` is the first to find that a key is due, and wakes the getter.
    timer.clock.advance(Duration::from_nanos(10));
    let report = block_on(queue.next_overdue(Duration::from_nanos(5))).unwrap();
    assert_eq!((report.key, report.age), (1, Duration::from_nanos(10)));
}

/// `Clone` of the second key of a batch panics: the first key is handed out, and no failure is counted.
#[test]
fn a_batch_survives_its_second_key() {
    #[derive(PartialEq, Eq, Hash, Debug)]
    struct Second(u32);
    impl Clone for Second {
        fn clone(&self) -> Self {
            assert_eq!(self.0, 1, "the second key");
            Self(self.0)
        }
    }
    let backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(9));
    let queue = Queue::builder().limiter(backoff).build();
    _ = queue.add_many([Second(1), Second(2)]);
    let batch = block_on(queue.get_many(2));
    assert_eq!(batch.iter().map(|lease| lease.key().0).collect::<Vec<_>>(), [1]);
    assert_eq!(queue.num_requeues(&Second(1)), 0);
    batch.into_iter().for_each(flyball_workqueue::Lease::done);
    assert_eq!(queue.ready_len(), 1, "the second key is not Ready");
}

/// If the wakers of several getters panic, a batch reaches its caller nevertheless.
#[test]
fn a_batch_reaches_its_caller_although_wakers_panic() {
    let late = UnfiredTimer::default();
    let limiter = Exponential::new(ns(10)..=ns(100));
    let queue = Queue::builder()
        .timer(late.clone())
        .limiter(limiter)
        .give_up_after(times(1), |key, _| panic!("{key} was given up, and no worker has seen it"))
        .build();
    for key in 0..3 {
        queue.add_after(key, ns(1)).unwrap();
    }
    let waker = Waker::from(Arc::new(Panicking));
    let mut getters = [Box::pin(queue.get()), Box::pin(queue.get()), Box::pin(queue.get())];
    for getter in &mut getters {
        assert!(poll_with(getter.as_mut(), &waker).is_pending());
    }
    late.clock.advance(ns(5));
    let batch = queue.try_get_many(2).unwrap();
    let stats = queue.stats();
    assert_eq!((batch.len(), stats.ready, stats.waiting, stats.leased), (2, 1, 0, 2));
    queue.check().unwrap();
    batch.into_iter().for_each(flyball_workqueue::Lease::done);
}

/// A timer that panics when it is disarmed, once.
struct PanickingDisarm(ManualTimer, Arc<AtomicBool>);

impl Clock for PanickingDisarm {
    fn now(&self) -> Nanos {
        self.0.now()
    }
}

impl Timer for PanickingDisarm {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        self.0.wake_at(at, waker);
    }

    fn disarm(&self) {
        assert!(!self.1.swap(false, Ordering::Relaxed), "in disarm");
        self.0.disarm();
    }
}

/// The output of an `async` block is neither returned nor dropped if a destructor in the block panics.
#[test]
fn a_timeout_returns_its_lease_although_the_timer_panics() {
    let armed = Arc::new(AtomicBool::new(false));
    let timer = PanickingDisarm(ManualClock::new().timer(), armed.clone());
    let queue = Queue::builder().timer(timer).build();
    let mut limited = pin!(queue.timeout(Duration::from_secs(10), queue.get()));
    assert!(poll_once(limited.as_mut()).is_pending());
    queue.add("a").unwrap();
    armed.store(true, Ordering::Relaxed);
    let Poll::Ready(Some(Some(lease))) = poll_once(limited) else { panic!("the lease is lost") };
    assert!(!armed.load(Ordering::Relaxed), "the timer has not panicked");
    assert_eq!(*lease, "a");
}
