//! Shut down, drain and stop in the middle of everything; several callers; nothing handed out twice or lost.

use std::sync::Barrier;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use flyball_sync::block_on;
use flyball_workqueue::{KeyState, Leftovers, Queue, TryGetError};
use testkit::wakers::{Counting, poll_once, poll_with};

use crate::support::{backoff, ns, timed};

fn parts<K: Ord>(left: Leftovers<K>) -> (Vec<K>, Vec<K>, Vec<K>) {
    let Leftovers { ready, waiting, mut leased, .. } = left;
    leased.sort();
    (ready, waiting, leased)
}

#[test]
fn a_refused_key_comes_back() {
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
    assert!(matches!(queue.state(&"never"), KeyState::Waiting(_)), "its deadline came too late");
    assert_eq!(parts(queue.stop_now()), (vec![], vec!["never"], vec![]));
}

/// A dirty mark made before still counts; one after is refused; a wait under a lease does not become one.
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
    assert!(matches!(queue.try_get(), Err(TryGetError::Empty)), "dirty comes back");
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

/// Every outcome after the end: what would come back is left over, and never handed out.
#[test]
fn late_outcomes_are_leftovers() {
    let (queue, clock) = backoff();
    let keys = ["dropped", "retry", "least", "soon", "later", "done", "succeed"];
    for key in keys {
        queue.add(key).unwrap();
    }
    let mut leases: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    let mut drain = Box::pin(queue.drain());
    assert!(poll_once(drain.as_mut()).is_pending());
    leases.pop().unwrap().succeed();
    leases.pop().unwrap().done();
    leases.pop().unwrap().done_and_requeue_after(ns(9));
    leases.pop().unwrap().succeed_and_requeue_after(Duration::ZERO);
    leases.pop().unwrap().retry_after_at_least(ns(9));
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
    assert_eq!(parts(block_on(queue.drain())), (vec![], vec!["a"], vec![]));
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
    let Poll::Ready(left) = poll_once(Box::pin(queue.drain()).as_mut()) else {
        panic!("a stop waits for nobody")
    };
    assert_eq!(parts(left), (vec![], vec![], vec!["dirty", "leased", "waits"]));
    for lease in leases {
        lease.retry();
    }
    assert!(crate::support::holds_nothing(&queue.stats()));
    assert_eq!(queue.state(&"dirty"), KeyState::Absent);
}

/// Every waiting getter learns of the end, at once if nothing is left.
#[test]
fn every_getter_is_told() {
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

/// Getters that wait for a dirty lease to come back learn of the end when it does not.
#[test]
fn getters_waiting_for_a_dirty_lease_are_told() {
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
            let Poll::Ready(Some(again)) = poll_with(get.as_mut(), &waker) else { panic!("it came back") };
            assert_eq!(*again, "a");
            // Nothing can become ready any more: the other one must not wait for ever.
            assert!(other.wakes() >= 1);
        }
        assert!(matches!(poll_with(second.as_mut(), &other_waker), Poll::Ready(None)));
    }
}

/// A cancel can be what a drain was waiting for.
#[test]
fn a_cancel_ends_a_drain() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let (counting, waker) = Counting::waker();
    let mut drain = Box::pin(queue.drain());
    assert!(poll_with(drain.as_mut(), &waker).is_pending());
    assert!(queue.cancel(&"a"));
    assert_eq!(counting.wakes(), 1);
    assert!(poll_with(drain.as_mut(), &waker).is_ready());
}

/// Stop ends a drain that waited for keys nobody worked on.
#[test]
fn a_stop_ends_a_drain() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let (counting, waker) = Counting::waker();
    let mut drain = Box::pin(queue.drain());
    assert!(poll_with(drain.as_mut(), &waker).is_pending());
    assert_eq!(parts(queue.stop_now()), (vec!["a"], vec![], vec![]));
    assert_eq!(counting.wakes(), 1);
    assert!(poll_with(drain.as_mut(), &waker).is_ready());
}

/// A drain that is dropped in the middle leaves the others undisturbed.
#[test]
fn several_drains() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let mut drains: Vec<_> = (0..4)
        .map(|_| {
            let (counting, waker) = Counting::waker();
            let mut drain = Box::pin(queue.drain());
            assert!(poll_with(drain.as_mut(), &waker).is_pending());
            (drain, counting)
        })
        .collect();
    drop(drains.remove(1));
    lease.retry();
    for (drain, counting) in &mut drains {
        assert_eq!(counting.wakes(), 1);
        let Poll::Ready(left) = poll_once(drain.as_mut()) else { panic!("nothing is left to wait for") };
        assert_eq!(parts(left), (vec![], vec!["a"], vec![]), "every caller gets the report");
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
    let left = parts(queue.blocking_drain_timeout(Duration::ZERO));
    assert_eq!(left, (vec!["ready"], vec!["waits"], vec!["leased"]));
    assert!(queue.is_shutting_down());
    // Giving up on waiting gives up no key: the backlog still comes out.
    assert_eq!(*queue.try_get().unwrap(), "ready");
    lease.done();
}

/// A blocking drain, released by the last lease, in time or not.
#[test]
fn a_blocking_drain_ends_with_the_last_lease() {
    for _ in 0..50 {
        let queue = Queue::new();
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        thread::scope(|scope| {
            let drain = scope.spawn(|| queue.blocking_drain_timeout(Duration::from_secs(3600)));
            lease.done();
            assert_eq!(parts(drain.join().unwrap()), (vec![], vec![], vec![]));
        });
    }
}

/// Every end at once, from several threads, beside producers and workers.
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
                            1 => drop(block_on(queue.drain())),
                            2 => drop(queue.blocking_drain_timeout(Duration::from_secs(3600))),
                            _ => return queue.stop_now().ready.len(),
                        }
                        0
                    })
                })
                .collect();
            handed_out = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
            left_over = ends.into_iter().map(|end| end.join().unwrap()).sum();
        });
        assert_eq!(handed_out + left_over, 20, "each key once");
        assert!(crate::support::holds_nothing(&queue.stats()));
        queue.check().unwrap();
    }
}
