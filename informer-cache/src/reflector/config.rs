//! PURE. Every period and size of a reflector, validated before anything runs.

use std::error::Error;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// The backoff after failures. After n earlier failures, the wait is `initial` · `factor`ⁿ, at most `max`, plus up to `jitter_percent` percent of
/// that.
///
/// The default is client-go's: 800 ms, doubled up to 30 s, plus up to 100 %, reset after 2 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct ReflectorBackoff {
    /// The wait after the first failure, before jitter. Positive, at most `max`.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub initial: Duration,
    /// Each further failure multiplies the wait by this. At least 1.
    pub factor: u32,
    /// The longest wait, before jitter.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub max: Duration,
    /// The maximum random time that is added to the wait, in percent of the wait.
    pub jitter_percent: u32,
    /// Failures are forgotten once this much time has passed since the end of the last wait.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub reset_after: Duration,
}

impl Default for ReflectorBackoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(800),
            factor: 2,
            max: Duration::from_secs(30),
            jitter_percent: 100,
            reset_after: Duration::from_secs(120),
        }
    }
}

/// Every period and size of a reflector; the defaults are client-go's where it has one.
///
/// With the feature `serde`, the configuration can be read from a file: a missing field has its default, an unknown field is an error, and durations
/// are strings, such as `"800ms"` or `"5m"`. The configuration is [validated](Self::validate) when a reflector is built.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{ReflectorBackoff, ReflectorConfig};
/// use std::time::Duration;
///
/// let patient = ReflectorConfig { max_internal_error_retry_duration: Duration::from_secs(20), ..ReflectorConfig::default() };
/// assert!(patient.validate().is_ok());
///
/// let backoff = ReflectorBackoff { max: Duration::from_millis(1), ..ReflectorBackoff::default() };
/// assert!(ReflectorConfig { backoff, ..patient }.validate().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct ReflectorConfig {
    /// The size of a page. With `None`, lists are requested in pages of 500. The exception is a list [not older
    /// than](crate::ListVersion::NotOlderThan) a version, which a cache can answer immediately: it is requested in one piece, unless the source has
    /// returned a list of [any](crate::ListVersion::Any) version in pages before.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub page_size: Option<NonZeroU32>,
    /// Whether every list is requested in one piece if `page_size` is `None`.
    pub unpaged: bool,
    /// Whether the first list is the [most recent](crate::ListVersion::MostRecent) one instead of one of [any](crate::ListVersion::Any) version.
    pub initial_list_most_recent: bool,
    /// The minimum timeout of a watch. Each timeout is random, between this duration and twice this duration, so that watches do not all end at the
    /// same time.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub min_watch_timeout: Duration,
    /// The grace period after the timeout of a watch. If the source has not ended the watch by then, the informer ends it.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub watch_timeout_grace: Duration,
    /// The time limit for opening a watch, and the maximum time without [progress](crate::Source::list_progress) while a page is requested. If a
    /// source does not report progress, this is the limit for the whole page.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub request_timeout: Duration,
    /// The minimum time between the starts of two watches. A watch that ends within this time without a new event is a failure, unless the
    /// source [polls](crate::Source::is_polling). Positive.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub min_watch_interval: Duration,
    /// For this long after the first internal error of a watch, an internal error leads to a new watch instead of a list; zero disables this.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub max_internal_error_retry_duration: Duration,
    /// After this time without an internal error, the next internal error starts a new period of `max_internal_error_retry_duration`.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub internal_error_reset_after: Duration,
    /// Whether lists are requested as part of a watch (streaming lists). If that fails, the reflector falls back to plain lists.
    pub streaming_lists: bool,
    /// The time limit for a streaming list. After one timeout, the reflector uses plain lists only.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub streaming_list_timeout: Duration,
    /// The backoff after failures.
    pub backoff: ReflectorBackoff,
}

impl Default for ReflectorConfig {
    fn default() -> Self {
        Self {
            page_size: None,
            unpaged: false,
            initial_list_most_recent: false,
            min_watch_timeout: Duration::from_secs(300),
            watch_timeout_grace: Duration::from_secs(30),
            request_timeout: Duration::from_secs(120),
            min_watch_interval: Duration::from_secs(1),
            max_internal_error_retry_duration: Duration::ZERO,
            internal_error_reset_after: Duration::from_secs(60),
            streaming_lists: false,
            streaming_list_timeout: Duration::from_secs(60),
            backoff: ReflectorBackoff::default(),
        }
    }
}

impl ReflectorConfig {
    /// Checks whether a reflector can run with this configuration.
    ///
    /// # Errors
    /// Returns an error that names the first invalid setting.
    pub fn validate(&self) -> Result<(), InvalidReflectorConfig> {
        let rules = [
            (self.min_watch_timeout.is_zero(), "min_watch_timeout must be positive"),
            (self.request_timeout.is_zero(), "request_timeout must be positive"),
            (self.min_watch_interval.is_zero(), "min_watch_interval must be positive"),
            (self.streaming_list_timeout.is_zero(), "streaming_list_timeout must be positive"),
            (self.backoff.initial.is_zero(), "backoff.initial must be positive"),
            (self.backoff.factor == 0, "backoff.factor must be at least 1"),
            (self.backoff.initial > self.backoff.max, "backoff.initial must not exceed backoff.max"),
        ];
        rules.into_iter().find(|rule| rule.0).map_or(Ok(()), |rule| Err(InvalidReflectorConfig(rule.1)))
    }

    /// Returns the name of the first setting that differs from `other`, or `None` if all are equal.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        // Destructured, so that a new setting cannot be forgotten.
        let Self {
            page_size,
            unpaged,
            initial_list_most_recent,
            min_watch_timeout,
            watch_timeout_grace,
            request_timeout,
            min_watch_interval,
            max_internal_error_retry_duration,
            internal_error_reset_after,
            streaming_lists,
            streaming_list_timeout,
            backoff,
        } = *self;
        let settings = [
            (page_size == other.page_size, "page_size"),
            (unpaged == other.unpaged, "unpaged"),
            (initial_list_most_recent == other.initial_list_most_recent, "initial_list_most_recent"),
            (min_watch_timeout == other.min_watch_timeout, "min_watch_timeout"),
            (watch_timeout_grace == other.watch_timeout_grace, "watch_timeout_grace"),
            (request_timeout == other.request_timeout, "request_timeout"),
            (min_watch_interval == other.min_watch_interval, "min_watch_interval"),
            (
                max_internal_error_retry_duration == other.max_internal_error_retry_duration,
                "max_internal_error_retry_duration",
            ),
            (internal_error_reset_after == other.internal_error_reset_after, "internal_error_reset_after"),
            (streaming_lists == other.streaming_lists, "streaming_lists"),
            (streaming_list_timeout == other.streaming_list_timeout, "streaming_list_timeout"),
            (backoff == other.backoff, "backoff"),
        ];
        settings.into_iter().find(|(same, _)| !same).map(|(_, name)| name)
    }
}

/// The error returned by [`ReflectorConfig::validate`] for an invalid setting.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{InvalidReflectorConfig, ReflectorConfig};
/// use std::time::Duration;
///
/// let hasty = ReflectorConfig { request_timeout: Duration::ZERO, ..ReflectorConfig::default() };
/// let error: InvalidReflectorConfig = hasty.validate().unwrap_err();
/// assert_eq!(error.to_string(), "request_timeout must be positive");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidReflectorConfig(&'static str);

impl fmt::Display for InvalidReflectorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for InvalidReflectorConfig {}
