//! Situations from the issues of tokio-util's `DelayQueue`, which hands out keys at their deadlines. Its `reset` is an add with [`DelayMode::Replace`] here,
//! and its `remove` is [`Queue::cancel`].
//!
//! | issue of tokio-rs/tokio | test |
//! |---|---|
//! | #849, #868: a queue that waits for a deadline is not woken for one that was reset | [`a_getter_is_woken_at_deadlines_that_were_replaced`] |
//! | #8274: nor for one that was reset to the present | [`a_getter_is_woken_for_a_deadline_that_is_replaced_by_the_present`] |
//! | #2473, #3270: a key that is due, and was not taken yet, is reset or removed | [`keys_that_are_due_can_be_changed_and_removed`] |
//! | #4161, #6751, #8320: what waits for the queue is not woken when its last key is removed | [`the_removal_of_the_last_key_wakes_what_waits_for_it`] |
//! | #5536: a queue that is more than 2³⁶ ms old | [`delays_in_a_queue_that_is_years_old`] |

use std::task::Poll;
use std::time::Duration;

use flyball_sync::{Clock, Nanos};
use flyball_workqueue::{
    AddOptions, Added, DelayMode, DrainOptions, Fair, Fifo, Key, KeyState, Lease, ManualTimer, NoLimiter,
    Order, Priority, Queue,
};
use testkit::wakers::{Counting, poll_with};

use crate::support::{TimedQueue, ns, timed};

fn replace(queue: &TimedQueue, key: &'static str, delay: Duration) -> Added {
    queue.add_with(key, AddOptions { delay, mode: DelayMode::Replace, ..AddOptions::default() }).unwrap()
}

/// Ends the lease that a getter has returned, and returns its key.
fn done<K: Key>(polled: Poll<Option<Lease<K>>>) -> Option<K> {
    let Poll::Ready(Some(lease)) = polled else { return None };
    let key = lease.key().clone();
    lease.done();
    Some(key)
}

/// Takes all keys that can be handed out.
fn take_all<O: Order<u32>>(queue: &Queue<u32, O, NoLimiter, ManualTimer>) -> Vec<u32> {
    let mut taken: Vec<u32> = std::iter::from_fn(|| done(Poll::Ready(queue.try_get().ok()))).collect();
    taken.sort_unstable();
    taken
}

#[test]
fn a_getter_is_woken_at_deadlines_that_were_replaced() {
    let (queue, clock) = timed();
    let at = |nanos| Some(Nanos::new(nanos));
    queue.add_after("loss", ns(200)).unwrap();
    queue.add_after("idle", ns(250)).unwrap();
    let (wakes, waker) = Counting::waker();
    let mut getting = Box::pin(queue.get());
    assert!(poll_with(getting.as_mut(), &waker).is_pending());
    for (key, delay, next) in [("loss", 300, 200), ("idle", 350, 200), ("loss", 400, 200), ("idle", 5, 5)] {
        assert_eq!(replace(&queue, key, ns(delay)), Added::Merged);
        assert!(
            clock.next_alarm() <= at(next) && clock.next_alarm().is_some(),
            "{key}: {:?}",
            clock.next_alarm()
        );
    }
    clock.advance(ns(4));
    assert_eq!(wakes.wakes(), 0);
    clock.advance(ns(1));
    assert_eq!(wakes.wakes(), 1);
    assert_eq!(done(poll_with(getting.as_mut(), &waker)), Some("idle"));
    let mut getting = Box::pin(queue.get());
    assert!(poll_with(getting.as_mut(), &waker).is_pending());
    assert_eq!(clock.next_alarm(), at(400));
    clock.set(Nanos::new(400));
    assert_eq!(done(poll_with(getting.as_mut(), &waker)), Some("loss"));
}

#[test]
fn a_getter_is_woken_for_a_deadline_that_is_replaced_by_the_present() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(100)).unwrap();
    queue.add_after("b", ns(200)).unwrap();
    let (wakes, waker) = Counting::waker();
    let mut getting = Box::pin(queue.get());
    assert!(poll_with(getting.as_mut(), &waker).is_pending());
    assert_eq!(replace(&queue, "b", Duration::ZERO), Added::Promoted);
    assert_eq!(wakes.wakes(), 1, "no time has passed");
    assert_eq!(done(poll_with(getting.as_mut(), &waker)), Some("b"));
    assert_eq!(clock.next_alarm(), None, "no waiter waits for `a`");
}

/// For each order, because each stores the waiting keys in its own way.
#[test]
fn keys_that_are_due_can_be_changed_and_removed() {
    fn check<O: Order<u32>>(order: O) {
        let clock = flyball_workqueue::ManualClock::new();
        let queue = Queue::builder().order(order).timer(clock.timer()).build();
        (0..20).for_each(|key| _ = queue.add_after(key, ns(64)).unwrap());
        clock.advance(ns(64));
        assert_eq!(done(Poll::Ready(queue.try_get().ok())), Some(0));
        let later = AddOptions { delay: ns(64), mode: DelayMode::Replace, ..AddOptions::default() };
        for key in 1..20 {
            match key % 4 {
                0 => assert_eq!(queue.add_with(key, later).unwrap(), Added::Merged, "a due key stays Ready"),
                1 => assert!(queue.cancel(&key)),
                2 => assert!(queue.postpone(&key, ns(5))),
                _ => assert_eq!(queue.add_after(key, ns(9)).unwrap(), Added::Merged),
            }
            queue.check().unwrap();
        }
        assert_eq!(take_all(&queue), [3, 4, 7, 8, 11, 12, 15, 16, 19]);
        clock.advance(ns(5));
        assert_eq!(take_all(&queue), [2, 6, 10, 14, 18]);
        assert_eq!(queue.stats().waiting, 0);
    }
    check(Fifo);
    check(Priority::new());
    check(Fair::by_group(|key: &u32| key % 3));
}

#[test]
fn the_removal_of_the_last_key_wakes_what_waits_for_it() {
    let (queue, clock) = timed();
    queue.add_after("a", ns(100)).unwrap();
    let (wakes, waker) = Counting::waker();
    let mut emptying = Box::pin(queue.wait_empty());
    assert!(poll_with(emptying.as_mut(), &waker).is_pending());
    assert!(queue.cancel("a"));
    assert_eq!(wakes.wakes(), 1);
    assert!(poll_with(emptying.as_mut(), &waker).is_ready());

    queue.add_after("b", ns(100)).unwrap();
    let ((drained, drain_waker), (closed, get_waker)) = (Counting::waker(), Counting::waker());
    let mut getting = Box::pin(queue.get());
    let mut draining = Box::pin(queue.drain(DrainOptions::serve_waiting(ns(1_000))));
    assert!(poll_with(draining.as_mut(), &drain_waker).is_pending());
    assert!(poll_with(getting.as_mut(), &get_waker).is_pending());
    assert!(queue.cancel("b"));
    assert_eq!((drained.wakes(), closed.wakes()), (1, 1), "long before its limit");
    assert!(matches!(poll_with(draining.as_mut(), &drain_waker), Poll::Ready(left) if left.is_empty()));
    assert!(matches!(poll_with(getting.as_mut(), &get_waker), Poll::Ready(None)));
    assert_eq!(clock.next_alarm(), None);
}

#[test]
fn delays_in_a_queue_that_is_years_old() {
    let hour = Duration::from_secs(3_600);
    for millis in [(1 << 36) - 1, 1 << 36, 1 << 40] {
        let (queue, clock) = timed();
        queue.add_after("first", Duration::from_millis(millis) + hour).unwrap();
        clock.advance(Duration::from_millis(millis));
        queue.add_after("b", hour * 2).unwrap();
        queue.add_after("a", ns(1)).unwrap();
        let mut served = Vec::new();
        let (_, waker) = Counting::waker();
        for _ in 0..3 {
            let mut getting = Box::pin(queue.get());
            assert!(poll_with(getting.as_mut(), &waker).is_pending());
            clock.set(clock.next_alarm().unwrap());
            let key = done(poll_with(getting.as_mut(), &waker)).expect("a key at the alarm");
            served.push((key, clock.now().since(Nanos::ZERO + Duration::from_millis(millis))));
        }
        assert_eq!(served, [("a", ns(1)), ("first", hour), ("b", hour * 2)]);
    }
    let (queue, clock) = timed();
    clock.set(Nanos::new(u64::MAX - 5));
    queue.add_after("a", ns(3)).unwrap();
    queue.add_after("never", ns(9)).unwrap();
    clock.advance(ns(3));
    assert_eq!(*queue.try_get().unwrap(), "a");
    assert_eq!(queue.state("never"), KeyState::Waiting(Nanos::MAX));
}
