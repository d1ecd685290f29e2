//! An invalid configuration of a controller is refused before anything starts.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_controller::{Action, Controller, ControllerConfig, RunError, WatchStatus};
use flyball_ratelimit::{Quota, TokenBucket};
use flyball_sync::TokioTimer;
use flyball_workqueue::{Fifo, Queue, Timer};

use crate::support::{HistorySource, Keys, SECOND, queue};

async fn refused<L, T>(controller: Controller<u32, Fifo, L, T>) -> &'static str
where
    L: flyball_workqueue::QueueLimiter<u32>,
    T: Timer,
{
    match controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await {
        Err(RunError::Config(error)) => error.setting(),
        other => panic!("the configuration was not refused: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_configurations_are_refused_and_start_nothing() {
    let waiting: Keys = queue();
    waiting.add(1).unwrap();
    let controller = || Controller::new(waiting.clone());
    assert_eq!(
        refused(
            controller().with_config(ControllerConfig { workers: 0.into(), ..ControllerConfig::default() })
        )
        .await,
        "workers"
    );
    assert_eq!(
        refused(
            controller()
                .with_config(ControllerConfig { workers: (0..=3).into(), ..ControllerConfig::default() })
        )
        .await,
        "workers"
    );
    let (more, fewer) = (3, 2);
    assert_eq!(
        refused(
            controller().with_config(ControllerConfig {
                workers: (more..=fewer).into(),
                ..ControllerConfig::default()
            })
        )
        .await,
        "workers"
    );
    assert_eq!(
        refused(controller().with_config(ControllerConfig {
            worker_idle_timeout: Duration::ZERO,
            ..ControllerConfig::default()
        }))
        .await,
        "worker_idle_timeout"
    );
    assert_eq!(
        refused(controller().with_config(ControllerConfig {
            reconcile_timeout: Some(Duration::ZERO),
            ..ControllerConfig::default()
        }))
        .await,
        "reconcile_timeout"
    );
    assert_eq!(
        refused(
            controller()
                .with_config(ControllerConfig { max_attempts: Some(0), ..ControllerConfig::default() })
                .on_give_up(|_, _| {})
        )
        .await,
        "max_attempts"
    );
    assert_eq!(
        refused(
            controller()
                .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
        )
        .await,
        "stop_when_idle"
    );
    assert_eq!(
        refused(
            controller().with_config(ControllerConfig {
                start_timeout: Duration::ZERO,
                ..ControllerConfig::default()
            })
        )
        .await,
        "start_timeout"
    );
    let bucket = TokenBucket::new(Quota::per_second(NonZeroU32::MIN));
    let uncounted = Queue::builder().timer(TokioTimer::current()).limiter(bucket).build();
    let refusal = refused(
        Controller::new(uncounted)
            .with_config(ControllerConfig { max_attempts: Some(3), ..ControllerConfig::default() })
            .on_give_up(|_, _| {}),
    )
    .await;
    assert_eq!(refusal, "limiter");
    assert_eq!(waiting.ready_len(), 1, "the key stays in the queue");
    assert!(!waiting.is_shutting_down());

    let things = HistorySource::new().informer();
    things.shut_down();
    let right = controller().watches(&things, |change| *change.key()).with_config(ControllerConfig {
        workers: 1.into(),
        reconcile_timeout: Some(SECOND),
        max_attempts: Some(1),
        ..ControllerConfig::default()
    });
    let run = right.on_give_up(|_, _| {}).run(|_, _| async { Ok::<_, String>(Action::await_change()) });
    let ended = run.await;
    assert!(
        matches!(ended, Err(RunError::CacheEnded(WatchStatus { index: 0, synced: false, .. }))),
        "the configuration is valid, so the controller ran until the cache ended"
    );
}

#[test]
fn errors_read_as_sentences_and_can_be_sent() {
    fn error<E: std::error::Error + Send + Sync + 'static>(error: E) -> String {
        error.to_string()
    }
    let why = std::sync::Arc::new(std::io::Error::other("no permission"));
    let message = "a start condition failed: no permission";
    assert_eq!(error(RunError::StartFailed(why)), message);
}
