//! The reports that `ControllerMetrics` receives: the outcome and the duration of each reconcile, and successes after failures.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use flyball_controller::{
    Action, Controller, ControllerConfig, ControllerMetrics, FailureClass, ReconcileOutcome,
};
use tokio::time::sleep;

use crate::support::{Log, SECOND, panic_quietly, queue, run_until_pending};

#[derive(Clone, Debug, PartialEq)]
enum Report {
    Started,
    Ended(ReconcileOutcome, Duration),
    Dropped,
    Recovered(u32),
    GaveUp(FailureClass),
}

impl ControllerMetrics for Log<Report> {
    fn reconcile_started(&self) {
        self.note(Report::Started);
    }

    fn reconcile_ended(&self, outcome: ReconcileOutcome, took: Duration) {
        self.note(Report::Ended(outcome, took));
    }

    fn reconcile_dropped(&self) {
        self.note(Report::Dropped);
    }

    fn retry_succeeded(&self, failures: u32) {
        self.note(Report::Recovered(failures));
    }

    fn gave_up(&self, class: FailureClass) {
        self.note(Report::GaveUp(class));
    }
}

#[tokio::test(start_paused = true)]
async fn reports_every_outcome_with_its_duration() {
    use Report::{Ended, GaveUp, Recovered, Started};
    let (queue, reports) = (queue(), Log::new());
    queue.add(1).unwrap();
    let runs = AtomicU32::new(0);
    let report = Controller::new(queue)
        .metrics(reports.clone())
        .classify(|failure| match failure.to_string().as_str() {
            "conflict" => FailureClass::Conflict,
            "hopeless" => FailureClass::Permanent,
            _ => FailureClass::Transient,
        })
        .with_config(ControllerConfig { reconcile_timeout: Some(9 * SECOND), ..ControllerConfig::default() })
        .graceful_shutdown_on(sleep(100 * SECOND))
        .run(move |_, _| {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            async move {
                sleep((run + 1) * SECOND).await;
                match run {
                    0 => Err("no luck"),
                    1 => panic_quietly("boom"),
                    2 => Err("conflict"),
                    3 => Ok(Action::requeue_after(SECOND)),
                    4 => pending().await,
                    5 => Ok(Action::requeue_after(SECOND)),
                    6 => Err("hopeless"),
                    _ => Ok(Action::await_change()),
                }
            }
        })
        .await
        .unwrap();
    let ended = |outcome, seconds: u32| Ended(outcome, seconds * SECOND);
    let expected = [
        vec![Started, ended(ReconcileOutcome::Failed(FailureClass::Transient), 1)],
        vec![Started, ended(ReconcileOutcome::Panicked(FailureClass::Transient), 2)],
        vec![Started, ended(ReconcileOutcome::Failed(FailureClass::Conflict), 3)],
        vec![Started, Recovered(3), ended(ReconcileOutcome::Requeued, 4)],
        vec![Started, ended(ReconcileOutcome::TimedOut(FailureClass::Transient), 9)],
        vec![Started, Recovered(1), ended(ReconcileOutcome::Requeued, 6)],
        vec![
            Started,
            GaveUp(FailureClass::Permanent),
            ended(ReconcileOutcome::Failed(FailureClass::Permanent), 7),
        ],
    ];
    assert_eq!(reports.take(), expected.concat());
    assert_eq!((report.reconciles, report.requeues, report.failures()), (7, 2, 5));
    assert_eq!((report.errors, report.panics, report.timeouts), (3, 1, 1));
    assert_eq!((report.conflicts, report.given_up, report.successful_retries), (1, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_success_at_the_first_try_recovers_nothing_and_without_metrics_nothing_is_timed() {
    for measured in [false, true] {
        let queue = queue();
        queue.add(1).unwrap();
        let controller = Controller::new(queue.clone()).graceful_shutdown_on(sleep(10 * SECOND));
        let controller = if measured { controller.metrics(Log::<Report>::new()) } else { controller };
        let report = controller
            .run(|_, _| async {
                sleep(SECOND).await;
                Ok::<_, String>(Action::await_change())
            })
            .await
            .unwrap();
        assert_eq!((report.reconciles, report.successful_retries), (1, 0));
        assert_eq!(queue.stats().ages_tracked, measured, "the clock is read only if there are metrics");
    }
}

#[tokio::test(start_paused = true)]
async fn reports_a_dropped_reconcile() {
    let (queue, reports) = (queue(), Log::new());
    queue.add(1).unwrap();
    let controller = Controller::new(queue).metrics(reports.clone());
    let running = tokio::spawn(controller.run(|_, _| pending::<Result<Action, String>>()));
    run_until_pending().await;
    assert_eq!(reports.take(), [Report::Started]);
    running.abort();
    run_until_pending().await;
    assert_eq!(reports.take(), [Report::Dropped]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_sink_has_no_effect() {
    struct PanickingMetrics;
    impl ControllerMetrics for PanickingMetrics {
        fn reconcile_started(&self) {
            panic_quietly("started");
        }

        fn reconcile_ended(&self, _: ReconcileOutcome, _: Duration) {
            panic_quietly("ended");
        }

        fn retry_succeeded(&self, _: u32) {
            panic_quietly("retry_succeeded");
        }
    }
    let queue = queue();
    queue.add(1).unwrap();
    let first = AtomicU32::new(0);
    let report = Controller::new(queue.clone())
        .metrics(PanickingMetrics)
        .graceful_shutdown_on(sleep(10 * SECOND))
        .run(move |_, _| {
            let first = first.fetch_add(1, Ordering::Relaxed) == 0;
            async move { if first { Err("no luck") } else { Ok(Action::await_change()) } }
        })
        .await
        .unwrap();
    assert_eq!(
        (report.reconciles, report.errors, report.successful_retries, report.callback_panics),
        (2, 1, 1, 5)
    );
    assert_eq!(queue.num_requeues(&1), 0);
}
