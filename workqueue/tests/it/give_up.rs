//! Keys that fail too often are given up and reported once; no other key is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flyball_ratelimit::{Exponential, Failure, FastSlow, MaxElapsed};
use flyball_sync::{ManualClock, Nanos};
use flyball_workqueue::{
    AddErrorKind, AddOptions, Added, DrainOptions, KeyState, Lease, LeaseOutcome, Queue, TryGetError,
};

use crate::support::{Answers, BackoffQueue, ns, times};
use crate::task::{Task, deadline, lists, serve};

type Held = Lease<&'static str>;
type GivenUpKeys = Arc<Mutex<Vec<(&'static str, u32)>>>;

fn panics<T>(act: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_err()
}

/// Returns a queue with a backoff of 10 ns, 20 ns, … that gives a key up at failure number `most`, its clock, and the list of the keys that
/// were given up.
fn gives_up_after(most: u32, strict: bool) -> (BackoffQueue, ManualClock, GivenUpKeys) {
    let (clock, given_up) = (ManualClock::new(), GivenUpKeys::default());
    let hook_keys = given_up.clone();
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(Exponential::new(ns(10)..=ns(1_000)))
        .give_up_after(times(most), move |key, failures| hook_keys.lock().unwrap().push((*key, failures)));
    let queue = if strict { queue.strict_backoff() } else { queue };
    (queue.build(), clock, given_up)
}

fn take(given_up: &GivenUpKeys) -> Vec<(&'static str, u32)> {
    std::mem::take(&mut given_up.lock().unwrap())
}

#[test]
fn the_last_failure_is_not_retried() {
    let fails: [fn(Held); 3] =
        [drop, Lease::retry, |lease| lease.end(LeaseOutcome::Failed { at_least: ns(9) })];
    for fail in fails {
        let (queue, clock, given_up) = gives_up_after(3, false);
        queue.add("a").unwrap();
        for until in [10, 30] {
            queue.try_get().unwrap().retry();
            assert_eq!((deadline(&queue, "a"), take(&given_up)), (until, vec![]));
            clock.set(Nanos::new(until));
        }
        fail(queue.try_get().unwrap());
        assert_eq!(take(&given_up), [("a", 3)]);
        assert_eq!((queue.state(&"a"), queue.num_requeues(&"a")), (KeyState::Absent, 0));
        queue.add("a").unwrap();
        queue.try_get().unwrap().retry();
        assert_eq!(queue.num_requeues(&"a"), 1, "the failures were not forgotten");
        queue.check().unwrap();
    }
}

/// A limit of 1 allows no retry.
#[test]
fn a_limit_of_one_gives_up_at_the_first_failure() {
    let (queue, _clock, given_up) = gives_up_after(1, false);
    _ = queue.add_many(["a", "b"]);
    queue.try_get().unwrap().retry();
    assert_eq!((take(&given_up), queue.state(&"a")), (vec![("a", 1)], KeyState::Absent));
    queue.try_get().unwrap().done();
    assert_eq!(take(&given_up), [], "`done` counted as a failure");
}

/// A success, or `forget`, resets the count.
#[test]
fn a_success_saves() {
    let ends: [fn(&BackoffQueue); 3] = [
        |queue| queue.try_get().unwrap().succeed(),
        |queue| queue.try_get().unwrap().requeue_after(Duration::ZERO),
        |queue| {
            queue.forget(&"a");
            queue.try_get().unwrap().done();
        },
    ];
    for end in ends {
        let (queue, clock, given_up) = gives_up_after(2, false);
        for _ in 0..5 {
            queue.add("a").unwrap();
            queue.try_get().unwrap().retry();
            clock.advance(ns(10));
            end(&queue);
        }
        assert_eq!(take(&given_up), []);
    }
}

/// All failures during one backoff count as one, so they do not reach the limit, however many there are.
#[test]
fn failures_within_a_backoff_count_once() {
    let (queue, clock, given_up) = gives_up_after(2, false);
    for _ in 0..50 {
        queue.add("a").unwrap();
        queue.try_get().unwrap().retry();
        queue.add_rate_limited("a").unwrap();
    }
    assert_eq!((take(&given_up), queue.num_requeues(&"a")), (vec![], 1));
    clock.set(Nanos::new(10));
    queue.try_get().unwrap().retry();
    assert_eq!(take(&given_up), [("a", 2)]);
}

/// A dirty key that is given up runs again, with a failure count of 0, even with strict backoff.
#[test]
fn a_marked_key_runs_again() {
    for strict in [false, true] {
        let (queue, _clock, given_up) = gives_up_after(1, strict);
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        queue.add("a").unwrap();
        lease.retry();
        assert_eq!(take(&given_up), [("a", 1)]);
        assert_eq!((queue.state(&"a"), queue.num_requeues(&"a")), (KeyState::Ready, 0));
        let lease = queue.try_get().unwrap();
        queue.add_after("a", ns(5)).unwrap();
        lease.retry();
        assert_eq!(take(&given_up), [("a", 1)]);
        assert_eq!(queue.state(&"a"), KeyState::Waiting(Nanos::new(5)), "giving the key up changed its wait");
    }
}

/// If `add_rate_limited` gives a key up, the error contains the key. The state of the key in the queue does not change.
#[test]
fn a_limited_add_that_is_one_too_many() {
    type Before = fn(&BackoffQueue);
    let states: [(Before, KeyState); 4] = [
        (|_| {}, KeyState::Absent),
        (|queue| drop(queue.add("a")), KeyState::Ready),
        (|queue| drop(queue.add_after("a", ns(50))), KeyState::Waiting(Nanos::new(60))),
        (
            |queue| {
                drop(queue.add("a"));
                let _ = queue.try_get().unwrap().detach();
                drop(queue.add_after("a", ns(50)));
            },
            KeyState::LeasedWaiting(Nanos::new(60)),
        ),
    ];
    for strict in [false, true] {
        for (before, state) in states {
            let (queue, clock, given_up) = gives_up_after(2, strict);
            assert_eq!(queue.add_rate_limited("a").unwrap(), Added::New);
            clock.set(Nanos::new(10));
            queue.try_get().unwrap().done();
            before(&queue);
            let refused = queue.add_rate_limited("a").unwrap_err();
            assert_eq!(
                (refused.kind(), refused.to_string().as_str()),
                (AddErrorKind::GivenUp, "the key has failed too often")
            );
            assert_eq!(refused.into_key(), "a");
            assert_eq!((take(&given_up), queue.num_requeues(&"a")), (vec![("a", 2)], 0));
            assert_eq!(queue.state(&"a"), state);
            queue.check().unwrap();
        }
    }
}

/// If a key is given up and the queue is full, the error is `GivenUp`, not `Full`.
#[test]
fn exhausted_comes_before_full() {
    let given_up = GivenUpKeys::default();
    let hook_keys = given_up.clone();
    let queue = Queue::builder()
        .timer(ManualClock::new().timer())
        .limiter(Exponential::new(ns(10)..=ns(100)))
        .capacity(1)
        .give_up_after(times(1), move |key, failures| hook_keys.lock().unwrap().push((*key, failures)))
        .build();
    queue.add("a").unwrap();
    assert_eq!(queue.add_rate_limited("b").unwrap_err().kind(), AddErrorKind::GivenUp);
    assert_eq!(take(&given_up), [("b", 1)]);
    queue.shut_down();
    assert_eq!(queue.add_rate_limited("b").unwrap_err().kind(), AddErrorKind::ShutDown);
    assert_eq!(take(&given_up), [], "a refused add counted a failure");
}

/// After shutdown a key that is given up is not a leftover. If the queue was stopped before, the hook is still called.
#[test]
fn a_key_given_up_after_shutdown_is_no_leftover() {
    for stop in [false, true] {
        let (queue, _clock, given_up) = gives_up_after(1, false);
        queue.add("a").unwrap();
        let lease = queue.try_get().unwrap();
        if stop {
            assert_eq!(lists(queue.stop_now()).2, ["a"]);
        } else {
            queue.shut_down();
        }
        lease.retry();
        assert_eq!(take(&given_up), [("a", 1)]);
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
        assert_eq!(lists(queue.stop_now()), (vec![], vec![], vec![]));
        queue.check().unwrap();
    }
}

/// With a limiter that counts no failures, no key is given up.
#[test]
fn a_limiter_that_does_not_count() {
    let clock = ManualClock::new();
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(Answers(|_| Failure { wait: ns(1), counted: true }))
        .give_up_after(times(1), |_, _| panic!("a key was given up"))
        .build();
    queue.add("a").unwrap();
    for _ in 0..20 {
        queue.try_get().unwrap().retry();
        clock.advance(ns(1));
    }
    assert_eq!(serve(&queue), 1);
}

/// The hook is called after the lease has ended, so the hook may call the queue, and the changes that it makes are kept.
#[test]
fn the_hook_calls_back() {
    let home: Arc<Mutex<Option<BackoffQueue>>> = Arc::default();
    let (clock, given_up_keys) = (ManualClock::new(), Queue::new());
    let (own_home, own_given_up_keys) = (home.clone(), given_up_keys.clone());
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(Exponential::new(ns(10)..=ns(100)))
        .capacity(1)
        .give_up_after(times(1), move |key: &&'static str, failures| {
            let queue = own_home.lock().unwrap().clone().unwrap();
            assert_eq!((queue.state(key), queue.num_requeues(key), failures), (KeyState::Absent, 0, 1));
            queue.check().unwrap();
            queue.add("from the hook").unwrap();
            assert!(queue.postpone(&"from the hook", ns(5)) && queue.cancel(&"from the hook"));
            queue.forget(key);
            drop(queue.keys());
            own_given_up_keys.add(*key).unwrap();
        })
        .build();
    *home.lock().unwrap() = Some(queue.clone());
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    assert_eq!(queue.add_rate_limited("b").unwrap_err().kind(), AddErrorKind::GivenUp);
    queue.add("c").unwrap();
    drop(queue.try_get().unwrap());
    let leases: Vec<_> = std::iter::from_fn(|| given_up_keys.try_get().ok()).collect();
    assert_eq!(crate::task::keys(&leases), ["a", "b", "c"]);
    // Breaks the cycle: the queue holds the hook, and the hook holds a handle to the queue.
    home.lock().unwrap().take();
}

/// If the hook panics, the lease has ended and all waiters have been woken. The hook is called again for the next key that is given up.
#[test]
fn the_hook_panics() {
    let clock = ManualClock::new();
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(Exponential::new(ns(10)..=ns(100)))
        .capacity(2)
        .give_up_after(times(1), |_, _| panic!("a hostile hook panics"))
        .build();
    _ = queue.add_many(["a", "b"]);
    let lease = queue.try_get().unwrap();
    let mut adder = Task::waiting(queue.add_when_room("c"));
    assert!(panics(|| lease.retry()));
    assert_eq!((queue.state(&"a"), queue.num_requeues(&"a")), (KeyState::Absent, 0));
    assert!(adder.was_woken());
    adder.finish().unwrap();
    let lease = queue.try_get().unwrap();
    assert!(panics(|| drop(lease)), "the panic of the hook did not propagate from the drop of the lease");
    assert!(panics(|| queue.add_rate_limited("d")));
    assert_eq!(queue.state(&"d"), KeyState::Absent);
    // If the hook panics while the worker is unwinding already, the process does not abort.
    let lease = queue.try_get().unwrap();
    assert!(panics(move || {
        let _lease = lease;
        panic!("the worker panics");
    }));
    assert!(crate::support::holds_nothing(&queue.stats()));
    queue.check().unwrap();
}

/// Several threads give keys up concurrently: the hook is called once for each key.
#[test]
fn the_hook_is_called_once_for_each_key_given_up() {
    let given_up = Arc::new(Mutex::new(0));
    let hook_keys = given_up.clone();
    let queue = Queue::builder()
        .limiter(FastSlow::new(Duration::ZERO, Duration::ZERO, 1))
        .give_up_after(times(1), move |_: &u32, failures| {
            assert_eq!(failures, 1);
            *hook_keys.lock().unwrap() += 1;
        })
        .build();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(lease) = queue.blocking_get() {
                    lease.retry();
                }
            });
        }
        for key in 0..2_000 {
            queue.add(key).unwrap();
        }
        drop(queue.blocking_drain(DrainOptions::unlimited()));
    });
    assert_eq!(*given_up.lock().unwrap(), 2_000);
}

/// Several threads give up the same key: each third failure gives the key up, and the failure count that the hook receives is always 3.
#[test]
fn threads_that_give_up_the_same_key() {
    const THREADS: usize = 3;
    const FAILURES: usize = 2_000;
    let (clock, hook_keys) = (ManualClock::new(), Arc::new(Mutex::new(Vec::new())));
    let given_up = hook_keys.clone();
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(FastSlow::new(Duration::ZERO, Duration::ZERO, 1))
        .give_up_after(times(3), move |key: &&'static str, failures| {
            hook_keys.lock().unwrap().push((*key, failures));
        })
        .build();
    let refused = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let failures = (0..FAILURES).map(|_| queue.add_rate_limited("a"));
                    let refused = failures.filter_map(Result::err);
                    refused.inspect(|error| assert_eq!(error.kind(), AddErrorKind::GivenUp)).count()
                })
            })
            .collect();
        // While the threads add the key, its leases fail, too.
        let mut failed = 0;
        while failed < FAILURES {
            match queue.try_get() {
                Ok(lease) => {
                    lease.retry();
                    failed += 1;
                }
                Err(_) => drop(queue.add("a").unwrap()),
            }
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    let given_up = given_up.lock().unwrap();
    assert!(
        given_up.iter().all(|given_up| *given_up == ("a", 3)),
        "the hook was called too early or too late"
    );
    let left = queue.num_requeues(&"a") as usize;
    assert_eq!(3 * given_up.len() + left, (THREADS + 1) * FAILURES, "a failure was lost or counted twice");
    assert!(refused > 0 && refused <= given_up.len(), "{refused} adds were refused");
    queue.check().unwrap();
}

/// A program that stores the failures of its keys adds them after a restart: the backoff goes on, and the failures count towards the limit.
#[test]
fn failures_survive_a_restart_of_the_program() {
    let clock = ManualClock::new();
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let given_up = given_up.clone();
        move |key: &&'static str, failures| given_up.lock().unwrap().push((*key, failures))
    };
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(Exponential::new(ns(10)..=ns(1_000)))
        .give_up_after(times(5), hook)
        .build();
    let stored = |failures| AddOptions { failures, ..AddOptions::default() };
    queue.add_with("a", stored(3)).unwrap();
    assert_eq!(
        (queue.num_requeues(&"a"), queue.state(&"a")),
        (3, KeyState::Ready),
        "a restart is no backoff"
    );
    queue.add_with("a", stored(2)).unwrap();
    queue.add_with("a", stored(0)).unwrap();
    assert_eq!(queue.num_requeues(&"a"), 3, "the failures only rise");
    queue.try_get().unwrap().retry();
    assert_eq!(queue.state(&"a"), KeyState::Waiting(Nanos::new(80)), "the wait after the fourth failure");
    clock.advance(ns(80));
    queue.try_get().unwrap().retry();
    assert_eq!(queue.state(&"a"), KeyState::Absent);
    assert_eq!(*given_up.lock().unwrap(), [("a", 5)]);
    // A key with more failures than the limit runs once more, like one whose limit was lowered.
    queue.add_with("b", stored(9)).unwrap();
    queue.try_get().unwrap().retry();
    assert_eq!(given_up.lock().unwrap().last(), Some(&("b", 10)));
    // A success forgets them.
    queue.add_with("c", AddOptions { delay: ns(1), ..stored(4) }).unwrap();
    clock.advance(ns(1));
    queue.try_get().unwrap().succeed();
    assert_eq!(queue.num_requeues(&"c"), 0);
    queue.shut_down();
    assert!(queue.add_with("d", stored(4)).is_err());
    assert_eq!(queue.num_requeues(&"d"), 0);
    queue.check().unwrap();
}

#[test]
fn a_queue_without_a_limiter_ignores_stored_failures() {
    let queue = Queue::new();
    queue.add_with("a", AddOptions { failures: 7, ..AddOptions::default() }).unwrap();
    assert_eq!(queue.num_requeues(&"a"), 0);
    queue.try_get().unwrap().retry();
    assert!(queue.has_ready());
}

/// A limiter gives a key up by a wait of `Duration::MAX`, here after the total time of its retries.
#[test]
fn a_key_is_given_up_when_its_next_attempt_would_start_too_late() {
    let fails: [fn(Held); 4] = [
        drop,
        Lease::retry,
        |lease| lease.end(LeaseOutcome::Failed { at_least: ns(1) }),
        |lease| lease.retry_up_to(times(u32::MAX), ns(0)).unwrap_err().succeed(),
    ];
    for (way, fail) in fails.into_iter().enumerate() {
        let (clock, given_up) = (ManualClock::new(), GivenUpKeys::default());
        let hook_keys = given_up.clone();
        let backoff = MaxElapsed::new(Exponential::new(ns(10)..=ns(1_000)), ns(30));
        let queue = Queue::builder()
            .timer(clock.timer())
            .limiter(backoff)
            .give_up_after(times(u32::MAX), move |key, failures| {
                hook_keys.lock().unwrap().push((*key, failures))
            })
            .build();
        clock.set(Nanos::new(5));
        queue.add("a").unwrap();
        for until in [15, 35] {
            queue.try_get().unwrap().retry();
            assert_eq!((deadline(&queue, "a"), take(&given_up)), (until, vec![]));
            clock.set(Nanos::new(until));
        }
        fail(queue.try_get().unwrap());
        let expected = if way == 3 { vec![] } else { vec![("a", 3)] };
        assert_eq!(take(&given_up), expected);
        assert_eq!((queue.state(&"a"), queue.num_requeues(&"a")), (KeyState::Absent, 0));
        queue.add("a").unwrap();
        queue.try_get().unwrap().retry();
        assert_eq!(deadline(&queue, "a"), 45, "the first failure was not forgotten");
        queue.check().unwrap();
    }
}

#[test]
fn a_limiter_that_gives_up_needs_no_option_of_the_queue() {
    let clock = ManualClock::new();
    let queue = Queue::builder()
        .timer(clock.timer())
        .limiter(MaxElapsed::new(Exponential::new(ns(10)..=ns(1_000)), ns(0)))
        .build();
    queue.add("a").unwrap();
    queue.try_get().unwrap().retry();
    assert_eq!((queue.state(&"a"), queue.num_requeues(&"a")), (KeyState::Absent, 0));
    assert_eq!(queue.add_rate_limited("a").unwrap_err().kind(), AddErrorKind::GivenUp);
    queue.check().unwrap();
}
