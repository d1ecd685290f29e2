//! PURE. The error of the selector parser.

use std::error::Error;
use std::fmt;

/// The error returned when a string cannot be parsed as a [`Selector`](crate::Selector).
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

    /// Returns the position of the error as a byte offset. If the string ends too early, this is its length.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns a description of the token that the parser expected at [`position`](Self::position).
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
