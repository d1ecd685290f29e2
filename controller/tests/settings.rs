//! Settings as data: what is written is read, and every rule refuses a file.
//!
//! Apart from the other tests: with `serde_json` in sight, an empty list has more than one type.

use std::time::Duration;

use flyball_controller::{ConfigError, Controller, NoSuchShard, Settings, Shard};
use serde_json::{from_str, to_string};

const FULL: &str = r#"{"workers":3,"most_workers":9,"worker_linger":"30s","reconcile_timeout":"2s","max_attempts":2,"conflict_wait":"100ms","longest_conflict_wait":"200ms","cache_sync_timeout":"3m","shutdown_grace":"1m","abort_after":"10s","drain_on_shutdown":true}"#;

#[test]
fn what_is_written_is_read() {
    let settings: Settings = from_str(FULL).unwrap();
    assert_eq!(to_string(&settings).unwrap(), FULL);
    assert_eq!(settings.shutdown_grace, Duration::from_secs(60));
    assert_eq!(from_str::<Settings>("{}").unwrap(), Settings::default());
    assert_eq!(from_str::<Settings>(r#"{"reconcile_timeout":null}"#).unwrap(), Settings::default());
    let default = r#"{"workers":1,"worker_linger":"10s","conflict_wait":"10ms","longest_conflict_wait":"1s","cache_sync_timeout":"2m","shutdown_grace":"20s","abort_after":"5s","drain_on_shutdown":false}"#;
    assert_eq!(to_string(&Settings::default()).unwrap(), default);
}

#[test]
fn what_nobody_knows_is_refused() {
    for (file, why) in [
        (r#"{"worker":3}"#, "unknown field `worker`"),
        (r#"{"workers":-1}"#, "invalid value"),
        (r#"{"reconcile_timeout":5}"#, "a span of time"),
        (r#"{"conflict_wait":"soon"}"#, "\"soon\", expected a span of time"),
        (r#"{"conflict_wait":null}"#, "a span of time"),
    ] {
        let error = from_str::<Settings>(file).unwrap_err().to_string();
        assert!(error.contains(why), "{file}: {error}");
    }
}

#[test]
fn every_rule_refuses_a_file_and_names_the_setting() {
    for (file, expected) in [
        (r#"{"workers":0}"#, ConfigError::NoWorkers),
        (r#"{"workers":3,"most_workers":2}"#, ConfigError::FewerWorkers),
        (r#"{"worker_linger":"0s"}"#, ConfigError::NoLinger),
        (r#"{"reconcile_timeout":"0s"}"#, ConfigError::NoTime),
        (r#"{"max_attempts":0}"#, ConfigError::NoAttempts),
        (r#"{"conflict_wait":"0s"}"#, ConfigError::NoConflictWait),
        (r#"{"conflict_wait":"2s","longest_conflict_wait":"1s"}"#, ConfigError::ConflictWaits),
    ] {
        let settings: Settings = from_str(file).unwrap();
        assert_eq!(settings.check(), Err(expected), "{file}");
        assert!(file.contains(expected.setting()), "{file}: {}", expected.setting());
        let refused = Controller::new(flyball_workqueue::Queue::<u32>::builder().timer(Never).build());
        assert_eq!(refused.configured(&settings).err(), Some(expected), "{file}");
    }
}

/// A timer for a queue that is never waited at.
struct Never;

impl flyball_sync::Clock for Never {
    fn now(&self) -> flyball_sync::Nanos {
        flyball_sync::Nanos::ZERO
    }
}

impl flyball_sync::Timer for Never {
    fn wake_at(&self, _: flyball_sync::Nanos, _: &std::task::Waker) {}
}

#[test]
fn a_shard_of_a_file_is_one_there_is() {
    let shard: Shard = from_str(r#"{"index":1,"of":3}"#).unwrap();
    assert_eq!(
        (shard, to_string(&shard).unwrap().as_str()),
        (Shard::new(1, 3).unwrap(), r#"{"index":1,"of":3}"#)
    );
    let refused: NoSuchShard = Shard::new(3, 3).unwrap_err();
    assert!(
        from_str::<Shard>(r#"{"index":3,"of":3}"#).unwrap_err().to_string().contains(&refused.to_string())
    );
    assert!(from_str::<Shard>(r#"{"index":0,"of":3,"total":4}"#).is_err());
}
