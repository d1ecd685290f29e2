//! A counterpart of each test of client-go 0.37's `util/workqueue`, then tests of cases that client-go does not cover. "Upstream" is client-go. The
//! counterparts of controller-runtime's tests are in `upstream/controller_runtime.rs`. The differences are in `tools/conformance/DIFFERENCES.md`.
//!
//! | test in `util/workqueue` | counterpart here |
//! |---|---|
//! | `TestBasic` | [`basic`] |
//! | `TestAddWhileProcessing` | [`add_while_processing`] |
//! | `TestLen` | [`len`] |
//! | `TestReinsert` | [`reinsert`] |
//! | `TestCollapse` | [`collapse`], difference `no-container-of-your-own`: nothing calls `Touch` |
//! | `TestCollapseWhileProcessing` | [`collapse_while_processing`], likewise |
//! | `TestQueueDrainageUsingShutDownWithDrain` | [`drain_waits_for_what_is_in_flight`] |
//! | `TestNoQueueDrainageUsingShutDown` | [`shut_down_does_not_wait`] |
//! | `TestForceQueueShutdownUsingShutDown` | [`shut_down_ends_a_drain`] |
//! | `TestQueueDrainageUsingShutDownWithDrainWithDirtyItem` | [`drain_serves_a_dirty_key_once_more`], difference `closed-means-nothing-comes` |
//! | `TestGarbageCollection` | [`garbage_collection`] |
//! | `TestSimpleQueue` | [`a_delayed_key_comes_once`] |
//! | `TestDeduping` | [`the_earliest_delay_wins`] |
//! | `TestAddTwoFireEarly` | [`two_fire_early`] |
//! | `TestCopyShifting` | [`shortest_first_after_one_step`] |
//! | `TestRateLimitingQueue` | [`rate_limited_adds`], difference `failure-counts-once-per-wait` |
//! | `TestMetrics` | `the_life_of_a_key` in `metrics/meanings.rs` |
//! | `TestMetricShutdown` | [`a_long_drain_can_be_watched`], difference `figures-during-a-drain` |
//! | `TestItemExponentialFailureRateLimiter`, `…OverFlow`, `TestItemFastSlowRateLimiter`, `TestMaxOfRateLimiter`, `TestWithMaxWaitRateLimiter` | the tests with the same names in `ratelimit/tests/it/upstream.rs` |
//! | `TestParallelizeUntil` | none: not part of a queue |

mod controller_runtime;
mod delay_queue;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use flyball_sync::{Clock, block_on};
use flyball_workqueue::{Added, DrainOptions, KeyState, Leftovers, Queue, TryGetError};
use testkit::wakers::{Counting, poll_once, poll_with};

use crate::support::{backoff, holds_nothing, ns, timed};
use crate::task::lists;

#[derive(Clone, Copy, Debug)]
enum End {
    ShutDown,
    Drain,
}

fn finish(queue: &Queue<u32>, end: End) {
    match end {
        End::ShutDown => queue.shut_down(),
        End::Drain => {
            let left = block_on(queue.drain(DrainOptions::unlimited()));
            assert!(left.ready.is_empty() && left.waiting.is_empty() && left.leased.is_empty());
        }
    }
}

/// `TestBasic`: many producers and consumers, once with `shut_down` and once with a drain. A key that is added after the shutdown is refused, and not
/// handed out.
#[test]
fn basic() {
    const LATE: u32 = u32::MAX;
    for end in [End::ShutDown, End::Drain] {
        let queue: Queue<u32> = Queue::new();
        let runs = Arc::new(Mutex::new(BTreeMap::<u32, usize>::new()));
        let running = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
        thread::scope(|scope| {
            let consumers: Vec<_> = (0..10)
                .map(|_| {
                    scope.spawn(|| {
                        while let Some(lease) = queue.blocking_get() {
                            assert!(running.lock().unwrap().insert(*lease), "a key is leased twice");
                            thread::yield_now();
                            assert!(running.lock().unwrap().remove(&*lease));
                            *runs.lock().unwrap().entry(*lease).or_default() += 1;
                            lease.done();
                        }
                    })
                })
                .collect();
            let producers: Vec<_> = (0..50)
                .map(|producer| {
                    let queue = &queue;
                    scope.spawn(move || {
                        for _ in 0..50 {
                            queue.add(producer).unwrap();
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            for producer in producers {
                producer.join().unwrap();
            }
            finish(&queue, end);
            assert!(queue.add(LATE).is_err());
            for consumer in consumers {
                consumer.join().unwrap();
            }
        });
        let runs = runs.lock().unwrap();
        assert_eq!(runs.len(), 50, "{end:?}");
        assert!(runs.values().all(|&times| (1..=50).contains(&times)));
        assert!(!runs.contains_key(&LATE));
        assert!(holds_nothing(&queue.stats()));
        queue.check().unwrap();
    }
}

/// `TestAddWhileProcessing`: every consumer adds each key once while it processes it; the queue is shut down meanwhile, and still closes.
#[test]
fn add_while_processing() {
    for end in [End::ShutDown, End::Drain] {
        let queue: Queue<u32> = Queue::new();
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let mut counters = BTreeMap::<u32, usize>::new();
                    while let Some(lease) = queue.blocking_get() {
                        let counter = counters.entry(*lease).or_default();
                        *counter += 1;
                        if *counter < 2 {
                            // The queue may already be shut down and refuse the add.
                            drop(queue.add(*lease));
                        }
                        lease.done();
                    }
                });
            }
            let producers: Vec<_> = (0..50)
                .map(|key| {
                    let queue = &queue;
                    scope.spawn(move || _ = queue.add(key).unwrap())
                })
                .collect();
            producers.into_iter().for_each(|producer| producer.join().unwrap());
            finish(&queue, end);
        });
        assert!(holds_nothing(&queue.stats()));
        queue.check().unwrap();
    }
}

/// `TestLen`.
#[test]
fn len() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    assert_eq!(queue.ready_len(), 1);
    queue.add("bar").unwrap();
    assert_eq!(queue.ready_len(), 2);
    queue.add("foo").unwrap();
    assert_eq!(queue.ready_len(), 2);
}

/// `TestReinsert`.
#[test]
fn reinsert() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    let lease = queue.try_get().unwrap();
    assert_eq!(queue.add("foo").unwrap(), Added::Dirty);
    assert!(matches!(queue.try_get(), Err(TryGetError::Empty)));
    lease.done();
    let lease = queue.try_get().unwrap();
    assert_eq!(*lease, "foo");
    lease.done();
    assert!(matches!(queue.try_get(), Err(TryGetError::Empty)));
    assert_eq!(queue.state(&"foo"), KeyState::Absent);
}

/// `TestCollapse`: a second add of a key neither duplicates the key nor moves it.
#[test]
fn collapse() {
    let queue = Queue::new();
    assert_eq!(queue.add("bar").unwrap(), Added::New);
    assert_eq!(queue.add("bar").unwrap(), Added::Merged);
    let first = queue.try_get().unwrap();
    assert_eq!(*first, "bar");
    first.done();
    assert!(holds_nothing(&queue.stats()));

    _ = queue.add_many(["bar", "foo", "bar"]);
    assert_eq!(*queue.try_get().unwrap().detach(), *"bar");
    assert_eq!(queue.ready_len(), 1);
}

/// `TestCollapseWhileProcessing`: two adds while the key is leased cause one more run, which starts only after the lease has ended.
#[test]
fn collapse_while_processing() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    let lease = queue.try_get().unwrap();
    assert_eq!(queue.add("foo").unwrap(), Added::Dirty);
    assert_eq!(queue.add("foo").unwrap(), Added::Merged);
    let (counting, waker) = Counting::waker();
    let mut second_worker = Box::pin(queue.get());
    assert!(poll_with(second_worker.as_mut(), &waker).is_pending());
    lease.done();
    assert_eq!(counting.wakes(), 1);
    let Poll::Ready(Some(again)) = poll_with(second_worker.as_mut(), &waker) else {
        panic!("the second run is due");
    };
    again.done();
    assert_eq!(queue.ready_len(), 0);
    assert_eq!(queue.state(&"foo"), KeyState::Absent);
}

/// `TestQueueDrainageUsingShutDownWithDrain`.
#[test]
fn drain_waits_for_what_is_in_flight() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    queue.add("bar").unwrap();
    let (foo, bar) = (queue.try_get().unwrap(), queue.try_get().unwrap());
    let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
    assert!(poll_once(drain.as_mut()).is_pending());
    foo.done();
    assert!(poll_once(drain.as_mut()).is_pending());
    bar.done();
    assert!(poll_once(drain.as_mut()).is_ready());
}

/// `TestNoQueueDrainageUsingShutDown`: a plain shutdown does not wait.
#[test]
fn shut_down_does_not_wait() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    queue.add("bar").unwrap();
    let leases = (queue.try_get().unwrap(), queue.try_get().unwrap());
    queue.shut_down();
    assert_eq!(queue.stats().leased, 2);
    drop(leases);
}

/// `TestForceQueueShutdownUsingShutDown`: a `shut_down` ends the wait of a drain, although keys are leased. (A second signal does not wait for the
/// work.)
#[test]
fn shut_down_ends_a_drain() {
    let queue = Queue::new();
    _ = queue.add_many(["foo", "bar"]);
    let leases = queue.try_get_many(2).unwrap();
    let (counting, waker) = Counting::waker();
    let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
    assert!(poll_with(drain.as_mut(), &waker).is_pending());
    assert!(matches!(queue.try_get(), Err(TryGetError::Closed)));
    queue.shut_down();
    assert_eq!(counting.wakes(), 1);
    let Poll::Ready(left) = poll_with(drain.as_mut(), &waker) else { panic!("the drain goes on") };
    assert_eq!(lists(left), (vec![], vec![], vec!["bar", "foo"]));
    assert_eq!(queue.stats().leased, 2, "only the wait has ended");
    drop(leases);
}

/// `TestQueueDrainageUsingShutDownWithDrainWithDirtyItem`.
#[test]
fn drain_serves_a_dirty_key_once_more() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("foo").unwrap();
    let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
    assert!(poll_once(drain.as_mut()).is_pending());
    assert!(matches!(queue.try_get(), Err(TryGetError::Empty)), "closed although a dirty key is leased");
    lease.done();
    assert!(poll_once(drain.as_mut()).is_pending());
    let again = queue.try_get().unwrap();
    assert!(matches!(queue.try_get(), Err(TryGetError::Closed)));
    again.done();
    assert!(poll_once(drain.as_mut()).is_ready());
}

/// `TestGarbageCollection`: the queue keeps no reference to a key that has left it.
#[test]
fn garbage_collection() {
    let queue = Queue::new();
    let key: Arc<str> = "foo".into();
    queue.add(key.clone()).unwrap();
    let lease = queue.try_get().unwrap();
    assert!(Arc::strong_count(&key) > 1);
    lease.done();
    assert_eq!(Arc::strong_count(&key), 1);
    queue.add(key.clone()).unwrap();
    assert!(queue.cancel(&key));
    assert_eq!(Arc::strong_count(&key), 1);
}

/// `TestSimpleQueue` (delaying).
#[test]
fn a_delayed_key_comes_once() {
    let (queue, clock) = timed();
    queue.add_after("foo", Duration::from_millis(50)).unwrap();
    assert_eq!(queue.ready_len(), 0);
    clock.advance(Duration::from_millis(60));
    assert_eq!(queue.ready_len(), 1);
    queue.try_get().unwrap().done();
    clock.advance(Duration::from_secs(10));
    assert_eq!(queue.ready_len(), 0);
    assert_eq!(queue.state(&"foo"), KeyState::Absent);
}

/// `TestDeduping`.
#[test]
fn the_earliest_delay_wins() {
    let (queue, clock) = timed();
    let ms = Duration::from_millis;
    assert_eq!(queue.add_after("foo", ms(50)).unwrap(), Added::New);
    assert_eq!(queue.add_after("foo", ms(70)).unwrap(), Added::Merged);
    clock.advance(ms(60));
    queue.try_get().unwrap().done();
    clock.advance(ms(20));
    assert!(queue.try_get().is_err(), "the merged delay ran the key again");
    assert_eq!(queue.add_after("foo", ms(50)).unwrap(), Added::New);
    assert_eq!(queue.add_after("foo", ms(30)).unwrap(), Added::Merged);
    clock.advance(ms(40));
    queue.try_get().unwrap().done();
    clock.advance(ms(20));
    assert!(queue.try_get().is_err(), "the later delay ran the key again");
}

/// `TestAddTwoFireEarly`.
#[test]
fn two_fire_early() {
    let (queue, clock) = timed();
    let ms = Duration::from_millis;
    queue.add_after("foo", ms(1000)).unwrap();
    queue.add_after("bar", ms(50)).unwrap();
    assert_eq!(queue.ready_len(), 0);
    clock.advance(ms(60));
    assert_eq!(queue.ready_len(), 1);
    assert_eq!(queue.try_get().unwrap().detach(), "bar");
    queue.add_after("baz", ms(2000)).unwrap();
    for (step, key) in [(1000, "foo"), (2000, "baz")] {
        clock.advance(ms(step));
        assert_eq!(queue.ready_len(), 1);
        assert_eq!(queue.try_get().unwrap().detach(), key);
    }
}

/// `TestCopyShifting`.
#[test]
fn shortest_first_after_one_step() {
    let (queue, clock) = timed();
    queue.add_after("foo", Duration::from_secs(1)).unwrap();
    queue.add_after("bar", Duration::from_millis(500)).unwrap();
    queue.add_after("zoo", Duration::from_millis(250)).unwrap();
    assert_eq!(queue.ready_len(), 0);
    clock.advance(Duration::from_secs(2));
    assert_eq!(queue.ready_len(), 3);
    for key in ["zoo", "bar", "foo"] {
        let lease = queue.try_get().unwrap();
        assert_eq!(*lease, key);
        lease.done();
    }
}

/// `TestRateLimitingQueue`: the delays are upstream's, if each failure follows the wait for the last one. Upstream counts a failure during a wait, too;
/// here, several failures within one backoff count as one.
#[test]
fn rate_limited_adds() {
    let (queue, clock) = backoff();
    let fails = |key| {
        let before = clock.now();
        queue.add_rate_limited(key).unwrap();
        let KeyState::Waiting(at) = queue.state(&key) else { panic!("{key} does not wait") };
        clock.set(at);
        queue.try_get().unwrap().done();
        at.since(before)
    };
    assert_eq!((fails("one"), fails("one"), queue.num_requeues(&"one")), (ns(10), ns(20), 2));
    assert_eq!((fails("two"), fails("two"), queue.num_requeues(&"two")), (ns(10), ns(20), 2));
    queue.forget(&"one");
    assert_eq!(queue.num_requeues(&"one"), 0);
    assert_eq!((fails("one"), queue.num_requeues(&"two")), (ns(10), 2));

    let before = clock.now();
    queue.add_rate_limited("three").unwrap();
    queue.add_rate_limited("three").unwrap();
    assert_eq!(queue.num_requeues(&"three"), 1);
    assert_eq!(queue.state(&"three"), KeyState::Waiting(before + ns(10)));
}

// ---- not covered upstream --------------------------------------------------------------------------------------
//
// Not covered here:
// - "Done without Get" and "double Done" do not compile, because ending a lease consumes it. `detached.rs` tests detached leases, with which they are
//   possible.
// - A negative delay of `AddAfter`: a `Duration` cannot be negative.
// - The bucket limiter, a base delay of 0, an overflow at 2^63, and a maximum over no limiters: see the tests of `flyball-ratelimit`. Metrics: see
//   `metrics/meanings.rs`.
// - Fairness and starvation: see `fair.rs` and `starvation.rs`. `ParallelizeUntil`: not part of a queue.

/// A drain of a queue with Ready keys and no leases: upstream's drain returns immediately, and these keys are lost.
#[test]
fn drain_waits_for_what_is_queued() {
    let queue = Queue::new();
    queue.add("idle").unwrap();
    let (counting, waker) = Counting::waker();
    let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
    assert!(poll_with(drain.as_mut(), &waker).is_pending());
    let lease = queue.try_get().unwrap();
    assert!(poll_with(drain.as_mut(), &waker).is_pending());
    lease.done();
    assert!(counting.wakes() >= 1);
    assert!(poll_with(drain.as_mut(), &waker).is_ready());
}

/// Two concurrent drains: upstream may wake only one of them.
#[test]
fn two_drains_both_end() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    let lease = queue.try_get().unwrap();
    let (first, first_waker) = Counting::waker();
    let (second, second_waker) = Counting::waker();
    let (mut one, mut two) =
        (Box::pin(queue.drain(DrainOptions::unlimited())), Box::pin(queue.drain(DrainOptions::unlimited())));
    assert!(poll_with(one.as_mut(), &first_waker).is_pending());
    assert!(poll_with(two.as_mut(), &second_waker).is_pending());
    lease.done();
    assert_eq!((first.wakes(), second.wakes()), (1, 1));
    assert!(poll_once(one.as_mut()).is_ready());
    assert!(poll_once(two.as_mut()).is_ready());
}

/// A drain of a queue with waiting keys: upstream loses these keys; here the drain returns them.
#[test]
fn drain_names_what_waits() {
    let (queue, clock) = timed();
    queue.add_after("late", ns(20)).unwrap();
    queue.add_after("soon", ns(10)).unwrap();
    queue.add_after("due", ns(5)).unwrap();
    clock.advance(ns(5));
    let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
    assert!(poll_once(drain.as_mut()).is_pending());
    queue.try_get().unwrap().done();
    let Poll::Ready(Leftovers { ready, waiting, leased, .. }) = poll_once(drain.as_mut()) else {
        panic!("nothing is ready or leased");
    };
    assert_eq!((ready, waiting, leased), (vec![], vec!["soon", "late"], vec![]));
}

/// `shut_down`, drains and `stop_now` may be called repeatedly and in any combination.
#[test]
fn every_end_is_idempotent() {
    let queue: Queue<u32> = Queue::new();
    queue.shut_down();
    queue.shut_down();
    assert!(poll_once(Box::pin(queue.drain(DrainOptions::unlimited())).as_mut()).is_ready());
    for _ in 0..2 {
        let left = queue.stop_now();
        assert!(left.ready.is_empty() && left.waiting.is_empty() && left.leased.is_empty());
    }
    queue.shut_down();
    assert!(matches!(queue.try_get(), Err(TryGetError::Closed)));
}

/// An add of a waiting key ends the wait, so the key runs once and not twice (kubernetes#126027).
#[test]
fn an_add_supersedes_the_wait() {
    for now in [false, true] {
        let (queue, clock) = timed();
        queue.add_after("foo", ns(50)).unwrap();
        let added = if now { queue.add("foo") } else { queue.add_after("foo", Duration::ZERO) };
        assert_eq!(added.unwrap(), Added::Promoted);
        queue.try_get().unwrap().done();
        clock.advance(ns(100));
        assert!(matches!(queue.try_get(), Err(TryGetError::Empty)));
    }
}

/// `add_after` with a delay of zero has the same effect as `add`.
#[test]
fn no_delay_is_an_add() {
    let (queue, _clock) = timed();
    queue.add("first").unwrap();
    assert_eq!(queue.add_after("second", Duration::ZERO).unwrap(), Added::New);
    assert_eq!(queue.state(&"second"), KeyState::Ready);
    assert_eq!(*queue.try_get().unwrap(), "first");
}

/// Keys with equal deadlines are handed out in the order of their adds.
#[test]
fn equal_deadlines_keep_order() {
    let (queue, clock) = timed();
    let keys = ["d", "b", "a", "c", "f", "e", "h", "g"];
    for key in keys {
        queue.add_after(key, ns(7)).unwrap();
    }
    clock.advance(ns(7));
    let order: Vec<_> =
        std::iter::from_fn(|| queue.try_get().ok()).map(|lease| *lease).take(keys.len()).collect();
    assert_eq!(order, keys);
}

/// A rate-limited add that is refused after shutdown counts no failure.
#[test]
fn a_refused_add_counts_no_failure() {
    let (queue, _clock) = backoff();
    queue.shut_down();
    assert!(queue.add_rate_limited("foo").is_err());
    assert_eq!(queue.num_requeues(&"foo"), 0);
}

/// Upstream's `Get` may return a key together with "shut down". Here `get` returns either a key or `None`.
#[test]
fn a_key_or_the_end() {
    let queue = Queue::new();
    queue.add("foo").unwrap();
    queue.shut_down();
    let lease = block_on(queue.get()).expect("the backlog comes first");
    lease.done();
    assert!(block_on(queue.get()).is_none());
    assert!(queue.blocking_get().is_none());
}

/// After a burst of adds has been served, the queue has dropped all keys, and keeps only the memory that it has allocated.
#[test]
fn a_burst_leaves_no_key_behind() {
    let queue = Queue::new();
    let keys: Vec<Arc<u32>> = (0..10_000).map(Arc::new).collect();
    for key in &keys {
        queue.add(key.clone()).unwrap();
    }
    while let Ok(lease) = queue.try_get() {
        lease.succeed();
    }
    assert!(keys.iter().all(|key| Arc::strong_count(key) == 1));
}

/// A shutdown releases every blocked getter.
#[test]
fn shut_down_releases_blocked_getters() {
    let queue: Queue<u32> = Queue::new();
    let (report, reports) = mpsc::channel();
    thread::scope(|scope| {
        for blocking in [true, false, true, false] {
            let (queue, report) = (queue.clone(), report.clone());
            scope.spawn(move || {
                let got = if blocking {
                    queue.blocking_get().map(|lease| *lease)
                } else {
                    block_on(queue.get()).map(|lease| *lease)
                };
                report.send(got).unwrap();
            });
        }
        queue.shut_down();
        for _ in 0..4 {
            assert_eq!(reports.recv().unwrap(), None);
        }
    });
}

/// A `forget` after a rate-limited add resets the failure count. In controller-runtime's priority queue the add is buffered, so its failure may be
/// counted after the `forget`.
#[test]
fn forget_comes_after_the_add_before_it() {
    let (queue, _clock) = backoff();
    for _ in 0..100 {
        queue.add_rate_limited("foo").unwrap();
        assert_eq!(queue.num_requeues(&"foo"), 1);
        queue.forget(&"foo");
        assert_eq!(queue.num_requeues(&"foo"), 0);
    }
    assert!(matches!(queue.state(&"foo"), KeyState::Waiting(_)), "`forget` ended the wait");
}

/// `TestMetricShutdown`: upstream does not update its gauges after the shutdown. Here, statistics are read, and are correct during a long drain.
#[test]
fn a_long_drain_can_be_watched() {
    let (queue, clock) = timed();
    queue.track_ages();
    _ = queue.add_many(["foo", "bar"]);
    let foo = queue.try_get().unwrap();
    let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
    assert!(poll_once(drain.as_mut()).is_pending());
    for hours in 1..=3 {
        clock.advance(Duration::from_secs(3600));
        let (stats, age) = (queue.stats(), Duration::from_secs(3600 * hours));
        assert_eq!((stats.oldest_ready, stats.oldest_lease, foo.age()), (Some(age), Some(age), Some(age)));
        assert_eq!((queue.stats().ready, queue.stats().leased), (1, 1));
    }
    foo.done();
    queue.try_get().unwrap().done();
    assert!(poll_once(drain.as_mut()).is_ready());
}
