//! Futures that are dropped between any two polls: their wake-ups are passed on, and the timer wakes the remaining waiters.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use flyball_sync::Nanos;
use flyball_workqueue::{DrainOptions, KeyState, Queue};
use testkit::random::Random;
use testkit::wakers::{Counting, poll_once, poll_with};

use crate::support::{TimedQueue, backoff, ns, timed};

/// A getter with a waker of its own.
struct PolledGetter<F> {
    future: Pin<Box<F>>,
    counting: Arc<Counting>,
    waker: Waker,
    /// How often the getter had been woken at its last poll; `None` before the first poll.
    polled: Option<usize>,
}

impl<F: Future<Output = Option<T>>, T> PolledGetter<F> {
    fn new(future: F) -> Self {
        let (counting, waker) = Counting::waker();
        Self { future: Box::pin(future), counting, waker, polled: None }
    }

    /// Creates a getter and polls it once; it must find no key.
    fn waiting(future: F) -> Self {
        let mut getter = Self::new(future);
        assert!(getter.poll().is_pending());
        getter
    }

    fn poll(&mut self) -> Poll<Option<T>> {
        self.polled = Some(self.wakes());
        poll_with(self.future.as_mut(), &self.waker)
    }

    fn take(&mut self) -> T {
        match self.poll() {
            Poll::Ready(Some(lease)) => lease,
            Poll::Ready(None) => panic!("closed"),
            Poll::Pending => panic!("no key is Ready"),
        }
    }

    fn wakes(&self) -> usize {
        self.counting.wakes()
    }

    /// Returns whether the getter was polled. The tests drop completed getters, so a polled getter is parked.
    fn is_parked(&self) -> bool {
        self.polled.is_some()
    }

    /// Returns whether the getter was woken since its last poll.
    fn was_woken(&self) -> bool {
        self.polled.is_some_and(|wakes| wakes < self.wakes())
    }
}

#[test]
fn an_add_wakes_one_getter_once() {
    let queue = Queue::new();
    let mut getters = [PolledGetter::waiting(queue.get()), PolledGetter::waiting(queue.get())];
    queue.add("a").unwrap();
    queue.add("a").unwrap();
    assert_eq!(getters.iter().map(PolledGetter::wakes).sum::<usize>(), 1);
    let woken = getters.iter_mut().find(|getter| getter.wakes() == 1).unwrap();
    assert_eq!(*woken.take(), "a");
}

#[test]
fn n_adds_wake_n_getters() {
    let queue = Queue::new();
    let mut getters: Vec<_> = (0..5).map(|_| PolledGetter::waiting(queue.get())).collect();
    for key in 0..3 {
        queue.add(key).unwrap();
    }
    assert_eq!(getters.iter().filter(|getter| getter.wakes() == 1).count(), 3);
    let woken = getters.iter_mut().filter(|getter| getter.wakes() == 1);
    let leases: Vec<_> = woken.map(PolledGetter::take).collect();
    assert_eq!(leases.iter().map(|lease| **lease).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_woken_getter_that_is_dropped_passes_its_wake_up_on() {
    let queue = Queue::new();
    let first = PolledGetter::waiting(queue.get());
    let second = PolledGetter::waiting(queue.get());
    let third = PolledGetter::waiting(queue.get());
    let mut rest = vec![first, second, third];
    queue.add("a").unwrap();
    while rest.len() > 1 {
        let woken = rest.iter().position(|getter| getter.wakes() == 1).expect("a getter was woken");
        drop(rest.remove(woken));
    }
    assert_eq!(rest[0].wakes(), 1);
    assert_eq!(*rest[0].take(), "a");
    queue.check().unwrap();
}

#[test]
fn a_getter_dropped_before_it_is_woken_takes_nothing_along() {
    let queue = Queue::new();
    let first = PolledGetter::waiting(queue.get());
    let mut second = PolledGetter::waiting(queue.get());
    drop(first);
    queue.add("a").unwrap();
    assert_eq!(second.wakes(), 1);
    assert_eq!(*second.take(), "a");
    queue.check().unwrap();
}

#[test]
fn a_wake_up_reserves_no_key() {
    let queue = Queue::new();
    let mut woken = PolledGetter::waiting(queue.get());
    queue.add("a").unwrap();
    let mut quick = PolledGetter::new(queue.get());
    assert_eq!(*quick.take(), "a", "the key of the dropped lease is not Ready");
    let lease = quick_take(&queue);
    assert!(woken.poll().is_pending(), "the key was handed out twice");
    drop(lease);
    assert!(woken.wakes() >= 2);
    assert_eq!(*woken.take(), "a");
}

fn quick_take(queue: &Queue<&'static str>) -> flyball_workqueue::Lease<&'static str> {
    queue.try_get().unwrap()
}

/// A woken getter finds that another getter has taken the key. It waits again, and the next add wakes it.
#[test]
fn waits_again_if_another_getter_takes_the_key() {
    let queue = Queue::new();
    let mut getter = PolledGetter::waiting(queue.get());
    for round in 1..=3 {
        queue.add(round).unwrap();
        assert_eq!(getter.wakes(), round);
        queue.try_get().unwrap().done();
        assert!(getter.poll().is_pending());
    }
}

#[test]
fn the_last_waker_counts() {
    let queue = Queue::new();
    let mut get = Box::pin(queue.get());
    let (old, old_waker) = Counting::waker();
    let (new, new_waker) = Counting::waker();
    assert!(poll_with(get.as_mut(), &old_waker).is_pending());
    assert!(poll_with(get.as_mut(), &new_waker).is_pending());
    queue.add("a").unwrap();
    assert_eq!((old.wakes(), new.wakes()), (0, 1));
}

/// If a drain future moves to a different task, that task is woken.
#[test]
fn the_last_waker_of_a_drain_counts() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
    let (old, old_waker) = Counting::waker();
    let (new, new_waker) = Counting::waker();
    assert!(poll_with(drain.as_mut(), &old_waker).is_pending());
    assert!(poll_with(drain.as_mut(), &new_waker).is_pending());
    lease.done();
    assert_eq!((old.wakes(), new.wakes()), (0, 1));
    assert!(poll_once(drain.as_mut()).is_ready());
}

/// A getter that is polled and then leaked receives at most one wake-up. All other wake-ups go to the remaining getters.
#[test]
fn a_getter_that_is_never_polled_takes_one_wake_up_at_most() {
    let queue = Queue::new();
    let forgotten = PolledGetter::waiting(queue.get());
    let mut alive = PolledGetter::waiting(queue.get());
    queue.add("a").unwrap();
    queue.add("b").unwrap();
    assert_eq!((forgotten.wakes(), alive.wakes()), (1, 1));
    std::mem::forget(forgotten.future);
    let first = alive.take();
    let second = PolledGetter::new(queue.get()).take();
    assert_eq!((*first, *second), ("a", "b"));
}

// ---- the timer -------------------------------------------------------------------------------------------------

#[test]
fn an_idle_queue_arms_no_alarm() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(10)).unwrap();
    assert_eq!(clock.next_alarm(), None, "an alarm is set although no getter waits");
    let _getter = PolledGetter::waiting(queue.get());
    assert_eq!(clock.next_alarm(), Some(Nanos::new(10)));
}

#[test]
fn an_earlier_deadline_moves_the_alarm() {
    let (queue, clock) = timed();
    let mut getter = PolledGetter::waiting(queue.get());
    assert_eq!(clock.next_alarm(), None, "an alarm is set without a deadline");
    for (key, after, at) in [("a", 10, 10), ("b", 20, 10), ("c", 5, 5), ("a", 3, 3)] {
        queue.add_after(key, ns(after)).unwrap();
        if getter.poll().is_ready() {
            panic!("a key was handed out before its deadline");
        }
        assert_eq!(clock.next_alarm(), Some(Nanos::new(at)), "{key} after {after}");
    }
    clock.advance(ns(3));
    assert!(getter.wakes() >= 1);
    assert_eq!(*getter.take(), "a");
}

/// A delayed add arms the timer for a getter that is parked already; the getter does not have to be polled again.
#[test]
fn an_add_arms_for_a_waiting_getter() {
    let (queue, clock) = timed();
    let mut getter = PolledGetter::waiting(queue.get());
    queue.add_after("a", ns(10)).unwrap();
    drive(&clock, 10, || getter.wakes() > 0 && getter.poll().is_ready());
}

/// Moves the clock from alarm to alarm until `done` returns true, but never past `limit`.
fn drive(clock: &flyball_sync::ManualClock, limit: u64, mut done: impl FnMut() -> bool) {
    loop {
        if done() {
            return;
        }
        match clock.next_alarm() {
            Some(at) if at <= Nanos::new(limit) => clock.set(at),
            alarm => panic!("not woken by {limit}: the next alarm is {alarm:?}"),
        }
    }
}

/// The alarm wakes a getter that still waits, even if the getter that set the alarm was dropped.
#[test]
fn an_alarm_outlives_the_getter_that_set_it() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(10)).unwrap();
    let armed = PolledGetter::waiting(queue.get());
    let mut other = PolledGetter::waiting(queue.get());
    drop(armed);
    clock.advance(ns(10));
    assert_eq!(other.wakes(), 1);
    assert_eq!(*other.take(), "a");
}

#[test]
fn a_getter_dropped_after_the_timer_woke_it_passes_its_wake_up_on() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(10)).unwrap();
    let mut getters = vec![PolledGetter::waiting(queue.get()), PolledGetter::waiting(queue.get())];
    clock.advance(ns(10));
    let woken = getters.iter().position(|getter| getter.wakes() > 0).expect("a getter is woken");
    drop(getters.remove(woken));
    assert_eq!(getters[0].wakes(), 1);
    assert_eq!(*getters[0].take(), "a");
}

/// A getter that was woken and is never polled again does not prevent the timer from waking the other getters.
#[test]
fn a_stalled_getter_does_not_stall_the_timer() {
    let (queue, clock) = timed();
    queue.add_after("late", ns(10)).unwrap();
    let stalled = PolledGetter::waiting(queue.get());
    queue.add("now").unwrap();
    assert_eq!(stalled.wakes(), 1);
    let mut second = PolledGetter::new(queue.get());
    let now = second.take();
    assert_eq!(*now, "now");
    let mut third = PolledGetter::waiting(queue.get());
    clock.advance(ns(10));
    assert_eq!(third.wakes(), 1);
    assert_eq!(*third.take(), "late");
    now.done();
}

/// If a getter was woken and is never polled, and a different getter takes the key, the next add wakes a third getter.
#[test]
fn a_stalled_getter_does_not_stall_the_next_add() {
    let queue = Queue::new();
    let stalled = PolledGetter::waiting(queue.get());
    queue.add("a").unwrap();
    assert_eq!(stalled.wakes(), 1);
    let first = PolledGetter::new(queue.get()).take();
    let mut third = PolledGetter::waiting(queue.get());
    queue.add("b").unwrap();
    assert_eq!(third.wakes(), 1);
    assert_eq!((*first, *third.take()), ("a", "b"));
}

/// If several keys become due at the same time, the same number of getters are woken, one after the other.
#[test]
fn every_due_key_finds_a_getter() {
    let (queue, clock) = timed();
    for key in ["a", "b", "c"] {
        queue.add_after(key, ns(10)).unwrap();
    }
    let mut getters: Vec<_> = (0..3).map(|_| PolledGetter::waiting(queue.get())).collect();
    clock.advance(ns(10));
    let mut leases = Vec::new();
    // Only woken getters are polled, so a getter that takes a key must wake the next getter.
    while let Some(woken) = getters.iter().position(|getter| getter.wakes() > 0) {
        leases.push(getters.remove(woken).take());
    }
    assert_eq!(leases.iter().map(|lease| **lease).collect::<Vec<_>>(), ["a", "b", "c"]);
}

/// A getter that takes the key with the first deadline arms the timer for the next deadline.
#[test]
fn the_hand_out_of_the_first_due_key_arms_the_next_deadline() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(10)).unwrap();
    queue.add_after("b", ns(20)).unwrap();
    let mut getters = vec![PolledGetter::waiting(queue.get()), PolledGetter::waiting(queue.get())];
    let mut leases = Vec::new();
    drive(&clock, 20, || {
        while let Some(woken) = getters.iter().position(|getter| getter.wakes() > 0) {
            let mut getter = getters.remove(woken);
            leases.push(getter.take());
        }
        getters.is_empty()
    });
    assert_eq!((*leases[0], *leases[1]), ("a", "b"));
}

/// The end of a backoff wakes a getter, too.
#[test]
fn a_retry_wakes_a_getter_when_it_is_due() {
    let (queue, clock) = backoff();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let mut getter = PolledGetter::waiting(queue.get());
    lease.retry();
    assert!(getter.poll().is_pending());
    drive(&clock, 10, || getter.wakes() > 0 && getter.poll().is_ready());
}

/// A key whose deadline is `Nanos::MAX` never becomes Ready, and wakes no getter.
#[test]
fn never_is_never() {
    let (queue, clock) = timed();
    queue.add_after("a", Duration::MAX).unwrap();
    let getter = PolledGetter::waiting(queue.get());
    clock.advance(Duration::from_secs(u64::MAX / 4_000_000_000));
    assert_eq!((getter.wakes(), queue.ready_len()), (0, 0));
}

// ---- dropped at every poll -------------------------------------------------------------------------------------

/// Random operation sequences: getters are created, polled and dropped between adds and deadlines. After every step, if a key is Ready and
/// a getter waits, some getter has been woken. If a key waits for a deadline, some getter has been woken or the alarm is set.
#[test]
fn getters_dropped_at_any_poll_lose_no_wake_up() {
    let mut random = Random::new(7);
    let mut with_both = 0;
    for _ in 0..3_000 {
        let (queue, clock): (TimedQueue<u64>, _) = timed_by_number();
        let mut getters = Vec::new();
        let mut leases = Vec::new();
        for _ in 0..1 + random.below(60) {
            match random.below(8) {
                0 | 1 => drop(queue.add(random.below(6))),
                2 => drop(queue.add_after(random.below(6), ns(1 + random.below(9)))),
                3 => getters.push(PolledGetter::new(queue.get())),
                4 if !getters.is_empty() => {
                    let index = random.below(getters.len() as u64) as usize;
                    if let Poll::Ready(lease) = getters[index].poll() {
                        leases.push(lease.expect("open"));
                        drop(getters.remove(index));
                    }
                }
                5 if !getters.is_empty() => {
                    drop(getters.remove(random.below(getters.len() as u64) as usize));
                }
                6 if !leases.is_empty() => {
                    let lease = leases.remove(random.below(leases.len() as u64) as usize);
                    match random.below(4) {
                        0 => lease.done(),
                        1 => lease.requeue_after(ns(random.below(5))),
                        2 => lease.retry(),
                        _ => drop(lease),
                    }
                }
                7 => match random.below(4) {
                    0 => {
                        queue.cancel(&random.below(6));
                    }
                    1 => drop(queue.try_get()),
                    _ => clock.advance(ns(random.below(4))),
                },
                _ => {}
            }
            queue.check().unwrap();
            with_both += usize::from(assert_waiter_woken(&queue, &clock, &getters));
        }
        // From here on only woken getters are polled, and the clock moves only to its alarms: every key must still be handed out.
        leases.into_iter().for_each(flyball_workqueue::Lease::done);
        loop {
            if let Some(woken) = getters.iter().position(PolledGetter::was_woken) {
                if let Poll::Ready(lease) = getters[woken].poll() {
                    lease.expect("open").done();
                    drop(getters.remove(woken));
                }
            } else if let Some(alarm) = clock.next_alarm() {
                clock.set(alarm);
            } else {
                break;
            }
        }
        let counts = queue.stats();
        assert!(
            getters.iter().all(|getter| !getter.is_parked()) || counts.ready + counts.waiting == 0,
            "{counts:?}"
        );
    }
    assert!(with_both > 500, "only {with_both} steps had a key and a waiting getter");
}

/// If a getter is parked and no getter was woken, asserts that no key is Ready, and that the alarm is set for the first waiting key. Returns whether
/// there was such a waiting key.
fn assert_waiter_woken<F: Future<Output = Option<T>>, T>(
    queue: &TimedQueue<u64>,
    clock: &flyball_sync::ManualClock,
    getters: &[PolledGetter<F>],
) -> bool {
    let counts = queue.stats();
    if !getters.iter().any(PolledGetter::is_parked) || getters.iter().any(PolledGetter::was_woken) {
        return false;
    }
    assert_eq!(counts.ready, 0, "a key is Ready and a getter waits, but no getter was woken");
    let soonest = (0..6).filter_map(|key| match queue.state(&key) {
        KeyState::Waiting(until) => Some(until),
        _ => None,
    });
    let Some(soonest) = soonest.min() else { return false };
    assert!(clock.next_alarm().is_some_and(|alarm| alarm <= soonest), "a key waits and no alarm is set");
    true
}

fn timed_by_number() -> (TimedQueue<u64>, flyball_sync::ManualClock) {
    let clock = flyball_sync::ManualClock::new();
    (Queue::builder().timer(clock.timer()).seed(1).build(), clock)
}

/// A drain may be dropped before or after any poll. After its first poll the queue stays shut down, and the next drain completes as usual.
#[test]
fn drains_dropped_at_any_poll_lose_nothing() {
    for dropped_at in 0..4 {
        let queue = Queue::new();
        queue.add("a").unwrap();
        let mut polls = 0;
        let mut drain: Option<Pin<Box<dyn Future<Output = _>>>> =
            Some(Box::pin(queue.drain(DrainOptions::unlimited())));
        let mut poll = |drain: &mut Option<Pin<Box<dyn Future<Output = _>>>>| {
            if polls == dropped_at {
                *drain = None;
            }
            polls += 1;
            drain.as_mut().map(|drain| poll_once(drain.as_mut()).is_ready())
        };
        assert_ne!(poll(&mut drain), Some(true));
        let lease = queue.try_get().unwrap();
        assert_ne!(poll(&mut drain), Some(true));
        lease.done();
        assert_ne!(poll(&mut drain), Some(false));
        assert_eq!(
            queue.is_shutting_down(),
            dropped_at > 0,
            "the shutdown does not start with the first poll"
        );
        assert!(poll_once(Box::pin(queue.drain(DrainOptions::unlimited())).as_mut()).is_ready());
        assert_eq!(queue.state(&"a"), KeyState::Absent);
    }
}
