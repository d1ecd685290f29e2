//! PURE. The configuration of a reflector: its timeouts, other periods and sizes. It is validated before the reflector runs.

use std::error::Error;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// The backoff after failures. After *n* earlier failures, the wait is `initial` · `factor`ⁿ, but at most `max`; a random jitter of up to
/// `jitter_percent` percent of this wait is added.
///
/// The default is the backoff of client-go: the wait is 800 ms after the first failure and doubles up to 30 s, the jitter is up to 100 %, and the
/// backoff resets after 2 minutes without failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct ReflectorBackoff {
    /// The wait after the first failure, before jitter. Positive, at most `max`.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub initial: Duration,
    /// The factor by which each further failure multiplies the wait. At least 1.
    pub factor: u32,
    /// The maximum wait, before jitter.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub max: Duration,
    /// The maximum random time that is added to the wait, in percent of the wait.
    pub jitter_percent: u32,
    /// If no failure occurs for this long after the end of a wait, the count of earlier failures is reset.
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

/// The configuration of a reflector: its timeouts, other periods and sizes. Where client-go has a corresponding value, it is the default.
///
/// With the feature `serde`, the configuration can be read from a file. If a field is missing, it gets its default; an unknown field is an error.
/// Durations are strings, such as `"800ms"` or `"5m"`. The configuration is [validated](Self::validate) when a reflector is built.
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
    /// The size of a page. With `None`, lists are requested in pages of 500. There is one exception: a list [not older
    /// than](crate::ListVersion::NotOlderThan) a version is requested in one piece, because a source with a cache can answer it immediately. But if
    /// the source has returned a list of [any](crate::ListVersion::Any) version in pages before, it has no such cache, and pages are used.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub page_size: Option<NonZeroU32>,
    /// Whether all lists are requested in one piece; used only if `page_size` is `None`.
    pub unpaged: bool,
    /// Whether the first list is requested at the [most recent](crate::ListVersion::MostRecent) version, instead of at [any](crate::ListVersion::Any)
    /// version.
    pub initial_list_most_recent: bool,
    /// The minimum timeout of a watch. Each watch has a random timeout between this duration and twice this duration, so that watches do not all end
    /// at the same time.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub min_watch_timeout: Duration,
    /// The grace period after the timeout of a watch. If the source has not ended the watch by then, the informer ends it.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub watch_timeout_grace: Duration,
    /// The time limit for opening a watch. For a page of a list, this is the maximum time without [progress](crate::Source::list_progress); if the
    /// source does not report progress, it is the time limit for the whole page.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub request_timeout: Duration,
    /// The minimum time between the starts of two watches if the first of them ended normally; after a failure, the [`backoff`](Self::backoff)
    /// determines the wait. A watch that ends within this time without a new event is a failure, unless the source
    /// [polls](crate::Source::is_polling). Positive.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub min_watch_interval: Duration,
    /// How long internal errors of open watches are tolerated, counted from the first such error. During this time, an internal error leads to a new
    /// watch instead of a list. Zero disables this.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub max_internal_error_retry_duration: Duration,
    /// If no internal error occurs for this long, the next internal error counts as the first one, and starts a new period of
    /// `max_internal_error_retry_duration`.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub internal_error_reset_after: Duration,
    /// Whether lists are requested as part of a watch (streaming lists). If a streaming list fails, the reflector requests a plain list instead; if the
    /// watch ended normally before the list was complete, it waits first. There are two exceptions. After "too many requests" or a refused connection,
    /// it waits, and then requests a streaming list. If the version is unusable, it requests the most recent streaming list, once.
    pub streaming_lists: bool,
    /// The time limit for a streaming list. After a streaming list has timed out once, the reflector uses plain lists only.
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
        // The pattern has all fields, so that the code does not compile if a new setting is forgotten here.
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
