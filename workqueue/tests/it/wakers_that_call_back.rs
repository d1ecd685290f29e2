//! Wakers whose clone or drop calls the queue, or panics: they run outside the lock, and a key that was handed out is not lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use flyball_workqueue::{Fair, KeyState, Queue};
use testkit::wakers::{Counting, HostileWaker, WakerCall, poll_once, poll_with};

/// Polls a future with a waker that the future has to drop, with a panic.
fn poll_and_panic<F: Future>(future: F, hostile: &Arc<HostileWaker>, waker: &Waker) -> bool {
    hostile.run_in(WakerCall::Drop, || panic!("the drop of a waker panics"));
    catch_unwind(AssertUnwindSafe(|| poll_with(pin!(future).as_mut(), waker).is_ready())).is_err()
}

#[test]
fn a_getter_is_woken_although_the_drop_of_an_adders_unused_waker_panics() {
    let queue = Queue::builder().capacity(1).build();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let mut getting = pin!(queue.get());
    let (wakes, waker) = Counting::waker();
    assert!(poll_with(getting.as_mut(), &waker).is_pending());
    let hostile = HostileWaker::new();
    let adder = hostile.waker();
    hostile.run_in(WakerCall::Clone, move || lease.done()); // makes room between the two checks
    assert!(poll_and_panic(queue.add_when_room("b"), &hostile, &adder));
    assert_eq!((queue.state("b"), wakes.wakes()), (KeyState::Ready, 1));
}

#[test]
fn an_adders_unused_waker_is_dropped_outside_the_lock() {
    let queue = Queue::builder().capacity(1).build();
    queue.add("a").unwrap();
    let hostile = HostileWaker::new();
    let adder = hostile.waker();
    let (own, seen) = (queue.clone(), queue.clone());
    hostile.run_in(WakerCall::Clone, move || _ = own.cancel("a"));
    hostile.run_in(WakerCall::Drop, move || assert_eq!(seen.stats().ready, 1));
    assert!(poll_with(pin!(queue.add_when_room("b")).as_mut(), &adder).is_ready());
}

#[test]
fn a_lease_is_not_lost_if_the_drop_of_a_getters_unused_waker_panics() {
    let queue = Queue::new();
    let hostile = HostileWaker::new();
    let waker = hostile.waker();
    let own = queue.clone();
    hostile.run_in(WakerCall::Clone, move || _ = own.add(7));
    hostile.run_in(WakerCall::Drop, || panic!("the drop of a waker panics"));
    let Poll::Ready(Some(lease)) = poll_with(pin!(queue.get()).as_mut(), &waker) else {
        panic!("no lease");
    };
    assert_eq!(*lease, 7);
}

#[test]
fn a_key_is_not_lost_if_the_drop_of_the_waker_of_a_limit_that_passed_panics() {
    let queue = Queue::new();
    for key in 0..127 {
        queue.add(key).unwrap();
        let Poll::Ready(Some(lease)) = poll_once(pin!(queue.get()).as_mut()) else { panic!("no lease") };
        lease.done();
    }
    queue.add(500).unwrap(); // the next poll yields first
    let hostile = HostileWaker::new();
    let waker = hostile.waker();
    assert!(poll_and_panic(queue.timeout(Duration::ZERO, queue.get()), &hostile, &waker));
    assert_eq!(queue.state(&500), KeyState::Ready);
}

#[test]
fn a_refused_key_is_not_leaked_if_the_drop_of_its_group_panics() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Group;
    impl Drop for Group {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("the drop of a group panics");
            }
        }
    }
    let queue = Queue::builder().order(Fair::by_group(|_: &Arc<u8>| Group)).build();
    queue.shut_down();
    let key = Arc::new(1);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.add(key.clone()).is_err())).is_err());
    assert_eq!(Arc::strong_count(&key), 1);
}
