//! User code that calls the queue from every callback. This code never runs under a lock; otherwise these tests would deadlock. Also wakers that
//! panic.

use flyball_sync::block_on;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos, Timer};
use flyball_workqueue::{AddOptions, DelayMode, DrainOptions, Fifo, Lease, NoLimiter, Queue};
use futures_util::FutureExt;
use testkit::wakers::poll_with;

use super::Fuse;
use crate::support::{TimedQueue, ns, times};
use crate::task::Task;

/// Calls many operations of the queue, and leaves its state unchanged.
fn use_it(queue: &TimedQueue) {
    queue.check().unwrap();
    if !queue.is_shutting_down() {
        let guest = "guest";
        _ = queue.add_many([guest, guest]);
        // The add is refused if the queue is full.
        let _ = queue
            .add_with(guest, AddOptions { delay: ns(5), mode: DelayMode::Replace, ..AddOptions::default() });
        queue.postpone(&guest, ns(5));
        queue.cancel(&guest);
        if let Ok(leases) = queue.try_get_many(1) {
            leases.into_iter().for_each(Lease::retry);
        }
    }
    let _ = (queue.stats(), queue.keys(), queue.stats(), queue.done(&"nobody"));
    let _ = queue.wait_idle().now_or_never();
    queue.check().unwrap();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Clone,
    Wake,
    Drop,
}

/// A waker that calls its queue whenever it is cloned, woken or dropped, or that panics in one of these calls.
#[derive(Default)]
struct CallingWaker {
    queue: Option<TimedQueue>,
    fuse: Fuse,
    calls: [AtomicUsize; 3],
    panics: [AtomicUsize; 3],
}

impl CallingWaker {
    fn new(queue: &TimedQueue) -> Arc<Self> {
        Arc::new(Self { queue: Some(queue.clone()), ..Self::default() })
    }

    fn called(&self, call: Call) {
        self.calls[call as usize].fetch_add(1, Ordering::SeqCst);
        let fires = self.fuse.0.load(Ordering::SeqCst) == 1;
        self.panics[call as usize].fetch_add(fires.into(), Ordering::SeqCst);
        self.fuse.burn("waker");
        if let Some(queue) = &self.queue {
            use_it(queue);
        }
    }

    fn calls(&self, call: Call) -> usize {
        self.calls[call as usize].load(Ordering::SeqCst)
    }

    fn waker(self: &Arc<Self>) -> Waker {
        // SAFETY: with the table below, each waker owns one reference count of the `Arc`, and `CallingWaker` is `Send` and `Sync`.
        unsafe { Waker::from_raw(raw(self.clone())) }
    }
}

fn raw(waker: Arc<CallingWaker>) -> RawWaker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            let waker = borrow(data);
            waker.called(Call::Clone);
            raw(waker)
        },
        |data| {
            let waker = own(data);
            waker.called(Call::Wake);
        },
        |data| borrow(data).called(Call::Wake),
        |data| own(data).called(Call::Drop),
    );
    RawWaker::new(Arc::into_raw(waker).cast(), &TABLE)
}

/// Takes over the reference count that the waker with this data pointer owns.
fn own(data: *const ()) -> Arc<CallingWaker> {
    // SAFETY: `data` comes from `raw`, and the waker no longer uses its reference count.
    unsafe { Arc::from_raw(data.cast()) }
}

/// Returns an `Arc` with a reference count of its own. The waker with this data pointer keeps its reference count.
fn borrow(data: *const ()) -> Arc<CallingWaker> {
    // SAFETY: `data` comes from `raw`, and the waker, which is borrowed, owns a reference count.
    unsafe { Arc::increment_strong_count(data.cast::<CallingWaker>()) };
    own(data)
}

type Setup = fn(&TimedQueue, &ManualClock);

/// Parks a future, wakes it, and completes or drops it. Its waker calls the queue at each step.
fn calls_queue<T>(
    future: impl for<'a> Fn(&'a TimedQueue) -> std::pin::Pin<Box<dyn Future<Output = T> + 'a>>,
    setup: Setup,
    wakes: Setup,
) {
    for dropped in [false, true] {
        let clock = ManualClock::new();
        let queue: TimedQueue = Queue::builder().timer(clock.timer()).capacity(2).build();
        setup(&queue, &clock);
        let (first, second) = (CallingWaker::new(&queue), CallingWaker::new(&queue));
        let mut task = future(&queue);
        assert!(poll_with(task.as_mut(), &first.waker()).is_pending());
        assert!(poll_with(task.as_mut(), &second.waker()).is_pending());
        assert!(first.calls(Call::Clone) >= 1 && second.calls(Call::Clone) >= 1);
        // Both copies of the first waker, that of the test and that of the queue, were dropped or consumed by a wake-up.
        assert!(first.calls(Call::Drop) + first.calls(Call::Wake) >= 2);
        wakes(&queue, &clock);
        assert!(second.calls(Call::Wake) >= 1);
        if !dropped {
            let _ = poll_with(task.as_mut(), &second.waker());
        }
        drop(task);
        queue.check().unwrap();
        drop(queue.stop_now());
    }
}

fn nothing(_: &TimedQueue, _: &ManualClock) {}

fn leased(queue: &TimedQueue, _: &ManualClock) {
    queue.track_ages();
    queue.add("stuck").unwrap();
    let _ = queue.try_get().unwrap().detach();
}

fn done(queue: &TimedQueue, _: &ManualClock) {
    queue.done(&"stuck").unwrap();
}

#[test]
fn wakers_of_getters_may_call_the_queue() {
    let add: Setup = |queue, _| drop(queue.add("a"));
    calls_queue(|queue| Box::pin(queue.get()), nothing, add);
    calls_queue(|queue| Box::pin(queue.get_many(2)), nothing, add);
    calls_queue(|queue| Box::pin(queue.get()), nothing, |queue, _| drop(queue.add_many(["a", "b"])));
    calls_queue(
        |queue| Box::pin(queue.get()),
        |queue, _| queue.pause(),
        |queue, _| {
            queue.add("a").unwrap();
            queue.resume();
        },
    );
    let wait: Setup = |queue, _| drop(queue.add_after("a", ns(10)));
    calls_queue(|queue| Box::pin(queue.get()), wait, |_, clock| clock.advance(ns(10)));
    calls_queue(|queue| Box::pin(queue.get()), wait, |queue, _| queue.shut_down());
    calls_queue(|queue| Box::pin(queue.get()), wait, |queue, _| drop(queue.stop_now()));
}

#[test]
fn wakers_of_other_waiters_may_call_the_queue() {
    let full: Setup = |queue, clock| {
        leased(queue, clock);
        queue.add_after("other", ns(50)).unwrap();
    };
    calls_queue(|queue| Box::pin(queue.add_when_room("late")), full, done);
    calls_queue(|queue| Box::pin(queue.add_when_room("late")), full, |queue, _| queue.shut_down());
    calls_queue(|queue| Box::pin(queue.wait_idle()), leased, done);
    calls_queue(|queue| Box::pin(queue.drain(DrainOptions::unlimited())), leased, done);
    calls_queue(
        |queue| Box::pin(queue.drain(DrainOptions::serve_waiting(ns(10)))),
        leased,
        |_, clock| clock.advance(ns(10)),
    );
    calls_queue(|queue| Box::pin(queue.next_overdue(ns(10))), leased, |_, clock| clock.advance(ns(10)));
    calls_queue(|queue| Box::pin(queue.next_overdue(ns(10))), leased, |queue, _| drop(queue.stop_now()));
}

/// A hostile task and a bystander wait for the same event. The hostile waker panics in its call number `nth`; the test runs once for each number. The
/// event still takes effect, and the bystander is woken.
fn panics_beside_a_bystander<T>(
    name: &str,
    future: impl for<'a> Fn(&'a TimedQueue) -> std::pin::Pin<Box<dyn Future<Output = T> + 'a>>,
    setup: Setup,
    wakes: Setup,
) -> [usize; 3] {
    let mut panics = [0; 3];
    for nth in 1.. {
        let clock = ManualClock::new();
        let queue: TimedQueue = Queue::builder().timer(clock.timer()).capacity(2).build();
        setup(&queue, &clock);
        let hostile = Arc::new(CallingWaker::default());
        hostile.fuse.arm(nth);
        let mut task = future(&queue);
        let guarded = |act: &mut dyn FnMut()| {
            let _ = catch_unwind(AssertUnwindSafe(act));
            queue.check().unwrap();
        };
        for _ in 0..2 {
            guarded(&mut || drop(poll_with(task.as_mut(), &hostile.waker())));
        }
        // The hostile task is first in the wait queue.
        let mut bystander = Task::waiting(future(&queue));
        guarded(&mut || wakes(&queue, &clock));
        let mut task = Some(task);
        guarded(&mut || drop(task.take()));
        let burning = hostile.fuse.disarm();
        assert!(bystander.was_woken(), "{name}, call {nth}: the bystander was not woken");
        assert!(bystander.is_ready(), "{name}, call {nth}");
        drop(queue.stop_now());
        queue.check().unwrap();
        if burning {
            break;
        }
        panics.iter_mut().zip(&hostile.panics).for_each(|(all, own)| *all += own.load(Ordering::SeqCst));
    }
    panics
}

#[test]
fn wakers_panic_in_every_call() {
    let full: Setup = |queue, clock| {
        leased(queue, clock);
        queue.add_after("other", ns(50)).unwrap();
    };
    let add: Setup = |queue, _| drop(queue.add("a"));
    let ring: Setup = |_, clock| clock.advance(ns(10));
    let stop: Setup = |queue, _| drop(queue.stop_now());
    let wait: Setup = |queue, _| drop(queue.add_after("a", ns(10)));
    let mut total = [0; 3];
    let mut count = |panics: [usize; 3]| {
        assert!(panics.iter().sum::<usize>() >= 3, "{panics:?}");
        (0..3).for_each(|call| total[call] += panics[call]);
    };
    count(panics_beside_a_bystander("get", |queue| Box::pin(queue.get()), nothing, add));
    count(panics_beside_a_bystander("get, due", |queue| Box::pin(queue.get()), wait, ring));
    count(panics_beside_a_bystander("get, stop", |queue| Box::pin(queue.get()), wait, stop));
    count(panics_beside_a_bystander("get_many", |queue| Box::pin(queue.get_many(2)), nothing, add));
    count(panics_beside_a_bystander("add", |queue| Box::pin(queue.add_when_room("b")), full, done));
    count(panics_beside_a_bystander("add, stop", |queue| Box::pin(queue.add_when_room("b")), full, stop));
    count(panics_beside_a_bystander("idle", |queue| Box::pin(queue.wait_idle()), leased, done));
    count(panics_beside_a_bystander(
        "drain",
        |queue| Box::pin(queue.drain(DrainOptions::unlimited())),
        leased,
        done,
    ));
    count(panics_beside_a_bystander(
        "serving",
        |queue| Box::pin(queue.drain(DrainOptions::serve_waiting(ns(10)))),
        leased,
        ring,
    ));
    count(panics_beside_a_bystander("overdue", |queue| Box::pin(queue.next_overdue(ns(10))), leased, ring));
    count(panics_beside_a_bystander(
        "overdue, stop",
        |queue| Box::pin(queue.next_overdue(ns(10))),
        leased,
        stop,
    ));
    assert!(total.iter().all(|panics| *panics >= 10), "{total:?}");
}

// ---- timers and clocks -----------------------------------------------------------------------------------------

type Home = Arc<OnceLock<Queue<&'static str, Fifo, NoLimiter, CallingTimer>>>;

/// A timer that calls its queue in `wake_at`, and adds a key.
struct CallingTimer {
    timer: ManualTimer,
    home: Home,
    alarms: Arc<AtomicUsize>,
}

impl Clock for CallingTimer {
    fn now(&self) -> Nanos {
        self.timer.now()
    }
}

impl Timer for CallingTimer {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        if let Some(queue) = self.home.get() {
            // The key is added only once: if each call added an earlier deadline, the calls would never end.
            if self.alarms.fetch_add(1, Ordering::SeqCst) == 0 {
                queue.add_after("from the alarm", ns(3)).unwrap();
            }
            let _ = (queue.stats(), queue.keys());
            queue.check().unwrap();
        }
        self.timer.wake_at(at, waker);
    }
}

#[test]
fn a_timer_calls_back() {
    let (clock, home, alarms) = (ManualClock::new(), Home::default(), Arc::new(AtomicUsize::new(0)));
    let timer = CallingTimer { timer: clock.timer(), home: home.clone(), alarms: alarms.clone() };
    let queue = Queue::builder().timer(timer).build();
    home.set(queue.clone()).ok().unwrap();
    let mut getter = Task::waiting(queue.get());
    queue.add_after("a", ns(10)).unwrap();
    assert_eq!(
        clock.next_alarm(),
        Some(Nanos::new(3)),
        "the alarm is not set for the deadline that `wake_at` added"
    );
    clock.advance(ns(3));
    assert!(getter.was_woken());
    assert_eq!(*getter.finish().unwrap(), "from the alarm");
    drop(getter);
    let mut watcher = Task::new(queue.next_overdue(ns(2)));
    assert!(watcher.poll().is_pending());
    assert!(alarms.load(Ordering::SeqCst) >= 2);
    drop((watcher, queue.stop_now()));
}

// ---- keys ------------------------------------------------------------------------------------------------------

type Visit = Box<dyn Fn() + Send + Sync>;

/// A key whose drop calls its queue.
#[derive(Clone)]
struct CallingKey(u32, Arc<Mutex<Option<Visit>>>);

impl Hash for CallingKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for CallingKey {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for CallingKey {}

impl Drop for CallingKey {
    fn drop(&mut self) {
        // If the mutex is locked, a visit is running and has dropped this key. No second visit starts then.
        if let Ok(Some(visit)) = self.1.try_lock().as_deref() {
            visit();
        }
    }
}

/// Every operation that drops a key drops it outside the lock.
#[test]
fn keys_may_call_the_queue_in_their_drop() {
    let clock = ManualClock::new();
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(flyball_ratelimit::Exponential::new(ns(10)..=ns(100)))
        .capacity(4)
        .give_up_after(times(2), |_: &CallingKey, _| {})
        .build();
    let visit = Arc::new(Mutex::new(None));
    let visits = Arc::new(AtomicUsize::new(0));
    let key = |id| CallingKey(id, visit.clone());
    let (home, count) = (queue.clone(), visits.clone());
    let stranger = Arc::new(Mutex::new(None));
    let probe = CallingKey(99, stranger);
    *visit.lock().unwrap() = Some(Box::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
        let _ = (home.stats(), home.state(&probe), home.num_requeues(&probe), home.keys());
        home.check().unwrap();
    }) as Visit);

    queue.track_ages();
    let many = queue.add_many([1, 2, 1, 3, 4, 5, 2].map(key));
    assert_eq!((many.new, many.merged, many.refused.len()), (4, 2, 1));
    drop(many);
    assert!(
        queue
            .add_with(key(1), AddOptions { delay: ns(5), mode: DelayMode::Replace, ..AddOptions::default() })
            .is_ok()
    );
    assert!(queue.add_rate_limited(key(1)).is_ok() && queue.add_rate_limited(key(9)).is_err());
    assert!(queue.postpone(&key(1), ns(5)));
    assert!(queue.cancel(&key(1)));
    queue.try_get_many(2).unwrap().into_iter().for_each(Lease::retry);
    let detached = queue.try_get().unwrap().detach();
    queue.done(&detached).unwrap();
    clock.advance(ns(10));
    queue.try_get_many(2).unwrap().into_iter().for_each(Lease::retry);
    assert!(crate::support::holds_nothing(&queue.stats()), "a key that was given up is still in the queue");
    _ = queue.add_many([1, 2, 3, 4].map(key));
    assert!(queue.add_when_room(key(5)).now_or_never().is_none());
    assert_eq!(block_on(queue.add_when_room(key(4))).ok(), Some(flyball_workqueue::Added::Merged));
    drop(queue.keys());
    let _lease = queue.try_get().unwrap();
    drop(queue.next_overdue(ns(0)).now_or_never().unwrap());
    drop(queue.blocking_drain(DrainOptions::within(Duration::ZERO)));
    drop(queue.drain(DrainOptions::serve_waiting(ns(0))).now_or_never());
    drop(queue.stop_now());
    assert!(visits.load(Ordering::SeqCst) > 20, "{visits:?}");
    // Breaks the cycle: the queue holds the limiter's keys, the keys hold the visit, and the visit holds a handle to the queue.
    *visit.lock().unwrap() = None;
}
