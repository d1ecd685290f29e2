//! Models of waiting for the queue to be drained or idle, and for an overdue lease.

use std::time::Duration;

use flyball_ratelimit::FastSlow;
use flyball_sync::{ManualClock, Nanos};
use flyball_workqueue::{DrainOptions, Queue};
use loom_tests::wakers::{Counting, poll_with};
use loom_tests::{Model, block_on, model, thread};

const SECOND: Duration = Duration::from_secs(1);

// === drained and idle ===

#[test]
fn wait_idle_vs_lease_end() {
    let claim = Model {
        name: "workqueue::wait_idle_vs_lease_end",
        threads: 2,
        floor: 30,
        catches: "a task that checks in one critical section whether the queue is idle and registers its waker in another",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let worker = thread::spawn(move || lease.done());
        block_on(queue.wait_idle());
        worker.join().unwrap();
        assert!(queue.keys().is_empty());
    });
}

#[test]
fn cancel_vs_wait_idle() {
    let claim = Model {
        name: "workqueue::cancel_vs_wait_idle",
        threads: 2,
        floor: 12,
        catches: "a cancel that checks before it locks whether there is a waiter for the queue to be idle",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let other = queue.clone();
        let idler = thread::spawn(move || block_on(other.wait_idle()));
        assert!(queue.cancel(&1));
        idler.join().unwrap();
    });
}

#[test]
fn wait_empty_vs_cancel() {
    let claim = Model {
        name: "workqueue::wait_empty_vs_cancel",
        threads: 2,
        floor: 42,
        catches: "a task that checks in one critical section whether the queue is empty and registers its waker in another",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add_after(1, SECOND).unwrap();
        let other = queue.clone();
        let waiter = thread::spawn(move || block_on(other.wait_empty()));
        assert!(queue.cancel(&1));
        waiter.join().unwrap();
    });
}

#[test]
fn drain_vs_shut_down() {
    let claim = Model {
        name: "workqueue::drain_vs_shut_down",
        threads: 2,
        floor: 12,
        catches: "a drain that checks before it locks whether a shutdown has ended its wait",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let mut drain = Box::pin(queue.drain(DrainOptions::unlimited()));
        assert!(poll_with(drain.as_mut(), &Counting::waker().1).is_pending());
        let drainer = thread::spawn(move || block_on(drain).leased);
        queue.shut_down();
        assert_eq!(drainer.join().unwrap(), [1]);
        lease.done();
    });
}

#[test]
fn drain_waiting_vs_retry() {
    let claim = Model {
        name: "workqueue::drain_waiting_vs_retry",
        threads: 3,
        floor: 4100,
        catches: "a retry that checks before it locks whether a task waits, and sets no alarm",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let limiter = FastSlow::new(SECOND, SECOND, 3);
        let queue = Queue::<u32>::builder().limiter(limiter).timer(clock.timer()).seed(0).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let (waker, mut drain) =
            (Counting::waker().1, Box::pin(queue.drain(DrainOptions::serve_waiting(2 * SECOND))));
        assert!(poll_with(drain.as_mut(), &waker).is_pending());
        let getter = thread::spawn(move || {
            block_on(queue.get()).expect("closed before the retried key was handed out").done();
            assert!(block_on(queue.get()).is_none());
        });
        let failing = thread::spawn(move || lease.retry());
        failing.join().unwrap();
        clock.advance(SECOND);
        getter.join().unwrap();
        let left = block_on(drain);
        assert!(left.ready.is_empty() && left.waiting.is_empty() && left.leased.is_empty(), "{left:?}");
    });
}

#[test]
fn drain_waiting_vs_its_end() {
    let claim = Model {
        name: "workqueue::drain_waiting_vs_its_end",
        threads: 2,
        floor: 180,
        catches: "a drainer whose alarm is not set because its deadline passed in the meantime, and so never fires",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        // At `Nanos::MAX` every deadline has passed, even that of a drain that starts only after the clock was set.
        let mover = thread::spawn(move || clock.set(Nanos::MAX));
        assert_eq!(block_on(queue.drain(DrainOptions::serve_waiting(SECOND))).leased, [1]);
        mover.join().unwrap();
        lease.done();
    });
}

#[test]
fn drain_waiting_vs_timer_and_getter() {
    let claim = Model {
        name: "workqueue::drain_waiting_vs_timer_and_getter",
        threads: 2,
        floor: 2700,
        catches: "a wait within the horizon whose alarm is not set because its deadline passed in the meantime",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add_after(1, SECOND).unwrap();
        let other = queue.clone();
        let getter = thread::spawn(move || {
            block_on(other.get()).expect("closed before the waiting key was handed out").done();
            assert!(block_on(other.get()).is_none());
        });
        let (waker, mut drain) =
            (Counting::waker().1, Box::pin(queue.drain(DrainOptions::serve_waiting(2 * SECOND))));
        drop(poll_with(drain.as_mut(), &waker));
        clock.advance(SECOND);
        getter.join().unwrap();
        let left = block_on(drain);
        assert!(left.waiting.is_empty(), "{left:?}");
    });
}

// === overdue leases ===

#[test]
fn watcher_vs_get() {
    let claim = Model {
        name: "workqueue::watcher_vs_get",
        threads: 2,
        floor: 102,
        catches: "a watcher that finds no lease in one critical section and registers its waker in another",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add(1).unwrap();
        let other = queue.clone();
        let getter = thread::spawn(move || other.try_get().unwrap());
        assert_eq!(block_on(queue.next_overdue(Duration::ZERO)).unwrap().key, 1);
        getter.join().unwrap().done();
    });
}

#[test]
fn watcher_vs_clock() {
    let claim = Model {
        name: "workqueue::watcher_vs_clock",
        threads: 2,
        floor: 52,
        catches: "a watcher whose alarm is not set because its deadline passed in the meantime, and so never fires",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        queue.track_ages();
        let watcher = thread::spawn(move || {
            let overdue = block_on(queue.next_overdue(SECOND)).unwrap();
            assert_eq!((overdue.key, overdue.age), (1, SECOND));
        });
        clock.advance(SECOND);
        watcher.join().unwrap();
        lease.done();
    });
}

#[test]
fn watcher_vs_get_and_clock() {
    let claim = Model {
        name: "workqueue::watcher_vs_get_and_clock",
        threads: 3,
        floor: 5700,
        catches: "a get that checks before it locks whether there is a watcher",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.track_ages();
        queue.add(1).unwrap();
        let (watcher, getter) = (queue.clone(), queue.clone());
        let watcher = thread::spawn(move || block_on(watcher.next_overdue(SECOND)).unwrap().key);
        let getter = thread::spawn(move || getter.try_get().unwrap());
        clock.advance(SECOND);
        let lease = getter.join().unwrap();
        clock.advance(SECOND);
        assert_eq!(watcher.join().unwrap(), 1);
        lease.done();
    });
}

#[test]
fn watcher_vs_drained() {
    let claim = Model {
        name: "workqueue::watcher_vs_drained",
        threads: 3,
        floor: 1300,
        catches: "a lease end that checks before it locks whether there is a watcher",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        queue.track_ages();
        let other = queue.clone();
        let watcher = thread::spawn(move || assert_eq!(block_on(other.next_overdue(SECOND)), None));
        let worker = thread::spawn(move || lease.done());
        queue.shut_down();
        worker.join().unwrap();
        watcher.join().unwrap();
    });
}

#[test]
fn watcher_and_getter_share_the_alarm() {
    let claim = Model {
        name: "workqueue::watcher_and_getter_share_the_alarm",
        threads: 3,
        floor: 14000,
        catches: "the later of two alarms that is lost when the earlier one fires at the same time",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add(2).unwrap();
        let lease = queue.try_get().unwrap();
        queue.track_ages();
        queue.add_after(1, SECOND).unwrap();
        let (watcher, getter) = (queue.clone(), queue);
        let watcher =
            thread::spawn(move || assert_eq!(block_on(watcher.next_overdue(2 * SECOND)).unwrap().key, 2));
        let getter = thread::spawn(move || block_on(getter.get()).unwrap().done());
        clock.advance(SECOND);
        getter.join().unwrap();
        clock.advance(SECOND);
        watcher.join().unwrap();
        lease.done();
    });
}
