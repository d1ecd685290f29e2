//! Capacity: adds that a full queue refuses, adds that wait for room, and batches of adds.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use flyball_ratelimit::Exponential;
use flyball_sync::{ManualClock, block_on};
use flyball_workqueue::{AddErrorKind, Added, AddedMany, DrainOptions, KeyState, Queue, QueueStats};
use futures_util::FutureExt;
use testkit::wakers::poll_once;

use crate::support::{TimedQueue, ns, timed, times};
use crate::task::{Task, deadline, serve};

fn bounded(keys: usize) -> (TimedQueue, ManualClock) {
    let clock = ManualClock::new();
    (Queue::builder().timer(clock.timer()).capacity(keys).build(), clock)
}

fn live(counts: QueueStats) -> usize {
    counts.ready + counts.waiting + counts.leased
}

// ---- capacity --------------------------------------------------------------------------------------------------

/// Ready, waiting and leased keys all count towards the capacity.
#[test]
fn every_state_takes_room() {
    let (queue, clock) = bounded(5);
    for key in ["leased", "dirty", "leased and waits"] {
        queue.add(key).unwrap();
    }
    let leases: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    queue.add("dirty").unwrap();
    queue.add_after("leased and waits", ns(9)).unwrap();
    queue.add("ready").unwrap();
    queue.add_after("waits", ns(9)).unwrap();
    for _ in 0..2 {
        let refused = queue.add("sixth").unwrap_err();
        assert_eq!((refused.kind(), refused.into_key()), (AddErrorKind::Full, "sixth"));
        assert_eq!(queue.add_after("sixth", ns(3)).unwrap_err().kind(), AddErrorKind::Full);
        assert_eq!(queue.state(&"sixth"), KeyState::Absent);
        clock.advance(ns(9));
    }
    queue.check().unwrap();
    drop(leases);
}

/// Only adds of absent keys need room. In a full queue, all other adds and all lease ends work as in a queue with room.
#[test]
fn a_full_queue_works_on() {
    let (queue, clock) = bounded(3);
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add_after("b", ns(10)).unwrap();
    queue.add("c").unwrap();
    assert_eq!(queue.add("a").unwrap(), Added::Dirty);
    assert_eq!(queue.add_after("b", ns(5)).unwrap(), Added::Merged);
    assert_eq!(queue.add("b").unwrap(), Added::Promoted);
    assert_eq!(queue.add("c").unwrap(), Added::Merged);
    assert!(queue.postpone(&"c", ns(7)));
    lease.retry();
    queue.try_get().unwrap().requeue_after(ns(3));
    assert_eq!(live(queue.stats()), 3);
    clock.advance(ns(7));
    assert_eq!(serve(&queue), 3, "a key was lost");
    queue.check().unwrap();
}

/// Every operation that removes a key makes room.
#[test]
fn room_comes_back() {
    type Leave = fn(&TimedQueue);
    let ways: [Leave; 5] = [
        |queue| queue.try_get().unwrap().done(),
        |queue| queue.try_get().unwrap().succeed(),
        |queue| assert!(queue.cancel(&"a")),
        |queue| {
            queue.postpone(&"a", ns(5));
            assert!(queue.cancel(&"a"));
        },
        |queue| {
            let key = queue.try_get().unwrap().detach();
            queue.done(&key).unwrap();
        },
    ];
    for leave in ways {
        let (queue, _clock) = bounded(1);
        queue.add("a").unwrap();
        assert!(queue.add("b").is_err());
        leave(&queue);
        assert_eq!(queue.add("b").unwrap(), Added::New);
    }
}

#[test]
fn a_capacity_of_zero_is_zero() {
    let (queue, _clock) = bounded(0);
    assert_eq!(queue.add("a").unwrap_err().kind(), AddErrorKind::Full);
    assert_eq!(queue.add_after("a", ns(1)).unwrap_err().kind(), AddErrorKind::Full);
    let mut waiting = Box::pin(queue.add_when_room("a"));
    assert!(poll_once(waiting.as_mut()).is_pending());
    queue.shut_down();
    assert!(poll_once(waiting.as_mut()).is_ready());
}

#[test]
fn shut_down_comes_before_full() {
    let (queue, _clock) = bounded(1);
    queue.add("a").unwrap();
    queue.shut_down();
    assert_eq!(queue.add("b").unwrap_err().kind(), AddErrorKind::ShutDown);
    assert_eq!(queue.add_after("b", ns(1)).unwrap_err().kind(), AddErrorKind::ShutDown);
    assert!(queue.add_many(["b"]).refused.iter().all(|refused| refused.kind() == AddErrorKind::ShutDown));
    assert_eq!(block_on(queue.add_when_room("b")).unwrap_err().kind(), AddErrorKind::ShutDown);
    assert_eq!(block_on(queue.add_when_room("b")).unwrap_err().kind(), AddErrorKind::ShutDown);
}

/// `add_rate_limited` counts the failure of a key even if the queue is full.
#[test]
fn a_refused_limited_add_has_counted() {
    let limiter = Exponential::new(ns(10)..=ns(100));
    let queue = Queue::builder().timer(ManualClock::new().timer()).limiter(limiter).capacity(1).build();
    queue.add("a").unwrap();
    assert_eq!(queue.add_rate_limited("b").unwrap_err().kind(), AddErrorKind::Full);
    assert_eq!((queue.num_requeues(&"b"), queue.state(&"b")), (1, KeyState::Absent));
    queue.add_rate_limited("a").unwrap();
}

#[test]
fn an_add_to_a_full_queue_never_waits() {
    let (queue, _clock) = bounded(2);
    assert_eq!(queue.add("a").unwrap(), Added::New);
    assert_eq!(queue.add("a").unwrap(), Added::Merged);
    queue.add_after("b", ns(5)).unwrap();
    assert_eq!(queue.add("b").unwrap(), Added::Promoted);
    assert_eq!(queue.add("c").unwrap_err().kind(), AddErrorKind::Full);
    let _leases = (queue.try_get().unwrap(), queue.try_get().unwrap());
    assert_eq!(queue.add("a").unwrap(), Added::Dirty);
    queue.shut_down();
    assert_eq!(queue.add("a").unwrap_err().kind(), AddErrorKind::ShutDown);
}

// ---- many at once ----------------------------------------------------------------------------------------------

fn outcome<K: Copy>(many: AddedMany<K>) -> ([usize; 4], Vec<(K, AddErrorKind)>) {
    let counts = [many.new, many.merged, many.promoted, many.dirty];
    let refused = many.refused.into_iter().map(|refused| {
        let kind = refused.kind();
        (refused.into_key(), kind)
    });
    (counts, refused.collect())
}

/// `add_many` has the same results as single adds, and keeps the order of the keys.
#[test]
fn add_many_returns_the_result_of_each_key() {
    let (queue, _clock) = bounded(6);
    queue.add("leased").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add_after("waits", ns(9)).unwrap();
    queue.add("ready").unwrap();
    let many = queue.add_many(["x", "leased", "waits", "ready", "x", "leased", "y", "z", "w", "x", "v"]);
    assert_eq!(outcome(many), ([3, 4, 1, 1], vec![("w", AddErrorKind::Full), ("v", AddErrorKind::Full)]));
    lease.done();
    let leases: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    assert_eq!(crate::task::keys(&leases), ["ready", "x", "waits", "y", "z", "leased"]);
    queue.check().unwrap();
}

#[test]
fn add_many_of_no_keys_and_to_a_closed_queue() {
    let (queue, _clock) = timed();
    assert_eq!(outcome(queue.add_many([])), ([0; 4], vec![]));
    queue.shut_down();
    let refused =
        vec![("a", AddErrorKind::ShutDown), ("b", AddErrorKind::ShutDown), ("a", AddErrorKind::ShutDown)];
    assert_eq!(outcome(queue.add_many(["a", "b", "a"])), ([0; 4], refused));
}

/// `add_many` wakes one getter for each added key.
#[test]
fn add_many_wakes_as_many_getters() {
    let queue = Queue::new();
    let mut getters: Vec<_> = (0..5).map(|_| Task::waiting(queue.get())).collect();
    _ = queue.add_many([1, 2, 3, 2, 1]);
    assert_eq!(getters.iter().filter(|getter| getter.was_woken()).count(), 3);
    let leases: Vec<_> = getters
        .iter_mut()
        .filter(|getter| getter.was_woken())
        .map(|getter| getter.finish().unwrap())
        .collect();
    assert_eq!(crate::task::keys(&leases), [1, 2, 3]);
}

/// The iterator passed to `add_many` may use a different queue, or the queue itself, because it runs before the queue is locked.
#[test]
fn add_many_from_the_queue_itself() {
    let queue = Queue::new();
    queue.add(0).unwrap();
    let mut next = 0;
    let many = queue.add_many(std::iter::from_fn(|| {
        queue.try_get().ok().map(|lease| {
            lease.done();
            next += 1;
            next
        })
    }));
    assert_eq!((many.new, queue.ready_len()), (1, 1));
}

// ---- waiting for room ------------------------------------------------------------------------------------------

#[test]
fn adds_without_waiting_if_there_is_room() {
    let (queue, _clock) = bounded(2);
    assert_eq!(queue.add_when_room("a").now_or_never().unwrap().unwrap(), Added::New);
    assert_eq!(block_on(queue.add_when_room("b")).unwrap(), Added::New);
    assert_eq!(queue.add_when_room("a").now_or_never().unwrap().unwrap(), Added::Merged, "full, but present");
    assert_eq!(block_on(queue.add_when_room("b")).unwrap(), Added::Merged);
    let unbounded = Queue::new();
    for key in 0..1_000 {
        // The future may complete only at its second poll, because it sometimes yields to other tasks at the first.
        assert_eq!(block_on(unbounded.add_when_room(key)).unwrap(), Added::New);
    }
}

/// Adders get room in FIFO order, one for each free slot.
#[test]
fn room_is_given_in_fifo_order() {
    let (queue, _clock) = bounded(2);
    _ = queue.add_many(["a", "b"]);
    let mut adders: Vec<_> = ["c", "d", "e"].map(|key| Task::waiting(queue.add_when_room(key))).into();
    assert_eq!(queue.stats().ready, 2, "a waiting future has added its key");
    let (a, b) = (queue.try_get().unwrap(), queue.try_get().unwrap());
    assert!(
        adders.iter().all(|adder| !adder.was_woken()),
        "an adder was woken although the leased keys take all room"
    );
    a.done();
    assert_eq!(adders.iter().map(Task::was_woken).collect::<Vec<_>>(), [true, false, false]);
    b.done();
    assert_eq!(adders.iter().map(Task::was_woken).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(adders.remove(1).finish().unwrap(), Added::New);
    assert_eq!(adders.remove(0).finish().unwrap(), Added::New);
    assert!(adders[0].poll().is_pending());
    assert_eq!(*queue.try_get().unwrap(), "d");
    queue.check().unwrap();
}

/// If a different add takes the room first, the woken adder waits again, and is woken when there is room the next time.
#[test]
fn waits_again_if_another_add_takes_the_room() {
    let (queue, _clock) = bounded(1);
    queue.add("a").unwrap();
    let mut adder = Task::waiting(queue.add_when_room("b"));
    for _ in 0..3 {
        queue.try_get().unwrap().done();
        assert!(adder.was_woken());
        queue.add("a").unwrap();
        assert!(adder.poll().is_pending());
    }
    queue.try_get().unwrap().done();
    assert!(adder.was_woken());
    assert_eq!(adder.finish().unwrap(), Added::New);
}

/// If the same key is added meanwhile, the adder needs no room.
#[test]
fn an_adder_whose_key_was_added_meanwhile() {
    let (queue, _clock) = bounded(2);
    _ = queue.add_many(["a", "b"]);
    let mut adder = Task::waiting(queue.add_when_room("c"));
    queue.try_get().unwrap().done();
    assert_eq!(queue.add("c").unwrap(), Added::New);
    assert!(adder.was_woken());
    assert_eq!(adder.finish().unwrap(), Added::Merged);
    queue.check().unwrap();
}

/// Every kind of shutdown refuses the adders that wait for room.
#[test]
fn shutdown_refuses_waiting_adders() {
    let ends: [fn(&TimedQueue); 4] = [
        |queue| queue.shut_down(),
        |queue| drop(queue.drain(DrainOptions::unlimited()).now_or_never()),
        |queue| drop(queue.drain(DrainOptions::serve_waiting(ns(100))).now_or_never()),
        |queue| drop(queue.stop_now()),
    ];
    for end in ends {
        let (queue, _clock) = bounded(1);
        queue.add("a").unwrap();
        let mut adders = ["b", "c"].map(|key| Task::waiting(queue.add_when_room(key)));
        let blocked = thread::scope(|scope| {
            let blocked = scope.spawn(|| block_on(queue.add_when_room("d")));
            end(&queue);
            blocked.join().unwrap()
        });
        assert_eq!(blocked.unwrap_err().kind(), AddErrorKind::ShutDown);
        for (adder, key) in adders.iter_mut().zip(["b", "c"]) {
            assert!(adder.was_woken());
            let refused = adder.finish().unwrap_err();
            assert_eq!((refused.kind(), refused.into_key()), (AddErrorKind::ShutDown, key));
        }
    }
}

/// A blocked adder gets room when a delayed key becomes Ready and is served.
#[test]
fn a_blocked_adder_gets_its_room() {
    for _ in 0..50 {
        let (queue, clock) = bounded(1);
        queue.add_after("a", ns(5)).unwrap();
        thread::scope(|scope| {
            let blocked = scope.spawn(|| block_on(queue.add_when_room("b")));
            clock.advance(ns(5));
            queue.blocking_get().unwrap().done();
            assert_eq!(blocked.join().unwrap().unwrap(), Added::New);
        });
        assert_eq!(queue.state(&"b"), KeyState::Ready);
    }
}

/// A key that is given up makes room, like any other key that leaves the queue.
#[test]
fn a_key_that_is_given_up_makes_room() {
    let queue = Queue::builder()
        .timer(ManualClock::new().timer())
        .limiter(Exponential::new(ns(10)..=ns(100)))
        .capacity(1)
        .give_up_after(times(1), |_, _| {})
        .build();
    queue.add("a").unwrap();
    let mut adder = Task::waiting(queue.add_when_room("b"));
    queue.try_get().unwrap().retry();
    assert!(adder.was_woken());
    adder.finish().unwrap();
    assert!(queue.cancel(&"b"));
    queue.add_after("a", ns(10)).unwrap();
    assert_eq!(deadline(&queue, "a"), 10);
}

/// Blocking and async producers run beside workers: each key is served once, and the queue never exceeds its capacity.
#[test]
fn producers_wait_and_workers_make_room() {
    const EACH: u32 = 1_000;
    const ROOM: usize = 3;
    let queue: Queue<u32> = Queue::builder().capacity(ROOM).build();
    let (served, most) = (Mutex::new(BTreeSet::new()), AtomicUsize::new(0));
    thread::scope(|scope| {
        let producers: Vec<_> = (0..3)
            .map(|producer| {
                let queue = &queue;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let key = producer * EACH + number;
                        assert_eq!(block_on(queue.add_when_room(key)).unwrap(), Added::New);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(lease) = queue.blocking_get() {
                    most.fetch_max(live(queue.stats()), Ordering::SeqCst);
                    assert!(served.lock().unwrap().insert(*lease), "a key was served twice");
                    lease.done();
                }
            });
        }
        for producer in producers {
            producer.join().unwrap();
        }
        queue.shut_down();
    });
    assert_eq!(served.lock().unwrap().len(), 3 * EACH as usize);
    assert!((1..=ROOM).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    queue.check().unwrap();
}
