//! Payloads of panics that panic in their drop: a panic that the queue discards harms no result.

use flyball_sync::block_on;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Poll, Wake, Waker};
use std::thread;

use flyball_ratelimit::Exponential;
use flyball_workqueue::{AddOptions, Fair, Fifo, Lease, LeaseOutcome, ManualClock, Order, Priority, Queue};
use testkit::wakers::{poll_once, poll_with};

use crate::regressions::UnfiredTimer;
use crate::support::{ns, timed};

/// A panic payload that panics in its drop.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(thread::panicking(), "a payload panics in its drop");
    }
}

/// A waker that panics with a [`Bomb`].
struct BombWaker;

impl Wake for BombWaker {
    fn wake(self: Arc<Self>) {
        panic_any(Bomb);
    }
}

fn bomb_waker() -> Waker {
    Waker::from(Arc::new(BombWaker))
}

/// A key whose clone panics with a [`Bomb`] if it has the selected number.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BombKey(u32);

static BROKEN: AtomicU32 = AtomicU32::new(0);

impl Clone for BombKey {
    fn clone(&self) -> Self {
        if self.0 == BROKEN.load(Ordering::SeqCst) {
            panic_any(Bomb);
        }
        Self(self.0)
    }
}

/// The keys that `stop_now` removes reach the caller.
#[test]
fn a_stop_returns_its_keys() {
    let (queue, _clock) = timed();
    queue.add_after("a", ns(9)).unwrap();
    let mut getter = Box::pin(queue.get());
    assert!(poll_with(getter.as_mut(), &bomb_waker()).is_pending());
    let left = catch_unwind(AssertUnwindSafe(|| queue.stop_now()));
    assert_eq!(left.map_err(std::mem::forget).expect("a waker's panic propagated").waiting, ["a"]);
}

/// A lease is reported as overdue only once, so the report reaches the caller.
#[test]
fn a_report_of_an_overdue_lease_arrives() {
    let late = UnfiredTimer::default();
    let queue = Queue::builder().timer(late.clone()).build();
    queue.add("a").unwrap();
    let _lease = queue.try_get().unwrap();
    queue.add_after("b", ns(1)).unwrap();
    let mut getter = Box::pin(queue.get());
    assert!(poll_with(getter.as_mut(), &bomb_waker()).is_pending());
    late.clock.advance(ns(5));
    let mut other = Box::pin(queue.next_overdue(ns(0)));
    let found = catch_unwind(AssertUnwindSafe(|| poll_once(other.as_mut())));
    let Poll::Ready(Some(overdue)) = found.map_err(std::mem::forget).expect("a waker's panic propagated")
    else {
        panic!("the lease is overdue");
    };
    assert_eq!(overdue.key, "a");
}

/// A batch ends before a key whose clone panics; the keys before it reach the caller.
#[test]
fn a_batch_keeps_its_keys() {
    BROKEN.store(2, Ordering::SeqCst);
    let queue = Queue::new();
    _ = queue.add_many([BombKey(1), BombKey(2)]);
    let taken = catch_unwind(AssertUnwindSafe(|| queue.try_get_many(9)));
    let mut taken = taken.map_err(std::mem::forget).expect("the panic of a later key propagated").unwrap();
    assert_eq!((taken.len(), queue.stats().leased), (1, 1));
    taken.pop().unwrap().end(LeaseOutcome::Requeued);
    // A batch that waits takes its first key alone.
    assert!(queue.cancel(&BombKey(2)));
    queue.add(BombKey(2)).unwrap();
    let taken = catch_unwind(AssertUnwindSafe(|| block_on(queue.get_many(2))));
    let taken = taken.map_err(std::mem::forget).expect("the panic of a later key propagated");
    assert_eq!(taken.iter().map(|lease| lease.0).collect::<Vec<_>>(), [1]);
    taken.into_iter().for_each(Lease::done);
    BROKEN.store(0, Ordering::SeqCst);
    assert_eq!((queue.stats().ready, queue.stats().leased), (1, 0));
    queue.check().unwrap();
}

/// A key whose clone panics if it says so.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Uncloneable(u32, bool);

impl Clone for Uncloneable {
    fn clone(&self) -> Self {
        if self.1 {
            panic_any(Bomb);
        }
        Self(self.0, false)
    }
}

/// A key whose clone always panics does not keep the other keys from being handed out.
#[test]
fn a_key_that_cannot_be_cloned_does_not_block_the_others() {
    fn check<O: Order<Uncloneable>>(order: O, delay: bool) {
        let clock = ManualClock::new();
        let queue = Queue::builder().order(order).timer(clock.timer()).build();
        let broken = AddOptions { priority: 9, ..AddOptions::default() };
        if delay {
            queue.add_with(Uncloneable(0, true), AddOptions { delay: ns(1), ..broken }).unwrap();
            clock.advance(ns(2));
        } else {
            queue.add_with(Uncloneable(0, true), broken).unwrap();
        }
        _ = queue.add_many((1..=6).map(|key| Uncloneable(key, false)));
        let (mut taken, mut panics) = (Vec::new(), 0);
        for _ in 0..60 {
            match catch_unwind(AssertUnwindSafe(|| queue.try_get())).map_err(std::mem::forget) {
                Ok(lease) => taken.extend(lease),
                Err(()) => panics += 1,
            }
            queue.check().unwrap();
        }
        assert_eq!((taken.len(), panics), (6, 54));
        assert_eq!(queue.stats().ready, 1, "the key stays in the queue");
        drop(taken);
        assert!(queue.cancel(&Uncloneable(0, true)));
    }
    for delay in [false, true] {
        check(Fifo, delay);
        check(Priority::new(), delay);
        check(Fair::by_group(|key: &Uncloneable| key.0 % 3), delay);
    }
}

/// A key whose drop panics while the flag is set.
#[derive(Clone, Debug)]
struct Undroppable(u32, Arc<AtomicBool>, Arc<AtomicU32>);

impl Drop for Undroppable {
    fn drop(&mut self) {
        self.2.fetch_add(1, Ordering::SeqCst);
        assert!(!self.1.load(Ordering::SeqCst), "a hostile key panics in its drop");
    }
}

impl PartialEq for Undroppable {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Undroppable {}

impl std::hash::Hash for Undroppable {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Two drops that panic in one operation abort nothing: the first panic is resumed, and every key is dropped.
#[test]
fn several_keys_that_panic_in_their_drop_do_not_abort() {
    let (hostile, drops) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let clock = ManualClock::new();
    let limiter = Exponential::new(ns(1)..=ns(9));
    let queue = Queue::builder().limiter(limiter).timer(clock.timer()).build();
    for key in 0..5 {
        queue.add(Undroppable(key, hostile.clone(), drops.clone())).unwrap();
    }
    // The limiter has a copy of each key that has failed.
    queue.try_get_many(3).unwrap().into_iter().for_each(Lease::retry);
    let lease = queue.try_get().unwrap();
    let drops_of = |step: &mut dyn FnMut()| {
        let before = drops.load(Ordering::SeqCst);
        hostile.store(true, Ordering::SeqCst);
        let panicked = catch_unwind(AssertUnwindSafe(step)).is_err();
        hostile.store(false, Ordering::SeqCst);
        (panicked, drops.load(Ordering::SeqCst) - before)
    };
    let mut lease = Some(lease);
    assert_eq!(
        drops_of(&mut || lease.take().unwrap().done()),
        (true, 2),
        "the lease's copy, and the queue's"
    );
    queue.check().unwrap();
    let mut queue = Some(queue);
    assert_eq!(drops_of(&mut || drop(queue.take())), (true, 10), "4 in the queue, 2 · 3 in the limiter");
}

/// A group whose name panics in its drop.
fn hostile_group(
    hostile: &Arc<AtomicBool>,
    drops: &Arc<AtomicU32>,
) -> impl Fn(&u32) -> Undroppable + Send + Sync + use<> {
    let (hostile, drops) = (hostile.clone(), drops.clone());
    move |key| Undroppable(*key, hostile.clone(), drops.clone())
}

/// Runs a step while the drops panic. Returns whether it panicked, and the number of drops.
fn drops_of(hostile: &AtomicBool, drops: &AtomicU32, step: impl FnOnce()) -> (bool, u32) {
    let before = drops.load(Ordering::SeqCst);
    hostile.store(true, Ordering::SeqCst);
    let panicked = catch_unwind(AssertUnwindSafe(step)).is_err();
    hostile.store(false, Ordering::SeqCst);
    (panicked, drops.load(Ordering::SeqCst) - before)
}

/// The keys and groups that an operation no longer needs are dropped each by itself.
#[test]
fn several_keys_or_groups_that_one_operation_drops_do_not_abort() {
    let (hostile, drops) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let key = |id| Undroppable(id, hostile.clone(), drops.clone());
    let clock = ManualClock::new();
    let limiter = Exponential::new(ns(1)..=ns(1)).forget_after(ns(1));
    let queue = Queue::builder().limiter(limiter).timer(clock.timer()).capacity(9).build();
    queue.add(key(0)).unwrap();
    let keys = [key(0), key(1), key(0), key(0)];
    assert_eq!(drops_of(&hostile, &drops, || drop(queue.add_many(keys))), (true, 3), "the duplicates");
    assert_eq!(queue.ready_len(), 2, "the others are added");
    queue.check().unwrap();

    // The failures of keys that have left expire, two at a time.
    for id in 10..14 {
        queue.add_rate_limited(key(id)).unwrap();
        queue.cancel(&key(id));
    }
    clock.advance(std::time::Duration::from_secs(9));
    let lease = queue.try_get().unwrap();
    // The evicted keys, each twice: the limiter is one policy in another. And the lease's own copy.
    let (panicked, dropped) = drops_of(&hostile, &drops, || lease.retry());
    assert!(panicked && dropped >= 3, "{dropped}");
    queue.check().unwrap();

    let order = Fair::by_group(hostile_group(&hostile, &drops));
    let grouped = Queue::builder().order(order).build();
    _ = grouped.add_many(0..5);
    assert_eq!(drops_of(&hostile, &drops, || grouped.refresh_groups()), (true, 5));
    grouped.check().unwrap();
}

/// A waker that panics, and a key that panics in its drop, in one operation.
#[test]
fn a_waker_and_a_key_that_panic_in_one_operation_do_not_abort() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a hostile waker panics");
        }
    }
    let (hostile, drops) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let key = |id| Undroppable(id, hostile.clone(), drops.clone());
    let queue = Queue::builder().capacity(1).build();
    for ends in [true, false] {
        queue.add(key(0)).unwrap();
        let lease = ends.then(|| queue.try_get().unwrap());
        let mut adding = Box::pin(queue.add_when_room(key(1)));
        assert!(poll_with(adding.as_mut(), &Waker::from(Arc::new(Panics))).is_pending());
        let cancelled = key(0);
        let step = || match lease {
            Some(lease) => lease.done(),
            None => _ = queue.cancel(&cancelled),
        };
        assert_eq!(drops_of(&hostile, &drops, step), (true, if ends { 2 } else { 1 }));
        queue.check().unwrap();
        assert!(queue.stats().leased == 0 && !queue.has_ready());
    }
}
