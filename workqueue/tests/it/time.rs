//! Deadlines, and the cost of operations. No key is Ready before its deadline, and each is Ready from its deadline on. The clock is read only while a
//! key waits. A key is hashed as rarely as possible.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos, Timer};
use flyball_workqueue::{Fair, GetTimeoutError, KeyState, Queue, TryGetError};
use testkit::panicking::{PanicSwitch, Point};
use testkit::random::Random;
use testkit::wakers::{Counting, poll_once, poll_with};

use crate::support::{backoff, ns, timed};
use crate::task::Task;

#[test]
fn a_due_key_counts_as_ready_before_it_is_gathered() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(10)).unwrap();
    clock.advance(ns(9));
    assert_eq!((queue.ready_len(), queue.state(&"a")), (0, KeyState::Waiting(Nanos::new(10))));
    assert!(matches!(queue.try_get(), Err(TryGetError::Empty)));
    clock.advance(ns(1));
    assert_eq!(queue.state(&"a"), KeyState::Ready);
    assert_eq!((queue.ready_len(), queue.has_ready()), (1, true));
    let counts = queue.stats();
    assert_eq!((counts.ready, counts.waiting), (1, 0));
    assert_eq!(queue.add_after("a", ns(0)).unwrap(), flyball_workqueue::Added::Merged);
}

/// All keys are taken long after their deadlines, and still in the order in which they became Ready.
#[test]
fn the_order_is_by_time_of_becoming_ready() {
    let (queue, clock) = timed();
    queue.add_after("at 30", ns(30)).unwrap();
    queue.add_after("at 10", ns(10)).unwrap();
    queue.add_after("at 20", ns(20)).unwrap();
    queue.add("at 0").unwrap();
    clock.advance(ns(15));
    queue.add("at 15").unwrap();
    clock.advance(ns(5));
    queue.add("at 20, added then").unwrap();
    clock.advance(ns(5));
    queue.add("at 25").unwrap();
    clock.advance(ns(75));
    queue.add("at 100").unwrap();
    let leases: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    let order: Vec<_> = leases.iter().map(|lease| **lease).collect();
    assert_eq!(order, ["at 0", "at 10", "at 15", "at 20", "at 20, added then", "at 25", "at 30", "at 100"]);
}

/// When the deadline of a leased key passes, the key is dirty. When its lease ends, it goes to the tail of the queue, and not to the position of its
/// deadline.
#[test]
fn a_wait_that_ends_under_a_lease_is_a_mark() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add_after("a", ns(5)).unwrap();
    clock.advance(ns(5));
    assert_eq!(queue.state(&"a"), KeyState::LeasedDirty);
    clock.advance(ns(5));
    queue.add("b").unwrap();
    lease.requeue_after(Duration::from_secs(1));
    assert_eq!(queue.state(&"a"), KeyState::Ready);
    assert_eq!(*queue.try_get().unwrap(), "b");
}

/// Two thousand keys have random deadlines, and the clock advances by 1 ns at a time: each key is handed out exactly at its deadline, and keys with
/// equal deadlines in the order of their adds.
#[test]
fn never_early_never_late() {
    let (queue, clock) = numbers();
    let mut random = Random::new(3);
    let mut due: Vec<(u64, u64)> = (0..2_000).map(|key| (random.below(500), key)).collect();
    for &(after, key) in &due {
        queue.add_after(key, ns(after)).unwrap();
    }
    due.sort_unstable();
    let mut expected = due.into_iter().peekable();
    for now in 0..500 {
        clock.set(Nanos::new(now));
        while let Ok(lease) = queue.try_get() {
            assert_eq!(expected.next(), Some((now, *lease)));
            lease.done();
        }
        assert!(expected.peek().is_none_or(|(at, _)| *at > now), "late");
    }
    assert!(expected.next().is_none());
}

/// A getter returns the key at its deadline and not before, however often the getter is polled early.
#[test]
fn a_timer_that_fires_early_is_no_deadline() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(10)).unwrap();
    let (counting, waker) = Counting::waker();
    let mut get = Box::pin(queue.get());
    for now in 1..10 {
        assert!(poll_with(get.as_mut(), &waker).is_pending());
        assert_eq!(clock.next_alarm(), Some(Nanos::new(10)));
        clock.set(Nanos::new(now));
    }
    assert_eq!(counting.wakes(), 0);
    clock.set(Nanos::new(10));
    assert_eq!(counting.wakes(), 1);
    assert!(poll_with(get.as_mut(), &waker).is_ready());
}

#[test]
fn for_ever_is_for_ever() {
    let (queue, clock) = timed();
    for after in [Duration::MAX, Duration::from_nanos(u64::MAX), Duration::from_secs(1 << 40)] {
        queue.add_after("a", after).unwrap();
        assert_eq!(queue.state(&"a"), KeyState::Waiting(Nanos::MAX));
    }
    clock.set(Nanos::new(u64::MAX / 2));
    assert!(!queue.has_ready());
    assert_eq!(queue.add_after("a", ns(1)).unwrap(), flyball_workqueue::Added::Merged);
    clock.advance(ns(1));
    assert_eq!(*queue.try_get().unwrap(), "a");
}

/// A blocking getter needs no runtime to wait for a deadline. The queue of this test uses the machine's clock.
#[test]
fn a_blocking_getter_waits_for_the_deadline() {
    let queue = Queue::new();
    queue.add_after("late", Duration::from_millis(2)).unwrap();
    queue.add_after("soon", Duration::from_millis(1)).unwrap();
    let soon = queue.blocking_get().unwrap();
    let late = queue.blocking_get_timeout(Duration::from_secs(3600)).unwrap();
    assert_eq!((*soon, *late), ("soon", "late"));
}

#[test]
fn a_timed_getter_gives_up() {
    let (queue, _clock) = timed();
    assert!(matches!(queue.blocking_get_timeout(Duration::ZERO), Err(GetTimeoutError::TimedOut)));
    assert!(matches!(queue.blocking_get_timeout(ns(1)), Err(GetTimeoutError::TimedOut)));
    queue.add("a").unwrap();
    let lease = queue.blocking_get_timeout(Duration::ZERO).unwrap();
    queue.shut_down();
    assert!(matches!(queue.blocking_get_timeout(Duration::from_secs(3600)), Err(GetTimeoutError::Closed)));
    lease.done();
}

/// One of several blocking getters sleeps until the deadline. When this getter takes the key, another getter sleeps until the next deadline.
#[test]
fn blocking_getters_hand_over() {
    for _ in 0..20 {
        let queue = Queue::new();
        for key in 0..6_u32 {
            queue.add_after(key, Duration::from_micros(u64::from(key) * 200)).unwrap();
        }
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(lease) = queue.blocking_get() {
                        lease.done();
                        if taken.fetch_add(1, Ordering::SeqCst) == 5 {
                            queue.shut_down();
                        }
                    }
                });
            }
        });
        assert_eq!(taken.load(Ordering::SeqCst), 6);
    }
}

// ---- calls that must not happen ---------------------------------------------------------------------------------

/// A manual timer that counts its calls.
struct Watched {
    timer: ManualTimer,
    reads: Arc<AtomicUsize>,
    alarms: Arc<AtomicUsize>,
}

impl Clock for Watched {
    fn now(&self) -> Nanos {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.timer.now()
    }
}

impl Timer for Watched {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        self.alarms.fetch_add(1, Ordering::SeqCst);
        self.timer.wake_at(at, waker);
    }
}

#[test]
fn no_clock_is_read_where_nothing_waits() {
    let clock = ManualClock::new();
    let (reads, alarms) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let watched = Watched { timer: clock.timer(), reads: reads.clone(), alarms: alarms.clone() };
    let queue = Queue::builder().timer(watched).limiter(Exponential::new(ns(10)..=ns(1000))).build();
    let cycle = || {
        queue.add("a").unwrap();
        queue.add("b").unwrap();
        queue.add("a").unwrap();
        let first = queue.try_get().unwrap();
        let Poll::Ready(Some(second)) = poll_once(Box::pin(queue.get()).as_mut()) else { panic!("ready") };
        let mut idle = Box::pin(queue.get());
        assert!(poll_once(idle.as_mut()).is_pending());
        queue.add("a").unwrap();
        assert_eq!((queue.ready_len(), queue.stats().leased, queue.state(&"b")), (0, 2, KeyState::Leased));
        queue.cancel(&"a");
        first.done();
        second.succeed();
        queue.forget(&"a");
        let _ = queue.num_requeues(&"a");
    };
    cycle();
    assert_eq!(reads.load(Ordering::SeqCst), 0);
    queue.add_after("c", ns(5)).unwrap();
    assert!(queue.cancel(&"c"));
    let before = reads.load(Ordering::SeqCst);
    assert!(before >= 1, "the delayed add did not read the clock");
    cycle();
    assert_eq!(reads.load(Ordering::SeqCst), before, "the clock was read although no key waits");
    queue.add_after("c", ns(5)).unwrap();
    let before = reads.load(Ordering::SeqCst);
    queue.add("a").unwrap();
    assert!(reads.load(Ordering::SeqCst) > before, "the clock was not read although a key waits");
    assert_eq!(alarms.load(Ordering::SeqCst), 0, "an alarm was set although no getter waits");
    queue.cancel(&"c");
    queue.cancel(&"a");
    let before = reads.load(Ordering::SeqCst);
    queue.shut_down();
    drop(queue.stop_now());
    assert_eq!(reads.load(Ordering::SeqCst), before);
}

#[test]
fn one_hash_an_add_and_none_at_the_end_of_a_lease() {
    let switch = PanicSwitch::new();
    let queue = Queue::new();
    let calls = |point| switch.calls(point);
    for id in 0..2_000 {
        queue.add(switch.key(id)).unwrap();
    }
    assert_eq!(calls(Point::Hash), 2_000, "the growth of the table hashed keys again");
    for id in 0..2_000 {
        queue.add(switch.key(id)).unwrap();
    }
    assert_eq!(calls(Point::Hash), 4_000, "a merged add did not hash its key exactly once");
    let (hashes, eqs, clones) = (calls(Point::Hash), calls(Point::Eq), calls(Point::Clone));
    let mut leases: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    assert_eq!((calls(Point::Hash), calls(Point::Eq), calls(Point::Clone)), (hashes, eqs, clones + 2_000));
    for (index, lease) in leases.drain(..).enumerate() {
        match index % 4 {
            0 => lease.done(),
            1 => lease.succeed(),
            2 => lease.retry(),
            _ => drop(lease),
        }
    }
    assert_eq!((calls(Point::Hash), calls(Point::Eq), calls(Point::Clone)), (hashes, eqs, clones + 2_000));
    drop(queue);
    assert_eq!(switch.live(), 0);
}

/// If the limiter has counted no failure, `succeed` does not hash the key.
#[test]
fn a_success_without_failures_hashes_nothing() {
    let switch = PanicSwitch::new();
    let clock = ManualClock::new();
    let queue = Queue::builder().timer(clock.timer()).limiter(Exponential::new(ns(10)..=ns(1000))).build();
    for id in 0..100 {
        queue.add(switch.key(id)).unwrap();
    }
    let hashes = switch.calls(Point::Hash);
    while let Ok(lease) = queue.try_get() {
        lease.succeed();
    }
    assert_eq!(switch.calls(Point::Hash), hashes);
    queue.add_after(switch.key(1), ns(1)).unwrap();
    assert_eq!(switch.calls(Point::Hash), hashes + 1, "a delayed add did not hash its key exactly once");
}

/// A retried key becomes Ready exactly when its backoff is over.
#[test]
fn a_retry_is_due_at_its_backoff() {
    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    clock.advance(ns(9));
    assert!(!queue.has_ready());
    clock.advance(ns(1));
    assert_eq!(*queue.try_get().unwrap(), "a");
}

fn numbers() -> (crate::support::TimedQueue<u64>, ManualClock) {
    let clock = ManualClock::new();
    (Queue::builder().timer(clock.timer()).build(), clock)
}

/// A timer that fires when the test wakes its waker, independently of the clock.
#[derive(Clone, Default)]
struct ManualAlarm {
    clock: ManualClock,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Clock for ManualAlarm {
    fn now(&self) -> Nanos {
        self.clock.now()
    }
}

impl Timer for ManualAlarm {
    fn wake_at(&self, _: Nanos, waker: &Waker) {
        *self.waker.lock().unwrap() = Some(waker.clone());
    }
}

/// A timer may fire early. An early alarm must not make a key Ready, whichever order the queue uses.
#[test]
fn an_early_alarm_makes_no_key_ready() {
    let alarm = ManualAlarm::default();
    let queue = Queue::builder().order(Fair::by_group(|key: &&str| key.len())).timer(alarm.clone()).build();
    queue.add("leased").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add_after("a", ns(100)).unwrap();
    let _idler = Task::waiting(queue.wait_idle());
    let _getter = Task::waiting(queue.get());
    let waker = alarm.waker.lock().unwrap().take().expect("the alarm is set");
    waker.wake();
    assert_eq!(queue.state(&"a"), KeyState::Waiting(Nanos::new(100)));
    assert!(queue.try_get().is_err());
    lease.done();
    queue.check().unwrap();
}
