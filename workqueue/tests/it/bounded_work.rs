//! The work under one lock does not grow with the backlog, nor with the number of waiters: it is done in pieces, between which other operations run.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use flyball_ratelimit::Quota;
use flyball_sync::steps;
use flyball_workqueue::{
    DrainOptions, Fair, Key, Lease, ManualClock, ManualTimer, NoLimiter, Order, Priority, Queue,
};
use testkit::wakers::{Counting, poll_once, poll_with};

use crate::support::{ns, timed};

const SECOND: Duration = Duration::from_secs(1);
/// A piece moves up to 64 keys, and an operation as many.
const MOST_STEPS: u64 = 4_000;

type Gets<'a, K> = Vec<(Pin<Box<dyn Future<Output = Option<Lease<K>>> + 'a>>, Arc<Counting>)>;

/// Returns `count` getters that wait.
fn waiting<'a, K: Key, O: Order<K>>(
    queue: &'a Queue<K, O, NoLimiter, ManualTimer>,
    count: usize,
) -> Gets<'a, K> {
    let wait = |_| {
        let (wakes, waker) = Counting::waker();
        let mut get: Pin<Box<dyn Future<Output = _>>> = Box::pin(queue.get());
        assert!(poll_with(get.as_mut(), &waker).is_pending());
        (get, wakes)
    };
    (0..count).map(wait).collect()
}

fn woken<K>(getters: &Gets<'_, K>) -> usize {
    assert!(getters.iter().all(|(_, wakes)| wakes.wakes() <= 1), "a getter was woken twice");
    getters.iter().map(|(_, wakes)| wakes.wakes()).sum()
}

fn assert_bounded() {
    let most = steps::take();
    assert!(most <= MOST_STEPS, "{most} steps under one lock");
}

/// Many deadlines pass at once, in a queue of each order.
#[test]
fn deadlines_that_pass_at_once_wake_a_getter_each_in_pieces() {
    fn check<O: Order<u32>>(order: O) {
        let clock = ManualClock::new();
        let queue = Queue::builder().order(order).timer(clock.timer()).build();
        for key in 0..3_000 {
            queue.add_after(key, ns(u64::from(key) + 1)).unwrap();
        }
        let getters = waiting(&queue, 2_000);
        steps::take();
        clock.advance(ns(5_000));
        assert_bounded();
        assert_eq!(woken(&getters), 2_000);
        queue.check().unwrap();
        steps::take();
        let mut taken = 0;
        for (mut get, _) in getters {
            taken += usize::from(poll_once(get.as_mut()).is_ready());
            assert_bounded();
        }
        assert_eq!(taken, 2_000);
    }
    check(flyball_workqueue::Fifo);
    check(Priority::new());
    check(Fair::by_group(|key: &u32| key % 7));
}

/// Deadlines pass one after the other, and the woken getters are not polled meanwhile.
#[test]
fn deadlines_that_passed_before_are_not_counted_again() {
    let (queue, clock) = timed();
    let keys: Vec<String> = (0..3_000).map(|key| key.to_string()).collect();
    let keys: Vec<&'static str> = keys.into_iter().map(|key| &*key.leak()).collect();
    for (at, key) in (1..).zip(&keys) {
        queue.add_after(*key, ns(at)).unwrap();
    }
    let getters = waiting(&queue, 3_000);
    clock.advance(ns(1_000));
    steps::take();
    for passed in 1_001..=1_500 {
        clock.advance(ns(1));
        let most = steps::take();
        assert!(most <= 100, "{most} steps for one deadline");
        assert_eq!(woken(&getters), passed);
    }
    queue.check().unwrap();
}

/// The tokens of many groups arrive at once.
#[test]
fn tokens_that_arrive_at_once_wake_a_getter_each_in_pieces() {
    let clock = ManualClock::new();
    let slow = Quota::new(NonZeroU32::MIN, SECOND).unwrap();
    let order = Fair::by_group(|key: &(u32, u32)| key.0).rate(move |_| Some(slow));
    let queue = Queue::builder().order(order).timer(clock.timer()).build();
    for group in 0..3_000 {
        _ = queue.add_many([(group, 0), (group, 1)]);
    }
    for _ in 0..3_000 {
        queue.try_get().unwrap().done();
    }
    let getters = waiting(&queue, 2_000);
    steps::take();
    clock.advance(SECOND);
    assert_bounded();
    assert_eq!(woken(&getters), 2_000);
    queue.check().unwrap();
    steps::take();
    for (mut get, _) in getters {
        assert!(poll_once(get.as_mut()).is_ready());
        assert_bounded();
    }
}

/// Many keys of a suspended group are due before the waits for "idle" and "drained" end.
#[test]
fn due_keys_of_suspended_groups_are_passed_over_in_pieces() {
    let clock = ManualClock::new();
    let order = Fair::by_group(|key: &u32| key % 2).max_leased(|group| *group * 9);
    let queue = Queue::builder().order(order).timer(clock.timer()).build();
    let fill = || {
        for key in (0..20_000).step_by(2) {
            queue.add_after(key, SECOND).unwrap();
        }
        queue.add(1).unwrap();
        queue.try_get().unwrap()
    };
    let lease = fill();
    let mut idle = Box::pin(queue.wait_idle());
    let (wakes, waker) = Counting::waker();
    assert!(poll_with(idle.as_mut(), &waker).is_pending());
    clock.advance(SECOND);
    steps::take();
    lease.done();
    assert_bounded();
    assert_eq!(wakes.wakes(), 1);
    assert!(poll_with(idle.as_mut(), &waker).is_ready());
    assert_bounded();

    for key in (0..20_000).step_by(2) {
        queue.cancel(&key);
    }
    let lease = fill();
    clock.advance(SECOND);
    steps::take();
    assert!(poll_once(Box::pin(queue.wait_idle()).as_mut()).is_pending());
    assert_bounded();
    lease.done();
    assert!(poll_once(Box::pin(queue.wait_idle()).as_mut()).is_ready());
    assert_bounded();

    for key in (0..20_000).step_by(2) {
        queue.cancel(&key);
    }
    let lease = fill();
    let mut drain = Box::pin(queue.drain(DrainOptions::serve_waiting(SECOND * 9)));
    let (wakes, waker) = Counting::waker();
    assert!(poll_with(drain.as_mut(), &waker).is_pending());
    lease.done();
    assert_eq!(wakes.wakes(), 0);
    steps::take();
    clock.advance(SECOND);
    assert_bounded();
    assert_eq!(wakes.wakes(), 1, "only keys of a suspended group are left");
}

/// Adders of many groups wait for room in a full queue. Their groups have room.
#[test]
fn adders_of_many_groups_cost_an_operation_nothing() {
    let order = Fair::by_group(|key: &(u32, u32)| key.0);
    let queue = Queue::builder().order(order).capacity(1_000).build();
    _ = queue.add_many((0..1_000).map(|group| (group, 0)));
    let mut adders: Vec<_> = (0..1_000).map(|group| Box::pin(queue.add_when_room((group, 1)))).collect();
    adders.iter_mut().for_each(|adder| assert!(poll_once(adder.as_mut()).is_pending()));
    steps::take();
    for key in 2..100 {
        queue.try_get().unwrap().done(); // wakes an adder
        queue.add((0, key)).unwrap(); // takes its room
    }
    let most = steps::take();
    assert!(most <= 100, "{most} steps");
    queue.check().unwrap();
}
