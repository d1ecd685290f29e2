//! Runs a controller that is configured by `ControllerConfig`.

use flyball_controller::{Action, Controller, ControllerConfig, FailureClass};
use tokio::time::{Instant, sleep};

use crate::support::{Log, SECOND, queue};

/// Each setting of `ControllerConfig` takes effect.
#[tokio::test(start_paused = true)]
async fn a_controller_runs_as_it_is_configured() {
    let queue = queue();
    (1..=3).for_each(|key| drop(queue.add(key)));
    let (log, begin) = (Log::new(), Instant::now());
    let own_log = log.clone();
    let config = ControllerConfig {
        workers: (1..=3).into(),
        reconcile_timeout: Some(2 * SECOND),
        max_attempts: Some(2),
        conflict_backoff_initial: SECOND / 10,
        conflict_backoff_max: SECOND / 5,
        ..ControllerConfig::default()
    };
    let report = Controller::new(queue)
        .with_config(config)
        .classify(|failure| match failure.to_string().as_str() {
            "conflict" => FailureClass::Conflict,
            _ => FailureClass::Transient,
        })
        .graceful_shutdown_on(sleep(10 * SECOND))
        .run(move |key, _| {
            let at = begin.elapsed();
            own_log.note((key, at.as_millis()));
            async move {
                match key {
                    1 => Err("no luck"),
                    2 if at < SECOND => Err("conflict"),
                    2 => Ok(Action::await_change()),
                    _ => std::future::pending().await,
                }
            }
        })
        .await
        .unwrap();
    let of = |key: u32, runs: &[(u32, u128)]| {
        runs.iter().filter(|run| run.0 == key).map(|run| run.1).collect::<Vec<_>>()
    };
    let runs = log.take();
    assert_eq!(of(1, &runs), [0, 1_000], "two attempts");
    assert_eq!(of(2, &runs), [0, 100, 300, 500, 700, 900, 1_100]);
    assert_eq!(of(3, &runs), [0, 3_000], "a timeout of 2 s and a backoff of 1 s");
    assert_eq!((report.given_up, report.timeouts), (2, 2));
}
