//! Classes of failures: each class has its own backoff, and its own rule for giving up.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flyball_controller::{Action, Controller, ControllerConfig, FailureClass, ReconcileError, RunReport};
use flyball_ratelimit::Exponential;
use flyball_sync::TokioTimer;
use flyball_workqueue::{Fifo, Queue};
use tokio::time::{Instant, sleep};

use crate::support::{Keys, Log, SECOND, left, panic_quietly, queue};

type Plain = Controller<u32, Fifo, Exponential<u32>, TokioTimer>;

const MILLI: Duration = Duration::from_millis(1);

/// An error that contains its failure class.
#[derive(Debug)]
struct ClassifiedError(FailureClass);

impl fmt::Display for ClassifiedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for ClassifiedError {}

fn class_of(failure: &ReconcileError) -> FailureClass {
    failure.downcast_ref::<ClassifiedError>().map_or(FailureClass::Transient, |error| error.0)
}

#[tokio::test(start_paused = true)]
async fn keeps_a_returned_reconcile_error() {
    let handed: [fn() -> ReconcileError; 3] = [
        || ReconcileError::Timeout(SECOND),
        || ReconcileError::Panic("boom".to_owned()),
        || ReconcileError::Error(Box::new(ClassifiedError(FailureClass::Permanent))),
    ];
    let runs = Log::new();
    for failure in handed {
        let (queue, seen) = (queue(), runs.clone());
        queue.add(1).unwrap();
        queue.shut_down();
        Controller::new(queue)
            .on_give_up(move |_, failure| seen.note(format!("{failure:?}")))
            .classify(|_| FailureClass::Permanent)
            .run(move |_, _| async move { Err::<Action, _>(failure()) })
            .await
            .unwrap();
    }
    assert_eq!(runs.take(), ["Timeout(1s)", "Panic(\"boom\")", "Error(ClassifiedError(Permanent))"]);
}

/// Adds key 1 and runs a controller. The first reconciles fail with the classes in `failures`, in this order; later ones succeed. Returns the start
/// times in milliseconds, and the report.
async fn run(
    queue: &Keys,
    failures: &'static [FailureClass],
    with: impl FnOnce(Plain) -> Plain,
) -> (Vec<u128>, RunReport<u32>) {
    let (log, begin) = (Log::new(), Instant::now());
    let (own_log, runs) = (log.clone(), AtomicUsize::new(0));
    queue.add(1).unwrap();
    let controller =
        Controller::new(queue.clone()).classify(class_of).graceful_shutdown_on(sleep(100 * SECOND));
    let report = with(controller)
        .run(move |_, _| {
            own_log.note(begin.elapsed().as_millis());
            let class = failures.get(runs.fetch_add(1, Ordering::Relaxed)).copied();
            async move { class.map_or(Ok(Action::await_change()), |class| Err(ClassifiedError(class))) }
        })
        .await
        .unwrap();
    queue.check().unwrap();
    (log.take(), report)
}

#[tokio::test(start_paused = true)]
async fn each_class_has_its_schedule() {
    use FailureClass::{Conflict, Permanent, Transient};
    let sequences: [(&[FailureClass], &[u128]); 5] = [
        (&[Transient, Transient], &[0, 1_000, 3_000]),
        (&[Conflict, Conflict, Conflict], &[0, 10, 30, 70]),
        (&[Permanent, Permanent], &[0]),
        // Each schedule counts only failures of its own class.
        (&[Transient, Conflict, Transient], &[0, 1_000, 1_010, 3_010]),
        (&[Conflict, Transient, Conflict], &[0, 10, 1_010, 1_030]),
    ];
    for (failures, expected) in sequences {
        let queue = queue();
        let (runs, report) = run(&queue, failures, |controller| controller).await;
        assert_eq!(runs, expected, "{failures:?}");
        let of = |class| failures.iter().take(runs.len()).filter(|of| **of == class).count() as u64;
        assert_eq!(report.errors, of(Conflict) + of(Transient) + of(Permanent), "{failures:?}");
        assert_eq!((report.conflicts, report.given_up), (of(Conflict), of(Permanent)), "{failures:?}");
        assert_eq!((queue.num_requeues(&1), left(&report)), (0, 0), "{failures:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_or_a_last_failure_forgets_the_conflicts() {
    for last in [None, Some(FailureClass::Permanent)] {
        let queue = queue();
        let (log, begin) = (Log::new(), Instant::now());
        let (own_log, adding) = (log.clone(), queue.clone());
        queue.add(1).unwrap();
        tokio::spawn(async move {
            sleep(SECOND).await;
            adding.add(1).unwrap();
        });
        let runs = AtomicUsize::new(0);
        let controller = Controller::new(queue).classify(class_of).graceful_shutdown_on(sleep(10 * SECOND));
        let reconcile = move |_, _| {
            own_log.note(begin.elapsed().as_millis());
            let run = runs.fetch_add(1, Ordering::Relaxed);
            let class = if run == 2 { last } else { Some(FailureClass::Conflict).filter(|_| run < 5) };
            async move { class.map_or(Ok(Action::await_change()), |class| Err(ClassifiedError(class))) }
        };
        controller.run(reconcile).await.unwrap();
        assert_eq!(
            log.take(),
            [0, 10, 30, 1_000, 1_010, 1_030],
            "{last:?}: the backoff of conflicts starts again"
        );
    }
}

/// A key that is cancelled while it waits leaves no conflicts behind once twice the longest wait is over.
#[tokio::test(start_paused = true)]
async fn the_conflicts_of_a_cancelled_key_are_forgotten() {
    let queue = queue();
    let (log, begin) = (Log::new(), Instant::now());
    let (own_log, cancelling) = (log.clone(), queue.clone());
    queue.add(1).unwrap();
    tokio::spawn(async move {
        sleep(100 * MILLI).await;
        assert!(cancelling.cancel(&1));
        sleep(4_900 * MILLI).await;
        cancelling.add(1).unwrap();
    });
    Controller::new(queue)
        .classify(class_of)
        .graceful_shutdown_on(sleep(5_100 * MILLI))
        .run(move |_, _| {
            own_log.note(begin.elapsed().as_millis());
            async { Err::<Action, _>(ClassifiedError(FailureClass::Conflict)) }
        })
        .await
        .unwrap();
    assert_eq!(log.take(), [0, 10, 30, 70, 5_000, 5_010, 5_030, 5_070]);
}

#[tokio::test(start_paused = true)]
async fn the_schedule_of_conflicts_may_be_chosen() {
    let config = ControllerConfig {
        conflict_backoff_initial: 100 * MILLI,
        conflict_backoff_max: 200 * MILLI,
        ..ControllerConfig::default()
    };
    let failures = &[FailureClass::Conflict; 4];
    let (runs, _) = run(&queue(), failures, |controller| controller.with_config(config)).await;
    assert_eq!(runs, [0, 100, 300, 500, 700]);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_used_up_by_transient_failures_alone() {
    use FailureClass::{Conflict, Transient};
    let given_up = Log::new();
    let own_given_up = given_up.clone();
    let failures = &[Transient, Conflict, Conflict, Conflict, Transient];
    let (runs, report) = run(&queue(), failures, |controller| {
        controller
            .with_config(ControllerConfig { max_attempts: Some(2), ..ControllerConfig::default() })
            .on_give_up(move |key, failure| own_given_up.note((*key, failure.to_string())))
    })
    .await;
    assert_eq!(runs, [0, 1_000, 1_010, 1_030, 1_070]);
    assert_eq!(given_up.take(), [(1, "Transient".to_owned())]);
    assert_eq!((report.given_up, report.retries()), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn reports_permanent_failures_and_accepts_the_key_again() {
    let (queue, given_up) = (queue(), Log::new());
    let own_given_up = given_up.clone();
    let failures = &[FailureClass::Permanent];
    let adding = queue.clone();
    tokio::spawn(async move {
        sleep(SECOND).await;
        adding.add(1).unwrap();
    });
    let (runs, _) =
        run(&queue, failures, |controller| controller.on_give_up(move |key, _| own_given_up.note(*key)))
            .await;
    assert_eq!((runs, given_up.take()), (vec![0, 1_000], vec![1]));
}

/// A key that must be retried when the controller has shut down is reported as a leftover, even after a conflict, although the queue no longer
/// accepts delayed adds.
#[tokio::test(start_paused = true)]
async fn leaves_retries_over_after_shutdown() {
    for (class, left_over) in
        [(FailureClass::Transient, 1), (FailureClass::Conflict, 1), (FailureClass::Permanent, 0)]
    {
        let queue = queue();
        queue.add(1).unwrap();
        let report = Controller::new(queue)
            .classify(class_of)
            .graceful_shutdown_on(sleep(SECOND))
            .run(move |_, _| async move {
                sleep(2 * SECOND).await;
                Err::<Action, _>(ClassifiedError(class))
            })
            .await
            .unwrap();
        assert_eq!(report.leftovers.waiting.len(), left_over, "{class:?}");
        assert_eq!((left(&report), report.reconciles), (left_over, 1), "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn classify_receives_every_kind_and_may_panic() {
    let queue = queue();
    (1..=4).for_each(|key| drop(queue.add(key)));
    let seen = Log::new();
    let own_log = seen.clone();
    let report = Controller::new(queue)
        .with_config(ControllerConfig { reconcile_timeout: Some(SECOND), ..ControllerConfig::default() })
        .classify(move |failure| {
            own_log.note(failure.to_string());
            match failure {
                ReconcileError::Error(_) => panic_quietly("an unknown error"),
                _ => FailureClass::Permanent,
            }
        })
        .graceful_shutdown_on(sleep(SECOND + SECOND / 2))
        .run(|key, _| async move {
            match key {
                2 => panic_quietly("boom"),
                3 => std::future::pending().await,
                4 => Ok(Action::await_change()),
                _ => Err("no luck"),
            }
        })
        .await
        .unwrap();
    let expected = ["no luck", "reconcile panicked: boom", "reconcile was not done after 1s", "no luck"];
    assert_eq!(seen.take(), expected);
    assert_eq!(
        (report.given_up, report.callback_panics, report.retries()),
        (2, 2, 2),
        "a panic of `classify` counts as transient"
    );
}

#[test]
fn an_error_is_found_among_the_causes() {
    #[derive(Debug)]
    struct Outer(ClassifiedError);
    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let failure = ReconcileError::Error(Box::new(Outer(ClassifiedError(FailureClass::Conflict))));
    assert_eq!(failure.downcast_ref::<ClassifiedError>().map(|error| error.0), Some(FailureClass::Conflict));
    assert!(failure.downcast_ref::<Outer>().is_some());
    assert!(failure.downcast_ref::<fmt::Error>().is_none());
    assert!(ReconcileError::Timeout(SECOND).downcast_ref::<ClassifiedError>().is_none());
}

/// The queue can also give a key up, after its own maximum number of failures. The conflicts of that key are then forgotten, too.
#[tokio::test(start_paused = true)]
async fn forgets_conflicts_of_keys_the_queue_gives_up() {
    use FailureClass::{Conflict, Transient};
    let queue: Keys = Queue::builder()
        .limiter(Exponential::new(SECOND..=60 * SECOND))
        .give_up_after(std::num::NonZeroU32::new(2).unwrap(), |_, _| {})
        .timer(TokioTimer::current())
        .build();
    let adding = queue.clone();
    tokio::spawn(async move {
        sleep(10 * SECOND).await;
        adding.add(1).unwrap();
    });
    let failures = &[Conflict, Transient, Conflict, Transient, Conflict];
    let (runs, _) = run(&queue, failures, |controller| controller).await;
    // A retry keeps the count of conflicts; giving up resets it.
    assert_eq!(runs, [0, 10, 1_010, 1_030, 10_000, 10_010]);
}

/// The key waits for the longer of the limiter's wait and the minimum wait. The minimum wait changes neither the count of failures nor the waits that
/// follow.
#[tokio::test(start_paused = true)]
async fn waits_at_least_the_minimum_after_a_transient_failure() {
    use FailureClass::{Conflict, Permanent, Transient};
    let (queue, asked) = (queue(), Log::new());
    let (own_log, waits) = (asked.clone(), AtomicUsize::new(0));
    let failures = &[Transient, Transient, Conflict, Transient, Transient, Transient, Permanent];
    let (runs, report) = run(&queue, failures, |controller| {
        controller
            .with_config(ControllerConfig { max_attempts: Some(9), ..ControllerConfig::default() })
            .on_give_up(|_, _| {})
            .retry_after_at_least(move |_, failure| {
                own_log.note(failure.to_string());
                match waits.fetch_add(1, Ordering::Relaxed) {
                    0 => Some(1_500 * MILLI),
                    1 => Some(1_500 * MILLI),
                    2 => None,
                    3 => panic_quietly("retry_after_at_least panics"),
                    _ => Some(17 * SECOND),
                }
            })
    })
    .await;
    // The waits: 1.5 s (minimum) instead of 1 s, 2 s (limiter), a conflict, 4 s and 8 s (limiter), 17 s (minimum) instead of 16 s.
    assert_eq!(runs, [0, 1_500, 3_500, 3_510, 7_510, 15_510, 32_510]);
    assert_eq!(asked.take(), ["Transient"; 5]);
    assert_eq!((report.callback_panics, report.errors, report.given_up), (1, 7, 1));
}

/// The key is added every 20 ms, and each reconcile conflicts. The wait grows once per completed wait, not once per add.
#[tokio::test(start_paused = true)]
async fn a_burst_of_adds_does_not_drive_up_the_wait_after_conflicts() {
    let queue = queue();
    let adding = queue.clone();
    tokio::spawn(async move {
        for _ in 0..20 {
            sleep(20 * MILLI).await;
            adding.add(1).unwrap();
        }
    });
    let config = ControllerConfig { conflict_backoff_max: 300 * SECOND, ..ControllerConfig::default() };
    let (log, begin) = (Log::new(), Instant::now());
    let own_log = log.clone();
    queue.add(1).unwrap();
    Controller::new(queue)
        .classify(class_of)
        .with_config(config)
        .graceful_shutdown_on(sleep(SECOND))
        .run(move |_, _| {
            own_log.note(begin.elapsed().as_millis());
            async { Err::<Action, _>(ClassifiedError(FailureClass::Conflict)) }
        })
        .await
        .unwrap();
    let runs = log.take();
    let retries: Vec<u128> = runs.into_iter().filter(|at| at % 20 != 0).collect();
    assert_eq!(retries, [10, 30, 70, 150, 310, 630]);
}
