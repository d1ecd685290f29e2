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
pub struct BackoffConfig {
    /// The wait after the first failure, before jitter. Positive, at most `cap`.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub initial: Duration,
    /// Each further failure multiplies the wait by this. At least 1.
    pub factor: u32,
    /// The longest wait, before jitter.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub cap: Duration,
    /// The random part added on top, in percent of the wait.
    pub jitter_percent: u32,
    /// Failures are forgotten when the last wait ended this long ago.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub reset_after: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(800),
            factor: 2,
            cap: Duration::from_secs(30),
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
/// use flyball_informer_cache::{BackoffConfig, ReflectorConfig};
/// use std::time::Duration;
///
/// let patient = ReflectorConfig { internal_retry: Duration::from_secs(20), ..ReflectorConfig::default() };
/// assert!(patient.validate().is_ok());
///
/// let backoff = BackoffConfig { cap: Duration::from_millis(1), ..BackoffConfig::default() };
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
    pub most_recent_first: bool,
    /// How long a watch may last: at random between this and twice this, so that watches do not end together.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub watch_timeout: Duration,
    /// A watch the source did not end by itself is given up this long after its time.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub watch_grace: Duration,
    /// How long the opening of a watch may take, and how long a page may make no [progress](crate::Source::progress): none of it
    /// arrives. A source that does not report progress has this long for a whole page.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub request_timeout: Duration,
    /// The shortest time between the starts of two watches. A watch that ends within this time without a new event is a failure, unless the
    /// source [polls](crate::Source::polls). Positive.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub short_watch: Duration,
    /// How long internal errors within a watch are answered by a new watch instead of a list; zero for never.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub internal_retry: Duration,
    /// This long without internal errors starts the time of `internal_retry` anew.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub internal_reset: Duration,
    /// Ask for the list as part of the watch, and fall back to plain lists where that fails.
    pub streaming_lists: bool,
    /// How long a streaming list may take to complete. Missed once, the reflector stays with plain lists.
    #[cfg_attr(feature = "serde", serde(with = "flyball_sync::duration_serde"))]
    pub streaming_deadline: Duration,
    /// Waits after failures.
    pub backoff: BackoffConfig,
}

impl Default for ReflectorConfig {
    fn default() -> Self {
        Self {
            page_size: None,
            unpaged: false,
            most_recent_first: false,
            watch_timeout: Duration::from_secs(300),
            watch_grace: Duration::from_secs(30),
            request_timeout: Duration::from_secs(120),
            short_watch: Duration::from_secs(1),
            internal_retry: Duration::ZERO,
            internal_reset: Duration::from_secs(60),
            streaming_lists: false,
            streaming_deadline: Duration::from_secs(60),
            backoff: BackoffConfig::default(),
        }
    }
}

impl ReflectorConfig {
    /// Whether a reflector can run with it.
    ///
    /// # Errors
    /// Names the first setting that makes no sense.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let rules = [
            (self.watch_timeout.is_zero(), "watch_timeout must be positive"),
            (self.request_timeout.is_zero(), "request_timeout must be positive"),
            (self.short_watch.is_zero(), "short_watch must be positive"),
            (self.streaming_deadline.is_zero(), "streaming_deadline must be positive"),
            (self.backoff.initial.is_zero(), "backoff.initial must be positive"),
            (self.backoff.factor == 0, "backoff.factor must be at least 1"),
            (self.backoff.initial > self.backoff.cap, "backoff.initial must not exceed backoff.cap"),
        ];
        rules.into_iter().find(|rule| rule.0).map_or(Ok(()), |rule| Err(ConfigError(rule.1)))
    }

    /// The name of the first setting that another configuration has otherwise.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        // Taken apart, so that a new setting cannot be forgotten.
        let Self {
            page_size,
            unpaged,
            most_recent_first,
            watch_timeout,
            watch_grace,
            request_timeout,
            short_watch,
            internal_retry,
            internal_reset,
            streaming_lists,
            streaming_deadline,
            backoff,
        } = *self;
        let settings = [
            (page_size == other.page_size, "page_size"),
            (unpaged == other.unpaged, "unpaged"),
            (most_recent_first == other.most_recent_first, "most_recent_first"),
            (watch_timeout == other.watch_timeout, "watch_timeout"),
            (watch_grace == other.watch_grace, "watch_grace"),
            (request_timeout == other.request_timeout, "request_timeout"),
            (short_watch == other.short_watch, "short_watch"),
            (internal_retry == other.internal_retry, "internal_retry"),
            (internal_reset == other.internal_reset, "internal_reset"),
            (streaming_lists == other.streaming_lists, "streaming_lists"),
            (streaming_deadline == other.streaming_deadline, "streaming_deadline"),
            (backoff == other.backoff, "backoff"),
        ];
        settings.into_iter().find(|(same, _)| !same).map(|(_, name)| name)
    }
}

/// A setting that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError(&'static str);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for ConfigError {}
