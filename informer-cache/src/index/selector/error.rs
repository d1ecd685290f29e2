//! PURE. The error that the parser of selectors returns.

use std::error::Error;
use std::fmt;

/// The error returned by the parser for a string that is not a [`Selector`](crate::Selector).
///
/// # Examples
/// ```
/// use flyball_informer_cache::{ParseSelectorError, Selector};
///
/// let error: ParseSelectorError = "app in web".parse::<Selector>().unwrap_err();
/// println!("{}", error.text()); // app in web
/// println!("{:>1$} expected {2}", '^', error.position() + 1, error.expected()); // a mark below the `w`
/// assert_eq!((error.text(), error.position()), ("app in web", 7));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSelectorError {
    pub(super) text: Box<str>,
    pub(super) position: usize,
    pub(super) expected: &'static str,
}

impl ParseSelectorError {
    /// Returns the string that could not be parsed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the position of the error, in bytes from the start; the length of the string if it ends too early.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns what the parser expected at that position.
    #[must_use]
    pub fn expected(&self) -> &'static str {
        self.expected
    }
}

impl fmt::Display for ParseSelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, position, expected } = self;
        write!(f, "{text:?} is not a label selector: at byte {position}, expected {expected}")
    }
}

impl Error for ParseSelectorError {}
