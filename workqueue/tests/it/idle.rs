//! Waiting until the queue is idle, and drains that serve delayed keys.

use flyball_sync::block_on_timeout;
use std::thread;
use std::time::Duration;

use flyball_sync::{Clock, ManualClock, Nanos, block_on};
use flyball_workqueue::{AddErrorKind, DrainOptions, KeyState, Lease, Queue, TryGetError};
use futures_util::FutureExt;

use crate::support::{TimedQueue, backoff, ns, timed};
use crate::task::{Task, lists, serve};

const HOUR: Duration = Duration::from_secs(3600);

// ---- idle ------------------------------------------------------------------------------------------------------

/// The queue is idle if no key is Ready or leased. A waiting key does not count before its deadline.
#[test]
fn definition_of_idle() {
    let (queue, clock) = timed();
    let idle = || {
        let task = queue.wait_idle().now_or_never().is_some();
        assert_eq!(block_on_timeout(queue.wait_idle(), Duration::ZERO).is_some(), task);
        task
    };
    assert!(idle());
    queue.add_after("a", ns(5)).unwrap();
    assert!(idle());
    clock.advance(ns(5));
    assert!(!idle(), "idle although a key is due");
    let lease = queue.try_get().unwrap();
    assert!(!idle());
    lease.requeue_after(ns(5));
    assert!(idle());
    queue.pause();
    queue.add("a").unwrap();
    assert!(!idle(), "idle although a key is Ready");
    queue.resume();
    let key = queue.try_get().unwrap().detach();
    assert!(!idle());
    queue.done(&key).unwrap();
    assert!(idle());
    queue.shut_down();
    assert!(idle());
}

/// Every operation that makes the queue idle wakes all tasks and threads that wait for an idle queue.
#[test]
fn all_idle_waiters_are_woken() {
    type Ends = fn(&TimedQueue, Lease<&'static str>);
    let ways: [Ends; 6] = [
        |_, lease| lease.done(),
        |_, lease| lease.requeue_after(ns(9)),
        |queue, lease| {
            lease.retry();
            assert!(queue.cancel(&"a"));
        },
        |queue, lease| {
            queue.add("a").unwrap();
            lease.done();
            assert!(queue.postpone(&"a", ns(9)));
        },
        |queue, lease| {
            queue.shut_down();
            drop(lease);
        },
        |queue, lease| {
            lease.retry();
            drop(queue.stop_now());
        },
    ];
    for ends in ways {
        let (queue, _clock) = timed();
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        let mut waiting = [Task::waiting(queue.wait_idle()), Task::waiting(queue.wait_idle())];
        thread::scope(|scope| {
            let blocked = scope.spawn(|| block_on_timeout(queue.wait_idle(), HOUR).is_some());
            ends(&queue, lease);
            assert!(blocked.join().unwrap());
        });
        for task in &mut waiting {
            assert!(task.was_woken());
            task.finish();
        }
        queue.check().unwrap();
    }
}

/// A waiter is woken when the queue is idle. If a key is added before the waiter is polled, the waiter waits again.
#[test]
fn idle_and_at_work_again() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let mut idle = Task::waiting(queue.wait_idle());
    queue.try_get().unwrap().done();
    assert!(idle.was_woken());
    queue.add("a").unwrap();
    assert!(idle.poll().is_pending());
    assert!(!idle.was_woken());
    queue.try_get().unwrap().done();
    assert!(idle.was_woken() && idle.is_ready());
    assert_eq!(queue.add("a").unwrap(), flyball_workqueue::Added::New, "the add was refused");
}

/// A worker pool serves all keys until the queue is idle.
#[test]
fn a_pool_runs_dry() {
    for _ in 0..20 {
        let queue: Queue<u32> = Queue::new();
        thread::scope(|scope| {
            for worker in 0..3 {
                let queue = &queue;
                scope.spawn(move || {
                    while let Some(lease) =
                        if worker == 0 { queue.blocking_get() } else { block_on(queue.get()) }
                    {
                        if *lease % 10 != 0 {
                            queue.add(*lease - 1).unwrap();
                        }
                        lease.done();
                    }
                });
            }
            _ = queue.add_many([9, 19, 29]);
            if let Some(late) = [block_on(queue.wait_idle())].first() {
                let () = *late;
            }
            assert!(crate::support::holds_nothing(&queue.stats()));
            queue.add(9).unwrap();
            assert!(block_on_timeout(queue.wait_idle(), HOUR).is_some());
            queue.shut_down();
        });
    }
}

// ---- serving delayed keys --------------------------------------------------------------------------------------

/// A drain serves waiting keys at their deadlines, up to its limit. Later keys are leftovers.
#[test]
fn waits_are_served_until_the_limit() {
    let (queue, clock) = timed();
    queue.add("ready").unwrap();
    for (key, after) in [("at 10", 10), ("at 50", 50), ("at 51", 51)] {
        queue.add_after(key, ns(after)).unwrap();
    }
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
    assert!(queue.is_shutting_down());
    assert_eq!(queue.add("ready").unwrap_err().kind(), AddErrorKind::ShutDown);
    let mut getter = Task::new(queue.get());
    assert_eq!(*getter.finish().unwrap(), "ready");
    // The lease was dropped, so the key is retried immediately, and is served again.
    queue.try_get().unwrap().done();
    assert_eq!(
        queue.try_get().unwrap_err(),
        TryGetError::Empty,
        "closed although waiting keys are still served"
    );
    let mut getters = [Task::waiting(queue.get()), Task::waiting(queue.get())];
    for key in ["at 10", "at 50"] {
        let alarm = clock.next_alarm().unwrap();
        clock.set(alarm);
        let woken = getters.iter_mut().find(|getter| getter.was_woken()).unwrap();
        let lease = woken.finish().unwrap();
        assert_eq!((*lease, clock.now().get()), (key, if key == "at 10" { 10 } else { 50 }));
        lease.done();
        *woken = Task::new(queue.get());
        if key == "at 10" {
            assert!(woken.poll().is_pending());
        }
    }
    for mut getter in getters {
        assert!(getter.finish().is_none(), "the getter of a closed queue returned a key");
    }
    assert!(drain.was_woken());
    assert_eq!(lists(drain.finish()), (vec![], vec!["at 51"], vec![]));
    queue.check().unwrap();
}

/// The drain completes as soon as no key can become Ready, without waiting for the limit.
#[test]
fn serving_ends_early() {
    let (queue, _clock) = timed();
    queue.add_after("late", ns(100)).unwrap();
    assert_eq!(
        lists(queue.drain(DrainOptions::serve_waiting(ns(50))).now_or_never().unwrap()),
        (vec![], vec!["late"], vec![])
    );
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
    let (queue, _clock) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
    let mut getter = Task::waiting(queue.get());
    lease.done();
    assert!(drain.was_woken() && drain.is_ready());
    assert!(getter.was_woken() && getter.finish().is_none());
}

/// If a leased key is retried or requeued during a drain, it is served if its deadline is within the limit.
#[test]
fn retries_within_the_drain_are_served() {
    let (queue, clock) = backoff();
    _ = queue.add_many(["retry", "soon", "late", "at once"]);
    let leases = queue.try_get_many(4).unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
    for lease in leases {
        match *lease {
            "retry" => lease.retry(),
            "soon" => lease.requeue_after(ns(50)),
            "late" => lease.requeue_after(ns(51)),
            _ => lease.requeue_after(Duration::ZERO),
        }
    }
    let at_once = queue.try_get().unwrap();
    assert_eq!(*at_once, "at once");
    at_once.done();
    clock.set(Nanos::new(10));
    let retry = queue.try_get().unwrap();
    assert_eq!((*retry, retry.num_requeues()), ("retry", 1));
    retry.retry();
    assert_eq!(queue.state(&"retry"), KeyState::Waiting(Nanos::new(30)));
    clock.set(Nanos::new(30));
    queue.try_get().unwrap().retry();
    assert_eq!(
        queue.state(&"retry"),
        KeyState::Waiting(Nanos::new(70)),
        "the deadline is not after the limit"
    );
    clock.set(Nanos::new(50));
    assert!(drain.was_woken());
    let soon = queue.try_get().unwrap();
    soon.succeed();
    assert_eq!(lists(drain.finish()), (vec![], vec!["late", "retry"], vec![]));
    queue.check().unwrap();
}

/// The drain returns at the limit, with all keys that are left.
#[test]
fn the_limit_names_what_is_left() {
    let (queue, clock) = timed();
    _ = queue.add_many(["leased", "dirty", "ready"]);
    let leases = queue.try_get_many(2).unwrap();
    queue.add("dirty").unwrap();
    queue.add_after("due", ns(50)).unwrap();
    queue.add_after("late", ns(70)).unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
    assert_eq!(clock.next_alarm(), Some(Nanos::new(50)), "the alarm is not the limit of the drain");
    clock.set(Nanos::new(49));
    assert!(drain.poll().is_pending());
    clock.set(Nanos::new(50));
    assert!(drain.was_woken());
    assert_eq!(lists(drain.finish()), (vec!["ready", "due"], vec!["late"], vec!["dirty", "leased"]));
    // The keys are still in the queue after the drain has timed out.
    assert_eq!(*queue.try_get().unwrap(), "ready");
    drop(leases);
    queue.check().unwrap();
}

#[test]
fn a_limit_of_nothing() {
    let (queue, _clock) = timed();
    queue.add("ready").unwrap();
    queue.add_after("waits", ns(1)).unwrap();
    let left =
        queue.drain(DrainOptions::serve_waiting(Duration::ZERO)).now_or_never().expect("it does not wait");
    assert_eq!(lists(left), (vec!["ready"], vec!["waits"], vec![]));
    let left = queue.blocking_drain(DrainOptions::serve_waiting(Duration::ZERO));
    assert_eq!(lists(left), (vec!["ready"], vec!["waits"], vec![]));
}

/// Without a limit all waiting keys are served, except a key that waits for ever.
#[test]
fn without_a_limit_all_is_served() {
    let (queue, clock) = timed();
    queue.add_after("never", Duration::MAX).unwrap();
    queue.add_after("in a century", HOUR * 24 * 365 * 100).unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(Duration::MAX)));
    clock.advance(HOUR * 24 * 365 * 100);
    queue.try_get().unwrap().done();
    assert!(drain.was_woken());
    assert_eq!(lists(drain.finish()), (vec![], vec!["never"], vec![]));
}

/// With several calls of a drain that serves waiting keys, the first one determines how long delayed keys are served; each call waits for at most its own limit.
#[test]
fn several_limits() {
    let (queue, clock) = timed();
    queue.add_after("at 20", ns(20)).unwrap();
    queue.add_after("at 40", ns(40)).unwrap();
    queue.add_after("at 60", ns(60)).unwrap();
    let mut first = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
    let mut short = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(30))));
    let mut long = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(100))));
    clock.set(Nanos::new(20));
    queue.try_get().unwrap().done();
    clock.set(Nanos::new(30));
    assert!(short.was_woken());
    assert_eq!(lists(short.finish()), (vec![], vec!["at 40", "at 60"], vec![]));
    clock.set(Nanos::new(40));
    queue.try_get().unwrap().done();
    for drain in [&mut first, &mut long] {
        assert!(drain.was_woken());
        assert_eq!(lists(drain.finish()), (vec![], vec!["at 60"], vec![]));
    }
}

/// After `shut_down` or `drain`, delayed keys are no longer served: due keys stay Ready, and all other waiting keys become leftovers.
#[test]
fn a_plain_end_cuts_the_serving() {
    let cuts: [fn(&TimedQueue); 3] = [
        |queue| queue.shut_down(),
        |queue| drop(queue.drain(DrainOptions::unlimited()).now_or_never()),
        |queue| drop(queue.blocking_drain(DrainOptions::within(Duration::ZERO))),
    ];
    for cut in cuts {
        let (queue, clock) = timed();
        _ = queue.add_many(["marked", "waits longer"]);
        let leases = queue.try_get_many(2).unwrap();
        queue.add_after("due", ns(5)).unwrap();
        queue.add_after("marked", ns(10)).unwrap();
        queue.add_after("waits longer", ns(30)).unwrap();
        queue.add_after("late", ns(30)).unwrap();
        let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
        clock.set(Nanos::new(10));
        cut(&queue);
        clock.set(Nanos::new(40));
        assert_eq!(*queue.try_get().unwrap(), "due");
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty, "closed although a dirty key is leased");
        leases.into_iter().for_each(Lease::done);
        let marked = queue.try_get().unwrap();
        assert_eq!((*marked, queue.try_get().unwrap_err()), ("marked", TryGetError::Closed));
        marked.done();
        assert!(drain.was_woken());
        let (ready, mut waiting, leased) = lists(drain.finish());
        waiting.sort_unstable();
        assert_eq!((ready, waiting, leased), (vec![], vec!["due", "late", "waits longer"], vec![]));
        queue.check().unwrap();
    }
}

#[test]
fn a_stop_ends_the_serving() {
    let (queue, _clock) = timed();
    queue.add_after("late", ns(30)).unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
    let mut getter = Task::waiting(queue.get());
    assert_eq!(lists(queue.stop_now()), (vec![], vec!["late"], vec![]));
    assert!(drain.was_woken() && getter.was_woken());
    assert_eq!(lists(drain.finish()), (vec![], vec![], vec![]));
    assert!(getter.finish().is_none());
}

/// If the queue is shut down already, a drain that serves waiting keys serves no delayed keys. It only waits for the leases, at most until its limit.
#[test]
fn after_a_shutdown_nothing_more_is_served() {
    let (queue, clock) = timed();
    queue.add("a").unwrap();
    queue.add_after("waits", ns(10)).unwrap();
    let lease = queue.try_get().unwrap();
    queue.shut_down();
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
    clock.set(Nanos::new(20));
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
    assert!(drain.poll().is_pending());
    clock.set(Nanos::new(50));
    assert!(drain.was_woken());
    assert_eq!(lists(drain.finish()), (vec![], vec!["waits"], vec!["a"]));
    lease.done();
}

/// While delayed keys are served, adds are refused, but a key can be cancelled, which may complete the drain.
#[test]
fn a_cancel_ends_the_serving() {
    let (queue, _clock) = timed();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add_after("b", ns(20)).unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(ns(50))));
    assert_eq!(queue.add("a").unwrap_err().kind(), AddErrorKind::ShutDown);
    lease.done();
    assert!(!drain.was_woken());
    assert!(queue.cancel(&"b"));
    assert!(drain.was_woken());
    assert_eq!(lists(drain.finish()), (vec![], vec![], vec![]));
}

/// With threads and the real clock: the key that waits for one millisecond is served, and then the drain completes.
#[test]
fn a_blocking_drain_serves_what_waits() {
    let queue = Queue::new();
    queue.add_after("soon", Duration::from_millis(1)).unwrap();
    queue.add_after("tomorrow", HOUR * 24).unwrap();
    thread::scope(|scope| {
        let worker = scope
            .spawn(|| std::iter::from_fn(|| queue.blocking_get()).map(Lease::done).fold(0, |n, ()| n + 1));
        assert_eq!(
            lists(queue.blocking_drain(DrainOptions::serve_waiting(HOUR))),
            (vec![], vec!["tomorrow"], vec![])
        );
        assert_eq!(worker.join().unwrap(), 1);
    });
}

/// Drains with limits before, between and after the deadlines: each key is either served or a leftover.
#[test]
fn served_or_left_over() {
    for limit in 0..60 {
        let clock = ManualClock::new();
        let queue: TimedQueue<u64> = Queue::builder().timer(clock.timer()).build();
        for key in 0..50 {
            queue.add_after(key, ns(key)).unwrap();
        }
        let mut drain = Task::new(queue.drain(DrainOptions::serve_waiting(ns(limit))));
        let mut served = 0;
        let left = loop {
            if let std::task::Poll::Ready(left) = drain.poll() {
                break left;
            }
            served += serve(&queue);
            if !drain.was_woken() {
                clock.advance(ns(1));
            }
        };
        // If the deadline of a key is exactly the limit, the drain returns before this key is served.
        let ready = left.ready.len();
        assert_eq!(served + ready + left.waiting.len(), 50, "limit {limit}");
        assert!(ready <= 1 && left.waiting.iter().all(|key| *key > limit));
        assert_eq!(left.waiting.len(), 50_usize.saturating_sub(limit as usize + 1));
    }
}
