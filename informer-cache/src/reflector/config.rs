//! PURE. Every period and size of a reflector, checked before anything runs.

use std::error::Error;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// How long to wait after failures: `initial` · `factor`ⁿ, at most `cap`, plus up to `jitter_percent` of it.
///
/// The default is client-go's: 800 ms, doubled up to 30 s, plus up to 100 %, forgotten after 2 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct ReflectorBackoff {
    /// The wait after the first failure, before jitter. Positive, at most `cap`.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub initial: Duration,
    /// Each further failure multiplies the wait by this. At least 1.
    pub factor: u32,
    /// The longest wait, before jitter.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub max: Duration,
    /// The random part added on top, in percent of the wait.
    pub jitter_percent: u32,
    /// Failures are forgotten when the last wait ended this long ago.
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
/// With the feature `serde` it is a section of a configuration file: what is left out is as it is by default, what is unknown is an error, and
/// spans of time are words, `"800ms"` or `"5m"`. [Validated](Self::validate) it is where it is used.
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
    /// The size of a page. `None`: 500 where the list comes from the source's own storage, unpaged where a cache
    /// can answer at once (a list "not older than" a version), unless that source was seen to page.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub page_size: Option<NonZeroU32>,
    /// Without a `page_size`, ask for every list in one piece.
    pub unpaged: bool,
    /// The first list is the [most recent](crate::ListVersion::MostRecent) one instead of [any](crate::ListVersion::Any).
    pub initial_list_most_recent: bool,
    /// How long a watch may last: at random between this and twice this, so that watches do not end together.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub min_watch_timeout: Duration,
    /// A watch the source did not end by itself is given up this long after its time.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub watch_timeout_grace: Duration,
    /// How long the opening of a watch may take, and how long a page may make no [progress](crate::Source::list_progress): none of it
    /// arrives. A source that does not report progress has this long for a whole page.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub request_timeout: Duration,
    /// The shortest time between the starts of two watches. A watch that ends within this time without a new event is a failure, unless the
    /// source [polls](crate::Source::is_polling). Positive.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub min_watch_interval: Duration,
    /// How long internal errors within a watch are answered by a new watch instead of a list; zero for never.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub max_internal_error_retry_duration: Duration,
    /// This long without internal errors starts the time of `max_internal_error_retry_duration` anew.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub internal_error_reset_after: Duration,
    /// Ask for the list as part of the watch, and fall back to plain lists where that fails.
    pub streaming_lists: bool,
    /// How long a streaming list may take to complete. Missed once, the reflector stays with plain lists.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub streaming_list_timeout: Duration,
    /// Waits after failures.
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
    /// Whether a reflector can run with it.
    ///
    /// # Errors
    /// Names the first setting that makes no sense.
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

    /// The name of the first setting that another configuration has otherwise.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        // Taken apart, so that a new setting cannot be forgotten.
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

/// A setting that makes no sense.
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
