//! A counterpart of each test of controller-runtime 0.25's priority queue, in their order. "Upstream" is controller-runtime; its priorities are strict,
//! so these queues have the order `Priority::new().strict()`.
//!
//! | test in `pkg/controller/priorityqueue` | counterpart here |
//! |---|---|
//! | returns an item | [`returns_an_item`] |
//! | returns items in order | [`returns_items_in_order`] |
//! | doesn't return an item that is currently locked | [`holds_back_a_locked_item`] |
//! | returns an item as soon as its unlocked | [`returns_an_unlocked_item_after_those_added_before`], difference `dirty-joins-the-tail` |
//! | de-duplicates items | [`de_duplicates_items`] |
//! | enqueues a locked item | [`enqueues_a_locked_item`] |
//! | retains the highest priority | [`retains_the_highest_priority`] |
//! | will not decrease the priority | [`will_not_decrease_the_priority`] |
//! | gets pushed to the front if the priority increases | [`moves_to_the_front_if_the_priority_increases`] |
//! | retains the lowest after duration | [`retains_the_lowest_after`] |
//! | doesn't include non-ready items in Len() | [`waiting_items_are_not_in_the_length`] |
//! | Get from priority queue might get stuck when the priority queue is shut down (#3239) | [`get_after_shutdown`], difference `shut-down-hands-out-the-backlog` |
//! | returns many items | [`returns_many_items`] |
//! | updates metrics correctly for an item that gets initially added with after and then without | [`counts_an_item_that_was_added_with_after_and_then_without`] |
//! | updates metrics correctly when an item with after is re-added with higher priority and no after | [`counts_a_waiting_item_that_is_raised`] |
//! | follows FIFO order in the new priority queue when item priority changes | [`fifo_in_the_new_priority`] |
//! | `TestFuzzPriorityQueue` | [`fuzz_priority_queue`] |
//! | `TestHighPriorityItemsAreReturnedBeforeLowPriorityItemMultipleTimes` | [`high_priorities_before_low_ones`]; a delay cannot be negative |
//! | `TestItemIsOnlyReturnedAfterAfterHasPassed` | [`returned_only_after_after`] |
//! | `TestHighPriorityItemThatBecameReadyIsReturnedBeforeLowPriorityItem` | [`a_due_high_priority_before_a_low_one`] |
//! | `TestItemIsReturnedAsSoonAsPossible` | [`returned_as_soon_as_possible`] |
//! | `TestWaitingItemIsReturnedRightAfterReadWithoutAfter` | [`a_waiting_item_that_is_added_without_after`] |
//! | `TestMultipleItemsWithAfterAreReturnedInCorrectOrder` | [`several_afters_in_order`] |
//! | `TestGetFromPriorityQueueIsUnblockedOnShutdown` | [`a_getter_is_unblocked_by_shutdown`] |
//! | `TestItemsAreInludedInLenAndMetricsOnceTheyAreReady` | [`counted_once_ready`] |
//! | `TestMetricsAreUpdatedForItemWhoseRequeueAfterExpiredThatGetsAddedAgainWithoutRequeueAfter` | [`counted_once_if_added_after_the_deadline`] |
//! | `TestWhenAddingMultipleItemsWithRatelimitTrueTheyDontAffectEachOther` (#3103) | [`rate_limited_adds_do_not_affect_each_other`] |
//! | `TestPriorityQueueDoesNotDeadlockOnShutdownWhileHandingOutItems` (#3538) | [`no_deadlock_on_shutdown_while_handing_out`] |
//! | `TestPriorityQueueLogStateDoesNotRaceOnReadyAt` | [`keys_are_consistent_while_deadlines_move`] |
//! | `TestItemCloneCopiesAllFields`, `TestItemCloneDoesNotShareMemoryWithOriginal` | none: they test a private copy that upstream logs; `Queue::keys` returns values |
//!
//! The tests of `pkg/internal/metrics` limit the label `priority` to 25 values and a placeholder (difference `no-depth-by-priority-label`). The tests of
//! `pkg/handler` and of the controller do not test the queue. The differences are in `tools/conformance/DIFFERENCES.md`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use drivers::queue::metrics_sink::Reports;
use flyball_ratelimit::Exponential;
use flyball_sync::{ManualClock, ManualTimer, Nanos, block_on};
use flyball_workqueue::{
    AddErrorKind, AddOptions, Added, Key, KeyState, NoLimiter, Priority, Queue, TryGetError,
};
use testkit::random::Random;

use crate::support::holds_nothing;
use crate::task::Task;

type Queued<K = &'static str> = Queue<K, Priority, NoLimiter, ManualTimer>;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn queue<K: Key>() -> (Queued<K>, ManualClock) {
    let clock = ManualClock::new();
    let builder = Queue::builder().order(Priority::new().strict()).timer(clock.timer());
    (builder.metrics(Reports::default()).build(), clock)
}

fn at(priority: i8) -> AddOptions {
    AddOptions { priority, ..AddOptions::default() }
}

fn after(delay: Duration) -> AddOptions {
    AddOptions { delay, ..AddOptions::default() }
}

fn both(priority: i8, delay: Duration) -> AddOptions {
    AddOptions { priority, delay, ..AddOptions::default() }
}

/// Upstream's `GetWithPriority`: the key stays leased until [`done`].
fn get<K: Key>(queue: &Queued<K>) -> (K, i8) {
    let key = queue.try_get().unwrap().detach();
    let priority = queue.priority(&key).unwrap();
    (key, priority)
}

/// Upstream's `Done`.
fn done<K: Key>(queue: &Queued<K>, key: &K) {
    queue.done(key).unwrap();
}

/// Returns the number of Ready keys of each priority, the highest first.
fn depths<K: Key>(queue: &Queued<K>) -> Vec<(i8, usize)> {
    queue.stats_by_priority()
}

/// Returns the counters of upstream's tests: the depth, which upstream's `Len` returns too, the adds, and the retries (which are delays).
fn counts<K: Key>(queue: &Queued<K>) -> (usize, u64, u64) {
    let stats = queue.stats();
    (stats.depth(), stats.adds, stats.delayed_adds)
}

#[test]
fn returns_an_item() {
    let (queue, _clock) = queue();
    queue.add("foo").unwrap();
    assert_eq!(get(&queue).0, "foo");
    assert_eq!(counts(&queue), (0, 1, 0));
}

#[test]
fn returns_items_in_order() {
    let (queue, _clock) = queue();
    queue.add("foo").unwrap();
    queue.add("bar").unwrap();
    let (foo, bar) = (get(&queue).0, get(&queue).0);
    assert_eq!((foo, bar), ("foo", "bar"));
    assert_eq!(counts(&queue), (0, 2, 0));
}

#[test]
fn holds_back_a_locked_item() {
    let (queue, _clock) = queue();
    queue.add("foo").unwrap();
    assert_eq!(get(&queue).0, "foo");
    queue.add("foo").unwrap();
    queue.add("bar").unwrap();
    assert_eq!(get(&queue).0, "bar");
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    assert_eq!(counts(&queue), (1, 3, 0));
}

/// Upstream hands out "foo" first: it took its place when it was added, although it was locked. Here a key takes its place when it becomes Ready, in every
/// order, so "baz", which became Ready before, is first. In both, a getter receives "foo" as soon as it is unlocked if nothing is before it.
#[test]
fn returns_an_unlocked_item_after_those_added_before() {
    let (queue, _clock) = queue();
    queue.add("foo").unwrap();
    assert_eq!(get(&queue).0, "foo");
    queue.add("foo").unwrap();
    queue.add("bar").unwrap();
    assert_eq!(get(&queue).0, "bar");
    let mut getter = Task::waiting(queue.get());
    done(&queue, &"foo");
    assert!(getter.was_woken());
    assert_eq!(getter.finish().unwrap().detach(), "foo");
    queue.add("foo").unwrap();
    queue.add("baz").unwrap();
    done(&queue, &"foo");
    assert_eq!(counts(&queue), (2, 5, 0));
    let (baz, foo) = (get(&queue).0, get(&queue).0);
    assert_eq!((baz, foo), ("baz", "foo"));
}

/// A waiting key that an add makes Ready takes its place at the add. Upstream keeps the place of its first delayed add, so that it overtakes keys that
/// have been ready for longer; but if its deadline passes, the place is that of its deadline, as here.
#[test]
fn a_promoted_key_joins_the_tail() {
    let (queue, clock) = queue();
    queue.add_with("promoted", after(HOUR)).unwrap();
    queue.add_with("due", after(SECOND)).unwrap();
    queue.add("first").unwrap();
    clock.advance(SECOND);
    queue.add("second").unwrap();
    assert_eq!(queue.add("promoted").unwrap(), Added::Promoted);
    queue.add("third").unwrap();
    let order: Vec<_> = (0..5).map(|_| get(&queue).0).collect();
    assert_eq!(order, ["first", "due", "second", "promoted", "third"]);
}

#[test]
fn de_duplicates_items() {
    let (queue, _clock) = queue();
    queue.add("foo").unwrap();
    queue.add("foo").unwrap();
    assert_eq!((queue.ready_len(), queue.stats().leased), (1, 0));
    assert_eq!(counts(&queue), (1, 1, 0));
    assert_eq!(depths(&queue), [(0, 1)]);
}

/// Upstream's `Len` counts a locked key that will run again, as `QueueStats::depth` does. `ready_len` is client-go's `Len`, and does not.
#[test]
fn enqueues_a_locked_item() {
    let (queue, _clock) = queue();
    queue.add("foo").unwrap();
    assert_eq!(queue.stats().depth(), 1);
    assert_eq!(get(&queue), ("foo", 0));
    queue.add("foo").unwrap();
    assert_eq!((queue.stats().depth(), queue.ready_len()), (1, 0));
    done(&queue, &"foo");
    assert_eq!(get(&queue), ("foo", 0));
    assert_eq!(counts(&queue), (0, 2, 0));
}

#[test]
fn retains_the_highest_priority() {
    let (queue, _clock) = queue();
    queue.add_with("foo", at(1)).unwrap();
    queue.add_with("foo", at(2)).unwrap();
    assert_eq!(get(&queue), ("foo", 2));
    assert_eq!((counts(&queue), depths(&queue)), ((0, 1, 0), vec![]));
}

#[test]
fn will_not_decrease_the_priority() {
    let (queue, _clock) = queue();
    queue.add_with("foo", at(2)).unwrap();
    queue.add_with("foo", at(1)).unwrap();
    assert_eq!(depths(&queue), [(2, 1)]);
    assert_eq!(get(&queue), ("foo", 2));
    assert_eq!((counts(&queue), depths(&queue)), ((0, 1, 0), vec![]));
}

#[test]
fn moves_to_the_front_if_the_priority_increases() {
    let (queue, _clock) = queue();
    for key in ["foo", "bar", "baz"] {
        queue.add(key).unwrap();
    }
    queue.add_with("baz", at(1)).unwrap();
    assert_eq!(depths(&queue), [(1, 1), (0, 2)]);
    assert_eq!(get(&queue), ("baz", 1));
    assert_eq!((counts(&queue), depths(&queue)), ((2, 3, 0), vec![(0, 2)]));
}

#[test]
fn retains_the_lowest_after() {
    let (queue, clock) = queue();
    queue.add_with("foo", after(Duration::ZERO)).unwrap();
    queue.add_with("foo", after(HOUR)).unwrap();
    assert_eq!(get(&queue), ("foo", 0));
    assert_eq!((queue.stats().depth(), queue.stats().adds), (0, 1));
    done(&queue, &"foo");
    clock.advance(HOUR);
    assert!(holds_nothing(&queue.stats()));
}

#[test]
fn waiting_items_are_not_in_the_length() {
    let (queue, _clock) = queue();
    for (key, delay) in [("foo", 60), ("baz", 0), ("bar", 60), ("bal", 0)] {
        queue.add_with(key, after(SECOND * delay)).unwrap();
    }
    assert_eq!((queue.ready_len(), queue.stats().depth()), (2, 2));
    assert_eq!(depths(&queue), [(0, 2)]);
}

/// After upstream's `ShutDown`, `Get` returns at once, and the queued keys are lost. This is `stop_now`, which returns them. `shut_down` hands them out
/// first, like client-go's `ShutDown`.
#[test]
fn get_after_shutdown() {
    let (queue, _clock) = queue();
    queue.add("baz").unwrap();
    let left = queue.stop_now();
    assert_eq!(left.ready, ["baz"]);
    assert_eq!(queue.add_with("foo", after(SECOND)).unwrap_err().kind(), AddErrorKind::ShutDown);
    for _ in 0..2 {
        assert!(queue.blocking_get().is_none() && block_on(queue.get()).is_none());
    }

    let (queue, _clock) = self::queue();
    queue.add("baz").unwrap();
    queue.shut_down();
    assert_eq!(queue.add_with("foo", after(SECOND)).unwrap_err().kind(), AddErrorKind::ShutDown);
    assert_eq!(*queue.blocking_get().unwrap(), "baz");
}

/// In each round, every getter gets as many keys as it asks for.
#[test]
fn returns_many_items() {
    let queue = Queue::builder().order(Priority::new().strict()).build();
    let mut random = Random::new(7);
    for _ in 0..20 {
        for key in 0..1000_u32 {
            let value = random.below(100) as i8;
            let delay = Duration::from_micros(value.unsigned_abs().into());
            queue.add_with(key, if value < 10 { after(delay) } else { at(value) }).unwrap();
        }
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..50).for_each(|_| queue.blocking_get().unwrap().done()));
            }
        });
        assert!(holds_nothing(&queue.stats()));
    }
    queue.check().unwrap();
}

#[test]
fn counts_an_item_that_was_added_with_after_and_then_without() {
    let (queue, _clock) = queue();
    queue.add_with("foo", after(HOUR)).unwrap();
    assert_eq!((queue.stats().depth(), depths(&queue)), (0, vec![]));
    queue.add("foo").unwrap();
    assert_eq!((queue.stats().depth(), depths(&queue)), (1, vec![(0, 1)]));
    assert_eq!(get(&queue).0, "foo");
    assert_eq!((queue.stats().depth(), depths(&queue)), (0, vec![]));
    assert_eq!(queue.stats().adds, 1);
}

#[test]
fn counts_a_waiting_item_that_is_raised() {
    let (queue, _clock) = queue();
    queue.add_with("foo", both(0, HOUR)).unwrap();
    assert_eq!((queue.stats().depth(), depths(&queue)), (0, vec![]));
    queue.add_with("foo", at(1)).unwrap();
    assert_eq!((queue.stats().depth(), depths(&queue)), (1, vec![(1, 1)]));
    assert_eq!(get(&queue), ("foo", 1));
    assert_eq!((queue.stats().depth(), depths(&queue)), (0, vec![]));
}

#[test]
fn fifo_in_the_new_priority() {
    let (queue, _clock) = queue();
    queue.add_with("foo", at(0)).unwrap();
    queue.add_with("bar", at(1)).unwrap();
    queue.add_with("foo", at(1)).unwrap();
    assert_eq!(queue.ready_len(), 2);
    for (left, expected) in [(1, "bar"), (0, "foo")] {
        assert_eq!((get(&queue), queue.ready_len()), ((expected, 1), left));
    }
}

/// Random adds and many consumers: no key is leased twice, and a key has the highest priority of its adds since its last hand-out.
#[test]
fn fuzz_priority_queue() {
    const KEYS: usize = 50;
    let queue = Queue::builder().order(Priority::new().strict()).build();
    let expected = Mutex::new(BTreeMap::<usize, i8>::new());
    let out: Vec<_> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    let producers_run = AtomicUsize::new(10);
    thread::scope(|scope| {
        for seed in 0..10 {
            let (queue, expected, producers_run) = (&queue, &expected, &producers_run);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..300 {
                    let key = random.below(KEYS as u64) as usize;
                    let priority = random.below(256) as u8 as i8;
                    let delay = Duration::from_micros(random.below(4) * random.below(25));
                    let mut expected = expected.lock().unwrap();
                    queue.add_with(key, both(priority, delay)).unwrap();
                    let highest = expected.entry(key).or_insert(priority);
                    *highest = priority.max(*highest);
                }
                producers_run.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for _ in 0..20 {
            scope.spawn(|| {
                loop {
                    let lease = {
                        let mut expected = expected.lock().unwrap();
                        match queue.try_get() {
                            Ok(lease) => {
                                assert_eq!(expected.remove(&*lease), queue.priority(&*lease));
                                lease
                            }
                            Err(_) if expected.is_empty() && producers_run.load(Ordering::SeqCst) == 0 => {
                                return;
                            }
                            Err(_) => {
                                drop(expected);
                                thread::yield_now();
                                continue;
                            }
                        }
                    };
                    assert_eq!(out[*lease].fetch_add(1, Ordering::SeqCst), 0, "a key is leased twice");
                    assert!(queue.stats().depth() <= KEYS);
                    assert_eq!(out[*lease].fetch_sub(1, Ordering::SeqCst), 1);
                    lease.done();
                }
            });
        }
    });
    assert!(holds_nothing(&queue.stats()));
    queue.check().unwrap();
}

#[test]
fn high_priorities_before_low_ones() {
    const EACH: u32 = 1000;
    let priorities = [10, 5, 0, -5, -10];
    for delay in [Duration::ZERO, SECOND] {
        let (queue, clock) = queue();
        for number in 0..EACH {
            for priority in priorities {
                queue.add_with((priority, number), both(priority, delay)).unwrap();
            }
        }
        clock.advance(delay);
        for priority in priorities {
            for number in 0..EACH {
                assert_eq!(get(&queue), ((priority, number), priority));
            }
        }
        let adds = u64::from(EACH) * 5;
        assert_eq!(counts(&queue), (0, adds, if delay.is_zero() { 0 } else { adds }));
    }
}

#[test]
fn returned_only_after_after() {
    let (queue, clock) = queue();
    let mut getter = Task::waiting(queue.get());
    queue.add_with("foo", after(SECOND)).unwrap();
    assert_eq!(clock.next_alarm(), Some(Nanos::ZERO + SECOND));
    assert!(getter.poll().is_pending());
    clock.advance(SECOND);
    assert!(getter.was_woken());
    assert_eq!(getter.finish().unwrap().detach(), "foo");
    assert_eq!(counts(&queue), (0, 1, 1));
}

#[test]
fn a_due_high_priority_before_a_low_one() {
    let (queue, clock) = queue();
    queue.add_with("foo", at(-100)).unwrap();
    queue.add_with("prio", after(SECOND)).unwrap();
    clock.advance(SECOND);
    assert_eq!(get(&queue), ("prio", 0));
    assert_eq!((counts(&queue), depths(&queue)), ((1, 2, 1), vec![(-100, 1)]));
}

#[test]
fn returned_as_soon_as_possible() {
    let (queue, _clock) = queue();
    let mut getter = Task::waiting(queue.get());
    queue.add("foo").unwrap();
    assert!(getter.was_woken());
    assert_eq!(getter.finish().unwrap().detach(), "foo");
    assert_eq!(counts(&queue), (0, 1, 0));
}

#[test]
fn a_waiting_item_that_is_added_without_after() {
    let (queue, _clock) = queue();
    let mut getter = Task::waiting(queue.get());
    queue.add_with("foo", after(SECOND * 60)).unwrap();
    assert!(getter.poll().is_pending());
    queue.add("foo").unwrap();
    assert!(getter.was_woken());
    assert_eq!(getter.finish().unwrap().detach(), "foo");
    assert_eq!(counts(&queue), (0, 1, 1));
}

/// Both deadlines have passed when the clock is read; the earlier one is first.
#[test]
fn several_afters_in_order() {
    let (queue, clock) = queue();
    let mut first = Task::waiting(queue.get());
    queue.add_with("foo", after(SECOND)).unwrap();
    queue.add_with("bar", after(Duration::from_millis(200))).unwrap();
    assert_eq!(clock.next_alarm(), Some(Nanos::ZERO + Duration::from_millis(200)));
    assert!(first.poll().is_pending());
    clock.advance(SECOND);
    assert!(first.was_woken());
    assert_eq!(first.finish().unwrap().detach(), "bar");
    assert_eq!(get(&queue).0, "foo");
    assert_eq!(queue.stats().adds, 2);
}

#[test]
fn a_getter_is_unblocked_by_shutdown() {
    let (queue, _clock) = queue::<u32>();
    let mut getter = Task::waiting(queue.get());
    thread::scope(|scope| {
        let thread = scope.spawn(|| queue.blocking_get().is_none());
        queue.shut_down();
        assert!(thread.join().unwrap());
    });
    assert!(getter.was_woken() && getter.finish().is_none());
}

#[test]
fn counted_once_ready() {
    let (queue, clock) = queue();
    for _ in 0..2 {
        for (key, delay) in [("foo", 500), ("baz", 0), ("bar", 500), ("bal", 0)] {
            queue.add_with(key, after(Duration::from_millis(delay))).unwrap();
        }
        assert_eq!((queue.ready_len(), queue.stats().depth(), depths(&queue)), (2, 2, vec![(0, 2)]));
        clock.advance(SECOND);
        assert_eq!((queue.ready_len(), queue.stats().depth(), depths(&queue)), (4, 4, vec![(0, 4)]));
        (0..4).for_each(|_| queue.try_get().unwrap().done());
        assert_eq!((queue.ready_len(), queue.stats().depth(), depths(&queue)), (0, 0, vec![]));
    }
    assert_eq!(queue.stats().adds, 8);
}

#[test]
fn counted_once_if_added_after_the_deadline() {
    let (queue, clock) = queue();
    queue.add_with("foo", after(Duration::from_millis(50))).unwrap();
    clock.advance(Duration::from_millis(50));
    assert_eq!((queue.ready_len(), queue.stats().depth()), (1, 1));
    assert_eq!(queue.add("foo").unwrap(), Added::Merged);
    assert_eq!((queue.ready_len(), queue.stats().depth()), (1, 1));
    assert_eq!(get(&queue).0, "foo");
    assert_eq!((queue.ready_len(), queue.stats().depth(), queue.stats().adds), (0, 0, 1));
}

#[test]
fn rate_limited_adds_do_not_affect_each_other() {
    let clock = ManualClock::new();
    let limiter = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    let builder = Queue::builder().order(Priority::new().strict()).timer(clock.timer()).limiter(limiter);
    let queue = builder.metrics(Reports::default()).build();
    // After seven failures, the next delay is 640 ms.
    for _ in 0..7 {
        queue.add_rate_limited("bar").unwrap();
        clock.set(deadline(queue.state(&"bar")));
        queue.try_get().unwrap().done();
    }
    let before = queue.stats();
    queue.add_rate_limited("foo").unwrap();
    queue.add_rate_limited("bar").unwrap();
    let mut first = Task::waiting(queue.get());
    clock.advance(Duration::from_millis(5));
    assert_eq!(first.finish().unwrap().detach(), "foo");
    let mut second = Task::waiting(queue.get());
    clock.advance(Duration::from_millis(634));
    assert!(second.poll().is_pending());
    clock.advance(Duration::from_millis(1));
    assert_eq!(second.finish().unwrap().detach(), "bar");
    let stats = queue.stats();
    assert_eq!(
        (stats.depth(), stats.adds - before.adds, stats.delayed_adds - before.delayed_adds),
        (0, 2, 2)
    );
}

fn deadline(state: KeyState) -> Nanos {
    let KeyState::Waiting(at) = state else { panic!("{state:?}") };
    at
}

/// Workers that add and get, and never end a lease. Upstream's `ShutDown`, which drops the queued keys, is `stop_now`. After a `shut_down`, a dirty key
/// whose lease never ends would keep the other workers waiting (difference `closed-means-nothing-comes`), so there the leases end.
#[test]
fn no_deadlock_on_shutdown_while_handing_out() {
    for round in 0..50 {
        let queue = Queue::<u64>::builder().order(Priority::new().strict()).build();
        let start = Barrier::new(21);
        let stops = round % 2 == 0;
        thread::scope(|scope| {
            for worker in 0..20 {
                let (queue, start) = (&queue, &start);
                scope.spawn(move || {
                    let mut random = Random::new(round * 20 + worker);
                    start.wait();
                    loop {
                        let _ = queue.add_with(random.below(1000), at(random.below(100) as i8));
                        let Some(lease) = queue.blocking_get() else { break };
                        if stops {
                            _ = lease.detach();
                        } else {
                            lease.done();
                        }
                    }
                });
            }
            start.wait();
            (0..20).for_each(|_| thread::yield_now());
            if stops {
                drop(queue.stop_now());
            } else {
                queue.shut_down();
            }
        });
        queue.check().unwrap();
    }
}

/// A thread lists the keys while their deadlines move: each record is that of one moment.
#[test]
fn keys_are_consistent_while_deadlines_move() {
    let (queue, _clock) = queue();
    let done = AtomicBool::new(false);
    let minutes = |minutes: u32| SECOND * 60 * minutes;
    queue.add_with("foo", after(HOUR)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut latest = Nanos::MAX;
            while !done.load(Ordering::SeqCst) {
                let keys = queue.keys();
                assert_eq!((keys.len(), keys[0].key), (1, "foo"));
                let at = deadline(keys[0].state);
                assert!(at <= latest, "a deadline moved back");
                latest = at;
            }
        });
        for earlier in 1..60 {
            queue.add_with("foo", after(HOUR - minutes(earlier))).unwrap();
            thread::yield_now();
        }
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(deadline(queue.state(&"foo")), Nanos::ZERO + minutes(1));
}
