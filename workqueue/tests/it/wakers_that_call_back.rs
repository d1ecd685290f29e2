//! Wakers whose clone or drop calls the queue, or panics: they run outside the lock, and a key that was handed out is not lost.

use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::panicking;
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_workqueue::{AddOptions, DelayMode, DrainOptions, Fair, KeyState, Queue, block_on};
use testkit::wakers::{Counting, HostileWaker, WakerCall, poll_once, poll_with};

use crate::regressions::UnfiredTimer;

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

/// A group whose drop panics while the flag is set.
#[derive(Clone)]
struct HostileGroup(Arc<AtomicBool>);

impl PartialEq for HostileGroup {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for HostileGroup {}

impl Hash for HostileGroup {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Drop for HostileGroup {
    fn drop(&mut self) {
        assert!(!self.0.load(Ordering::Relaxed) || panicking(), "the drop of a group panics");
    }
}

/// An operation that is refused, and returns the key.
type Refused<'a> = dyn Fn(&GroupedQueue, Arc<u8>) -> bool + 'a;
type GroupedQueue = Queue<Arc<u8>, Fair<Arc<u8>, HostileGroup>, Exponential<Arc<u8>>>;

#[test]
fn a_refused_key_is_not_leaked_if_the_drop_of_its_group_panics() {
    let delayed = |delay| AddOptions { delay, mode: DelayMode::Replace, ..AddOptions::default() };
    let second = Duration::from_secs(1);
    // The last operation is refused because the limiter gives the key up, the others because the queue is shut down.
    let operations: [(&str, &Refused<'_>); 7] = [
        ("add", &|queue, key| queue.add(key).is_err()),
        ("add_after", &|queue, key| queue.add_after(key, second).is_err()),
        ("add_with", &|queue, key| queue.add_with(key, delayed(second)).is_err()),
        ("into_key", &|queue, key| queue.add_when_room(key).into_key().is_some()),
        ("add_when_room", &|queue, key| block_on(queue.add_when_room(key)).is_err()),
        ("timeout", &|queue, key| block_on(queue.timeout(second, queue.add_when_room(key))).is_some()),
        ("add_rate_limited", &|queue, key| queue.add_rate_limited(key).is_err()),
    ];
    for (name, operation) in operations {
        for shut_down in [true, name != "add_rate_limited"] {
            let hostile = Arc::new(AtomicBool::new(false));
            let flag = hostile.clone();
            let queue = Queue::builder()
                .order(Fair::by_group(move |_: &Arc<u8>| HostileGroup(flag.clone())))
                .limiter(Exponential::new(second..=second))
                .give_up_after(NonZeroU32::MIN, |_, _| {})
                .build();
            if shut_down {
                queue.shut_down();
            }
            let key = Arc::new(1);
            hostile.store(true, Ordering::Relaxed);
            let refused = catch_unwind(AssertUnwindSafe(|| operation(&queue, key.clone())));
            hostile.store(false, Ordering::Relaxed);
            assert!(refused.is_err(), "{name}: no group was dropped");
            assert_eq!(Arc::strong_count(&key), 1, "{name}: the key was leaked");
        }
    }
}

/// A future that has completed, and is dropped after the output has left it.
#[test]
fn a_lease_is_not_lost_if_the_drop_of_a_future_with_a_limit_panics() {
    struct Hostile<F>(F);
    impl<F: Future + Unpin> Future for Hostile<F> {
        type Output = F::Output;
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
            Pin::new(&mut self.0).poll(context)
        }
    }
    impl<F> Drop for Hostile<F> {
        fn drop(&mut self) {
            assert!(panicking(), "the drop of a future panics");
        }
    }
    let queue = Queue::new();
    queue.add(1).unwrap();
    let limited = queue.timeout(Duration::from_secs(1), Hostile(queue.get()));
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(limited).is_some())).is_err());
    assert_eq!(queue.state(&1), KeyState::Ready);
}

/// The leftovers of a drain whose limit has passed are computed last.
#[test]
fn leftovers_are_not_leaked_if_the_drop_of_a_waker_panics() {
    let second = Duration::from_secs(1);
    let mut panics = 0;
    for nth in 0..8 {
        let timer = UnfiredTimer::default();
        let queue = Queue::builder().timer(timer.clone()).build();
        let key = Arc::new(1);
        queue.add(key.clone()).unwrap();
        let mut draining = Box::pin(queue.drain(DrainOptions::within(second)));
        let hostile = HostileWaker::new();
        let waker = hostile.waker();
        assert!(poll_with(draining.as_mut(), &waker).is_pending());
        timer.clock.advance(second); // no alarm wakes the future
        (0..nth).for_each(|_| hostile.run_in(WakerCall::Drop, || {}));
        hostile.run_in(WakerCall::Drop, || panic!("the drop of a waker panics"));
        panics +=
            usize::from(catch_unwind(AssertUnwindSafe(|| poll_with(draining.as_mut(), &waker))).is_err());
        let _ = catch_unwind(AssertUnwindSafe(|| drop(draining)));
        let _ = catch_unwind(AssertUnwindSafe(|| drop(waker)));
        assert_eq!(Arc::strong_count(&key), 2, "leaked at drop {nth}");
    }
    assert!(panics > 2, "{panics}");
}

/// A future that drops the waker that it waited with and the one that it does not need drops each by itself.
#[test]
fn a_waker_that_panics_in_every_drop_does_not_abort() {
    let second = Duration::from_secs(1);
    for drains in [true, false] {
        let timer = UnfiredTimer::default();
        let suspended = Fair::by_group(|key: &u32| *key).max_leased(|_| 0);
        let queue = Queue::builder().order(suspended).timer(timer.clone()).build();
        queue.add_after(1, second).unwrap();
        let mut waiting: Pin<Box<dyn Future<Output = bool>>> = if drains {
            // The drain is over when the key is due, because it is not handed out.
            let draining = queue.drain(DrainOptions::serve_waiting(second * 9));
            Box::pin(async move { draining.await.ready == [1] })
        } else {
            Box::pin(async { queue.timeout(second, queue.get()).await.is_none() })
        };
        let hostile = HostileWaker::new();
        let waker = hostile.waker();
        assert!(poll_with(waiting.as_mut(), &waker).is_pending());
        timer.clock.advance(second); // no alarm wakes the future
        hostile.panic_in(Some(WakerCall::Drop));
        assert!(catch_unwind(AssertUnwindSafe(|| poll_with(waiting.as_mut(), &waker))).is_err());
        hostile.panic_in(None);
        assert_eq!(hostile.live(), 1, "the waker of the test");
        drop(waiting);
        queue.check().unwrap();
    }
}

/// An adder brings new limits, which resume a suspended group, finds no room, and its waker panics when it is cloned.
#[test]
fn a_getter_is_woken_for_a_group_that_an_adder_resumed_before_its_waker_panics() {
    let open = Arc::new(AtomicBool::new(false));
    let limit = open.clone();
    let order = Fair::by_group(|key: &(u8, u8)| key.0)
        .max_leased(move |_| u32::from(limit.load(Ordering::Relaxed)))
        .capacity(|_| 1);
    let queue = Queue::builder().order(order).build();
    queue.add((0, 0)).unwrap();
    let (counting, waker) = Counting::waker();
    let mut getting = Box::pin(queue.get());
    assert!(poll_with(getting.as_mut(), &waker).is_pending(), "a suspended group handed out a key");
    open.store(true, Ordering::Relaxed);
    let hostile = HostileWaker::new();
    let adder = hostile.waker();
    hostile.panic_in(Some(WakerCall::Clone));
    let mut adding = Box::pin(queue.add_when_room((0, 1)));
    catch_unwind(AssertUnwindSafe(|| poll_with(adding.as_mut(), &adder).is_pending())).unwrap_err();
    hostile.panic_in(None);
    assert_eq!(counting.wakes(), 1);
    assert_eq!(queue.try_get().map(|lease| *lease), Ok((0, 0)));
}
