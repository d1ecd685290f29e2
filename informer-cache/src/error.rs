//! PURE. One small error per operation.

use std::error::Error;
use std::fmt;

use crate::Version;

/// A text is not a key of the form `namespace/name` or `name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseNamespacedNameError {
    text: String,
    problem: &'static str,
}

impl ParseNamespacedNameError {
    pub(crate) fn empty(text: &str) -> Self {
        Self { text: text.into(), problem: "the key is empty" }
    }

    pub(crate) fn empty_namespace(text: &str) -> Self {
        Self { text: text.into(), problem: "the namespace before the slash is empty" }
    }

    pub(crate) fn empty_name(text: &str) -> Self {
        Self { text: text.into(), problem: "the name after the slash is empty" }
    }

    pub(crate) fn too_many_parts(text: &str) -> Self {
        Self { text: text.into(), problem: "there is more than one slash" }
    }

    pub(crate) fn slash_in_name(text: &str) -> Self {
        Self { text: text.into(), problem: "the name of an object without namespace holds a slash" }
    }
}

impl fmt::Display for ParseNamespacedNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a key `namespace/name` or `name`: {}", self.text, self.problem)
    }
}

impl Error for ParseNamespacedNameError {}

/// A text is not a version: a decimal number below 2⁶⁴.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseVersionError {
    text: String,
}

impl ParseVersionError {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for ParseVersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a version, a decimal number below 2^64", self.text)
    }
}

impl Error for ParseVersionError {}

/// An index function could not tell the values of an object.
#[derive(Debug)]
pub struct IndexError {
    cause: Box<dyn Error + Send + Sync>,
}

impl IndexError {
    /// An error with this cause; a text will do.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: cause.into() }
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot tell the index values of an object")
    }
}

impl Error for IndexError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

/// The store was built without the index that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingIndex {
    pub(crate) name: &'static str,
}

impl MissingIndex {
    /// The name of the index.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Display for MissingIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store has no index {:?} with keys of this type", self.name)
    }
}

impl Error for MissingIndex {}

/// A store cannot be built: two of its indexes have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateIndex {
    pub(crate) name: &'static str,
}

impl DuplicateIndex {
    /// The name both indexes have.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Display for DuplicateIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "two indexes are called {:?}", self.name)
    }
}

impl Error for DuplicateIndex {}

/// The version waited for will not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitForError {
    /// A completed relist took the store back to this version: the source's history began anew (it was restored
    /// from a backup, say), and what was waited for may never happen in it.
    Rewound(Version),
    /// The store was closed first.
    Closed,
    /// The time was up; only where one was given.
    TimedOut,
}

impl fmt::Display for WaitForError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rewound(version) => {
                write!(f, "the version will not come: a relist took the store back to version {version}")
            }
            Self::Closed => f.write_str("the version will not come: the store is closed"),
            Self::TimedOut => f.write_str("the version has not come in time"),
        }
    }
}

impl Error for WaitForError {}

/// The time is up, and nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time is up")
    }
}

impl Error for TimedOut {}

/// What was waited for will not happen: whoever would have told is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped before it happened")
    }
}

impl Error for Stopped {}
