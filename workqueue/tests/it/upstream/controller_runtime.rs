//! Counterparts of the tests of controller-runtime's `pkg/controller/priorityqueue`. A quoted string is the description of such a test, and
//! "upstream" is controller-runtime.
//!
//! Not covered here:
//! - "retains the highest priority", "will not decrease the priority", "goes to the front if priority increases", "same with higher
//!   priority", "FIFO inside the new level", `TestHighPriorityItems…MultipleTimes`, `TestHighPriorityItemThatBecameReady…`: the FIFO order
//!   has no priorities; `time.rs` has the cases about time.
//! - `internal/metrics`: see `metrics.rs`.
//! - The tests of `pkg/handler` and of the controller: they do not test the queue.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::{ManualClock, Nanos, block_on};
use flyball_workqueue::{
    AddErrorKind, Added, DrainOptions, Fifo, NoLimiter, Queue, ThreadTimer, TryGetError,
};
use testkit::random::Random;

use crate::support::{ns, timed};
use crate::task::{Task, deadline, serve};

/// "returns an item", "returns items in order".
#[test]
fn returns_items_in_order() {
    let queue = Queue::new();
    for key in ["foo", "bar", "baz"] {
        queue.add(key).unwrap();
    }
    for key in ["foo", "bar", "baz"] {
        let lease = queue.try_get().unwrap();
        assert_eq!(*lease, key);
        lease.done();
    }
}

/// "doesn't return an item that is currently locked", "returns an item as soon as it's unlocked".
#[test]
fn a_locked_item_is_held_back() {
    let queue = Queue::new();
    _ = queue.add_many(["foo", "bar"]);
    let foo = queue.try_get().unwrap();
    _ = queue.add_many(["foo", "baz"]);
    assert_eq!(*queue.try_get().unwrap().detach(), *"bar");
    assert_eq!(*queue.try_get().unwrap().detach(), *"baz");
    let mut getter = Task::waiting(queue.get());
    foo.done();
    assert!(getter.was_woken());
    assert_eq!(*getter.finish().unwrap(), "foo");
}

/// "de-duplicates items", "enqueues a locked item": upstream's `Len` counts a locked item that will run again. `ready_len` does not count it, and
/// neither does client-go's `Len`; `stats` counts it as dirty.
#[test]
fn de_duplicates() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    queue.add("foo").unwrap();
    let foo = queue.try_get().unwrap();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    queue.add("foo").unwrap();
    queue.add("foo").unwrap();
    let counts = queue.stats();
    assert_eq!((queue.ready_len(), counts.leased, counts.dirty), (0, 1, 1));
    foo.done();
    assert_eq!(serve(&queue), 1);
}

/// "retains the lowest after", "an item that isn't ready is not in Len", "depth is right when an item with After is
/// added again without".
#[test]
fn waiting_keys_do_not_count_in_the_depth() {
    let (queue, _clock) = timed();
    queue.add_after("foo", ns(9)).unwrap();
    queue.add_after("foo", ns(5)).unwrap();
    queue.add_after("foo", ns(7)).unwrap();
    assert_eq!((deadline(&queue, "foo"), queue.ready_len(), queue.stats().waiting), (5, 0, 1));
    assert_eq!(queue.add("foo").unwrap(), Added::Promoted);
    assert_eq!((queue.ready_len(), queue.stats().waiting), (1, 0));
}

/// "Get after ShutDown", and "AddWithOpts after is ignored" (controller-runtime#3239): in controller-runtime an add after the shutdown is ignored.
/// Here the add returns an error with the key.
#[test]
fn get_after_shutdown() {
    let (queue, _clock) = timed();
    queue.shut_down();
    for _ in 0..3 {
        assert!(block_on(queue.get()).is_none() && queue.blocking_get().is_none());
        assert_eq!(queue.add("foo").unwrap_err().kind(), AddErrorKind::ShutDown);
        assert_eq!(queue.ready_len(), 0);
    }
}

/// "returns many items": several rounds of adds of different kinds, with many getters.
#[test]
fn returns_many_items() {
    const ROUNDS: u64 = 5;
    const KEYS: u64 = 400;
    for round in 0..ROUNDS {
        let queue = Queue::new();
        let out = Mutex::new(BTreeMap::<u64, usize>::new());
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    while let Some(lease) = queue.blocking_get() {
                        *out.lock().unwrap().entry(*lease).or_default() += 1;
                        lease.done();
                    }
                });
            }
            let mut random = Random::new(round);
            for key in 0..KEYS {
                match random.below(3) {
                    0 => queue.add(key),
                    1 => queue.add_after(key, Duration::from_micros(random.below(500))),
                    _ => {
                        queue.add_after(key, Duration::from_secs(3600)).unwrap();
                        queue.add_after(key, Duration::from_micros(random.below(500)))
                    }
                }
                .unwrap();
            }
            let left = queue.blocking_drain(DrainOptions::serve_waiting(Duration::from_secs(60)));
            assert!(left.ready.is_empty() && left.waiting.is_empty() && left.leased.is_empty());
        });
        let out = out.lock().unwrap();
        assert!(out.len() == KEYS as usize && out.values().all(|times| *times == 1));
        queue.check().unwrap();
    }
}

/// `TestFuzzPriorityQueue`: random adds and many consumers. No key is leased twice, and the depth is always correct.
#[test]
fn fuzz() {
    const KEYS: usize = 100;
    let queue: Queue<usize, Fifo, NoLimiter, ThreadTimer> = Queue::new();
    let out: Vec<_> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                while let Some(lease) = queue.blocking_get() {
                    assert_eq!(out[*lease].fetch_add(1, Ordering::SeqCst), 0, "a key is leased twice");
                    let counts = queue.stats();
                    assert!(counts.leased >= 1 && counts.ready + counts.waiting + counts.leased <= KEYS);
                    assert_eq!(out[*lease].fetch_sub(1, Ordering::SeqCst), 1);
                    lease.done();
                }
            });
        }
        let producers: Vec<_> = (0..5)
            .map(|seed| {
                let queue = &queue;
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..400 {
                        let key = random.below(KEYS as u64) as usize;
                        match random.below(2) {
                            0 => queue.add(key).unwrap(),
                            _ => queue.add_after(key, Duration::from_nanos(random.below(100_000))).unwrap(),
                        };
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        drop(queue.blocking_drain(DrainOptions::serve_waiting(Duration::from_secs(60))));
    });
    assert!(crate::support::holds_nothing(&queue.stats()));
    queue.check().unwrap();
}

/// `TestItemIsOnlyReturnedAfterAfterHasPassed`.
#[test]
fn only_after_after() {
    let (queue, clock) = timed();
    queue.add_after("foo", ns(5)).unwrap();
    let mut getter = Task::waiting(queue.get());
    for _ in 0..4 {
        clock.advance(ns(1));
        assert!(getter.poll().is_pending());
    }
    clock.advance(ns(1));
    assert!(getter.was_woken() && getter.is_ready());
}

/// `TestItemIsReturnedAsSoonAsPossible`, `TestWaitingItemIsReturnedRightAfterReadWithoutAfter`.
#[test]
fn as_soon_as_possible() {
    let (queue, _clock) = timed();
    let mut getter = Task::waiting(queue.get());
    queue.add("foo").unwrap();
    assert!(getter.was_woken());
    getter.finish().unwrap().done();
    queue.add_after("foo", Duration::from_secs(60)).unwrap();
    let mut getter = Task::waiting(queue.get());
    queue.add("foo").unwrap();
    assert!(getter.was_woken() && getter.is_ready());
}

/// `TestMultipleItemsWithAfterAreReturnedInCorrectOrder`.
#[test]
fn several_afters_in_order() {
    let (queue, clock) = timed();
    queue.add_after("second", ns(9)).unwrap();
    queue.add_after("first", ns(4)).unwrap();
    for (key, at) in [("first", 4), ("second", 9)] {
        let mut getter = Task::waiting(queue.get());
        assert_eq!(clock.next_alarm(), Some(Nanos::new(at)));
        clock.set(Nanos::new(at));
        let lease = getter.finish().unwrap();
        assert_eq!(*lease, key);
        lease.done();
    }
}

/// `TestGetFromPriorityQueueIsUnblockedOnShutdown`.
#[test]
fn a_getter_is_unblocked_by_shutdown() {
    for _ in 0..20 {
        let queue: Queue<u32> = Queue::new();
        thread::scope(|scope| {
            let getter = scope.spawn(|| queue.blocking_get().is_none());
            queue.shut_down();
            assert!(getter.join().unwrap());
        });
    }
}

/// `TestItemsAreInludedInLenAndMetricsOnceTheyAreReady`, twice in a row, and the test that adds a key again after its wait has expired: no key is
/// counted twice.
#[test]
fn ready_ones_are_counted_once() {
    let (queue, clock) = timed();
    for _ in 0..2 {
        queue.add_after("foo", ns(5)).unwrap();
        queue.add_after("bar", ns(5)).unwrap();
        assert_eq!((queue.ready_len(), queue.stats().waiting), (0, 2));
        clock.advance(ns(5));
        assert_eq!((queue.ready_len(), queue.stats().waiting), (2, 0));
        assert_eq!(queue.add("foo").unwrap(), Added::Merged);
        assert_eq!(queue.ready_len(), 2);
        assert_eq!(serve(&queue), 2);
    }
}

/// `TestWhenAddingMultipleItemsWithRatelimitTrueTheyDontAffectEachOther` (controller-runtime#3103).
#[test]
fn limited_adds_do_not_affect_each_other() {
    let clock = ManualClock::new();
    let limiter = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    let queue = Queue::builder().timer(clock.timer()).limiter(limiter).build();
    for _ in 0..7 {
        queue.add_rate_limited("bar").unwrap();
        clock.set(Nanos::new(deadline(&queue, "bar")));
        queue.try_get().unwrap().done();
    }
    let now = 635_000_000;
    queue.add_rate_limited("foo").unwrap();
    queue.add_rate_limited("bar").unwrap();
    let delays = ["foo", "bar"].map(|key| deadline(&queue, key) - now);
    assert_eq!(delays, [5_000_000, 640_000_000]);
}

/// `TestPriorityQueueDoesNotDeadlockOnShutdownWhileHandingOutItems` (controller-runtime#3538).
#[test]
fn no_deadlock_on_shutdown_while_handing_out() {
    for _ in 0..20 {
        let queue: Queue<u32> = Queue::new();
        let start = Barrier::new(21);
        thread::scope(|scope| {
            for worker in 0..20 {
                let (queue, start) = (&queue, &start);
                scope.spawn(move || {
                    start.wait();
                    for key in 0.. {
                        let _ = queue.add(worker * 1_000 + key % 1_000);
                        let Some(lease) = queue.blocking_get() else { break };
                        lease.done();
                    }
                });
            }
            start.wait();
            (0..20).for_each(|_| thread::yield_now());
            queue.shut_down();
        });
        assert!(crate::support::holds_nothing(&queue.stats()));
    }
}
