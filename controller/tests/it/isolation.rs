//! An error, a panic or a timeout is a failure of its key alone: the key is retried with backoff, and other keys are not affected.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use flyball_controller::{Action, BatchConfig, Context, Controller, ControllerConfig, RunReport};
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
    static CLONES: AtomicU32 = AtomicU32::new(0);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            // The queue makes the first clone, for the lease; the worker makes the second clone, which panics.
            if self.0 == 1 && CLONES.fetch_add(1, Ordering::Relaxed) == 1 {
                panic_quietly("clone");
            }
            Self(self.0)
        }
    }
    for batches in [false, true] {
        CLONES.store(0, Ordering::Relaxed);
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
            let each = BatchConfig::new(1);
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

/// A key of the queue, which counts how many clones are between it and the key that was added.
#[derive(Debug)]
struct FragileKey(u32, u32);

impl Clone for FragileKey {
    fn clone(&self) -> Self {
        Self(self.0, self.1 + 1)
    }
}

impl PartialEq for FragileKey {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for FragileKey {}

impl std::hash::Hash for FragileKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

static ARMED: AtomicBool = AtomicBool::new(false);

impl Drop for FragileKey {
    fn drop(&mut self) {
        // The queue makes the first clone, for the lease; the worker makes the second one.
        if (self.0, self.1) == (1, 2) && ARMED.swap(false, Ordering::Relaxed) {
            panic_quietly("a key panics when it is dropped");
        }
    }
}

/// A worker clones a key before it tests whether the key is its own, and drops the clone if it is not.
#[tokio::test(start_paused = true)]
async fn a_rejected_key_that_panics_when_dropped_does_not_end_the_run() {
    for batches in [false, true] {
        let limit = flyball_ratelimit::Exponential::new(SECOND..=SECOND);
        let timer = flyball_sync::TokioTimer::current();
        let queue = flyball_workqueue::Queue::builder().limiter(limit).timer(timer).build();
        let _ = queue.add_many([FragileKey(1, 0), FragileKey(2, 0)]);
        let calls = AtomicU32::new(0);
        let controller = Controller::new(queue)
            .filter_keys(move |key: &FragileKey| {
                // The filter is called for a batch when the key joins it, and once more when the batch begins.
                let last = !batches || calls.fetch_add(1, Ordering::Relaxed) >= 2;
                ARMED.fetch_or(last && key.0 == 1, Ordering::Relaxed);
                !last || key.0 != 1
            })
            .graceful_shutdown_on(sleep(SECOND / 2));
        let report = if batches {
            let well = |keys: Vec<FragileKey>, _| async move {
                Ok::<_, String>(keys.iter().map(|_| Ok(Action::await_change())).collect())
            };
            controller.run_batches(BatchConfig::new(2), well).await.unwrap()
        } else {
            controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await.unwrap()
        };
        assert!(!ARMED.load(Ordering::Relaxed));
        assert_eq!((report.reconciles, report.filtered_keys, report.callback_panics), (1, 1, 1));
    }
}

/// An error. If it is armed, its drop panics.
#[derive(Debug)]
struct FragileError(bool);

impl std::fmt::Display for FragileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an error panics when it is dropped")
    }
}

impl std::error::Error for FragileError {}

impl Drop for FragileError {
    fn drop(&mut self) {
        if self.0 {
            panic_quietly("an error panics when it is dropped");
        }
    }
}

/// A future that returns an error whose drop panics, and whose own drop panics, too.
struct FailsAndPanics {
    _panic_on_drop: PanicOnDrop,
}

impl Future for FailsAndPanics {
    type Output = Result<Action, FragileError>;

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        std::task::Poll::Ready(Err(FragileError(true)))
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_panics_when_dropped_does_not_end_the_run() {
    const FRAGILE: FragileError = FragileError(true);
    let controller = || {
        let queue = queue();
        let _ = queue.add_many([1, 2]);
        Controller::new(queue).graceful_shutdown_on(sleep(SECOND / 2))
    };
    let counts = |report: RunReport<u32>| (report.errors, report.panics, report.callback_panics);
    let report = controller().run(|_, _| async { Err::<Action, _>(FRAGILE) }).await.unwrap();
    assert_eq!(counts(report), (2, 0, 2), "of a reconcile");
    let report = controller()
        .finally(|_, _, _| async { Err::<(), _>(FRAGILE) })
        .run(|_, _| async { Err::<Action, _>(FragileError(false)) })
        .await
        .unwrap();
    assert_eq!(counts(report), (2, 0, 2), "of `finally`, after a failed reconcile");
    let report = controller().run(|_, _| FailsAndPanics { _panic_on_drop: PanicOnDrop(true) }).await.unwrap();
    assert_eq!(counts(report), (0, 2, 0), "of a reconcile that panics when it is dropped");
    for results in [2, 3] {
        let report = controller()
            .run_batches(BatchConfig::new(2), move |_: Vec<u32>, _| async move {
                Ok::<_, FragileError>((0..results).map(|_| Err(FRAGILE)).collect())
            })
            .await
            .unwrap();
        assert_eq!(counts(report), (2, 0, results), "of {results} results of two keys");
    }
}
