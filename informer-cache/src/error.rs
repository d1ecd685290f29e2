//! PURE. The error types of the store and the indexes, a small one for each operation.

use std::error::Error;
use std::fmt;

use flyball_sync::panics::DropContained;

use crate::Version;

/// The error returned for a string that is not a key of the form `namespace/name` or `name`.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{NamespacedName, ParseNamespacedNameError};
///
/// let error: ParseNamespacedNameError = NamespacedName::new("default", "").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "\"default/\" is not a key `namespace/name` or `name`: the name after the slash is empty",
/// );
/// ```
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

/// The error returned when a string cannot be parsed as a [`Version`]. A version is a decimal number below 2⁶⁴, or the empty string.
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

/// The error that an index function returns if it cannot compute the values of an object.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, IndexError, Schema, Store, Version};
/// use std::error::Error;
///
/// type Pod = (&'static str, Option<u16>);
/// static BY_PORT: Index<Pod, u16> =
///     Index::fallible("port", |pod| pod.1.map(|port| vec![port]).ok_or(IndexError::new("no port")));
///
/// let mut store = Store::builder(Schema::new(|pod: &Pod| pod.0, |_| Version::ZERO)).index(&BY_PORT).build()?;
/// store.upsert(("a", Some(80)));
/// store.upsert(("b", None)); // stored, and not in the index
///
/// assert_eq!(store.len(), 2);
/// let (key, index, error) = &store.index_errors()[0];
/// assert_eq!((*key, *index), ("b", "port"));
/// assert_eq!(error.source().unwrap().to_string(), "no port");
/// assert_eq!(store.snapshot().index_errors().count(), 1); // counts the errors without copying them
/// # Ok::<(), Box<dyn Error>>(())
/// ```
#[derive(Debug)]
pub struct IndexError {
    cause: DropContained<Box<dyn Error + Send + Sync>>,
}

impl IndexError {
    /// Creates an error with this cause, which may be a string or another error.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: DropContained::new(cause.into()) }
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot compute the index values of an object")
    }
}

impl Error for IndexError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&**self.cause)
    }
}

/// The error returned by an operation on an index that the store does not have, or by a query that needs an
/// [ordered](crate::Index::ordered) or a [unique](crate::Index::unique) index and gets another one.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, MissingIndex, Schema, Store, Version};
///
/// static BY_LENGTH: Index<&str, usize> = Index::new("length", |word| word.len());
///
/// let store = Store::builder(Schema::new(|word: &&str| *word, |_| Version::ZERO)).build()?;
/// let missing: MissingIndex = store.by_index(&BY_LENGTH, &3).unwrap_err();
/// assert_eq!(missing.name(), "length");
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingIndex {
    name: &'static str,
    problem: MissingIndexProblem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingIndexProblem {
    Absent,
    NotOrdered,
    NotUnique,
}

impl MissingIndex {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, problem: MissingIndexProblem::Absent }
    }

    pub(crate) fn not_ordered(name: &'static str) -> Self {
        Self { name, problem: MissingIndexProblem::NotOrdered }
    }

    pub(crate) fn not_unique(name: &'static str) -> Self {
        Self { name, problem: MissingIndexProblem::NotUnique }
    }

    /// Returns the name of the index.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Display for MissingIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match self.problem {
            MissingIndexProblem::Absent => write!(f, "the store has no index {name:?} of this kind"),
            MissingIndexProblem::NotOrdered => write!(f, "the index {name:?} is not ordered"),
            MissingIndexProblem::NotUnique => write!(f, "the index {name:?} is not unique"),
        }
    }
}

impl Error for MissingIndex {}

/// The error returned when a second index with the same name is added to a store or its builder.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{DuplicateIndex, Index, Schema, Store, Version};
///
/// static BY_LENGTH: Index<&str, usize> = Index::new("length", |word| word.len());
///
/// let mut store = Store::builder(Schema::new(|word: &&str| *word, |_| Version::ZERO)).index(&BY_LENGTH).build()?;
/// let duplicate: DuplicateIndex = store.add_index(&BY_LENGTH).unwrap_err();
/// assert_eq!(duplicate.name(), "length");
/// # Ok::<(), DuplicateIndex>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateIndex {
    pub(crate) name: &'static str,
}

impl DuplicateIndex {
    /// Returns the name that the two indexes share.
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

/// The error returned when a wait for a version ends and the store has not reached that version.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, Version, WaitForError, block_on};
///
/// let mut store = Store::builder(Schema::new(|word: &&str| word.len(), |_| Version::ZERO)).build()?;
/// store.replace(["one"], Version::new(7));
/// let readers = store.store();
/// let wait = |version| block_on(readers.wait_for_version(Version::new(version)));
///
/// assert_eq!(wait(7), Ok(Version::new(7)));
/// store.close();
/// assert_eq!(wait(8), Err(WaitForError::Closed));
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitForError {
    /// A relist lowered the store's version to the version given here, for example because the source was restored from a backup, so the store may
    /// never reach the awaited version.
    Rewound(Version),
    /// The store was closed before it reached the awaited version.
    Closed,
}

impl fmt::Display for WaitForError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rewound(version) => {
                write!(f, "the store may not reach the version: a relist took it back to version {version}")
            }
            Self::Closed => f.write_str("the store will not reach the version: it is closed"),
        }
    }
}

impl Error for WaitForError {}

/// The error returned by a wait that can no longer succeed, because the writer, informer or subscription on which it depends was closed or dropped.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Stopped, Store, Version};
///
/// let mut store = Store::builder(Schema::new(|word: &&str| word.len(), |_| Version::ZERO)).build()?;
/// let readers = store.store();
/// drop(store); // before the first list
/// assert_eq!(flyball_sync::block_on(readers.synced()), Err(Stopped));
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped before the awaited event")
    }
}

impl Error for Stopped {}
