//! An invalid configuration of a controller is refused before anything starts.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_controller::{Action, Controller, InvalidControllerConfig, RunError, StartCondition};
use flyball_ratelimit::{Quota, TokenBucket};
use flyball_sync::TokioTimer;
use flyball_workqueue::{Fifo, Queue, Timer};

use crate::support::{HistorySource, Keys, SECOND, queue};

async fn refused<L, T>(controller: Controller<u32, Fifo, L, T>) -> InvalidControllerConfig
where
    L: flyball_workqueue::QueueLimiter<u32>,
    T: Timer,
{
    match controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await {
        Err(RunError::Config(error)) => error,
        other => panic!("the configuration was not refused: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_configurations_are_refused_and_start_nothing() {
    let waiting: Keys = queue();
    waiting.add(1).unwrap();
    let controller = || Controller::new(waiting.clone());
    assert_eq!(refused(controller().workers(0)).await, InvalidControllerConfig::ZeroWorkers);
    assert_eq!(refused(controller().workers(0..=3)).await, InvalidControllerConfig::ZeroWorkers);
    let (more, fewer) = (3, 2);
    assert_eq!(
        refused(controller().workers(more..=fewer)).await,
        InvalidControllerConfig::MaxWorkersBelowMin
    );
    assert_eq!(
        refused(controller().worker_idle_timeout(Duration::ZERO)).await,
        InvalidControllerConfig::ZeroWorkerIdleTimeout
    );
    assert_eq!(
        refused(controller().reconcile_timeout(Duration::ZERO)).await,
        InvalidControllerConfig::ZeroReconcileTimeout
    );
    assert_eq!(
        refused(controller().max_attempts(0).on_give_up(|_, _| {})).await,
        InvalidControllerConfig::ZeroMaxAttempts
    );
    assert_eq!(refused(controller().stop_when_idle()).await, InvalidControllerConfig::NoInformers);
    assert_eq!(
        refused(controller().cache_sync_timeout(Duration::ZERO)).await,
        InvalidControllerConfig::ZeroCacheSyncTimeout
    );
    let bucket = TokenBucket::new(Quota::per_second(NonZeroU32::MIN));
    let uncounted = Queue::builder().timer(TokioTimer::current()).limiter(bucket).build();
    let refusal = refused(Controller::new(uncounted).max_attempts(3).on_give_up(|_, _| {})).await;
    assert_eq!(refusal, InvalidControllerConfig::LimiterCountsNoFailures);
    assert_eq!(waiting.ready_len(), 1, "the key stays in the queue");
    assert!(!waiting.is_shutting_down());

    let things = HistorySource::new().informer();
    things.shut_down();
    let right = controller().watches(&things, |change| *change.key()).workers(1).reconcile_timeout(SECOND);
    let run = right
        .max_attempts(1)
        .on_give_up(|_, _| {})
        .run(|_, _| async { Ok::<_, String>(Action::await_change()) });
    let ended = run.await;
    assert!(
        matches!(ended, Err(RunError::SyncFailed(StartCondition::Cache { index: 0, .. }))),
        "the configuration is valid, so the controller ran until the cache ended"
    );
}

#[test]
fn errors_read_as_sentences_and_can_be_sent() {
    fn error<E: std::error::Error + Send + Sync + 'static>(error: E) -> String {
        error.to_string()
    }
    assert_eq!(
        error(RunError::from(InvalidControllerConfig::ZeroWorkers)),
        "a controller needs at least one worker"
    );
    let cache = StartCondition::Cache { index: 2, object_type: "Pod" };
    let message = "the informer of `Pod`, number 2, ended before it had synced";
    assert_eq!(error(RunError::SyncFailed(cache)), message);
    let why = std::sync::Arc::new(std::io::Error::other("no permission"));
    let message = "start condition 1 failed: no permission";
    assert_eq!(error(RunError::SyncFailed(StartCondition::Future { index: 1, error: why })), message);
}
