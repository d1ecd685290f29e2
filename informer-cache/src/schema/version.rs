//! PURE. A position in a source's history.

use std::fmt;
use std::str::FromStr;

use crate::ParseVersionError;

/// A position in the history of one source: a larger version is later.
///
/// [`Version::ZERO`] means *no version*: an object without a version never counts as older than the stored object, so it always replaces the stored
/// object. Versions of different sources are not comparable.
///
/// # Examples
/// ```
/// use flyball_informer_cache::Version;
///
/// let version: Version = "4711".parse()?;
/// assert!(version > Version::ZERO);
/// assert_eq!(version.to_string(), "4711");
/// assert!("v7".parse::<Version>().is_err());
/// # Ok::<(), flyball_informer_cache::ParseVersionError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// No version. It compares as less than every other version.
    pub const ZERO: Self = Self(0);

    /// Creates the version with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of this version; 0 means no version.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns whether this is [`Version::ZERO`].
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::Version;
    ///
    /// assert!("".parse::<Version>()?.is_zero()); // a Kubernetes API server writes an empty string for "none"
    /// assert!(!Version::new(1).is_zero());
    /// # Ok::<(), flyball_informer_cache::ParseVersionError>(())
    /// ```
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses a decimal number, as Kubernetes writes its resource versions; the empty string is [`Version::ZERO`].
impl FromStr for Version {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The digits are checked here, because `u64::from_str` also accepts a leading `+`.
        let decimal = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            _ if text.is_empty() => Ok(Self::ZERO),
            Ok(number) if decimal => Ok(Self(number)),
            _ => Err(ParseVersionError::new(text)),
        }
    }
}
