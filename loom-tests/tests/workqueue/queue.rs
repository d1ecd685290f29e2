//! Models of the work queue.
//!
//! A thread of the model advances a manual clock, because a condition variable never times out in a model.

use std::pin::pin;
use std::time::Duration;

use flyball_ratelimit::FastSlow;
use flyball_sync::ManualClock;
use flyball_workqueue::{Added, DrainOptions, Queue, TryGetError};
use loom_tests::wakers::{Counting, poll_with};
use loom_tests::{Model, block_on, model, thread};

const SECOND: Duration = Duration::from_secs(1);

// === adding and getting ===

#[test]
fn add_vs_async_get() {
    let claim = Model {
        name: "workqueue::add_vs_async_get",
        threads: 2,
        floor: 11,
        catches: "a task that registers its waker without checking the queue again under that lock",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        let other = queue.clone();
        let getter = thread::spawn(move || block_on(other.get()).unwrap().done());
        queue.add(1).unwrap();
        getter.join().unwrap();
    });
}

#[test]
fn add_vs_blocking_get() {
    let claim = Model {
        name: "workqueue::add_vs_blocking_get",
        threads: 2,
        floor: 3,
        catches: "a thread that unlocks between its check and its sleep",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        let other = queue.clone();
        let getter = thread::spawn(move || other.blocking_get().unwrap().done());
        queue.add(1).unwrap();
        getter.join().unwrap();
    });
}

#[test]
fn two_adds_vs_task_and_thread() {
    let claim = Model {
        name: "workqueue::two_adds_vs_task_and_thread",
        threads: 3,
        floor: 829,
        catches: "an add that checks before it locks whether there is a waiter",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        let (task, sleeper) = (queue.clone(), queue.clone());
        let task = thread::spawn(move || block_on(task.get()).unwrap().done());
        let sleeper = thread::spawn(move || sleeper.blocking_get().unwrap().done());
        queue.add(1).unwrap();
        queue.add(2).unwrap();
        task.join().unwrap();
        sleeper.join().unwrap();
        assert_eq!(queue.stats().leased, 0);
    });
}

#[test]
fn cancelled_getter_wakes_next() {
    let claim = Model {
        name: "workqueue::cancelled_getter_wakes_next",
        threads: 3,
        floor: 476,
        catches: "a getter that checks in one critical section whether it was woken and leaves the wait queue in another",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        let (cancelled, other) = (queue.clone(), queue.clone());
        let cancelled = thread::spawn(move || {
            let (_, waker) = Counting::waker();
            let mut get = pin!(cancelled.get());
            // If this getter leases the key, the lease is dropped with the getter and the key becomes Ready again, so the other getter must be woken.
            drop(poll_with(get.as_mut(), &waker));
        });
        let getter = thread::spawn(move || block_on(other.get()).unwrap().done());
        queue.add(1).unwrap();
        cancelled.join().unwrap();
        getter.join().unwrap();
    });
}

#[test]
fn one_key_goes_to_one_getter() {
    let claim = Model {
        name: "workqueue::one_key_goes_to_one_getter",
        threads: 3,
        floor: 16,
        catches: "a get that selects the key in one critical section and leases it in another",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        queue.add(2).unwrap();
        let getters = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || queue.try_get().unwrap())
        });
        let [first, second] = getters.map(|getter| getter.join().unwrap());
        assert_ne!(*first, *second, "one key, two leases");
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    });
}

#[test]
fn add_vs_lease_end() {
    let claim = Model {
        name: "workqueue::add_vs_lease_end",
        threads: 3,
        floor: 54,
        catches: "a lease end that checks the dirty flag in one critical section and ends the lease in another: an event is lost",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let worker = thread::spawn(move || lease.done());
        let other = queue.clone();
        let adder = thread::spawn(move || other.add(1).unwrap());
        let added = queue.add(1).unwrap();
        worker.join().unwrap();
        let other = adder.join().unwrap();
        assert!(
            added == Added::Merged || other == Added::Merged,
            "two adds caused two runs: {added:?}, {other:?}"
        );
        assert_eq!(queue.ready_len(), 1, "the event is lost: no key is Ready");
    });
}

#[test]
fn lease_end_vs_async_get() {
    let claim = Model {
        name: "workqueue::lease_end_vs_async_get",
        threads: 2,
        floor: 11,
        catches: "a lease end that checks before it locks whether there is a waiter",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        queue.add(1).unwrap();
        let other = queue.clone();
        let getter = thread::spawn(move || block_on(other.get()).unwrap().done());
        lease.done();
        getter.join().unwrap();
    });
}

#[test]
fn cancel_vs_get() {
    let claim = Model {
        name: "workqueue::cancel_vs_get",
        threads: 2,
        floor: 4,
        catches: "a cancel that reports the state it read, not the change it made",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let other = queue.clone();
        let getter = thread::spawn(move || other.try_get().ok());
        let cancelled = queue.cancel(&1);
        let lease = getter.join().unwrap();
        assert_ne!(cancelled, lease.is_some(), "the key was both cancelled and handed out, or neither");
    });
}

// === shutdown, drain and stop ===

#[test]
fn shut_down_vs_task_and_thread() {
    let claim = Model {
        name: "workqueue::shut_down_vs_task_and_thread",
        threads: 3,
        floor: 475,
        catches: "a shutdown that checks before it locks whether there is a waiter",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        let (task, sleeper) = (queue.clone(), queue.clone());
        let task = thread::spawn(move || assert!(block_on(task.get()).is_none()));
        let sleeper = thread::spawn(move || assert!(sleeper.blocking_get().is_none()));
        queue.shut_down();
        task.join().unwrap();
        sleeper.join().unwrap();
    });
}

#[test]
fn shut_down_vs_add() {
    let claim = Model {
        name: "workqueue::shut_down_vs_add",
        threads: 2,
        floor: 8,
        catches: "a key that is accepted after a getter returned \"closed\"",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        let other = queue.clone();
        let adder = thread::spawn(move || other.add(1).is_ok());
        queue.shut_down();
        let mut got = false;
        while let Some(lease) = queue.blocking_get() {
            got = true;
            lease.done();
        }
        assert_eq!(adder.join().unwrap(), got, "an accepted key was never handed out");
    });
}

#[test]
fn shut_down_vs_dirty_lease_end() {
    let claim = Model {
        name: "workqueue::shut_down_vs_dirty_lease_end",
        threads: 3,
        floor: 92,
        catches: "a lease end that checks before it locks whether a thread waits for the dirty key, which becomes Ready after shutdown",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        queue.add(1).unwrap();
        let other = queue.clone();
        let worker = thread::spawn(move || lease.done());
        let getter = thread::spawn(move || {
            other.blocking_get().expect("closed before the dirty key was handed out").done();
            assert!(other.blocking_get().is_none());
        });
        queue.shut_down();
        worker.join().unwrap();
        getter.join().unwrap();
    });
}

#[test]
fn shut_down_vs_clock() {
    let claim = Model {
        name: "workqueue::shut_down_vs_clock",
        threads: 3,
        floor: 2200,
        catches: "a key that is due at shutdown and wakes no getter, because its alarm has not fired",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add_after(1, SECOND).unwrap();
        let getter = queue.clone();
        let getter = thread::spawn(move || {
            let mut got = 0;
            while let Some(lease) = block_on(getter.get()) {
                lease.done();
                got += 1;
            }
            got
        });
        let mover = thread::spawn(move || clock.advance(SECOND));
        queue.shut_down();
        mover.join().unwrap();
        let got = getter.join().unwrap();
        let left = queue.stop_now();
        assert!(left.ready.is_empty(), "closed before the due key was handed out");
        assert_eq!(got + left.waiting.len(), 1, "the key was neither handed out nor a leftover");
    });
}

#[test]
fn drain_vs_lease_end() {
    let claim = Model {
        name: "workqueue::drain_vs_lease_end",
        threads: 2,
        floor: 38,
        catches: "a drainer that checks the queue in one critical section and registers its waker in another",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let worker = thread::spawn(move || lease.done());
        let left = block_on(queue.drain(DrainOptions::unlimited()));
        assert!(left.leased.is_empty());
        worker.join().unwrap();
    });
}

#[test]
fn blocking_drain_vs_lease_end() {
    let claim = Model {
        name: "workqueue::blocking_drain_vs_lease_end",
        threads: 3,
        floor: 850,
        catches: "a drainer that unlocks between its check and its sleep",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let lease = queue.try_get().unwrap();
        let other = queue.clone();
        let worker = thread::spawn(move || lease.done());
        let second =
            thread::spawn(move || assert!(other.blocking_drain(DrainOptions::unlimited()).leased.is_empty()));
        assert!(queue.blocking_drain(DrainOptions::unlimited()).leased.is_empty());
        worker.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn stop_vs_get() {
    let claim = Model {
        name: "workqueue::stop_vs_get",
        threads: 3,
        floor: 54,
        catches: "a stop that lists the keys in one critical section and takes them in another",
    };
    model(claim, || {
        let queue = Queue::<u32>::new();
        queue.add(1).unwrap();
        let (other, adder) = (queue.clone(), queue.clone());
        let getter = thread::spawn(move || other.try_get().ok());
        let adder = thread::spawn(move || adder.add(2).is_ok());
        let left = queue.stop_now();
        let lease = getter.join().unwrap();
        let taken = lease.as_ref().map(|lease| **lease);
        let added = adder.join().unwrap();
        for key in [1, 2] {
            let times =
                usize::from(taken == Some(key)) + left.ready.iter().filter(|left| **left == key).count();
            let accepted = usize::from(key == 1 || added);
            assert_eq!(times, accepted, "key {key}: taken {taken:?}, left {left:?}");
        }
        drop(lease);
        assert_eq!(queue.stats().leased, 0);
    });
}

// === deadlines ===

#[test]
fn timer_fires_vs_park() {
    let claim = Model {
        name: "workqueue::timer_fires_vs_park",
        threads: 2,
        floor: 63,
        catches: "an alarm that is not set because its deadline passed in the meantime, and so never fires",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add_after(1, SECOND).unwrap();
        queue.add_after(2, 2 * SECOND).unwrap();
        let getter = thread::spawn(move || {
            assert_eq!(*block_on(queue.get()).unwrap(), 1);
        });
        clock.advance(SECOND);
        getter.join().unwrap();
    });
}

#[test]
fn two_deadlines_vs_clock() {
    let claim = Model {
        name: "workqueue::two_deadlines_vs_clock",
        threads: 2,
        floor: 342,
        catches: "an alarm that fires and is recorded as unset too late: no alarm is set for the next deadline",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add_after(1, SECOND).unwrap();
        queue.add_after(2, 2 * SECOND).unwrap();
        let getter = thread::spawn(move || {
            block_on(queue.get()).unwrap().done();
            block_on(queue.get()).unwrap().done();
        });
        clock.advance(SECOND);
        clock.advance(SECOND);
        getter.join().unwrap();
    });
}

#[test]
fn two_threads_set_the_alarm() {
    let claim = Model {
        name: "workqueue::two_threads_set_the_alarm",
        threads: 3,
        floor: 124,
        catches: "an earlier alarm that is lost because another thread is in the timer",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        let (woken, waker) = Counting::waker();
        let mut get = Box::pin(queue.get());
        assert!(poll_with(get.as_mut(), &waker).is_pending());
        let adders = [(1, SECOND), (2, 9 * SECOND)].map(|(key, delay)| {
            let queue = queue.clone();
            thread::spawn(move || queue.add_after(key, delay).unwrap())
        });
        for adder in adders {
            adder.join().unwrap();
        }
        clock.advance(SECOND);
        assert!(woken.wakes() > 0, "no waiter was woken for the earlier deadline");
        assert!(poll_with(get.as_mut(), &waker).is_ready());
    });
}

#[test]
fn timer_fires_vs_cancelled_getter() {
    let claim = Model {
        name: "workqueue::timer_fires_vs_cancelled_getter",
        threads: 3,
        floor: 2700,
        catches: "a deadline whose wake-up is lost with the getter that was cancelled after it",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add_after(1, SECOND).unwrap();
        let (cancelled, other) = (queue.clone(), queue);
        let cancelled = thread::spawn(move || {
            let (_, waker) = Counting::waker();
            let mut get = pin!(cancelled.get());
            drop(poll_with(get.as_mut(), &waker));
        });
        let getter = thread::spawn(move || block_on(other.get()).unwrap().done());
        clock.advance(SECOND);
        cancelled.join().unwrap();
        getter.join().unwrap();
    });
}

#[test]
fn dropped_getter_disarms_vs_get() {
    let claim = Model {
        name: "workqueue::dropped_getter_disarms_vs_get",
        threads: 3,
        floor: 5700,
        catches: "an alarm that a dropped getter removes after another getter has set it",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        queue.add_after(1, SECOND).unwrap();
        let (dropped, other) = (queue.clone(), queue);
        let dropped = thread::spawn(move || {
            let (_, waker) = Counting::waker();
            let mut get = pin!(dropped.get());
            drop(poll_with(get.as_mut(), &waker));
        });
        let getter = thread::spawn(move || block_on(other.get()).unwrap().done());
        dropped.join().unwrap();
        clock.advance(SECOND);
        getter.join().unwrap();
        assert_eq!(clock.next_alarm(), None, "an alarm outlives its wait");
    });
}

#[test]
fn clock_vs_add_after() {
    let claim = Model {
        name: "workqueue::clock_vs_add_after",
        threads: 3,
        floor: 4400,
        catches: "a delayed add that checks before it locks whether there is a waiter for a deadline",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let queue = Queue::<u32>::builder().timer(clock.timer()).build();
        let other = queue.clone();
        let getter = thread::spawn(move || block_on(other.get()).unwrap().done());
        let adder = thread::spawn(move || queue.add_after(1, SECOND).unwrap());
        clock.advance(SECOND);
        adder.join().unwrap();
        clock.advance(SECOND);
        getter.join().unwrap();
    });
}

// === backoff ===

#[test]
fn failure_vs_success() {
    let claim = Model {
        name: "workqueue::failure_vs_success",
        threads: 3,
        floor: 142,
        catches: "a count of failing keys published outside its lock; a later success may then read an old count, and not forget the failures",
    };
    model(claim, || {
        let clock = ManualClock::new();
        let limiter = FastSlow::new(Duration::ZERO, SECOND, 3);
        let queue = Queue::<u32>::builder().limiter(limiter).timer(clock.timer()).seed(0).build();
        queue.add(2).unwrap();
        queue.try_get().unwrap().retry();
        queue.add(1).unwrap();
        let [second, first] = [(); 2].map(|()| queue.try_get().unwrap());
        let failure = thread::spawn(move || first.retry());
        let success = thread::spawn(move || second.succeed());
        failure.join().unwrap();
        success.join().unwrap();
        assert_eq!(queue.num_requeues(&1), 1);
        queue.try_get().unwrap().succeed();
        assert_eq!(queue.num_requeues(&1), 0, "the success did not reset the failures");
    });
}
