//! `shut_down`, drains and `stop_now`, with keys in every state and with several callers: no key is lost or handed out twice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use flyball_sync::{Nanos, block_on};
use flyball_workqueue::{DrainOptions, KeyState, LeaseOutcome, Leftovers, Queue, TryGetError};
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

use crate::support::{backoff, ns, timed};
use crate::task::Task;

fn parts<K: Ord>(left: Leftovers<K>) -> (Vec<K>, Vec<K>, Vec<K>) {
    let Leftovers { ready, waiting, mut leased, .. } = left;
    leased.sort();
    (ready, waiting, leased)
}

/// Once a drain that serves delayed keys has reached its limit, the queue serves no more of them, even if the clock jumps back.
#[test]
fn a_drain_at_its_limit_has_ended_for_good() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(100))));
    clock.set(Nanos::new(100));
    assert_eq!(parts(drain.finish()), (vec![], vec![], vec!["a"]));
    clock.set(Nanos::new(50));
    lease.requeue_after(ns(10));
    clock.set(Nanos::new(60));
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
    queue.check().unwrap();
}

/// A shutdown wakes every task that waits for a key, even while a dirty key keeps the queue open: the controller's worker that collects a batch is
/// such a task, and then runs its batch.
#[test]
fn a_shutdown_wakes_every_getter() {
    let (queue, _clock) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap(); // dirty, so the queue stays open
    let mut getters = [(); 3].map(|()| Task::waiting(queue.get()));
    queue.shut_down();
    for getter in &mut getters {
        assert!(getter.was_woken() && getter.poll().is_pending());
    }
    lease.done();
    let served = getters.iter().position(Task::was_woken).expect("one getter is woken for the key");
    getters[served].finish().expect("the key is handed out").done();
    for (_, getter) in getters.iter_mut().enumerate().filter(|(at, _)| *at != served) {
        assert!(getter.was_woken() && getter.finish().is_none());
    }
}

#[test]
fn a_refused_key_is_returned() {
    let (queue, _clock) = timed();
    queue.shut_down();
    assert_eq!(queue.add("plain").unwrap_err().into_key(), "plain");
    assert_eq!(queue.add_after("late", ns(5)).unwrap_err().into_key(), "late");
    assert_eq!(queue.add_rate_limited("limited").unwrap_err().into_key(), "limited");
    assert!(crate::support::holds_nothing(&queue.stats()));
}

#[test]
fn the_backlog_comes_out_in_order() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    queue.add_after("b", ns(3)).unwrap();
    queue.add_after("never", ns(9)).unwrap();
    clock.advance(ns(3));
    queue.add("c").unwrap();
    queue.shut_down();
    clock.advance(ns(100));
    for key in ["a", "b", "c"] {
        let lease = queue.try_get().unwrap();
        assert_eq!(*lease, key);
        lease.done();
    }
    assert!(matches!(queue.try_get(), Err(TryGetError::Closed)));
    assert!(
        matches!(queue.state(&"never"), KeyState::Waiting(_)),
        "the key was handed out although its deadline is after the shutdown"
    );
    assert_eq!(parts(queue.stop_now()), (vec![], vec!["never"], vec![]));
}

/// A key that was dirty before the shutdown runs again. An add after the shutdown is refused. A leased key that was added with a delay does not
/// become dirty at its deadline.
#[test]
fn dirty_marks_and_leases() {
    let (queue, clock) = timed();
    for key in ["clean", "dirty", "waits"] {
        queue.add(key).unwrap();
    }
    let leases: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    queue.add("dirty").unwrap();
    queue.add_after("waits", ns(5)).unwrap();
    queue.shut_down();
    assert!(queue.add("clean").is_err());
    clock.advance(ns(50));
    assert!(matches!(queue.try_get(), Err(TryGetError::Empty)), "closed although a dirty key is leased");
    assert!(matches!(queue.state(&"waits"), KeyState::LeasedWaiting(_)));
    for lease in leases {
        lease.done();
    }
    let again = queue.try_get().unwrap();
    assert_eq!(*again, "dirty");
    assert!(matches!(queue.try_get(), Err(TryGetError::Closed)));
    drop(again);
    let (ready, mut waiting, leased) = parts(queue.stop_now());
    waiting.sort_unstable();
    assert_eq!((ready, waiting, leased), (vec![], vec!["dirty", "waits"], vec![]));
}

/// After the shutdown, leases end with every outcome. A key whose outcome would normally make it Ready again is not handed out, but is one of the
/// leftovers.
#[test]
fn late_outcomes_are_leftovers() {
    let (queue, clock) = backoff();
    let keys = ["dropped", "retry", "least", "soon", "later", "done", "succeed"];
    for key in keys {
        queue.add(key).unwrap();
    }
    let mut leases: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
    assert!(poll_once(drain.as_mut()).is_pending());
    leases.pop().unwrap().succeed();
    leases.pop().unwrap().done();
    leases.pop().unwrap().end(LeaseOutcome::DoneAndRequeueAfter(ns(9)));
    leases.pop().unwrap().requeue_after(Duration::ZERO);
    leases.pop().unwrap().end(LeaseOutcome::Failed { at_least: ns(9) });
    leases.pop().unwrap().retry();
    assert!(poll_once(drain.as_mut()).is_pending());
    drop(leases);
    clock.advance(Duration::from_secs(9));
    assert!(matches!(queue.try_get(), Err(TryGetError::Closed)));
    let Poll::Ready(left) = poll_once(drain.as_mut()) else { panic!("nothing is ready or leased") };
    let (ready, waiting, leased) = parts(left);
    assert!(ready.is_empty() && leased.is_empty());
    assert_eq!(waiting[0], "soon");
    assert_eq!(waiting.len(), 5);
    assert!(waiting.contains(&"later") && waiting.contains(&"least"));
    assert!(waiting.contains(&"retry") && waiting.contains(&"dropped"));
}

#[test]
fn a_queue_without_time_keeps_late_failures() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.shut_down();
    lease.retry();
    assert!(matches!(queue.try_get(), Err(TryGetError::Closed)));
    assert_eq!(parts(block_on(queue.drain(DrainOptions::unlimited()))), (vec![], vec!["a"], vec![]));
}

#[test]
fn stop_names_everything_once() {
    let (queue, _clock) = timed();
    for key in ["leased", "dirty", "waits", "ready", "also"] {
        queue.add(key).unwrap();
    }
    let leases: Vec<_> = (0..3).map(|_| queue.try_get().unwrap()).collect();
    queue.add("dirty").unwrap();
    queue.add_after("waits", ns(9)).unwrap();
    queue.add_after("later", ns(9)).unwrap();
    queue.add_after("sooner", ns(8)).unwrap();
    let left = parts(queue.stop_now());
    assert_eq!(left, (vec!["ready", "also"], vec!["sooner", "later"], vec!["dirty", "leased", "waits"]));
    assert_eq!(parts(queue.stop_now()), (vec![], vec![], vec!["dirty", "leased", "waits"]));
    assert!(matches!(queue.try_get(), Err(TryGetError::Closed)));
    let Poll::Ready(left) = poll_once(Box::pin(queue.drain(DrainOptions::unlimited())).as_mut()) else {
        panic!("the drain of a stopped queue waits")
    };
    assert_eq!(parts(left), (vec![], vec![], vec!["dirty", "leased", "waits"]));
    for lease in leases {
        lease.retry();
    }
    assert!(crate::support::holds_nothing(&queue.stats()));
    assert_eq!(queue.state(&"dirty"), KeyState::Absent);
}

/// The shutdown of a queue without keys wakes every waiting getter immediately.
#[test]
fn shutdown_wakes_every_getter() {
    for stop in [false, true] {
        let queue: Queue<u32> = Queue::new();
        let mut getters: Vec<_> = (0..5)
            .map(|_| {
                let (counting, waker) = Counting::waker();
                let mut get = Box::pin(queue.get());
                assert!(poll_with(get.as_mut(), &waker).is_pending());
                (get, counting, waker)
            })
            .collect();
        if stop {
            drop(queue.stop_now());
        } else {
            queue.shut_down();
        }
        for (get, counting, waker) in &mut getters {
            assert_eq!(counting.wakes(), 1);
            assert!(matches!(poll_with(get.as_mut(), waker), Poll::Ready(None)));
        }
    }
}

/// Two getters wait for a dirty key. They are woken when its lease ends, or when the queue closes because the key is cancelled.
#[test]
fn the_end_of_a_dirty_lease_wakes_a_getter() {
    for cancel in [true, false] {
        let queue = Queue::new();
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        queue.add("a").unwrap();
        queue.shut_down();
        let (counting, waker) = Counting::waker();
        let (other, other_waker) = Counting::waker();
        let (mut get, mut second) = (Box::pin(queue.get()), Box::pin(queue.get()));
        assert!(poll_with(get.as_mut(), &waker).is_pending());
        assert!(poll_with(second.as_mut(), &other_waker).is_pending());
        if cancel {
            assert!(queue.cancel(&"a"));
            assert_eq!((counting.wakes(), other.wakes()), (1, 1));
            assert!(matches!(poll_with(get.as_mut(), &waker), Poll::Ready(None)));
            lease.done();
        } else {
            lease.done();
            let Poll::Ready(Some(again)) = poll_with(get.as_mut(), &waker) else {
                panic!("the dirty key is not Ready")
            };
            assert_eq!(*again, "a");
            // No further key can become Ready, so the other getter must be woken.
            assert!(other.wakes() >= 1);
        }
        assert!(matches!(poll_with(second.as_mut(), &other_waker), Poll::Ready(None)));
    }
}

/// Cancelling the last key completes a drain.
#[test]
fn a_cancel_ends_a_drain() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let (counting, waker) = Counting::waker();
    let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
    assert!(poll_with(drain.as_mut(), &waker).is_pending());
    assert!(queue.cancel(&"a"));
    assert_eq!(counting.wakes(), 1);
    assert!(poll_with(drain.as_mut(), &waker).is_ready());
}

/// `stop_now` completes a drain that waits for Ready keys.
#[test]
fn a_stop_ends_a_drain() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let (counting, waker) = Counting::waker();
    let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
    assert!(poll_with(drain.as_mut(), &waker).is_pending());
    assert_eq!(parts(queue.stop_now()), (vec!["a"], vec![], vec![]));
    assert_eq!(counting.wakes(), 1);
    assert!(poll_with(drain.as_mut(), &waker).is_ready());
}

/// A `shut_down` ends the wait of every drain that has begun, with whatever is left. The backlog is still handed out.
#[test]
fn a_shut_down_ends_the_wait_of_a_drain() {
    let (queue, clock) = timed();
    _ = queue.add_many(["a", "b"]);
    queue.add_after("c", ns(20)).unwrap();
    let a = queue.try_get().unwrap();
    for options in [
        DrainOptions::unlimited(),
        DrainOptions::within(Duration::from_secs(60)),
        DrainOptions::serve_waiting(ns(50)),
    ] {
        let mut drains = [Task::waiting(queue.drain(options)), Task::waiting(queue.drain(options))];
        queue.shut_down();
        for drain in &mut drains {
            assert!(drain.was_woken());
            assert_eq!(parts(drain.finish()), (vec!["b"], vec!["c"], vec!["a"]));
        }
        assert_eq!(clock.next_alarm(), None, "an alarm for a wait that has ended");
        queue.check().unwrap();
    }
    a.done();
    queue.try_get().unwrap().done();
    assert!(matches!(queue.try_get(), Err(TryGetError::Closed)));
}

/// A drain waits for the work although the queue was shut down before it, and although other drains begin after it. A drain that was not awaited has
/// not begun.
#[test]
fn a_drain_outlives_earlier_shut_downs_and_later_drains() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let a = queue.try_get().unwrap();
    let mut late = Task::new(queue.drain(DrainOptions::unlimited()));
    queue.shut_down();
    let mut first = Task::waiting(queue.drain(DrainOptions::unlimited()));
    let others = [
        DrainOptions::unlimited(),
        DrainOptions::within(Duration::from_secs(60)),
        DrainOptions::serve_waiting(Duration::from_secs(60)),
    ];
    let _others = others.map(|options| Task::waiting(queue.drain(options)));
    assert!(late.poll().is_pending());
    assert!(!first.was_woken() && first.poll().is_pending());
    a.done();
    assert!(first.was_woken() && late.was_woken());
    assert!(first.finish().is_empty() && late.finish().is_empty());
}

/// The first signal drains, the second one ends the program: also if a thread drains.
#[test]
fn a_shut_down_ends_the_wait_of_a_draining_thread() {
    for options in [DrainOptions::unlimited(), DrainOptions::serve_waiting(Duration::from_secs(3600))] {
        let queue = Queue::new();
        _ = queue.add_many(["a", "b"]);
        let a = queue.try_get().unwrap();
        thread::scope(|scope| {
            let drains = [
                scope.spawn(|| queue.blocking_drain(options)),
                scope.spawn(|| queue.blocking_drain(options)),
            ];
            while !queue.is_shutting_down() {
                thread::yield_now();
            }
            // The second thread may begin its drain after a shutdown, which then does not end it.
            while drains.iter().any(|drain| !drain.is_finished()) {
                queue.shut_down();
                thread::yield_now();
            }
            for drain in drains {
                assert_eq!(parts(drain.join().unwrap()), (vec!["b"], vec![], vec!["a"]));
            }
        });
        a.done();
        assert_eq!(*queue.try_get().unwrap(), "b");
    }
}

/// Dropping one of several drains does not affect the others.
#[test]
fn several_drains() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let mut drains: Vec<_> = (0..4)
        .map(|_| {
            let (counting, waker) = Counting::waker();
            let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
            assert!(poll_with(drain.as_mut(), &waker).is_pending());
            (drain, counting)
        })
        .collect();
    drop(drains.remove(1));
    lease.retry();
    for (drain, counting) in &mut drains {
        assert_eq!(counting.wakes(), 1);
        let Poll::Ready(left) = poll_once(drain.as_mut()) else { panic!("nothing is left to wait for") };
        assert_eq!(parts(left), (vec![], vec!["a"], vec![]), "a caller did not receive the leftovers");
    }
}

#[test]
fn drain_timeout_names_what_is_left() {
    let (queue, _clock) = timed();
    for key in ["leased", "ready"] {
        queue.add(key).unwrap();
    }
    queue.add_after("waits", ns(9)).unwrap();
    let lease = queue.try_get().unwrap();
    let left = parts(queue.blocking_drain(DrainOptions::within(Duration::ZERO)));
    assert_eq!(left, (vec!["ready"], vec!["waits"], vec!["leased"]));
    assert!(queue.is_shutting_down());
    // The keys are still in the queue after the drain has timed out, and the backlog is handed out.
    assert_eq!(*queue.try_get().unwrap(), "ready");
    lease.done();
}

/// A blocking drain, with or without a time limit, completes with the last lease.
#[test]
fn a_blocking_drain_ends_with_the_last_lease() {
    for _ in 0..50 {
        let queue = Queue::new();
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        thread::scope(|scope| {
            let drain = scope.spawn(|| queue.blocking_drain(DrainOptions::within(Duration::from_secs(3600))));
            lease.done();
            assert_eq!(parts(drain.join().unwrap()), (vec![], vec![], vec![]));
        });
    }
}

/// Several threads call `shut_down`, drains and `stop_now` concurrently with producers and workers.
#[test]
fn all_ends_at_once() {
    for round in 0..50 {
        let queue: Queue<u32> = Queue::new();
        for key in 0..20 {
            queue.add(key).unwrap();
        }
        let start = Barrier::new(6);
        let (mut handed_out, mut left_over) = (0, 0);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|worker| {
                    let (queue, start) = (&queue, &start);
                    scope.spawn(move || {
                        start.wait();
                        let mut taken = 0;
                        while let Some(lease) =
                            if worker == 0 { queue.blocking_get() } else { block_on(queue.get()) }
                        {
                            taken += 1;
                            lease.done();
                        }
                        taken
                    })
                })
                .collect();
            let ends: Vec<_> = (0..4)
                .map(|end| {
                    let (queue, start) = (&queue, &start);
                    scope.spawn(move || {
                        start.wait();
                        match (end + round) % 4 {
                            0 => queue.shut_down(),
                            1 => drop(block_on(queue.drain(DrainOptions::unlimited()))),
                            2 => drop(queue.blocking_drain(DrainOptions::within(Duration::from_secs(3600)))),
                            _ => return queue.stop_now().ready.len(),
                        }
                        0
                    })
                })
                .collect();
            handed_out = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
            left_over = ends.into_iter().map(|end| end.join().unwrap()).sum();
        });
        assert_eq!(handed_out + left_over, 20, "a key was lost or handed out twice");
        assert!(crate::support::holds_nothing(&queue.stats()));
        queue.check().unwrap();
    }
}

/// A queue that stayed paused after its shutdown would keep its workers waiting for ever.
#[test]
fn a_drain_whose_wake_up_panics_has_resumed_the_queue() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    queue.pause();
    let waker = Waker::from(Arc::new(Panicking));
    let mut getter = Box::pin(queue.get());
    assert!(poll_with(getter.as_mut(), &waker).is_pending());
    let drained = catch_unwind(AssertUnwindSafe(|| {
        queue.blocking_drain(DrainOptions::within(Duration::ZERO)).is_empty()
    }));
    assert!(drained.is_err());
    assert!(queue.is_shutting_down() && !queue.stats().paused);
    assert_eq!(*queue.try_get().unwrap(), "a");
}
