//! Tests of the configuration of a reflector in JSON. A configuration that was written can be read again; unknown fields and malformed values are
//! refused; and for each rule of `validate`, a configuration that breaks the rule is refused.
//!
//! These tests are a separate binary: if the other tests were compiled with `serde_json`, the type of an empty list would be ambiguous in them.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_informer_cache::ReflectorConfig;
use serde_json::{from_str, to_string};

const DEFAULT: &str = r#"{"unpaged":false,"initial_list_most_recent":false,"min_watch_timeout":"5m","watch_timeout_grace":"30s","request_timeout":"2m","min_watch_interval":"1s","max_internal_error_retry_duration":"0s","internal_error_reset_after":"1m","streaming_lists":false,"streaming_list_timeout":"1m","backoff":{"initial":"800ms","factor":2,"max":"30s","jitter_percent":100,"reset_after":"2m"}}"#;

#[test]
fn what_is_written_is_read() {
    assert_eq!(to_string(&ReflectorConfig::default()).unwrap(), DEFAULT);
    assert_eq!(from_str::<ReflectorConfig>(DEFAULT).unwrap(), ReflectorConfig::default());
    assert_eq!(from_str::<ReflectorConfig>("{}").unwrap(), ReflectorConfig::default());
    let file = r#"{"page_size":50,"streaming_lists":true,"backoff":{"initial":"1s"}}"#;
    let config: ReflectorConfig = from_str(file).unwrap();
    assert_eq!((config.page_size, config.streaming_lists), (NonZeroU32::new(50), true));
    assert_eq!(
        (config.backoff.initial, config.backoff.max),
        (Duration::from_secs(1), Duration::from_secs(30))
    );
    assert_eq!(from_str::<ReflectorConfig>(&to_string(&config).unwrap()).unwrap(), config);
}

#[test]
fn refuses_unknown_settings() {
    for (file, why) in [
        (r#"{"page_sizes":50}"#, "unknown field `page_sizes`"),
        (r#"{"page_size":0}"#, "nonzero"),
        (r#"{"min_watch_timeout":300}"#, "a span of time"),
        (r#"{"backoff":{"initial":"soon"}}"#, "\"soon\", expected a span of time"),
        (r#"{"backoff":{"base":"1s"}}"#, "unknown field `base`"),
    ] {
        let error = from_str::<ReflectorConfig>(file).unwrap_err().to_string();
        assert!(error.contains(why), "{file}: {error}");
    }
}

#[test]
fn every_rule_refuses_a_file_and_names_the_setting() {
    for (file, setting) in [
        (r#"{"min_watch_timeout":"0s"}"#, "min_watch_timeout"),
        (r#"{"request_timeout":"0s"}"#, "request_timeout"),
        (r#"{"min_watch_interval":"0s"}"#, "min_watch_interval"),
        (r#"{"streaming_list_timeout":"0s"}"#, "streaming_list_timeout"),
        (r#"{"backoff":{"initial":"0s"}}"#, "backoff.initial"),
        (r#"{"backoff":{"factor":0}}"#, "backoff.factor"),
        (r#"{"backoff":{"initial":"1m"}}"#, "backoff.max"),
    ] {
        let config: ReflectorConfig = from_str(file).unwrap();
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains(setting), "{file}: {error}");
    }
}
