//! An error, a panic or a timeout is a failure of its key alone: the key is retried with backoff, and other keys are not affected.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::{Action, Context, Controller, ControllerConfig, RunReport};
use parking_lot::Mutex;
use tokio::time::{Instant, advance, sleep};

use crate::support::{Keys, Log, SECOND, left, panic_quietly, queue, run_until_pending};

/// How the reconcile of key 1 fails; key 2 always succeeds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FailureMode {
    ReturnsAnError,
    PanicsAtOnce,
    PanicsLater,
    PanicsWhenDropped,
    NeverReturns,
}

struct PanicOnDrop(bool);

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        if self.0 {
            panic_quietly("a future panics when it is dropped");
        }
    }
}

/// Runs a controller in which key 1 fails twice. Returns the time of each run in seconds, and the report.
async fn run(badly: FailureMode) -> (Vec<(u32, u64)>, RunReport<u32>) {
    let queue: Keys = queue();
    queue.add(1).unwrap();
    queue.add(2).unwrap();
    let (log, begin) = (Log::new(), Instant::now());
    let own_log = log.clone();
    let tries = Arc::new(Mutex::new(HashMap::<u32, u32>::new()));
    let reconcile = move |key: u32, _: Context| {
        own_log.note((key, begin.elapsed().as_secs()));
        let mut tries = tries.lock();
        let before = tries.entry(key).or_default();
        *before += 1;
        let fails = key == 1 && *before <= 2;
        drop(tries);
        if fails && badly == FailureMode::PanicsAtOnce {
            panic_quietly("a panic before the future is returned");
        }
        async move {
            let _panic_on_drop = PanicOnDrop(fails && badly == FailureMode::PanicsWhenDropped);
            tokio::task::yield_now().await;
            match badly {
                FailureMode::ReturnsAnError if fails => return Err("it fails"),
                FailureMode::PanicsLater if fails => panic_quietly("a panic after the first poll"),
                FailureMode::NeverReturns if fails => std::future::pending().await,
                _ => {}
            }
            Ok(Action::await_change())
        }
    };
    let controller = Controller::new(queue.clone())
        .with_config(ControllerConfig { reconcile_timeout: Some(10 * SECOND), ..ControllerConfig::default() })
        .graceful_shutdown_on(sleep(100 * SECOND));
    let report = controller.run(reconcile).await.unwrap();
    assert_eq!(left(&report), 0);
    assert_eq!(queue.num_requeues(&1), 0, "the success resets the count of failures");
    queue.check().unwrap();
    (log.take(), report)
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_any_kind_is_retried_with_backoff_and_delays_no_other_key() {
    let counts = |report: &RunReport<u32>| (report.errors, report.panics, report.timeouts);
    for (badly, expected) in [
        (FailureMode::ReturnsAnError, (2, 0, 0)),
        (FailureMode::PanicsAtOnce, (0, 2, 0)),
        (FailureMode::PanicsLater, (0, 2, 0)),
        (FailureMode::PanicsWhenDropped, (0, 2, 0)),
    ] {
        let (runs, report) = run(badly).await;
        assert_eq!(runs, [(1, 0), (2, 0), (1, 1), (1, 3)], "{badly:?}: backoff of 1 s, then 2 s");
        assert_eq!(counts(&report), expected, "{badly:?}");
        assert_eq!((report.reconciles, report.retries()), (4, 2), "{badly:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_takes_too_long_is_dropped_and_retried() {
    let (runs, report) = run(FailureMode::NeverReturns).await;
    assert_eq!(runs, [(1, 0), (2, 10), (1, 11), (1, 23)], "10 s each, then 1 s and 2 s of backoff");
    assert_eq!((report.timeouts, report.reconciles, report.retries()), (2, 4, 2));
}

#[tokio::test(start_paused = true)]
async fn requeue_after_adds_the_key_again() {
    let queue = queue();
    queue.add(1).unwrap();
    let (log, begin) = (Log::new(), Instant::now());
    let own_log = log.clone();
    let running = tokio::spawn(Controller::new(queue.clone()).run(move |key, _| {
        own_log.note((key, begin.elapsed()));
        async { Ok::<_, String>(Action::requeue_after(Duration::from_secs(300))) }
    }));
    run_until_pending().await;
    assert_eq!(log.take(), [(1, Duration::ZERO)]);
    advance(Duration::from_millis(299_999)).await;
    run_until_pending().await;
    assert_eq!(log.take(), [], "the key must not run a millisecond early");
    advance(Duration::from_millis(2)).await;
    run_until_pending().await;
    assert_eq!(log.take().len(), 1);
    queue.add(1).unwrap();
    run_until_pending().await;
    assert_eq!(log.take().len(), 1, "an add must end the delay");
    running.abort();
}

/// `Clone` of a key is user code, too. If `Clone` panics in a worker, only that key fails.
#[tokio::test(start_paused = true)]
async fn a_key_that_panics_when_it_is_cloned_fails_alone() {
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Fragile(u32);
    static CLONES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            // The queue makes the first clone, for the lease; the worker makes the second clone, which panics.
            if self.0 == 1 && CLONES.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
                panic_quietly("clone");
            }
            Self(self.0)
        }
    }
    for batches in [false, true] {
        CLONES.store(0, std::sync::atomic::Ordering::Relaxed);
        let limit = flyball_ratelimit::Exponential::new(SECOND..=SECOND);
        let timer = flyball_sync::TokioTimer::current();
        let queue = flyball_workqueue::Queue::builder().limiter(limit).timer(timer).build();
        queue.add(Fragile(1)).unwrap();
        queue.add(Fragile(2)).unwrap();
        let controller = Controller::new(queue)
            .with_config(ControllerConfig { max_attempts: Some(1), ..ControllerConfig::default() })
            .on_give_up(|_, _| {})
            .graceful_shutdown_on(sleep(SECOND / 2));
        let report = if batches {
            let each = flyball_controller::BatchConfig::new(1);
            let well = |keys: Vec<Fragile>, _| async move {
                Ok::<_, String>(keys.iter().map(|_| Ok(Action::await_change())).collect())
            };
            controller.run_batches(each, well).await.unwrap()
        } else {
            controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await.unwrap()
        };
        assert_eq!((report.reconciles, report.panics, report.given_up), (2, 1, 1));
    }
}
