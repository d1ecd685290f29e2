//! PURE. Serde support for durations in readable form, for configuration files: an integer and a unit, such as
//! `"250ms"`.
//!
//! # Examples
//! ```
//! use std::time::Duration;
//!
//! #[derive(serde::Deserialize)]
//! struct Settings {
//!     #[serde(with = "flyball_sync::duration_serde")]
//!     wait: Duration,
//! }
//!
//! let settings: Settings = serde_json::from_str(r#"{ "wait": "250ms" }"#)?;
//! assert_eq!(settings.wait, Duration::from_millis(250));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserializer, Serializer, ser};

/// The units from the longest to the shortest, with their length in nanoseconds.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// The longest duration that is written and read.
const LONGEST: Duration = Duration::from_nanos(u64::MAX);

fn parse(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, nanos) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(nanos).map(Duration::from_nanos)
}

/// Formats a duration as a whole number of the longest possible unit. Returns `None` for a duration that [`parse`] would refuse.
fn write(span: Duration) -> Option<String> {
    let nanos = u64::try_from(span.as_nanos()).ok()?;
    let (name, unit) = match nanos {
        0 => ("s", 1),
        _ => UNITS.into_iter().find(|(_, unit)| nanos % unit == 0).expect("1 ns divides all numbers"),
    };
    Some(format!("{}{name}", nanos / unit))
}

/// Serializes a duration as a whole number of the longest possible unit.
///
/// # Errors
/// Returns an error for durations of more than 584 years, which [`deserialize`] would refuse, and the errors of the serializer.
///
/// # Examples
/// For a type that is only serialized:
/// ```
/// use std::time::Duration;
///
/// #[derive(serde::Serialize)]
/// struct Status {
///     #[serde(serialize_with = "flyball_sync::duration_serde::serialize")]
///     uptime: Duration,
/// }
///
/// let status = Status { uptime: Duration::from_secs(120) };
/// assert_eq!(serde_json::to_string(&status)?, r#"{"uptime":"2m"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    let text = write(*span).ok_or_else(|| {
        ser::Error::custom(format_args!("{span:?} is more than {LONGEST:?}, about 584 years"))
    })?;
    serializer.serialize_str(&text)
}

/// Deserializes an integer with the unit h, m, s, ms, us or ns.
///
/// # Errors
/// Returns an error for any other format, and for durations of more than 584 years.
///
/// # Examples
/// For a type that is only deserialized:
/// ```
/// use std::time::Duration;
///
/// #[derive(Debug, serde::Deserialize)]
/// struct Settings {
///     #[serde(deserialize_with = "flyball_sync::duration_serde::deserialize")]
///     wait: Duration,
/// }
///
/// let read = |text: &str| serde_json::from_str::<Settings>(text).map(|settings| settings.wait);
/// assert_eq!(read(r#"{ "wait": "2m" }"#)?, Duration::from_secs(120));
/// assert!(read(r#"{ "wait": "1.5s" }"#).is_err()); // not a whole number
/// assert!(read(r#"{ "wait": 5 }"#).is_err()); // no unit
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    struct Span;
    impl Visitor<'_> for Span {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a span of time, such as \"250ms\": a whole number of h, m, s, ms, us or ns")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }
    deserializer.deserialize_str(Span)
}

/// Serde support for optional durations.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// #[derive(serde::Deserialize, serde::Serialize)]
/// struct Settings {
///     #[serde(default, with = "flyball_sync::duration_serde::option")]
///     deadline: Option<Duration>,
/// }
///
/// let mut settings: Settings = serde_json::from_str("{}")?;
/// assert_eq!(settings.deadline, None);
/// settings.deadline = Some(Duration::from_secs(30));
/// assert_eq!(serde_json::to_string(&settings)?, r#"{"deadline":"30s"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub mod option {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Serializes the duration, if there is one.
    ///
    /// # Errors
    /// Like [`super::serialize`].
    pub fn serialize<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => super::serialize(span, to),
            None => to.serialize_none(),
        }
    }

    /// Deserializes the duration, if there is one.
    ///
    /// # Errors
    /// Like [`super::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        #[derive(Deserialize)]
        struct Span(#[serde(with = "super")] Duration);
        Ok(Option::<Span>::deserialize(from)?.map(|Span(span)| span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (250_000_000, "250ms"),
            (1_500_000_000, "1500ms"),
            (90_000_000_000, "90s"),
            (120_000_000_000, "2m"),
            (7_200_000_000_000, "2h"),
            (u64::MAX, "18446744073709551615ns"),
        ] {
            assert_eq!(write(Duration::from_nanos(nanos)).as_deref(), Some(text));
            assert_eq!(parse(text), Some(Duration::from_nanos(nanos)));
        }
        assert_eq!(parse("60s"), parse("1m"));
    }

    #[test]
    fn a_duration_that_cannot_be_read_is_not_written() {
        for span in [LONGEST + Duration::from_nanos(1), Duration::MAX] {
            let error = serialize(&span, serde_json::value::Serializer).unwrap_err();
            assert!(error.to_string().contains("584 years"), "{error}");
        }
        let longest = serialize(&LONGEST, serde_json::value::Serializer).unwrap();
        assert_eq!(deserialize(longest).unwrap(), LONGEST);
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for text in
            ["", "5", "s", "-1s", "1.5s", "1 s", "1d", "99999999999999999999s", "9999999999999h", "1ss"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
