//! Serialisation of `ControllerConfig`: a serialised configuration can be read back, and a file that violates any rule is rejected.
//!
//! These tests have their own binary, because `serde_json` makes the type of an empty list in an assertion ambiguous.

use std::time::Duration;

use flyball_controller::{Action, Controller, ControllerConfig, InvalidShard, RunError, Shard};
use futures_util::FutureExt;
use serde_json::{from_str, to_string};

const FULL: &str = r#"{"workers":{"min":3,"max":9},"worker_idle_timeout":"30s","reconcile_timeout":"2s","max_attempts":2,"max_failing_in_flight":1,"conflict_backoff_initial":"100ms","conflict_backoff_max":"200ms","requeue_spread_percent":5,"start_before_sync":true,"start_timeout":"3m","shutdown_grace":"1m","abort_after":"10s","drain_on_shutdown":true,"stop_when_idle":true}"#;

#[test]
fn what_is_written_is_read() {
    let settings: ControllerConfig = from_str(FULL).unwrap();
    assert_eq!(to_string(&settings).unwrap(), FULL);
    assert_eq!(settings.shutdown_grace, Duration::from_secs(60));
    assert_eq!(from_str::<ControllerConfig>("{}").unwrap(), ControllerConfig::default());
    assert_eq!(
        from_str::<ControllerConfig>(r#"{"reconcile_timeout":null}"#).unwrap(),
        ControllerConfig::default()
    );
    let default = r#"{"workers":1,"worker_idle_timeout":"10s","conflict_backoff_initial":"10ms","conflict_backoff_max":"1s","requeue_spread_percent":0,"start_before_sync":false,"start_timeout":"2m","shutdown_grace":"20s","abort_after":"5s","drain_on_shutdown":false,"stop_when_idle":false}"#;
    assert_eq!(to_string(&ControllerConfig::default()).unwrap(), default);
}

#[test]
fn refuses_unknown_settings() {
    for (file, why) in [
        (r#"{"worker":3}"#, "unknown field `worker`"),
        (r#"{"workers":-1}"#, "must be a number, or a map"),
        (r#"{"workers":{"min":1,"most":2}}"#, "must be a number, or a map"),
        (r#"{"reconcile_timeout":5}"#, "a span of time"),
        (r#"{"conflict_backoff_initial":"soon"}"#, "\"soon\", expected a span of time"),
        (r#"{"conflict_backoff_initial":null}"#, "a span of time"),
    ] {
        let error = from_str::<ControllerConfig>(file).unwrap_err().to_string();
        assert!(error.contains(why), "{file}: {error}");
    }
}

#[test]
fn every_rule_refuses_a_file_and_names_the_setting() {
    for (file, expected) in [
        (r#"{"workers":0}"#, "workers"),
        (r#"{"workers":{"min":3,"max":2}}"#, "workers"),
        (r#"{"worker_idle_timeout":"0s"}"#, "worker_idle_timeout"),
        (r#"{"reconcile_timeout":"0s"}"#, "reconcile_timeout"),
        (r#"{"max_attempts":0}"#, "max_attempts"),
        (r#"{"max_failing_in_flight":0}"#, "max_failing_in_flight"),
        (r#"{"conflict_backoff_initial":"0s"}"#, "conflict_backoff_initial"),
        (r#"{"conflict_backoff_initial":"2s","conflict_backoff_max":"1s"}"#, "conflict_backoff_max"),
    ] {
        let config: ControllerConfig = from_str(file).unwrap();
        let backoff = flyball_ratelimit::Exponential::new(Duration::from_secs(1)..=Duration::from_secs(1));
        let queue = flyball_workqueue::Queue::<u32>::builder().limiter(backoff).timer(UnusedTimer).build();
        let run = Controller::new(queue)
            .with_config(config)
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) });
        // Polled without a runtime: nothing has started.
        let Some(Err(RunError::Config(refused))) = run.now_or_never() else { panic!("{file} is accepted") };
        assert_eq!(refused.setting(), expected, "{file}");
        assert!(file.contains(expected), "{file}: {expected}");
    }
}

/// A timer whose alarms are never set.
struct UnusedTimer;

impl flyball_sync::Clock for UnusedTimer {
    fn now(&self) -> flyball_sync::Nanos {
        flyball_sync::Nanos::ZERO
    }
}

impl flyball_sync::Timer for UnusedTimer {
    fn wake_at(&self, _: flyball_sync::Nanos, _: &std::task::Waker) {}
}

#[test]
fn a_shard_of_a_file_is_one_there_is() {
    let shard: Shard = from_str(r#"{"index":1,"of":3}"#).unwrap();
    assert_eq!(
        (shard, to_string(&shard).unwrap().as_str()),
        (Shard::new(1, 3).unwrap(), r#"{"index":1,"of":3}"#)
    );
    let refused: InvalidShard = Shard::new(3, 3).unwrap_err();
    assert!(
        from_str::<Shard>(r#"{"index":3,"of":3}"#).unwrap_err().to_string().contains(&refused.to_string())
    );
    assert!(from_str::<Shard>(r#"{"index":0,"of":3,"total":4}"#).is_err());
}
